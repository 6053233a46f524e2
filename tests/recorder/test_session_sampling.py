"""Whole sessions are kept because of events in one of their turns, with the session's probability.

`EVALTAP_TEST_TURNS` sets how many turns the recorder takes whose memory is measured (default 20,000).
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from evaltap.recorder import MemorySink, Recorder, RecorderConfig
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.delivery.session_hold import MAX_HELD_TURNS, SessionHold
from evaltap.recorder.sampling.rules import parse_outcome_rules
from evaltap.recorder.sampling.sampler import BURST, position
from evaltap.recorder.sampling.sessions import SessionSampler
from support.builders.cases import make_case, make_turn

TURNS = int(os.environ.get("EVALTAP_TEST_TURNS", "20000"))

ERRORS = {"name": "errors", "keep": 1, "error": True}
THUMBS = {"name": "thumbs", "keep": 1, "negativeFeedback": True}
HIGH = next(f"s-{n}" for n in range(1000) if position(f"s-{n}") > 0.99)


@pytest.fixture(autouse=True)
def _close_holds() -> Iterator[None]:
    yield
    while Held.opened:
        Held.opened.pop().hold.discard()


class Held:
    """A hold with a clock of its own, and what came out of it."""

    opened: ClassVar[list["Held"]] = []

    def __init__(
        self, *rules: dict[str, Any], rate: float = 0.0, quiet: float = 60.0, limit: float = 0.0
    ) -> None:
        self.now = 0.0
        self.dropped: list[str] = []
        self.kept: list[dict[str, Any]] = []
        sampler = SessionSampler(
            rate,
            parse_outcome_rules(json.dumps(rules)),
            quiet_seconds=quiet,
            max_per_minute=limit,
            clock=lambda: self.now,
        )
        processor = CaseProcessor(RecorderConfig(), lambda: None)
        self.hold = SessionHold(processor, sampler, self.dropped.append)
        self.opened.append(self)

    def turn(self, session: str, name: str, **turn: Any) -> None:
        from evaltap.recorder.faults import DropCaseError

        try:
            self.hold.add(make_case(session, [make_turn(name, tools=[], **turn)]))
        except DropCaseError as dropped:
            self.dropped.append(dropped.reason)
        self.release()

    def release(self, *, everything: bool = False) -> None:
        for cases in self.hold.decided(everything=everything):
            self.kept += cases

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.release()

    @property
    def names(self) -> list[str]:
        return [case["actualConversation"][0]["invocationId"] for case in self.kept]


FAILED = {"telemetry": {"status": "error"}}


def test_a_turn_that_fails_keeps_the_turns_before_and_after_it() -> None:
    held = Held(ERRORS)
    held.turn(HIGH, "t-1")
    held.turn(HIGH, "t-2")
    assert held.names == []
    held.turn(HIGH, "t-3", **FAILED)
    held.turn(HIGH, "t-4")

    assert held.names == ["t-1", "t-2", "t-3", "t-4"], "at once: nothing could change it any more"
    source = [case["source"] for case in held.kept]
    assert {one["inclusionProbability"] for one in source} == {1.0}
    assert {one["samplingReason"] for one in source} == {"errors"}
    assert [one["turnNumber"] for one in source] == [1, 2, 3, 4]


def test_a_session_without_a_reason_is_left_out_once_it_is_quiet() -> None:
    held = Held(ERRORS, quiet=60)
    held.turn(HIGH, "t-1")
    held.wait(59)
    held.turn(HIGH, "t-2")
    held.wait(59)
    assert held.dropped == []
    held.wait(2)

    assert held.kept == []
    assert held.dropped == ["sampled_out", "sampled_out"]
    assert held.hold.turns == 0


def test_a_complaint_that_comes_later_keeps_the_session() -> None:
    held = Held(THUMBS, quiet=60)
    held.turn(HIGH, "t-1")
    held.turn(HIGH, "t-2")
    held.wait(50)

    held.hold.note_negative(HIGH)
    held.release()

    assert held.names == ["t-1", "t-2"]


def test_all_conditions_of_a_rule_hold_of_one_turn_also_after_a_complaint() -> None:
    both = {"name": "both", "keep": 1, "negativeFeedback": True, "error": True}
    held = Held(both)
    for session in ("a", "b"):
        held.turn(session, "t-1", **(FAILED if session == "a" else {}))
        held.hold.note_negative(session)
    held.release(everything=True)

    assert [case["evalId"] for case in held.kept] == ["a"]


def test_what_was_left_out_before_is_marked_on_the_first_turn_behind_it() -> None:
    held = Held(ERRORS, quiet=60)
    held.turn(HIGH, "t-1")
    held.turn(HIGH, "t-2")
    held.wait(61)
    held.turn(HIGH, "t-3", **FAILED)
    held.turn(HIGH, "t-4")

    first, second = (case["actualConversation"][0] for case in held.kept)
    assert first["capture"] == {"earlierTurns": "missing"}
    assert first["telemetry"]["earlierTurnsMissing"] == 2
    assert "capture" not in second
    assert [case["source"]["turnNumber"] for case in held.kept] == [3, 4]


def test_a_rule_for_turns_keeps_the_turn_alone() -> None:
    held = Held({**ERRORS, "unit": "turn"}, {"name": "x", "keep": 0.01, "moreStepsThan": 99})
    held.turn(HIGH, "t-1")
    held.turn(HIGH, "t-2", **FAILED)
    held.release(everything=True)

    assert held.names == ["t-2"]
    assert held.dropped == ["sampled_out"]


def test_a_session_that_is_never_quiet_is_decided_after_a_while() -> None:
    session = next(f"s-{n}" for n in range(100) if position(f"s-{n}") < 0.4)
    held = Held(ERRORS, rate=0.5, quiet=60)
    for number in range(20):
        held.turn(session, f"t-{number}")
        held.wait(30)

    assert len(held.kept) > 5
    assert {case["source"]["inclusionProbability"] for case in held.kept} == {0.5}


def test_a_turn_told_again_takes_the_place_of_what_was_held() -> None:
    held = Held(ERRORS)
    held.turn(HIGH, "t-1", answer="first")
    case = make_case(HIGH, [make_turn("t-1", tools=[], answer="second", **FAILED)])
    held.hold.add({**case, "source": {"revision": 2}})
    held.release()

    (kept,) = held.kept
    assert kept["actualConversation"][0]["finalResponse"]["content"] == "second"
    assert kept["source"]["turnNumber"] == 1


def test_what_waits_is_bounded_and_the_longest_quiet_is_decided_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evaltap.recorder.delivery.session_hold.MAX_HELD_TURNS", 50)
    held = Held(ERRORS, rate=0.0)
    for number in range(200):
        held.turn(f"s-{number}", "t-1")

    assert held.hold.turns <= 50
    assert len(held.dropped) >= 150
    assert MAX_HELD_TURNS == 100_000


def test_a_limit_draws_for_sessions_and_a_burst_beyond_it_is_told_apart() -> None:
    held = Held(ERRORS, rate=0.0, limit=60)
    for number in range(600):
        held.turn(f"s-{number}", "t-1", **FAILED)
        held.turn(f"s-{number}", "t-2")

    whole = defaultdict(set)
    for case in held.kept:
        whole[case["evalId"]].add(case["actualConversation"][0]["invocationId"])
    assert {frozenset(turns) for turns in whole.values()} == {frozenset({"t-1", "t-2"})}
    assert set(held.dropped) <= {"rate_limited", BURST}
    assert "rate_limited" in held.dropped


# -- through the recorder --------------------------------------------------------------------------


def talk(recorder: Recorder, session: str, turns: int, failing: int = 0) -> None:
    for number in range(1, turns + 1):
        with recorder.turn(session_id=session, user=f"question {number}") as turn:
            if number == failing:
                turn.tool("refund", {}, error="refused")
            turn.respond("answer")


def test_the_recorder_writes_the_whole_session_of_an_error() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, sample_rate=0, sample_rules=json.dumps([ERRORS]))
    talk(recorder, "good", 3)
    talk(recorder, "bad", 4, failing=3)
    assert recorder.close(10)

    assert [case["evalId"] for case in sink.cases] == ["bad"] * 4
    counters = recorder.counters()
    assert counters.dropped == {"sampled_out": 3} == sink.manifests[-1].drops
    assert counters.recorded == 7
    assert counters.waiting == 0


def test_held_turns_are_waiting_until_they_are_decided() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, sample_rate=0, sample_rules=json.dumps([ERRORS, THUMBS]))
    talk(recorder, "s", 3)
    assert recorder.flush(10)
    assert (recorder.counters().waiting, recorder.counters().recorded) == (3, 0)

    recorder.feedback("s", positive=False)
    assert recorder.flush(10)

    assert recorder.counters().waiting == 0
    assert len(sink.cases) == 3
    recorder.close()


def test_only_redacted_text_waits_on_disk(tmp_path: Path) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, sample_rate=0, sample_rules=json.dumps([ERRORS]))
    with recorder.turn(session_id="s", user="I am ann@example.com") as turn:
        turn.tool("t", {}, error="E")
        turn.respond("hello ann@example.com")
    recorder.close()

    (case,) = sink.cases
    assert "ann@example.com" not in json.dumps(case)


def test_a_hold_of_zero_seconds_decides_turn_by_turn() -> None:
    sink = MemorySink()
    rules = json.dumps([ERRORS])
    recorder = Recorder(sink=sink, sample_rate=0, sample_rules=rules, sample_hold_seconds=0.0)
    for number in range(3):
        talk(recorder, HIGH, 1, failing=number % 2)
        assert recorder.flush(10)
    recorder.close()

    assert len(sink.cases) == 2
    assert sink.cases[0]["actualConversation"][0]["capture"]["earlierTurns"] == "missing"


# -- are the probabilities right? ------------------------------------------------------------------


def sample(
    rng: np.random.Generator, repetition: int, *, quiet: float
) -> tuple[list[float], float, int]:
    """Return the weighted sums of a sample (turns, failures), and the truth."""
    rules = (ERRORS, {**THUMBS, "keep": 0.6}, {"name": "long", "keep": 0.4, "moreStepsThan": 99})
    held = Held(*rules, rate=0.2, quiet=quiet)
    turns = failures = 0
    for session in range(120):
        name = f"{repetition}-{session}"
        for number in range(int(rng.integers(1, 7))):
            failed = rng.random() < 0.07
            turns += 1
            failures += failed
            held.turn(name, f"{'f' if failed else 'g'}-{number}", **(FAILED if failed else {}))
            held.wait(float(rng.exponential(20)))
        if rng.random() < 0.1:
            held.hold.note_negative(name)
    held.release(everything=True)
    weights = [(1 / c["source"]["inclusionProbability"], c) for c in held.kept]
    failing = sum(w for w, c in weights if c["actualConversation"][0]["invocationId"][0] == "f")
    return [sum(w for w, _ in weights), failing], turns, failures


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [0.0, 15.0, 10_000.0])
def test_weights_give_back_the_traffic_within_the_error_of_the_simulation(quiet: float) -> None:
    rng = np.random.default_rng(7)
    found, truth = [], []
    for repetition in range(60):
        sums, turns, failures = sample(rng, repetition, quiet=quiet)
        found.append(sums)
        truth.append([turns, failures])

    difference = np.array(found) - np.array(truth)
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    assert np.all(np.abs(difference.mean(axis=0)) < 4 * error + 1e-9)


_MANY = """
import json, resource, sys
from evaltap.recorder import Recorder
from evaltap.schemas.wire.record import WireRecord

class Nothing:
    def append(self, records): pass
    def flush(self, timeout_seconds): return True
    def backlog(self): return 0
    def close(self): pass

rules = json.dumps([{"name": "errors", "keep": 1, "error": True}])
recorder = Recorder(sink=Nothing(), sample_rate=0.1, sample_rules=rules)
def record(first, count):
    for n in range(first, first + count):
        with recorder.turn(session_id=f"s-{n // 4}", user="where is it?") as turn:
            turn.respond("on its way")
        if n % 500 == 0:
            recorder.flush(60)
record(0, 2_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
record(2_000, int(sys.argv[1]))
recorder.close(60)
counters = recorder.counters()
print(json.dumps([before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, counters.recorded]))
"""


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_recorder_that_samples_sessions_stays_small() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MANY, str(TURNS)], capture_output=True, text=True, check=True
    )

    before, after, recorded = json.loads(done.stdout)
    scale = 1 if sys.platform == "darwin" else 1024
    assert recorded == TURNS + 2_000
    assert (after - before) * scale < 36 << 20
