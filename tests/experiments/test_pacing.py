"""Agents keep to a pace, and a provider's refusal is no fault of theirs."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evaltap.experiments import evaluate
from evaltap.experiments.worker import Pace, is_refusal
from support.worlds.running_agents import ANSWER, case, write_set


class RateLimitError(Exception):
    status_code = 429


@pytest.mark.slow
def test_a_refused_run_is_made_again_and_is_no_crash(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case("sum", "add 2 3")])
    asked: list[float] = []

    def refuses_once(messages: list[dict[str, Any]]) -> str:
        asked.append(time.monotonic())
        if len(asked) == 1:
            try:
                raise RateLimitError("slow down")
            except RateLimitError as error:
                raise ValueError("the model failed") from error
        return "result: 5"

    found = evaluate(path, [ANSWER], agent=refuses_once)

    assert (found.outcome.scored, found.outcome.crashed, found.outcome.invalid) == (1, 0, 0)
    assert asked[1] - asked[0] >= 1.0, "it waited"


@pytest.mark.slow
def test_a_provider_that_always_refuses_leaves_invalid_runs(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case("sum", "add 2 3")])

    def refuses(messages: list[dict[str, Any]]) -> str:
        raise RateLimitError("slow down")

    found = evaluate(path, [ANSWER], agent=refuses)

    assert (found.outcome.crashed, found.outcome.invalid) == (0, 1)
    assert "too many requests" in json.dumps(found.data())


def test_what_counts_as_a_refusal() -> None:
    assert is_refusal(RateLimitError())
    assert not is_refusal(ValueError("429"))


def test_each_refusal_doubles_the_pause_until_a_turn_succeeds() -> None:
    pace = Pace()
    pace.refused(RateLimitError())
    first = pace._next - time.monotonic()
    pace.refused(RateLimitError())
    second = pace._next - time.monotonic()
    pace.succeeded()
    pace._next = 0.0
    pace.refused(RateLimitError())

    assert 0.9 < first <= 1.0
    assert 1.9 < second <= 2.0
    assert pace._next - time.monotonic() <= 1.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({"retry-after": "7"}, 7), ({"retry-after-ms": "7000"}, 7), ({"retry-after": "600"}, 60)],
)
def test_a_provider_says_how_long_the_pause_is(headers: dict[str, str], seconds: float) -> None:
    error, pace = ValueError("the SDK's own"), Pace()
    error.__cause__ = refusal = RateLimitError()
    refusal.__dict__["response"] = SimpleNamespace(headers=headers)

    pace.refused(error)

    assert pace._next - time.monotonic() == pytest.approx(seconds, abs=0.5)
