"""Receivers of a consumer: restarts, ends, refusals, and what is said of content."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.monitoring.history import read_alerts
from evaltap.evaluator.store.database import Store
from support.builders.cases import write_log
from support.builders.commands import Evaltap, runner
from support.builders.program import Program
from support.builders.waiting import wait_for
from support.servers.alert_server import Received
from support.worlds.watched_traffic import traffic, write_metrics


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_metrics()
    records = traffic(lambda tool, day: 0.8 if tool == "refund" and day >= 16 else 0.04, days=20)
    write_log(Path("t.log.db"), records)
    return tmp_path


def rules(url: str, *, content: bool = False, **more: Any) -> None:
    watch = {"name": "helpful", "signal": "pass_rate", "metric": "helpful", **more}
    headers = {"Authorization": "Bearer ${T}"}
    alerts = [{"type": "webhook", "url": "${ALERT_URL}", "headers": headers, "content": content}]
    Path("monitor.json").write_text(json.dumps({"watch": [watch], "alerts": alerts}))
    os.environ |= {"ALERT_URL": url, "T": "t-secret"}


CONSUME = ("consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json",
           "--monitor", "monitor.json")  # fmt: skip


@pytest.mark.slow
def test_a_consumer_killed_before_it_was_told_tells_after_its_restart(
    server: Received,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ALERT_URL", "")
    monkeypatch.setenv("T", "")
    rules(server.url)
    server.answers = [0]
    consumer = Program([*CONSUME], folder / "said")
    wait_for(lambda: len(server.requests) == 1)
    consumer.process.kill()
    consumer.process.wait()
    assert "ALERT helpful (pass_rate) fell" in consumer.output

    evaltap: Evaltap = runner(capsys)
    code, _, said = evaltap(*CONSUME, "--until-idle")

    assert code == 1
    assert len(server.requests) == 2
    assert "t-secret" not in said
    assert server.url not in said
    assert {headers["authorization"] for _, headers, _ in server.requests} == {"Bearer t-secret"}
    assert len({one["evaltap"]["alert_id"] for one in server.bodies}) == 1
    text = json.dumps(server.bodies)
    assert "Where is order" not in text, "no content of traces"
    with Store("t.duckdb") as store:
        assert len(read_alerts(store)) == 1
        assert store.rows("SELECT outcome FROM alert_deliveries") == [("delivered",)]
    assert "t-secret" not in Path("t.duckdb").read_bytes().decode("latin-1")


@pytest.mark.slow
def test_an_end_that_comes_by_itself_does_not_wait_for_a_receiver_that_is_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALERT_URL", "")
    monkeypatch.setenv("T", "")
    rules("http://127.0.0.1:1/")

    code, _, said = runner(capsys)(*CONSUME, "--until-idle")

    assert code == 1
    assert "ALERT" in said
    with Store("t.duckdb") as store:
        assert store.rows("FROM alert_deliveries") == []


@pytest.mark.parametrize(
    ("alert", "message"),
    [
        ({"type": "webhok", "url": "https://h.example"}, "did you mean 'webhook'?"),
        ({"type": "webhook"}, "needs `url`"),
        ({"type": "slack", "url": "https://hooks.slack.com/services/x"}, "is a secret"),
        ({"type": "pagerduty", "routingKey": "abc"}, "is a secret"),
        ({"type": "command", "argv": ["x"], "url": "https://h"}, "command takes no `url`"),
        ({"type": "webhook", "url": "https://h.example", "retries": 3}, "no key 'retries'"),
        ({"type": "webhook", "uri": "https://h.example"}, "did you mean 'url'?"),
        ({"type": "command", "argv": ["/bin/true"]}, "--allow-code"),
        ({"type": "webhook", "url": "${ALERT_URL_THAT_IS_NOT_SET}"}, "is not set"),
        ({"type": "webhook", "url": "https://h.example", "name": "command-1"}, "another receiver"),
    ],
)
def test_receivers_that_make_no_sense_are_refused_before_anything_lands(
    folder: Path, capsys: pytest.CaptureFixture[str], alert: Any, message: str
) -> None:
    watch = {"name": "e", "signal": "error_rate"}
    alerts = [alert, {"type": "command", "argv": ["/bin/true"]}]
    Path("monitor.json").write_text(json.dumps({"watch": [watch], "alerts": alerts}))

    code, _, said = runner(capsys)(*CONSUME, "--until-idle")

    assert code == 2
    assert message in said
    assert "alerts[0]" in said


@pytest.mark.parametrize(
    ("alert", "message"),
    [
        ({"url": "http://hooks.example/x"}, "which anybody on the way reads"),
        ({"url": "http://hooks.example/${T}"}, "which anybody on the way reads"),
        ({"url": "http://8.8.8.8/x", "allowPrivate": True}, "not in a private network"),
        ({"url": "ftp://hooks.example/x"}, "expected https"),
        ({"url": "http://[x/"}, "the address is invalid"),
        (
            {"type": "alertmanager", "url": "https://h.example", "repeatHours": 6},
            "alertmanager takes no `repeatHours`",
        ),
        ({"url": "http://localhost:9093/x"}, ""),
        ({"url": "http://alertmanager:9093", "allowPrivate": True}, ""),
        ({"url": "${ALERT_URL}", "repeatHours": 6}, ""),
        ({"url": "http://${HOST}/x"}, ""),
    ],
)
def test_check_refuses_the_receivers_that_a_consumer_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alert: Any, message: str
) -> None:
    path = tmp_path / "monitor.json"
    watch = {"name": "e", "signal": "error_rate"}
    path.write_text(json.dumps({"watch": [watch], "alerts": [{"type": "webhook", **alert}]}))

    code, _, said = runner(capsys)("monitor", "check", str(path))

    assert (code, message in said) == (2 if message else 0, True)
    assert ("alerts[0]" in said) == bool(message)


@pytest.mark.slow
def test_content_is_of_the_cases_of_the_alarm_and_silence_is_said(
    server: Received, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules(server.url, content=True)
    main([*CONSUME, "--until-idle"])
    (body,) = server.bodies
    said = body["alerts"][0]["annotations"]["description"]
    assert "Where is order A-100? -> no" in said

    Path("t.duckdb").unlink()
    rules(server.url, silencedUntil="2999-01-01T00:00:00Z")
    main([*CONSUME, "--until-idle"])
    assert len(server.bodies) == 1
    assert "silenced, ALERT helpful (pass_rate) fell" in capsys.readouterr().err
    evaltap: Evaltap = runner(capsys)
    code, listed, _ = evaltap("monitor", "alerts", "t.duckdb")
    assert code == 1
    assert "silenced, firing helpful (pass_rate), 2026-11-" in listed
    assert "nobody is notified until 2999-01-01 00:00 UTC" in listed
    replayed = evaltap("monitor", "replay", "t.duckdb", "--rules", "monitor.json", "--json")[1]
    assert json.loads(replayed)[0]["silenced_until"] == "2999-01-01T00:00:00Z"

    rules(server.url, silencedUntil="2020-01-01T00:00:00Z")
    listed = evaltap("monitor", "alerts", "t.duckdb", "--rules", "monitor.json")[1]
    assert "silenced" not in listed
