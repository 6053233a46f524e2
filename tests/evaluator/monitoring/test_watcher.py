"""Watches inside `consume`: alarms are stored once and end, whatever happens to the consumer."""

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.monitoring.history import (
    as_stored,
    firing,
    note_alerts,
    note_states,
    read_alerts,
    read_states,
)
from evaltap.evaluator.monitoring.incidents import joined
from evaltap.evaluator.monitoring.model import BadSpan, Event, summary
from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views.delivery import view_alerts
from evaltap.evaluator.pipeline.live.figures import figures
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from evaltap.schemas.wire.record import encode_case
from support.builders.cases import make_case, make_tool, make_turn, write_log
from support.builders.commands import Evaltap
from support.worlds.watched_traffic import FIRST, traffic, write_metrics

HELPFUL = {"name": "helpful", "signal": "pass_rate", "metric": "helpful"}
BROKEN = range(16, 26)
DAILY = 40


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    """Run a command in a folder with metrics and rules."""
    write_metrics()
    Path("monitor.json").write_text(json.dumps({"watch": [HELPFUL]}))
    return evaltap


def breaks(tool: str, day: int) -> float:
    return 0.8 if tool == "refund" and day in BROKEN else 0.04


def consume(evaltap: Evaltap, *more: str) -> tuple[int, str, str]:
    return evaltap(
        "consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json", "--until-idle",
        "--monitor", "monitor.json", *more,
    )  # fmt: skip


def alerts(evaltap: Evaltap) -> tuple[int, Any]:
    code, out, _ = evaltap("monitor", "alerts", "t.duckdb", "--json")
    return code, json.loads(out)


@pytest.mark.slow
def test_an_alarm_is_stored_once_named_and_ends_across_restarts(evaltap: Evaltap) -> None:
    records = traffic(breaks, days=36, first=FIRST - timedelta(days=60))
    seen = []
    for begin, end in ((0, 15), (15, 20), (20, 22), (22, 36)):
        write_log(Path("t.log.db"), records[begin * DAILY : end * DAILY])
        _, _, said = consume(evaltap)
        seen.append(
            (alerts(evaltap), "ALERT helpful (pass_rate) fell" in said, "resolved helpful" in said)
        )

    (quiet, *_), (raised, told, _), (same, again, _), (over, _, resolved) = seen
    assert quiet == (0, [])
    assert (raised[0], told) == (1, True)
    (firing,) = raised[1]
    assert (firing["status"], firing["changed"][0]["value"]) == ("firing", "refund")
    assert (same, again) == (raised, False)
    assert (over[0], resolved) == (0, True)
    assert [one["status"] for one in over[1]] == ["firing", "resolved"]
    assert over[1][0] == firing
    assert len({one["alert_id"] for one in over[1]}) == 1
    (state,) = json.loads(evaltap("monitor", "status", "t.duckdb", "--json")[1])
    assert (state["status"], state["at"] > over[1][1]["at"]) == ("ok", True)

    shown = evaltap("cases", "t.duckdb", firing["cases_filter"], "--json", "--limit", "1000")
    found = json.loads(shown[1])
    assert {one["eval_id"] for one in found} >= {*firing["cases"]}
    assert all("refund" in one["tools"] for one in found)


def named(alarm: Any) -> list[str]:
    """Return the watches of an alarm, with those of the alarms that are part of it."""
    return [alarm["watch"], *(one["subject"] for one in alarm["also"])]


@pytest.mark.slow
def test_a_replay_finds_what_was_stored_live(evaltap: Evaltap) -> None:
    watches = [
        HELPFUL,
        {"name": "slow", "signal": "slow_rate"},
        HELPFUL | {"name": "floor", "below": 0.9},
    ]
    Path("monitor.json").write_text(json.dumps({"watch": watches}))
    records = traffic(breaks, days=36, first=FIRST - timedelta(days=60))
    for place in range(0, len(records), 500):
        write_log(Path("t.log.db"), records[place : place + 500])
        consume(evaltap)

    code, stored = alerts(evaltap)
    replayed = json.loads(
        evaltap("monitor", "replay", "t.duckdb", "--rules", "monitor.json", "--json")[1]
    )

    assert code == 0
    turned = [one for one in replayed if one["status"] in ("firing", "resolved")]
    assert {name.split()[0] for one in turned for name in named(one)} == {"helpful", "floor"}
    assert sorted(
        [{k: v for k, v in one.items() if k != "alert_id"} for one in stored],
        key=lambda one: (one["at"], one["watch"]),
    ) == turned  # fmt: skip


@pytest.mark.slow
def test_the_filter_of_an_alarm_is_shown_as_a_command(evaltap: Evaltap) -> None:
    write_log(Path("t.log.db"), traffic(breaks, days=20))
    _, _, said = consume(evaltap)

    (line,) = [one for one in said.splitlines() if "ALERT" in one]
    command = shlex.split(line.partition("; evaltap ")[2])
    assert evaltap(*command)[0] == 0
    assert "s-1" in evaltap(*command)[1]


@pytest.mark.slow
def test_after_a_rebase_the_new_level_is_usual(evaltap: Evaltap) -> None:
    write_log(Path("t.log.db"), traffic(breaks, days=20))
    consume(evaltap)
    assert alerts(evaltap)[0] == 1

    assert evaltap("monitor", "rebase", "t.duckdb", "helpful")[0] == 0
    consume(evaltap)

    code, found = alerts(evaltap)
    assert (code, [one["status"] for one in found]) == (0, ["firing", "resolved"])


@pytest.mark.slow
def test_an_erased_session_is_no_evidence_any_more(evaltap: Evaltap) -> None:
    write_log(Path("t.log.db"), traffic(breaks, days=20))
    consume(evaltap)
    case = alerts(evaltap)[1][0]["cases"][0]

    assert evaltap("store", "erase", "--subject", case, "--db", "t.duckdb")[0] == 0

    assert case not in alerts(evaltap)[1][0]["cases"]
    assert case not in Path("t.duckdb").read_bytes().decode("latin-1")


def test_a_watch_on_a_metric_that_is_not_scored_is_refused(evaltap: Evaltap) -> None:
    write_log(Path("t.log.db"), traffic(breaks, days=1))
    Path("monitor.json").write_text(json.dumps({"watch": [{**HELPFUL, "metric": "helpfull"}]}))

    code, _, said = consume(evaltap)

    assert code == 2
    assert "did you mean 'helpful'?" in said


# The rows.


def event(status: Any, day: int, name: str = "w") -> Event:
    return Event(name, {}, status, datetime(2026, 11, day), rate_before=0.9, rate_after=0.5)


def gauge(store: Store) -> float:
    (found,) = (one for one in figures(store) if one.name == "evaltap_alert_firing")
    return found.samples["w", ""]


@pytest.mark.slow
def test_the_shares_above_two_quantiles_are_alarms_of_their_own() -> None:
    with Store(":memory:") as store:
        tail, middle = (replace(event("firing", 10), quantile=one) for one in (0.95, 0.5))
        assert [one.event.quantile for one in note_alerts(store, [tail, middle])] == [0.95, 0.5]
        assert note_alerts(store, [tail, middle]) == []
        over = replace(event("resolved", 12), quantile=0.5)
        (ended,) = note_alerts(store, [tail, middle, over])

        assert [one.event.quantile for one in firing(read_alerts(store))] == [0.95]
        assert len({one.alert_id for one in read_alerts(store)}) == 2
        assert gauge(store) == 1
        assert ended.event.status == "resolved"
        (gone,) = note_alerts(store, [], ["other"])
        assert (gone.event.status, gone.event.quantile) == ("resolved", 0.95)
        assert gauge(store) == 0


def test_an_alarm_of_a_watch_without_a_baseline_ends_without_a_claim_about_the_traffic() -> None:
    with Store(":memory:") as store:
        note_alerts(store, [replace(event("firing", 10), measure="pass_rate")])

        (ended,) = note_alerts(store, [Event("w", {}, "no_data", None, measure="pass_rate")])

    assert ended.event.at is not None
    assert summary(ended.event) == (
        "w (pass_rate): no longer known: late turns came, or the watch was changed or has no baseline now"
    )


def test_a_rebase_of_a_misspelt_watch_suggests_its_name(evaltap: Evaltap) -> None:
    with Store("t.duckdb") as store:
        note_alerts(store, [event("firing", 10, "helpful")])

    assert "did you mean 'helpful'?" in evaltap("monitor", "rebase", "t.duckdb", "helpfull")[1]
    assert "note" not in evaltap("monitor", "rebase", "t.duckdb", "helpful")[1]


def test_a_rebase_uses_the_store_of_the_settings(evaltap: Evaltap) -> None:
    Store("t.duckdb").close()
    assert evaltap("monitor", "rebase", "helpful")[0] == 2
    Path("evaltap.toml").write_text('store = "t.duckdb"')

    assert evaltap("monitor", "rebase", "helpful")[0] == 0


def test_an_alarm_stored_before_there_were_quantiles_is_that_of_the_95th_percentile() -> None:
    with Store(":memory:") as store:
        note_alerts(store, [event("firing", 10)])

        assert note_alerts(store, [replace(event("firing", 10), quantile=0.95)]) == []


def test_turns_that_come_late_and_move_an_alarm_make_no_second_one() -> None:
    with Store(":memory:") as store:
        first = note_alerts(store, [event("firing", 10)])
        assert note_alerts(store, [event("firing", 9)]) == []
        assert note_alerts(store, [event("firing", 12)]) == []
        ended = note_alerts(store, [event("firing", 12), event("resolved", 14)])
        again = note_alerts(
            store, [event("firing", 12), event("resolved", 14), event("firing", 20)]
        )

        assert [one.alert_id for one in ended] == [first[0].alert_id]
        assert again[0].alert_id != first[0].alert_id
        assert [one.event.status for one in read_alerts(store)] == ["firing", "resolved", "firing"]


def test_an_end_is_told_once_though_the_clock_was_set_back_since_the_alarm_began(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "c.duckdb") as store:
        note_alerts(store, [event("firing", 1)])
        store.execute("UPDATE alerts SET noted_at = noted_at + INTERVAL 2 HOUR")

    with Store(tmp_path / "c.duckdb") as store:
        ended = note_alerts(store, [event("firing", 1), event("resolved", 2)])
        again = note_alerts(store, [event("firing", 1), event("resolved", 2)])

    assert ([one.event.status for one in ended], again) == (["resolved"], [])


def test_what_was_over_before_anyone_looked_is_stored_and_not_told() -> None:
    with Store(":memory:") as store:
        found = note_alerts(store, [event("firing", 1), event("resolved", 2), event("firing", 3)])

        assert [one.notify for one in found] == [False, False, True]


def test_an_alarm_ends_when_its_turns_or_its_watch_are_gone() -> None:
    with Store(":memory:") as store:
        note_alerts(store, [event("firing", 1), event("firing", 1, "v")])
        found = note_alerts(store, [event("learning", 1)], ["w"])

        assert sorted((one.event.watch, one.event.status) for one in found) == [
            ("v", "resolved"),
            ("w", "resolved"),
        ]
        assert note_alerts(store, [event("learning", 1)], ["w"]) == []
        (again,) = note_alerts(store, [event("firing", 1)], ["w"])

        assert again.alert_id not in {one.alert_id for one in found}


@pytest.mark.slow
def test_every_watch_is_listed_with_its_state(evaltap: Evaltap) -> None:
    watches = [
        HELPFUL,
        {"name": "slow", "signal": "slow_rate", "baselineDays": 7},
        {"name": "floor", "signal": "pass_rate", "metric": "helpful", "below": 0.5},
        {"name": "none", "signal": "error_rate", "where": {"app": "none"}},
    ]
    Path("monitor.json").write_text(json.dumps({"watch": watches}))
    assert evaltap("monitor", "status", "new.duckdb")[0] == 2
    write_log(Path("t.log.db"), traffic(breaks, days=9, first=FIRST - timedelta(days=60)))
    consume(evaltap)

    code, out, _ = evaltap("monitor", "status", "t.duckdb")
    listed = json.loads(evaltap("monitor", "status", "t.duckdb", "--json")[1])
    said = evaltap("monitor", "alerts", "t.duckdb")[1]
    with Store("t.duckdb", create=False) as store, Readers(store).reading() as reader:
        answer = view_alerts(reader, PageRequest({}, Person("ann", "admin"), Path("t.duckdb")))

    assert code == 0
    assert {(one["watch"], one["quantile"]): one["status"] for one in listed} == {
        ("helpful", None): "learning", ("slow", 0.95): "ok", ("slow", 0.5): "ok",
        ("floor", None): "ok", ("none", None): "no_data",
    }  # fmt: skip
    assert re.search(r"^learning day 9 of 14, 360 sessions: helpful .*; evaluated \d", out, re.M)
    assert re.search(
        r"^ok: slow \(.*, no turn that counts since \d{4}-.* UTC; evaluated", out, re.M
    )
    assert all(one.no_turn_since for one in answer.data.states if one.event.status == "ok")
    assert "no alarms so far; watches: " in said
    assert [one.event.watch for one in answer.data.states] == [one["watch"] for one in listed]


@pytest.mark.slow
def test_an_outage_of_a_tool_is_an_alarm_though_no_session_has_ended(evaltap: Evaltap) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    records = []
    for place in range(60):
        failed = {"error": {"type": "TimeoutError", "message": "x"}} if place >= 30 else {}
        at = now - timedelta(minutes=25) + timedelta(seconds=20 * place)
        tool = {**make_tool(), **failed}
        turn = make_turn(tools=[tool], creationTimestamp=at.timestamp())
        case = make_case(f"s-{place}", [turn])
        records.append(encode_case(case, producer_id="p", seq=place + 1, time=at))
    watch = {"name": "tools", "signal": "tool_error_rate", "above": 0.1, "hours": 1}
    Path("monitor.json").write_text(json.dumps({"watch": [watch]}))
    write_log(Path("t.log.db"), records)

    _, _, said = consume(evaltap)

    assert "ALERT tools" in said
    code, stored = alerts(evaltap)
    assert (code, stored[0]["status"]) == (1, "firing")
    replayed = evaltap("monitor", "replay", "t.duckdb", "--rules", "monitor.json", "--json")[1]
    assert [{k: v for k, v in one.items() if k != "alert_id"} for one in stored] == json.loads(
        replayed
    )


@pytest.mark.slow
def test_an_alarm_of_crashes_lists_the_turns_that_crashed(evaltap: Evaltap) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    ends = ["ok"] * 20 + ["error", "error", "ok", "incomplete"] * 10
    records = []
    for place, status in enumerate(ends):
        at = now - timedelta(minutes=25) + timedelta(seconds=20 * place)
        failed = {"error": {"type": "TimeoutError", "message": "x"}} if status == "ok" else {}
        turn = make_turn(
            tools=[{**make_tool(), **failed}],
            creationTimestamp=at.timestamp(),
            telemetry={"status": status},
        )
        case = make_case(f"s-{place}", [turn])
        records.append(encode_case(case, producer_id="p", seq=place + 1, time=at))
    watch = {"name": "failing", "signal": "error_rate", "above": 0.1, "hours": 1}
    Path("monitor.json").write_text(json.dumps({"watch": [watch]}))
    write_log(Path("t.log.db"), records)
    consume(evaltap)

    (firing,) = alerts(evaltap)[1]
    shown = evaltap("cases", "t.duckdb", firing["cases_filter"], "--json", "--limit", "100")

    listed = {one["eval_id"] for one in json.loads(shown[1])}
    crashed = {f"s-{place}" for place, status in enumerate(ends) if status == "error"}
    assert {*firing["cases"]} <= listed <= crashed
    assert listed


# One cause is one alarm.


@pytest.mark.slow
def test_a_tool_that_breaks_is_one_alarm_with_its_slices_live_and_in_the_replay(
    evaltap: Evaltap,
) -> None:
    watches = [
        {
            "name": "helpful",
            "signal": "pass_rate",
            "metric": "helpful",
            "by": ["tool", "tool_path"],
        },
        {"name": "quality", "signal": "mean_score", "metric": "helpful"},
    ]
    Path("monitor.json").write_text(json.dumps({"watch": watches}))
    write_log(Path("t.log.db"), traffic(breaks, days=24))

    consume(evaltap)
    code, stored = alerts(evaltap)
    replay_code, replayed, _ = evaltap(
        "monitor", "replay", "t.duckdb", "--rules", "monitor.json", "--json"
    )
    status_code, states, _ = evaltap("monitor", "status", "t.duckdb")

    assert (code, replay_code, status_code) == (1, 1, 1)
    (alarm,) = stored
    (again,) = [one for one in json.loads(replayed) if one["status"] == "firing"]
    assert alarm["also"] == again["also"]
    assert {one.split()[0] for one in named(alarm)} == {"helpful", "quality"}
    assert len(named(alarm)) >= 3
    assert states.count("firing") == 1


def alarm_of(
    watch: str, hour: int, bad: Iterable[int], ends: int | None = None, **more: Any
) -> list[Event]:
    """Return an alarm of a day, whose bad turns are given by the hours in which they started."""
    day = datetime(2026, 11, 10)
    turns = {(at, "1"): day + timedelta(hours=at) for at in bad}
    fires = replace(event("firing", 10, watch), at=day + timedelta(hours=hour), **more)
    found = [replace(fires, bad=BadSpan(day, turns))]
    if ends is not None:
        found.append(replace(fires, status="resolved", at=day + timedelta(hours=ends)))
    return found


def test_alarms_about_the_same_bad_turns_are_one_that_ends_with_the_last_of_them() -> None:
    first = alarm_of("errors", 6, [1, 2, 3, 4, 5], ends=12, slice={"tool": "refund"})
    wider = alarm_of("errors", 7, [0, 1, 2, 3, 4, 5, 6], ends=20)
    other = alarm_of("slow", 8, [2, 3, 4, 5, 7], ends=15)

    found = joined([*first, *wider, *other])

    whole = [one for one in found if not one.part_of]
    assert [(one.watch, one.status, one.at and one.at.hour) for one in whole] == [
        ("errors", "firing", 6), ("errors", "resolved", 20),
    ]  # fmt: skip
    assert [one.subject for one in whole[0].also] == ["errors", "slow"]
    assert {one.part_of for one in found if one not in whole} == {"errors tool=refund"}
    with Store(":memory:") as store:
        assert [one.event.status for one in note_alerts(store, found)] == ["firing", "resolved"]
        note_states(store, joined([first[0], wider[0]]))
        assert [one.event.status for one in read_states(store)] == ["firing"]


def test_an_alarm_that_is_over_names_the_others_with_the_rates_at_which_they_ended() -> None:
    first = alarm_of("errors", 6, [1, 2, 3, 4, 5], ends=12, rate_after=0.5)
    begins, ends = alarm_of("slow", 8, [2, 3, 4, 5, 7], ends=15, rate_after=0.4)

    found = joined([*first, begins, replace(ends, rate_after=0.1)])

    begun, over = (one for one in found if not one.part_of)
    assert [(one.at, one.rate_after) for one in begun.also] == [(begins.at, 0.4)]
    assert [(one.at, one.rate_after) for one in over.also] == [(ends.at, 0.1)]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(alarm_of("slow", 8, [0, 1, 2, 6]), id="half of its bad turns are others"),
        pytest.param(alarm_of("slow", 8, [6, 7]), id="its bad turns are all later"),
        pytest.param(alarm_of("slow", 14, [1, 2, 3]), id="the first one is over"),
    ],
)
def test_alarms_of_different_causes_stay_two(later: list[Event]) -> None:
    first = alarm_of("errors", 6, [2, 3, 4, 5], ends=12)

    found = joined([*first, *later])

    assert [one.part_of for one in found] == [""] * 3
    assert found == [*first, *later]


def test_an_alarm_that_is_on_lists_what_joins_it_later_and_nobody_is_told_again() -> None:
    first, wider = alarm_of("errors", 6, [3, 4, 5]), alarm_of("helpful", 8, [3, 4, 5, 6])
    with Store(":memory:") as store:
        (alert,) = note_alerts(store, joined(first))

        assert note_alerts(store, joined([*first, *wider])) == []

        (known,) = read_alerts(store)
        assert [one.subject for one in known.event.also] == ["helpful"]
        assert as_stored(store, alert).event.also == known.event.also
        assert summary(known.event).endswith("; also helpful")


def test_late_turns_do_not_make_another_alarm_of_the_cause_lead() -> None:
    first, wider = alarm_of("errors", 6, [3, 4, 5]), alarm_of("helpful", 8, [3, 4, 5, 6])
    with Store(":memory:") as store:
        note_alerts(store, joined([*first, *wider]))
        earlier = [replace(wider[0], at=first[0].at and first[0].at - timedelta(minutes=5))]

        leading = {one.event.stream for one in firing(read_alerts(store))}

        assert note_alerts(store, joined([*first, *earlier], leading)) == []
