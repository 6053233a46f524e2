"""Outcome sampling: which turns are kept, with which probability, and what is counted."""

import math
from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.recorder import MemorySink, Recorder, RecorderConfig
from evaltap.recorder.sampling.rules import MIN_TOOL_CALLS, parse_outcome_rules
from evaltap.recorder.sampling.sampler import OutcomeSampler, position
from evaltap.schemas.errors import ConfigurationError
from support.builders.cases import make_case, make_tool, make_turn

LOW = next(f"s-{n}" for n in range(1000) if position(f"s-{n}") < 0.01)
LATE = next(f"s-{n}" for n in range(1000) if position(f"s-{n}") > 0.9)
HIGH = next(f"s-{n}" for n in range(1000) if position(f"s-{n}") > 0.99)


def case(session: str = HIGH, tools: int = 1, **turn: Any) -> dict[str, Any]:
    return make_case(session, [make_turn(tools=[make_tool()] * tools, **turn)])


def sampler(*rules: dict[str, Any], rate: float = 0.0) -> OutcomeSampler:
    return OutcomeSampler(rate, parse_outcome_rules(orjson.dumps(rules).decode()))


@pytest.mark.parametrize(
    ("condition", "holds", "fails"),
    [
        ({"error": True}, case(telemetry={"status": "error"}), case()),
        (
            {"error": True},
            make_case(HIGH, [make_turn(tools=[make_tool(error={"type": "E"})])]),
            case(),
        ),
        ({"error": False}, case(), case(telemetry={"status": "error"})),
        (
            {"slowerThanMs": 100},
            case(telemetry={"latencyMs": 101}),
            case(telemetry={"latencyMs": 100}),
        ),
        ({"costlierThanUsd": 0.1}, case(telemetry={"costUsd": 0.2}), case()),
        ({"moreStepsThan": 2}, case(tools=3), case(tools=2)),
        (
            {"field": {"path": "sessionInput.appName", "equals": "app"}},
            case(),
            {**case(), "sessionInput": {}},
        ),
        (
            {"field": {"path": "turn.userContent.content", "contains": "refund"}},
            case(userContent={"content": "a refund"}),
            case(),
        ),
        (
            {"field": {"path": "turn.state.codes", "contains": 5}},
            case(state={"codes": [4, 5]}),
            case(state={"codes": "4 or 5"}),  # a text contains texts only
        ),
        ({"field": {"path": "turn.telemetry.n", "under": 3}}, case(telemetry={"n": 2}), case()),
        (
            {"error": True, "moreStepsThan": 2},
            case(tools=3, telemetry={"status": "error"}),
            case(telemetry={"status": "error"}),
        ),
    ],
)
def test_a_rule_keeps_what_it_holds_for_and_nothing_else(
    condition: dict[str, Any], holds: dict[str, Any], fails: dict[str, Any]
) -> None:
    decide = sampler({"name": "r", "keep": 1, **condition}).decide

    kept, left_out = decide(holds), decide(fails)

    assert (kept.kept, kept.reason, kept.probability) == (True, "r", 1)
    assert (left_out.kept, left_out.reason) == (False, "sampled_out")


def test_the_highest_probability_decides_and_the_head_rate_is_one_of_them() -> None:
    error = case(LOW, telemetry={"status": "error"})
    low = {"name": "low", "keep": 0.1, "error": True}
    high = {"name": "high", "keep": 0.4, "error": True}

    assert sampler(low, high, rate=0.2).decide(error).reason == "high"
    assert sampler(low, rate=0.2).decide(error).reason == "head"
    assert sampler(low, high, rate=0.2).decide(error).probability == 0.4


def test_a_draw_that_a_rule_lost_is_counted_under_its_name() -> None:
    decision = sampler({"name": "slow", "keep": 0.5, "error": True}).decide(
        case(HIGH, telemetry={"status": "error"})
    )

    assert (decision.kept, decision.reason) == (False, "sampled_out:slow")


def test_a_tool_is_rare_only_once_enough_calls_were_seen() -> None:
    decide = sampler({"name": "odd", "keep": 1, "rareTool": 0.05}).decide
    odd = case(tools=0)
    odd["actualConversation"][0]["tools"] = [make_tool("delete_all")]

    before = decide(odd)
    for _ in range(MIN_TOOL_CALLS):
        decide(case())

    assert not before.kept
    assert decide(odd).kept


def test_weighting_by_the_inclusion_probability_gives_back_the_population() -> None:
    decide = sampler({"name": "errors", "keep": 0.6, "error": True}, rate=0.2).decide
    number = 20_000

    decisions = [
        decide(case(f"n-{n}", telemetry={"status": "error"} if n % 10 == 0 else {}))
        for n in range(number)
    ]

    estimate = sum(1 / d.probability for d in decisions if d.kept)
    errors = sum(1 / d.probability for d in decisions if d.kept and d.reason == "errors")
    assert abs(estimate - number) < 5 * math.sqrt(number * 4)
    assert abs(errors - number / 10) < 5 * math.sqrt(number / 10 * 0.67)


@pytest.mark.slow
def test_a_limit_thins_out_evenly_and_says_by_how_much() -> None:
    now = [0.0]
    limited = OutcomeSampler(1.0, max_per_minute=600, clock=lambda: now[0])
    decisions = []
    for n in range(60_000):
        now[0] += 0.01
        decisions.append(limited.decide(case(f"n-{n}")))

    steady = decisions[30_000:]
    kept = [d for d in steady if d.kept]
    assert abs(len(kept) - 3_000) < 300
    assert abs(sum(1 / d.probability for d in kept) - len(steady)) < 3_000
    assert {d.reason for d in steady if not d.kept} == {"rate_limited"}


def test_a_burst_passes_no_more_than_a_minutes_worth() -> None:
    limited = OutcomeSampler(1.0, max_per_minute=60, clock=lambda: 0.0)

    kept = [limited.decide(case(f"n-{n}")).kept for n in range(1_000)]

    assert 30 <= sum(kept) <= 60


def revised(told: dict[str, Any], **turn: Any) -> dict[str, Any]:
    """Return the case told again, with what is known of its turn now."""
    (first,) = told["actualConversation"]
    return {**told, "source": {"revision": 2}, "actualConversation": [{**first, **turn}]}


def test_a_turn_left_out_is_kept_when_more_is_known_that_a_rule_wants() -> None:
    rules = sampler({"name": "errors", "keep": 1, "error": True})
    first = case()

    assert not rules.decide(first).kept
    again = rules.decide(revised(first, telemetry={"status": "error"}))

    assert (again.kept, again.reason, again.probability) == (True, "errors", 1.0)


def test_a_turn_kept_is_kept_again_when_its_rule_no_longer_holds() -> None:
    rules = sampler({"name": "unanswered", "keep": 1, "field": {"path": "turn.n", "equals": None}})
    first = case()

    assert rules.decide(first).kept
    again = rules.decide(revised(first, n=1))

    assert (again.kept, again.reason, again.probability) == (True, "unanswered", 1.0)


def test_a_rate_limit_counts_a_turn_once_and_says_the_same_of_it_again() -> None:
    limited = OutcomeSampler(1.0, max_per_minute=60, clock=lambda: 0.0)
    turns = [case(f"s-{n}") for n in range(200)]
    firsts = [limited.decide(one) for one in turns]

    again = [limited.decide(revised(one)) for one in turns]

    assert again == firsts
    assert {decision.kept for decision in firsts} == {True, False}


def test_a_tool_of_a_turn_told_again_is_no_more_often_called() -> None:
    rules = sampler({"name": "rare", "keep": 1, "rareTool": 0.005})
    odd = make_case(HIGH, [make_turn(tools=[make_tool(name="odd")])])
    rules.decide(odd)
    for _ in range(10):
        rules.decide(revised(odd))
    rules.decide(case(tools=MIN_TOOL_CALLS * 3))

    assert rules.decide(odd).reason == "rare"


def test_decisions_stand_in_records_counters_and_manifests() -> None:
    sink = MemorySink()
    rules = """[
        {"name": "errors", "keep": 1, "error": true},
        {"name": "long", "keep": 0.5, "moreStepsThan": 1}
    ]"""
    recorder = Recorder(sink=sink, sample_rate=0.0, sample_rules=rules)
    for session, calls, failed in (
        (HIGH, 1, True),
        (HIGH, 2, False),
        (LOW, 2, False),
        (LOW, 1, False),
        ("plain", 1, False),
        (LATE, 2, False),
    ):
        with recorder.turn(session_id=session, user="hi") as turn:
            for number in range(calls):
                turn.tool("t", {}, result=None, error="E" if failed else None, id=str(number))
    assert recorder.close(10)

    names = ("samplingReason", "inclusionProbability")
    kept = [(c["evalId"], *(c["source"][name] for name in names)) for c in sink.cases]
    dropped = {"sampled_out": 1, "sampled_out:long": 1}
    assert sorted(kept) == sorted([(HIGH, "errors", 1)] * 2 + [(LOW, "long", 0.5)] * 2)
    counters = recorder.counters()
    assert counters.dropped == dropped == sink.manifests[-1].drops
    assert counters.recorded == counters.delivered + counters.spooled + sum(dropped.values()) == 6


def test_without_sampling_nothing_is_said_about_it() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(session_id="s", user="hi"):
        pass
    recorder.close(10)

    assert not {"samplingReason", "inclusionProbability"} & set(sink.cases[0]["source"])


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("{", "expected a JSON list"),
        ("{}", "expected a JSON list"),
        ('["x"]', "expected an object with a unique name"),
        ('[{"name": "head", "error": true}]', "other than 'head'"),
        ('[{"name": "a"}]', "no condition"),
        ('[{"name": "a", "error": true, "keeps": 1}]', "'keeps'; did you mean 'keep'?"),
        ('[{"name": "a", "eror": true}]', "unknown key 'eror'; did you mean 'error'?"),
        ('[{"name": "a", "error": 1}]', "expected true or false"),
        ('[{"name": "a", "keep": 2, "error": true}]', "expected 0 to 1"),
        ('[{"name": "a", "slowerThanMs": "9"}]', "expected a number"),
        ('[{"name": "a", "error": true, "unit": "day"}]', "expected session or turn"),
        ('[{"name": "a", "field": {"path": "x"}}]', "one of equals"),
        ('[{"name": "a", "error": true}, {"name": "a", "error": true}]', "share a name"),
    ],
)
def test_a_rule_that_cannot_work_says_why(rules: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RecorderConfig(log="log.db", sample_rules=rules)

    assert said in str(caught.value)


def test_the_rules_of_the_page_can_be_used() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/sample.md").read_text()
    rules = page.split('sample_rules="""')[1].split('"""')[0]

    assert len(parse_outcome_rules(rules)) == 8
