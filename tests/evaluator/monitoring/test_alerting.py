"""Alerts reach real servers and programs exactly once, also after failures, and reveal no secret."""

import json
import logging
import stat
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.monitoring.alerting import receivers as receivers_module
from evaltap.evaluator.monitoring.alerting.delivery import GIVEN_UP_AFTER, AlertOutbox
from evaltap.evaluator.monitoring.alerting.notice import NOT_ENDED, Notice, evidence_page
from evaltap.evaluator.monitoring.alerting.receivers import (
    NotDeliveredError,
    Receiver,
    make_receiver,
)
from evaltap.evaluator.monitoring.history import Alert, note_alerts
from evaltap.evaluator.monitoring.model import Changed, Event
from evaltap.evaluator.store.database import Store, utc_now
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.monitor import AlertReceiver, MonitorFile, Watch
from support.builders.cases import write_log
from support.builders.waiting import wait_for
from support.servers.alert_server import Received, alert_server
from support.worlds.watched_traffic import traffic

WATCH = Watch(name="helpful", signal="pass_rate", metric="helpful", where={"app": "shop"})


CHANGED = Changed("tool", "refund", "rate", 0.2, 0.2, 0.96, 0.21, 0.149)


BEGAN = datetime(2026, 11, 18, 14, 30)


def event(status: Any = "firing", at: datetime = BEGAN) -> Event:
    return Event(
        "helpful", {}, status, at, at - timedelta(days=1), 0.956, 0.791, 0.915, 1.2,
        (CHANGED,), ("s-1",), "metric:helpful=failed tool:refund", 0.72, 0.84, None, 610, 203,
    )  # fmt: skip


def notice_of(alert: Alert, began_at: datetime, repeated: bool) -> Notice:
    return Notice(alert, began_at, WATCH, "https://e.example/shop/s-1", "prod.duckdb", repeated)


def notice(status: str = "firing") -> Notice:
    found = event(status, BEGAN + timedelta(hours=status != "firing"))
    return notice_of(Alert("a1", found, True, BEGAN), BEGAN, False)


def receiver(url: str = "", environ: dict[str, str] | None = None, **given: Any) -> Receiver:
    settings = AlertReceiver.model_validate({"type": "webhook", "url": url, **given})
    return make_receiver(settings, "alerts[0]", environ or {}, name="hook")


def test_a_webhook_gets_what_alertmanager_would_send(server: Received) -> None:
    receiver(server.url + "/hook").deliver(notice())
    receiver(server.url).deliver(notice("resolved"))

    (path, headers, firing), (_, _, resolved) = server.requests
    assert (path, headers["content-type"]) == ("/hook", "application/json")
    assert (firing["version"], firing["status"], firing["receiver"]) == ("4", "firing", "evaltap")
    (one,) = firing["alerts"]
    assert one["labels"] == {
        "alertname": "evaltap_pass_rate", "watch": "helpful", "signal": "pass_rate",
        "metric": "helpful", "severity": "warning", "app": "shop",
    }  # fmt: skip
    assert one["startsAt"] == "2026-11-18T14:30:00Z"
    assert (one["endsAt"], resolved["alerts"][0]["endsAt"]) == (NOT_ENDED, "2026-11-18T15:30:00Z")
    assert one["fingerprint"] == resolved["alerts"][0]["fingerprint"]
    assert one["generatorURL"] == "https://e.example/shop/s-1"
    summary = one["annotations"]["summary"]
    assert summary == (
        "helpful fell from 95.6% to 79.1% (95 %: 72.0% to 84.0%, 610 turns in 203 sessions) since 2026-11-17"
        " (limit of a normal day: 91.5%); tool refund: 96.0% -> 21.0%, explains 90% of the drop"
    )
    assert (
        "evaltap cases prod.duckdb 'metric:helpful=failed tool:refund'"
        in (one["annotations"]["description"])
    )
    assert firing["evaltap"]["alert_id"] == "a1"
    assert (firing["evaltap"]["turns"], firing["evaltap"]["sessions"]) == (610, 203)
    assert firing["evaltap"]["changed"][0]["value"] == "refund"


def test_slack_gets_text_within_its_limits_and_escaped(server: Received) -> None:
    secret = {"HOOK": server.url + "/services/T0/B0/xyz"}
    found = receiver("${HOOK}", secret, type="slack")
    loud = notice_of(Alert("a1", event(), True, BEGAN), BEGAN, False)
    named = Watch(name="<!channel> & co", signal="pass_rate", metric="m", severity="critical")
    strange = Notice(
        Alert(
            "a2", Event("<!channel> & co" * 400, {}, "firing", BEGAN, None, 0.9, 0.5), True, BEGAN
        ),
        BEGAN,
        named,
    )

    found.deliver(loud)
    found.deliver(strange)

    (path, _, first), (_, _, second) = server.requests
    assert path == "/services/T0/B0/xyz"
    assert first["text"].startswith("WARNING: helpful fell")
    assert "<" not in second["text"]
    assert second["text"].startswith("CRITICAL: &lt;!channel&gt; &amp; co")
    assert all(len(block["text"]["text"]) <= 3_000 for block in second["blocks"])


def test_pagerduty_opens_and_closes_one_incident(server: Received) -> None:
    found = receiver(server.url, {"KEY": "r-key"}, type="pagerduty", routingKey="${KEY}")

    found.deliver(notice())
    found.deliver(notice("resolved"))

    begun, over = server.bodies
    assert (begun["routing_key"], begun["event_action"], over["event_action"]) == (
        "r-key", "trigger", "resolve",
    )  # fmt: skip
    assert begun["dedup_key"] == over["dedup_key"]
    assert begun["payload"]["severity"] == "warning"
    assert begun["payload"]["summary"].startswith("helpful fell")


def test_alertmanager_gets_its_own_list(server: Received) -> None:
    found = receiver(server.url, type="alertmanager")

    found.deliver(notice())
    found.deliver(notice("resolved"))

    (path, _, firing), (_, _, resolved) = server.requests
    assert path == "/api/v2/alerts"
    assert firing[0]["labels"]["watch"] == "helpful"
    assert "endsAt" not in firing[0]
    assert resolved[0]["endsAt"] >= resolved[0]["startsAt"]


def test_a_command_gets_the_json_on_its_input_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush")
    program = tmp_path / "page"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/got; env > {tmp_path}/env; exit $1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    receiver(type="command", argv=[str(program), "0"]).deliver(notice())

    assert json.loads((tmp_path / "got").read_text())["status"] == "firing"
    assert "hush" not in (tmp_path / "env").read_text()
    with pytest.raises(NotDeliveredError):
        receiver(type="command", argv=[str(program), "3"]).deliver(notice())


def test_any_answer_but_2xx_is_no_delivery_and_redirects_are_not_followed(
    server: Received,
) -> None:
    with alert_server() as other:
        server.headers = {"Location": other.url}
        for status in (301, 302, 307, 308):
            server.answers = [status]
            with pytest.raises(NotDeliveredError, match="redirects are not followed"):
                receiver(server.url).deliver(notice())
        assert other.requests == []
    for status in (400, 403, 500, 503):
        server.answers = [status]
        with pytest.raises(NotDeliveredError, match=str(status)):
            receiver(server.url).deliver(notice())


def test_a_server_that_does_not_answer_is_given_up_in_time(
    server: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers_module, "SECONDS", 0.2)
    server.answers = [0]

    with pytest.raises(NotDeliveredError, match=r"no answer within 0\.2 s"):
        receiver(server.url).deliver(notice())
    with pytest.raises(NotDeliveredError, match="no connection"):
        receiver("http://127.0.0.1:1/").deliver(notice())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "http://hooks.example/x"}, "which anybody on the way reads"),
        ({"url": "ftp://hooks.example/x"}, "expected https"),
        ({"url": "https://user:pw@hooks.example/x"}, "contains a password"),
        ({"url": "https:///x"}, "expected https"),
        ({"url": "${NOT_SET}"}, "NOT_SET is not set"),
        (
            {"url": "https://h.example", "headers": {"A": "b\r\nc: d"}},
            "characters that HTTP does not allow",
        ),
    ],
)
def test_addresses_that_are_unsafe_are_refused_without_showing_them(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        receiver(**given)

    assert "pw" not in str(refused.value).replace("password", "")


@pytest.mark.parametrize(
    "host", ["127.0.0.1.nip.test", "10.0.0.7", "169.254.169.254", "[::ffff:10.0.0.7]", "[fd00::1]"]
)
def test_a_private_address_is_talked_to_only_when_that_is_allowed(
    server: Received, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(server.url.rpartition(":")[2])
    address = host.strip("[]") if "nip" not in host else "127.0.0.1"
    _connect_to(port, address, monkeypatch)
    url = f"https://{host}:{port}/"

    with pytest.raises(NotDeliveredError, match="private network"):
        _plain(receiver(url)).deliver(notice())
    assert server.requests == []

    _plain(receiver(url, allowPrivate=True)).deliver(notice())
    assert len(server.requests) == 1


def _connect_to(port: int, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every name lead to the server of this test, which seems to be at an address."""
    import socket

    connect = socket.create_connection

    class Seeming(socket.socket):
        def getpeername(self) -> Any:
            return (address, port)

    def connected(where: Any, *rest: Any, **given: Any) -> socket.socket:
        made = connect(("127.0.0.1", port), *rest, **given)
        return Seeming(made.family, made.type, made.proto, made.detach())

    monkeypatch.setattr(socket, "create_connection", connected)


def _plain(found: Receiver) -> Receiver:
    """Speak HTTP where the address says https: the server of the test has no certificate."""
    found.client._context = None  # type: ignore[attr-defined]
    return found


@pytest.mark.slow
def test_the_evidence_is_in_the_app_of_the_watch_the_slice_or_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(Path("t.log.db"), traffic(lambda tool, day: 0.0, days=1))
    main(["consume", "--log", "t.log.db", "--db", "t.duckdb", "--until-idle"])
    found = MonitorFile(evidence_url="https://e.example/cases/{app}/{eval_id}")

    def page(watch: Watch, event: Event) -> str:
        with Store("t.duckdb") as store:
            return evidence_page(found, watch, Alert("a1", event, True, BEGAN), store)

    anywhere, case = Watch(name="slow", signal="slow_rate"), replace(event(), cases=("s-0-3",))
    assert page(anywhere, case) == "https://e.example/cases/desk/s-0-3"
    assert page(anywhere, replace(case, slice={"app": "a b"})).endswith("/cases/a%20b/s-0-3")
    assert page(WATCH, case) == "https://e.example/cases/shop/s-0-3"
    assert page(anywhere, replace(case, cases=("gone",))) == "https://e.example/cases/-/gone"
    assert page(anywhere, replace(case, cases=())) == ""


class Time:
    def __init__(self) -> None:
        self.passed = timedelta()

    def __call__(self) -> datetime:
        return utc_now() + self.passed


def told_of_an_event(store: Store, to: Receiver, now: Time) -> AlertOutbox:
    outbox = AlertOutbox(store, [to], notice_of, now=now)
    outbox.begin()
    outbox.add(note_alerts(store, [event()]))
    return outbox


def deliver(outbox: AlertOutbox) -> None:
    """Step until nothing is under way."""
    outbox.step(None)
    for channel in outbox._channels:
        if channel._running is not None:
            channel._running[1].join()
    outbox.step(None)


def test_each_alert_is_told_once_and_its_end_once(server: Received, tmp_path: Path) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        outbox = AlertOutbox(store, [receiver(server.url)], notice_of)
        outbox.begin()
        assert outbox.idle
        outbox.add(note_alerts(store, [event()]))
        for _ in range(4):
            deliver(outbox)
        outbox.add(note_alerts(store, [event(), event("resolved", BEGAN + timedelta(hours=1))]))
        for _ in range(4):
            deliver(outbox)

        assert [one["status"] for one in server.bodies] == ["firing", "resolved"]
        assert outbox.idle
        rows = store.rows(
            "SELECT status, outcome, attempts FROM alert_deliveries ORDER BY ended_at"
        )
        assert rows == [("firing", "delivered", 1), ("resolved", "delivered", 1)]

        again = AlertOutbox(store, [receiver(server.url)], notice_of)
        again.begin()
        deliver(again)
        assert len(server.requests) == 2


def test_failures_are_tried_again_later_and_later_in_order(
    server: Received, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers = [500, 503, 500]
    now = Time()
    with Store(tmp_path / "x.duckdb") as store, caplog.at_level(logging.WARNING):
        outbox = told_of_an_event(store, receiver(server.url + "/secret-path"), now)
        outbox.add(note_alerts(store, [event(), event("resolved", BEGAN + timedelta(hours=1))]))
        waits = []
        while len(server.requests) < 5:
            before = len(server.requests)
            deliver(outbox)
            waited = 0.0
            while len(server.requests) == before:
                now.passed += timedelta(seconds=0.5)
                waited += 0.5
                deliver(outbox)
            waits.append(waited)

    assert [one["status"] for one in server.bodies] == ["firing"] * 4 + ["resolved"]
    assert waits[1:4] == pytest.approx([1, 2, 4], abs=0.6)
    assert "answered 500" in caplog.text
    assert "secret-path" not in caplog.text


@pytest.mark.parametrize(("asked", "waited"), [("60", 60), ("86400", 15 * 60)])
def test_a_receiver_that_asks_for_a_pause_has_it(
    server: Received, tmp_path: Path, asked: str, waited: int
) -> None:
    server.answers, server.headers = [429], {"Retry-After": asked}
    now = Time()
    with Store(tmp_path / "x.duckdb") as store:
        outbox = told_of_an_event(store, receiver(server.url), now)
        deliver(outbox)
        tried = []
        for seconds in (waited - 5, 10):
            now.passed += timedelta(seconds=seconds)
            deliver(outbox)
            tried.append(len(server.requests))

    assert tried == [1, 2]


def test_a_clock_that_is_set_back_delays_no_notice(server: Received, tmp_path: Path) -> None:
    server.answers = [500]
    now = Time()
    with Store(tmp_path / "x.duckdb") as store:
        outbox = told_of_an_event(store, receiver(server.url, repeatHours=1), now)
        for hours in (0, -2, -2):
            now.passed += timedelta(hours=hours)
            deliver(outbox)

        found = [(one["status"], one["evaltap"]["repeated"]) for one in server.bodies]
        assert found == [("firing", False), ("firing", False), ("firing", True)]


def test_what_cannot_be_told_for_a_day_is_given_up_and_kept(
    server: Received, tmp_path: Path
) -> None:
    server.answers = [500] * 100
    now = Time()
    with Store(tmp_path / "x.duckdb") as store:
        outbox = told_of_an_event(store, receiver(server.url), now)
        deliver(outbox)
        now.passed += GIVEN_UP_AFTER + timedelta(minutes=1)
        deliver(outbox)

        assert store.rows("SELECT outcome, detail, attempts FROM alert_deliveries") == [
            ("gave_up", "answered 500", 2)
        ]
        count = len(server.requests)
        deliver(outbox)
        assert len(server.requests) == count


def test_an_alarm_that_goes_on_is_told_again_each_day(server: Received, tmp_path: Path) -> None:
    now = Time()
    with Store(tmp_path / "x.duckdb") as store:
        outbox = told_of_an_event(store, receiver(server.url, repeatHours=24), now)
        for hours in (0, 23, 2, 22, 3):
            now.passed += timedelta(hours=hours)
            deliver(outbox)

        assert [one["evaltap"]["repeated"] for one in server.bodies] == [False, True, True]


def test_an_alarm_that_ended_while_its_notice_waited_is_not_told_again(
    server: Received, tmp_path: Path
) -> None:
    server.answers = [500]
    now = Time()
    with Store(tmp_path / "x.duckdb") as store:
        outbox = told_of_an_event(store, receiver(server.url, type="alertmanager"), now)
        deliver(outbox)
        outbox.add(note_alerts(store, [event(), event("resolved", BEGAN + timedelta(hours=1))]))
        for _ in range(5):
            now.passed += timedelta(minutes=2)
            deliver(outbox)

    assert ["endsAt" in one[0] for one in server.bodies] == [False, False, True]


def test_a_receiver_that_was_away_for_a_day_is_told_of_an_alarm_that_goes_on(
    server: Received, tmp_path: Path
) -> None:
    server.answers = [500, 500]
    now = Time()
    with Store(tmp_path / "x.duckdb") as store:
        outbox = told_of_an_event(store, receiver(server.url, type="alertmanager"), now)
        for days in (0, 2, 1):
            now.passed += timedelta(days=days)
            deliver(outbox)

    assert len(server.requests) == 3


def test_who_was_told_of_an_alarm_is_told_of_its_end_however_late(
    server: Received, tmp_path: Path
) -> None:
    now = Time()
    with Store(tmp_path / "x.duckdb") as store:
        outbox = AlertOutbox(store, [receiver(server.url)], notice_of)
        outbox.begin()
        outbox.add(note_alerts(store, [event()]))
        deliver(outbox)
        note_alerts(store, [event(), event("resolved", BEGAN + timedelta(hours=1))])
        now.passed += GIVEN_UP_AFTER + timedelta(minutes=1)
        again = AlertOutbox(store, [receiver(server.url)], notice_of, now=now)
        again.begin()
        deliver(again)

    assert [one["status"] for one in server.bodies] == ["firing", "resolved"]


def test_one_receiver_that_hangs_holds_up_no_other(server: Received, tmp_path: Path) -> None:
    server.answers = [0]
    with alert_server() as other, Store(tmp_path / "x.duckdb") as store:
        pair = [receiver(server.url), receiver(other.url)]
        pair[1].name = "other"
        outbox = AlertOutbox(store, pair, notice_of)
        outbox.begin()
        outbox.add(note_alerts(store, [event()]))
        outbox.step(None)
        wait_for(lambda: len(other.requests) == 1, 5)
        wait_for(lambda: bool(outbox.step(None) or store.rows("FROM alert_deliveries")), 5)

        assert store.rows("SELECT receiver FROM alert_deliveries") == [("other",)]


def test_nobody_is_told_of_a_silenced_watch_until_it_is_heard_again(
    server: Received, tmp_path: Path
) -> None:
    quiet = True
    with Store(tmp_path / "x.duckdb") as store:
        outbox = AlertOutbox(store, [receiver(server.url)], notice_of, silenced=lambda watch: quiet)
        outbox.begin()
        outbox.add(note_alerts(store, [event()]))
        deliver(outbox)
        assert (server.requests, outbox.idle) == ([], True)
        over = event("resolved", BEGAN + timedelta(hours=1))
        outbox.add(note_alerts(store, [event(), over]))
        deliver(outbox)
        outcomes = store.rows("SELECT status, outcome FROM alert_deliveries ORDER BY status")
        assert outcomes == [("firing", "silenced"), ("resolved", "silenced")]

        again = event(at=BEGAN + timedelta(days=2))
        outbox.add(note_alerts(store, [event(), over, again]))
        deliver(outbox)
        assert server.requests == []
        quiet = False
        for _ in range(3):
            deliver(outbox)

        assert [one["status"] for one in server.bodies] == ["firing"]


def test_only_who_asks_for_content_is_told_what_was_said(server: Received, tmp_path: Path) -> None:
    with alert_server() as other, Store(tmp_path / "x.duckdb") as store:
        pair = [receiver(server.url, content=True), receiver(other.url)]
        pair[1].name = "other"
        outbox = AlertOutbox(
            store,
            pair,
            notice_of,
            excerpts_of=lambda cases: [f"{case}: money back -> no" for case in cases],
        )
        outbox.begin()
        outbox.add(note_alerts(store, [event()]))
        for _ in range(3):
            deliver(outbox)

        assert "s-1: money back -> no" in json.dumps(server.bodies)
        assert "money back" not in json.dumps(other.bodies)
        assert len(other.bodies) == 1
