"""Delivery and alerts on the page agree with the commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.page.masking import masked
from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import delivery
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.readers import Readers
from support.servers.page_server import served
from support.worlds.page_store import GENEROUS, support_store


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    path = support_store(tmp_path_factory.mktemp("page"), count=30)
    with Store(path) as store, Readers(store).reading(seconds=120) as found:
        yield found


def asked(**parameters: str) -> PageRequest:
    return PageRequest(parameters, Person("ann", "admin"), Path("x.duckdb"))


def test_delivery_accounts_for_every_record(reader: StoreReader) -> None:
    page = delivery.view(reader, asked(id=GENEROUS)).data

    (one,) = page.producers
    assert (one.recorded, one.landed, one.missing, one.dead) == (32, 32, 0, 0)
    assert page.letters == ()
    assert page.why is not None
    assert {metric.metric_name: metric.status for metric in page.why.metrics}[
        "trajectory_f1"
    ] == "failed"


def test_no_alarm_is_no_error(reader: StoreReader) -> None:
    assert delivery.view_alerts(reader, asked()).data.alarms == ()


def test_alarms_are_shown_as_they_are_now(tmp_path: Path) -> None:
    event = '{"rate_before": 0.02, "rate_after": 0.2, "most": 0.05, "cases_filter": "status:failed",' \
            ' "since": "2026-11-20T00:00:00Z", "changed": []}'  # fmt: skip
    with Store(tmp_path / "x.duckdb") as store:
        for status, day in (("firing", 20), ("resolved", 22)):
            store.execute(
                "INSERT INTO alerts VALUES ('1', 'failures', '{\"tool\": \"refund\"}', $status,"
                " make_timestamp(2026, 11, $day, 0, 0, 0), $event, true,"
                " make_timestamp(2026, 11, $day, 1, 0, 0))",
                {"status": status, "day": day, "event": event},
            )
        for name in ("s-1", 's"2'):
            store.execute(
                "INSERT INTO alert_cases VALUES ('1', $name, now()::TIMESTAMP)", {"name": name}
            )
        with Readers(store).reading() as reader:
            (alert,) = delivery.view_alerts(reader, asked()).data.alarms
    assert (alert.status, alert.slice) == ("resolved", {"tool": "refund"})
    assert alert.href == "/cases?q=status%3Afailed"
    assert alert.examples == (("s-1", "/cases?q=id%3As-1", ""), ('s"2', "", ""))
    assert alert.overview_href == "/?from=2026-11-19T18%3A00&to=2026-11-22T01%3A00"


@pytest.mark.slow
def test_an_alarm_shows_the_questions_of_its_cases(tmp_path: Path) -> None:
    with Store(support_store(tmp_path, count=3)) as store:
        Summaries(store).refresh()
        store.execute(
            "INSERT INTO alerts VALUES ('1', 'failures', '{}', 'firing',"
            " make_timestamp(2026, 11, 20, 0, 0, 0), '{}', true, make_timestamp(2026, 11, 20, 1, 0, 0))"
        )
        store.execute(
            "INSERT INTO alert_cases VALUES ('1', $name, now()::TIMESTAMP)", {"name": GENEROUS}
        )
        with Readers(store).reading() as reader:
            shown = delivery.view_alerts(reader, asked())

    (example,) = shown.data.alarms[0].examples
    (hidden,) = masked(shown).data.alarms[0].examples
    assert example.opening == "Hello, I need help with an order."
    assert hidden.opening == "(hidden)"


def test_a_fixed_limit_is_shown_with_its_rate_and_counted_in_the_bar(tmp_path: Path) -> None:
    event = '{"rate_before": null, "rate_after": 0.077, "low": 0.041, "high": 0.141, "most": 0.02,' \
            ' "turns": 1200, "sessions": 410, "silenced_until": "2999-01-01T00:00:00Z",' \
            ' "cases": ["s-7"], "changed": [], "rates": [{"at": "2026-11-23T10:00:00Z", "value": 0.01},' \
            ' {"at": "2026-11-23T10:05:00Z", "value": null},' \
            ' {"at": "2026-11-23T10:10:00Z", "value": 0.3}]}'  # fmt: skip
    path = tmp_path / "x.duckdb"
    with Store(path) as store:
        store.execute(
            "INSERT INTO alerts VALUES ('1', 'tools', '{}', 'firing', now()::TIMESTAMP, $event, true,"
            " now()::TIMESTAMP)", {"event": event},
        )  # fmt: skip
    with served(path, tmp_path) as page:
        shown = page.ask("/alerts").text
        overview = page.ask("/").text

    assert "7.7 %" in shown
    assert "(4.1\u201314.1), 1,200 turns in 410 sessions" in shown
    assert "the limit is 2.0 %" in shown
    assert "Until the alarm" in shown
    assert "dashed: limit 2.0 %" in shown.replace("\u00a0", " ")
    assert '<path class="dashed"' in shown
    assert "silenced: nobody is notified until 2999-01-01 00:00 UTC" in shown
    assert "1 alarm is firing" in overview


def test_an_alarm_on_a_mean_is_shown_in_its_unit_with_what_it_caused(tmp_path: Path) -> None:
    event = '{"rate_before": 0.0123, "rate_after": 0.031, "low": 0.02, "high": 0.045, "most": 0.014,' \
            ' "turns": 40, "sessions": 20, "unit": "usd", "changed": [], "also": [{"subject":' \
            ' "latency (mean_latency)", "rate_before": 900, "rate_after": 2100, "unit": "ms"}]}'  # fmt: skip
    path = tmp_path / "x.duckdb"
    with Store(path) as store:
        store.execute(
            "INSERT INTO alerts VALUES ('1', 'cost', '{}', 'firing', now()::TIMESTAMP, $event, true,"
            " now()::TIMESTAMP)", {"event": event},
        )  # fmt: skip
    with served(path, tmp_path) as page:
        shown = page.ask("/alerts").text

    assert "from $0.012 to <b>$0.031</b>" in shown
    assert "($0.02\u2013$0.045), 40 turns in 20 sessions" in shown
    assert ">latency (mean_latency)</span>: 900 ms to 2,100 ms" in shown
