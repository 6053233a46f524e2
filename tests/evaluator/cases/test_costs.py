"""The cost of a turn: recorded, or computed from tokens by list prices."""

import json
from pathlib import Path

import pytest
from genai_prices import Usage, calc_price
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.cases.costs import cost_of
from evaltap.evaluator.reports.figures import money
from evaltap.recorder import Recorder
from support.builders.commands import runner

TOKENS = st.integers(0, 2_000_000)


@given(st.sampled_from(["gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-pro"]), TOKENS, TOKENS)
def test_a_computed_cost_is_that_of_the_price_table(model: str, inputs: int, outputs: int) -> None:
    listed = calc_price(Usage(input_tokens=inputs, output_tokens=outputs), model).total_price
    found = cost_of({"models": [model], "inputTokens": inputs, "outputTokens": outputs})
    assert found == pytest.approx(float(listed), abs=1e-12)


@given(
    st.sampled_from(["gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-pro"]),
    *[st.integers(0, 500_000)] * 4,
)
def test_cached_tokens_cost_what_the_table_says(
    model: str, fresh: int, outputs: int, cached: int, written: int
) -> None:
    inputs = fresh + cached + written
    listed = calc_price(
        Usage(
            input_tokens=inputs,
            output_tokens=outputs,
            cache_read_tokens=cached,
            cache_write_tokens=written,
        ),
        model,
    ).total_price
    usage = {"model": model, "inputTokens": inputs, "outputTokens": outputs}
    found = cost_of({"usage": [{**usage, "cachedTokens": cached, "cacheWriteTokens": written}]})

    assert found == pytest.approx(float(listed), abs=1e-12)


def test_more_cached_tokens_than_there_are_are_not_priced_apart() -> None:
    usage = {"model": "gpt-4o", "inputTokens": 100, "outputTokens": 0, "cachedTokens": 200}

    assert cost_of({"usage": [usage]}) == pytest.approx(100 * 2.5e-6)


def test_tokens_of_several_models_are_priced_each_by_its_own() -> None:
    usage = [
        {"model": "gpt-4o-mini", "inputTokens": 1_000_000, "outputTokens": 0},
        {"model": "gpt-4o", "inputTokens": 0, "outputTokens": 1_000_000},
    ]
    each = [cost_of({"usage": [one]}) for one in usage]
    assert cost_of({"models": ["gpt-4o-mini", "gpt-4o"], "usage": usage}) == sum(
        map(float, filter(None, each))
    )


@pytest.mark.parametrize(
    "telemetry",
    [
        {},
        {"models": ["gpt-4o"], "inputTokens": 10},
        {"models": ["a-model-of-our-own"], "inputTokens": 10, "outputTokens": 10},
        {"models": ["gpt-4o", "gpt-4o-mini"], "inputTokens": 10, "outputTokens": 10},
        {"models": ["gpt-4o"], "inputTokens": -1, "outputTokens": 10},
        {"costUsd": -1.0},
    ],
    ids=[
        "nothing",
        "no output tokens",
        "unknown model",
        "several models, no tokens of each",
        "-1 for unknown tokens",
        "-1 for an unknown cost",
    ],
)
def test_without_all_tokens_and_prices_there_is_no_cost(telemetry: dict[str, object]) -> None:
    assert cost_of(telemetry) is None


def test_a_recorded_cost_wins_over_list_prices() -> None:
    telemetry = {"costUsd": 0.5, "models": ["gpt-4o"], "inputTokens": 10, "outputTokens": 10}
    assert cost_of(telemetry) == 0.5


@pytest.mark.slow
def test_recorded_tokens_become_a_cost_that_is_marked_and_that_metrics_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    evaltap = runner(capsys)
    recorder = Recorder("agent.log.db")
    for session, models in (
        ("one", ["gpt-4o"]),
        ("two", ["gpt-4o", "gpt-4o-mini"]),
        ("own", ["ours"]),
    ):
        with recorder.turn(session_id=session, user="Hi") as turn:
            for model in models:
                turn.model(model, input_tokens=1_000_000, output_tokens=0)
            turn.respond("Hello.")
    recorder.close()
    criterion = {"operations": {"maxCostUsd": 2.6}}
    metric = {"metricName": "cost_within", "threshold": 1, "criterion": criterion}
    Path("metrics.json").write_text(json.dumps([metric]))
    names = ("--log", "agent.log.db", "--db", "x.duckdb", "--metrics", "metrics.json")
    evaltap("consume", "--until-idle", *names)
    cases = {one["eval_id"]: one for one in json.loads(evaltap("cases", "x.duckdb", "--json")[1])}
    assert {name: one["cost_usd"] for name, one in cases.items()} == {
        "one": pytest.approx(2.5),
        "two": pytest.approx(2.65),
        "own": None,
    }
    assert {name: one["outcome"] for name, one in cases.items()} == {
        "one": "passed",
        "two": "failed",
        "own": "not_evaluated",
    }
    assert "$2.50 (from list prices)" in evaltap("show", "x.duckdb", "one")[1]


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (0, "$0.00"),
        (1234.5, "$1,234.50"),
        (0.1, "$0.10"),
        (0.004, "$0.004"),
        (0.000061, "$0.000061"),
        (-0.01, "$-0.01"),
    ],
)
def test_an_amount_is_shown_in_cents_or_with_two_significant_digits(usd: float, shown: str) -> None:
    assert money(usd) == shown
