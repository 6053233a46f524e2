"""What a watch says of a change: the slice that broke, cases, means and their intervals."""

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_snake

from evaltap.evaluator.monitoring.measures import mean_of
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.monitor import AlertReceiver, ScoreRule, Watch
from evaltap.schemas.wire.record import encode_case
from support.builders.cases import make_case, make_turn, write_log
from support.builders.commands import Evaltap
from support.proofs.planted_changes import PLANTED, named_first
from support.worlds.traffic import binomial_bounds
from support.worlds.watched_traffic import FIRST, traffic, write_metrics

HOW_TO = Path(__file__).parents[3] / "docs/how-to/watch-live-traffic.md"


@pytest.mark.parametrize("spread", [0.3, 0.8])
def test_the_interval_of_a_mean_contains_the_truth_and_the_mean(spread: float) -> None:
    source, truth, held = random.Random(3), math.exp(spread**2 / 2), 0
    for _ in range(300):
        sessions = [[source.lognormvariate(0, spread)] * source.randint(1, 3) for _ in range(60)]
        largest = max(map(max, sessions))

        found = mean_of([(sum(one), len(one), len(one)) for one in sessions], largest)

        assert found is not None
        assert found.low < found.value < found.high
        held += found.low <= truth <= found.high
    assert held >= binomial_bounds(300, 0.94)[0]


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_the_slice_that_broke_is_named_first_in_95_of_100_alarms(planted: str) -> None:
    source = random.Random(8)
    found = [named_first(source, planted) for _ in range(20)]

    assert found.count(planted) >= 19, found


def store_of(
    evaltap: Evaltap,
    fails: Callable[[str, int], float],
    *,
    days: int = 24,
    daily: int = 40,
    pause: int | None = None,
    tools: Callable[[int], Sequence[str]] = lambda day: ("search", "search", "order", "refund"),
    latency: Callable[[int, int], float] = lambda day, number: 100.0 + number,
    first: datetime = FIRST,
    unset_clock: bool = False,
) -> str:
    """Record sessions of two apps; `fails` gives the chance by tool and day, `tools` the choice."""
    write_metrics()
    records = traffic(
        fails, days=days, daily=daily, pause=pause, tools=tools, latency=latency, first=first
    )
    if unset_clock:
        turn = make_turn(creationTimestamp=1.0, telemetry={"latencyMs": 9e9})
        case = make_case("unset", [turn], conversation=[make_turn()])
        records.append(encode_case(case, producer_id="q", seq=1, time=FIRST))
    write_log(Path("t.log.db"), records)
    evaltap("consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json",
            "--until-idle")  # fmt: skip
    return "t.duckdb"


HELPFUL = {"name": "helpful", "signal": "pass_rate", "metric": "helpful"}


def write_rules(*watches: Mapping[str, Any], **more: Any) -> str:
    Path("monitor.json").write_text(json.dumps({"watch": list(watches), **more}))
    return "monitor.json"


def replayed(evaltap: Evaltap, db: str, *watches: Mapping[str, Any]) -> tuple[int, Any]:
    code, out, error = evaltap("monitor", "replay", db, "--rules", write_rules(*watches), "--json")
    return code, json.loads(out) if out else error


@pytest.mark.slow
def test_a_tool_that_breaks_is_found_named_first_and_stays_until_it_is_mended(
    evaltap: Evaltap,
) -> None:
    def broken(tool: str, day: int) -> float:
        return 0.8 if tool == "refund" and 16 <= day < 26 else 0.04

    db = store_of(evaltap, broken, days=36, first=FIRST - timedelta(days=28))

    code, events = replayed(evaltap, db, HELPFUL)

    assert code == 0
    assert [one["status"] for one in events] == ["firing", "resolved"]
    firing, resolved = events
    assert "2026-10-20" <= firing["at"] <= "2026-10-24"
    assert firing["since"][:10] in ("2026-10-19", "2026-10-20", "2026-10-21")
    assert firing["rate_before"] == pytest.approx(0.96, abs=0.02)
    assert firing["rate_after"] < firing["most"] < firing["rate_before"]
    assert 0 < firing["low"] < firing["rate_after"] < firing["high"] < 1
    assert 20 < firing["turns"] == firing["sessions"] < 200
    assert (firing["changed"][0]["by"], firing["changed"][0]["value"]) == ("tool", "refund")
    assert firing["changed"][0]["kind"] == "rate"
    assert firing["changed"][0]["effect"] > 0.1
    assert 0 < len(firing["cases"]) <= 10
    assert resolved["at"] > "2026-10-30"

    code, text, _ = evaltap("monitor", "replay", db, "--rules", "monitor.json")
    assert re.search(
        r"tool refund: 9\d\.\d% -> \d+\.\d%, explains (\d\d|100)% of the drop$", text, re.M
    )
    behind = f"{firing['turns']} turns in {firing['turns']} sessions"
    ends = r"\(95 %: \d+\.\d% to \d+\.\d%, "
    assert re.search(rf"9\d\.\d% -> \d+\.\d% {ends}{behind}\) since 2026-10-", text)
    assert replayed(evaltap, db, HELPFUL)[1] == events


@pytest.mark.slow
def test_more_of_what_was_always_hard_is_told_from_an_agent_that_got_worse(
    evaltap: Evaltap,
) -> None:
    def hard(tool: str, day: int) -> float:
        return 0.8 if tool == "refund" else 0.02

    db = store_of(
        evaltap,
        hard,
        tools=lambda day: ("search", "order", *["refund"] * (10 if day >= 16 else 1)),
    )

    _, events = replayed(evaltap, db, HELPFUL)

    changed = events[0]["changed"][0]
    assert events[0]["status"] == "firing"
    assert (changed["by"], changed["value"], changed["kind"]) == ("tool", "refund", "mix")
    assert changed["share_after"] > 2 * changed["share_before"] - 0.05
    assert (
        "the mix of traffic changed, not the agent"
        in evaltap("monitor", "replay", db, "--rules", "monitor.json")[1]
    )


@pytest.mark.slow
def test_slices_are_watched_one_by_one(evaltap: Evaltap) -> None:
    db = store_of(evaltap, lambda tool, day: 0.9 if tool == "order" and day >= 16 else 0.03)

    code, events = replayed(evaltap, db, HELPFUL | {"by": ["tool"]})

    assert code == 1
    firing = {one["slice"].get("tool") for one in events if one["status"] == "firing"}
    assert "order" in firing
    assert "search" not in firing


@pytest.mark.slow
def test_an_alarm_names_cases_that_are_not_all_alike(evaltap: Evaltap) -> None:
    db = store_of(
        evaltap, lambda tool, day: 0.2 if day >= 16 else 0.03, tools=lambda day: ("search",)
    )
    (alarm,) = replayed(evaltap, db, HELPFUL)[1]
    with Store(db) as store:
        bad = store.rows(
            "SELECT eval_id FROM turn_scores JOIN turns USING (eval_id, invocation_id)"
            " WHERE turn_scores.status = 'failed' AND started_at >= $since::TIMESTAMP"
            " AND started_at <= $at::TIMESTAMP ORDER BY started_at",
            {"since": alarm["since"], "at": alarm["at"]},
        )
        *_, (unlike,) = bad
        store.execute(
            "UPDATE turns SET user_text = 'Cancel it' WHERE eval_id = $id", {"id": unlike}
        )

    (again,) = replayed(evaltap, db, HELPFUL)[1]

    assert len(bad) > 10
    assert unlike not in alarm["cases"]
    assert again["cases"] == [alarm["cases"][0], unlike, *alarm["cases"][1:9]]


@pytest.mark.slow
def test_most_turns_that_take_longer_are_found_though_the_slowest_take_no_longer(
    evaltap: Evaltap,
) -> None:
    def latency(day: int, number: int) -> float:
        return 100.0 + (max(number, 21) if day >= 16 else number)

    db = store_of(evaltap, lambda tool, day: 0.0, latency=latency)

    code, events = replayed(evaltap, db, {"name": "slow", "signal": "slow_rate"})

    assert code == 1
    found = {one["quantile"]: one for one in events}
    assert {one: event["status"] for one, event in found.items()} == {0.95: "ok", 0.5: "firing"}
    assert found[0.5]["rate_before"] == pytest.approx(0.5, abs=0.03)
    assert found[0.5]["rate_after"] == pytest.approx(1)
    _, text, _ = evaltap("monitor", "replay", db, "--rules", "monitor.json")
    assert "firing slow (slow_rate, turns above the median), 2026-11-1" in text


@pytest.mark.slow
def test_a_watch_whose_traffic_came_later_learns_from_its_own_first_days(evaltap: Evaltap) -> None:
    db = store_of(
        evaltap,
        lambda tool, day: 0.0,
        days=20,
        tools=lambda day: ("old",) if day < 8 else ("new",),
        latency=lambda day, number: (100.0 + number) * (3 if day >= 17 else 1),
    )
    of_new = {"where": {"tool": "new"}, "baselineDays": 7}

    slow = {"name": "slow", "signal": "slow_rate", **of_new}
    code, events = replayed(evaltap, db, slow, {"name": "ms", "signal": "mean_latency", **of_new})

    assert code == 1
    assert [one["status"] for one in events] == ["firing"]
    assert events[0]["at"] > "2026-11-18"


@pytest.mark.slow
def test_a_turn_of_a_clock_that_was_never_set_is_no_baseline(evaltap: Evaltap) -> None:
    db = store_of(
        evaltap,
        lambda tool, day: 0.8 if tool == "refund" and day >= 16 else 0.0,
        days=20,
        latency=lambda day, number: (100.0 + number) * (3 if day >= 16 else 1),
        unset_clock=True,
    )

    by_tool, slow = {**HELPFUL, "by": ["tool"]}, {"name": "slow", "signal": "slow_rate"}
    _, events = replayed(evaltap, db, by_tool, slow)

    slower, helpful = (one for one in events if one["status"] == "firing")
    assert slower["rate_before"] == pytest.approx(0.05, abs=0.03)
    assert helpful["slice"] == {"tool": "refund"}


@pytest.mark.slow
def test_a_turn_of_a_wrong_clock_does_not_shorten_the_baseline(evaltap: Evaltap) -> None:
    db = store_of(evaltap, lambda tool, day: 0.1, days=10, daily=10, unset_clock=True)

    _, events = replayed(evaltap, db, HELPFUL, {"name": "slow", "signal": "slow_rate"})

    assert [one["status"] for one in events] == ["learning"] * 3


@pytest.mark.slow
def test_a_mean_that_rises_is_an_alarm_in_its_unit_that_names_the_slice(evaltap: Evaltap) -> None:
    db = store_of(
        evaltap, lambda tool, day: 0.0, latency=lambda day, number: 300.0 if day >= 16 else 100.0
    )

    code, events = replayed(evaltap, db, {"name": "latency", "signal": "mean_latency"})

    assert code == 1
    (alarm,) = events
    assert (alarm["status"], alarm["unit"]) == ("firing", "ms")
    assert (alarm["rate_before"], alarm["rate_after"]) == (pytest.approx(100), pytest.approx(300))
    assert alarm["low"] <= alarm["rate_after"] <= alarm["high"]
    assert alarm["rate_before"] < alarm["most"] < alarm["rate_after"]
    assert alarm["cases_filter"].startswith("sort:latency since:2026-11-1")
    text = evaltap("monitor", "replay", db, "--rules", "monitor.json")[1]
    assert "firing latency (mean_latency)" in text
    assert "100 ms -> 300 ms (95 %: " in text


@pytest.mark.slow
def test_a_mean_score_that_falls_is_an_alarm_that_names_the_broken_tool(evaltap: Evaltap) -> None:
    db = store_of(evaltap, lambda tool, day: 0.9 if tool == "refund" and day >= 16 else 0.05)

    watch = {"name": "quality", "signal": "mean_score", "metric": "helpful"}
    code, (alarm,) = replayed(evaltap, db, watch)

    assert code == 1
    assert (alarm["status"], alarm["unit"]) == ("firing", "score")
    assert alarm["rate_after"] < alarm["most"] < alarm["rate_before"]
    assert alarm["low"] <= alarm["rate_after"] <= alarm["high"]
    assert (alarm["changed"][0]["by"], alarm["changed"][0]["value"]) == ("tool", "refund")
    assert alarm["cases"]


@pytest.mark.slow
def test_a_fixed_limit_on_a_mean_fires_in_its_unit(evaltap: Evaltap) -> None:
    def latency(day: int, number: int) -> float:
        return (900.0 if day == 5 else 100.0) + number

    db = store_of(evaltap, lambda tool, day: 0.0, days=8, latency=latency)

    watch = {"name": "latency", "signal": "mean_latency", "above": 500, "hours": 24}
    code, (fires, ends) = replayed(evaltap, db, watch)

    assert code == 0
    assert (fires["status"], ends["status"]) == ("firing", "resolved")
    assert 500 < fires["low"] <= fires["rate_after"] <= fires["high"]
    assert ends["rate_after"] <= 500
    assert {one[:4] for one in fires["cases"]} == {"s-5-"}
    assert (
        "in 40 sessions), limit 500 ms"
        in evaltap("monitor", "replay", db, "--rules", "monitor.json")[1]
    )


def test_silence_is_an_alarm_until_the_next_turn(evaltap: Evaltap) -> None:
    db = store_of(evaltap, lambda tool, day: 0.0, days=4, pause=2)

    code, events = replayed(evaltap, db, {"name": "alive", "signal": "silence", "minutes": 600})

    assert code == 0
    assert [one["status"] for one in events] == ["firing", "resolved"]
    assert events[0]["since"] == "2026-11-02T19:30:00Z"
    assert events[0]["at"] == "2026-11-03T05:30:00Z"
    _, text, _ = evaltap("monitor", "replay", db, "--rules", "monitor.json")
    assert re.search(r"^  no turn since \S+ \S+ until \S+ \S+ UTC$", text, re.MULTILINE)


@pytest.mark.slow
def test_without_enough_days_a_watch_is_learning(evaltap: Evaltap) -> None:
    db = store_of(evaltap, lambda tool, day: 0.1, days=9)

    code, events = replayed(evaltap, db, HELPFUL, {"name": "slow", "signal": "slow_rate"})

    assert code == 3
    assert [(one["watch"], one["status"], one["quantile"]) for one in events] == [
        ("helpful", "learning", None), ("slow", "learning", 0.95), ("slow", "learning", 0.5),
    ]  # fmt: skip
    _, text, _ = evaltap("monitor", "replay", db, "--rules", "monitor.json")
    assert "with at least 7 days and 50 sessions" in text
    shorter = replayed(evaltap, db, HELPFUL | {"baselineDays": 7})
    assert (shorter[0], shorter[1][0]["status"]) == (0, "ok")
    nothing = replayed(evaltap, db, HELPFUL | {"where": {"app": "none"}})
    assert (nothing[0], nothing[1][0]["status"]) == (3, "no_data")
    _, text, _ = evaltap("monitor", "replay", db, "--rules", "monitor.json")
    assert "no stored turn counts: none matches its `where`" in text


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        ({"window_in_seconds": 60}, "window_in_seconds"),
        ({"signal": "pas_rate"}, "did you mean 'pass_rate'?"),
        ({"metric": ""}, "needs a `metric`"),
        ({"signal": "error_rate"}, "`error_rate` takes no `metric`"),
        ({"by": ["tol"]}, "did you mean 'tool'?"),
        ({"where": {"ap": "shop"}}, "did you mean 'app'?"),
        ({"baselineDays": 2}, "baselineDays"),
        ({"name": ""}, "expected a unique, non-empty name"),
        ({"falseAlarmsPerMonth": 0}, "falseAlarmsPerMonth"),
        ({"silencedUntil": "2026-11-24T12:00:00"}, "expected a time, e.g."),
        ({"silencedUntil": "soon"}, "silencedUntil"),
        ({"minutes": 60}, "`minutes` needs the signal `silence`"),
        ({"signal": "silence", "metric": "", "by": ["tool"]}, "`silence` takes no `by`"),
        ({"signal": "silence", "metric": "", "smallestChange": 0.1}, "takes no `smallestChange`"),
        ({"signal": "silence", "metric": "", "falseAlarmsPerMonth": 0.1}, "falseAlarmsPerMonth"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    evaltap: Evaltap, watch: Mapping[str, Any], message: str
) -> None:
    rules = write_rules({**HELPFUL, **watch})

    code, _, error = evaltap("monitor", "check", "--rules", rules)

    assert code == 2
    assert message in error


def test_the_chance_of_a_false_alarm_is_shared(evaltap: Evaltap) -> None:
    rules = write_rules(
        HELPFUL,
        {"name": "slow", "signal": "slow_rate"},
        {"name": "own", "signal": "error_rate", "falseAlarmsPerMonth": 0.01},
        {"name": "alive", "signal": "silence"},
        falseAlarmsPerMonth=0.1,
    )

    code, out, _ = evaltap("monitor", "check", "--rules", rules, "--json")

    assert code == 0
    assert [one["false_alarms_per_month"] for one in json.loads(out)["watch"]] == [
        0.05,
        0.05,
        0.01,
        None,
    ]


@pytest.mark.slow
def test_the_rules_are_priced_by_the_turns_of_the_last_days(evaltap: Evaltap) -> None:
    store = store_of(evaltap, lambda tool, day: 0.05, days=10)
    rule = {
        "name": "part", "metrics": ["helpful"], "rate": 0.1, "where": {"app": "shop"},
        "always": [{"slowerThanMs": 134}],
    }  # fmt: skip
    rules = write_rules(score=[rule, rule | {"name": "new", "metrics": ["kind"], "always": []}])

    code, out, _ = evaltap("monitor", "check", rules, store, "--json")

    part, new = json.loads(out)["score"]
    assert code == 0
    # Of 40 turns of each day 26 are of the app, and three of these are slow.
    assert (part["turns_per_day"], part["always_per_day"]) == (26, 3)
    assert part["scored_per_day"] == pytest.approx(3 + 0.1 * 23)
    assert (part["calls_per_day"], part["usd_per_day"]) == (0, 0)
    assert new["scored_per_day"] == pytest.approx(2.6)
    assert (new["calls_per_day"], new["usd_per_day"]) == (None, None)
    said = evaltap("monitor", "check", rules, store)[1]
    assert "part: per day 5.3 of 26.0 turns, 0.0 judge calls" in said
    assert "new: per day 2.6 of 26.0 turns, judge calls unknown" in said
    assert "add a DuckDB file" in evaltap("monitor", "check", rules)[1]


@pytest.mark.slow
def test_a_fixed_limit_fires_when_the_interval_is_beyond_it_and_not_the_point(
    evaltap: Evaltap,
) -> None:
    store = store_of(evaltap, lambda tool, day: 0.6 if day in (5, 6) else 0.03, days=10)
    floor = {**HELPFUL, "name": "floor", "below": 0.85}

    code, out, _ = evaltap("monitor", "replay", store, "--rules", write_rules(floor), "--json")

    events = json.loads(out)
    fired, resolved = events
    assert (code, [one["status"] for one in events]) == (0, ["firing", "resolved"])
    assert fired["at"].startswith("2026-11-06")
    assert fired["high"] < 0.85 == fired["most"]
    assert fired["low"] < fired["rate_after"] < fired["high"]
    assert 10 <= fired["turns"] == fired["sessions"] <= 40
    assert resolved["rate_after"] >= 0.85
    rates = [one["value"] for one in fired["rates"] if one["value"] is not None]
    assert len(fired["rates"]) == 24
    assert min(rates[-6:]) < 0.85 < max(rates), "it fell within the window"
    assert resolved["rates"] == []
    assert fired["cases"]
    replayed = evaltap("monitor", "replay", store, "--rules", "monitor.json")[1]
    assert "limit 85.0%" in replayed
    # Five misses of forty are below 90 %, and may be chance.
    point = {**HELPFUL, "name": "point", "below": 0.97}
    few = {**HELPFUL, "name": "few", "below": 0.97, "hours": 4}
    _, out, _ = evaltap("monitor", "replay", store, "--rules", write_rules(point, few), "--json")
    assert {one["watch"]: one["status"] for one in json.loads(out)} == {
        "point": "resolved",
        "few": "learning",
    }


def test_check_says_what_raises_the_alarm_of_a_watch_that_learns_nothing(evaltap: Evaltap) -> None:
    quiet = {"name": "quiet", "signal": "silence", "minutes": 45}
    night = {"name": "night", "signal": "silence", "minutes": 1}
    floor = {**HELPFUL, "name": "floor", "below": 0.85}
    slow = {"name": "slow", "signal": "slow_rate", "above": 0.1, "hours": 1}

    code, out, _ = evaltap("monitor", "check", write_rules(quiet, night, floor, slow))

    assert code == 0
    assert [line.strip() for line in out.splitlines()[1:5]] == [
        "quiet: alarm after 45 minutes without a turn",
        "night: alarm after 1 minute without a turn",
        "floor: a fixed limit: pass_rate below 0.85 over 24 hours",
        "slow: a fixed limit: slow_rate above 0.1 over 1 hour",
    ]


@pytest.mark.parametrize(
    ("watch", "message"),
    [
        ({"below": 0.9, "baselineDays": 9}, "`baselineDays` does not work with a fixed limit"),
        ({"hours": 3}, "`hours` needs `below` or `above`"),
        ({"below": 1.5}, "below"),
        ({"signal": "silence", "metric": "", "above": 0.5}, "takes no `below` or `above`"),
    ],
)
def test_a_fixed_limit_that_makes_no_sense_is_refused(
    evaltap: Evaltap, watch: Mapping[str, Any], message: str
) -> None:
    code, _, error = evaltap("monitor", "check", write_rules({**HELPFUL, **watch}))

    assert code == 2
    assert message in error


def test_a_replay_without_a_file_and_a_metric_that_is_not_there_are_refused(
    evaltap: Evaltap,
) -> None:
    rules = write_rules(HELPFUL)
    assert evaltap("monitor", "replay", "--rules", rules)[0] == 2
    assert evaltap("monitor", "check", rules, "--rules", rules)[0] == 2
    assert evaltap("monitor", "check", rules)[0] == 0
    assert evaltap("monitor", "check", "--rules", "none.json")[0] == 2


def test_rules_that_are_not_json_are_refused_with_what_was_found_and_where(
    evaltap: Evaltap,
) -> None:
    Path("monitor.json").write_text('{"watch": [}')

    code, _, error = evaltap("monitor", "check", "monitor.json")

    assert code == 2
    assert (
        "monitor.json: line 1, column 12: not valid JSON (found '}', expected a JSON value)"
        in error
    )


def test_the_how_to_names_keys_that_exist() -> None:
    text = HOW_TO.read_text("utf-8")
    known = {**Watch.model_fields, **AlertReceiver.model_fields, **ScoreRule.model_fields}
    for name in set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)):
        assert to_snake(name) in known, name
