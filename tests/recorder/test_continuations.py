"""A run that goes on in another trace, from spans of the GenAI conventions: of a process and of files."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.recorder.assembly import continuations
from evaltap.recorder.assembly.assembler import Assembler
from evaltap.recorder.observation import (
    PAUSED,
    Observation,
    Responded,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    UserMessage,
    WholeRun,
)
from evaltap.recorder.sources.otlp_files import ReadingReport, read_cases, stream_cases
from support.builders.requests_of_agents import ASKED, Service, approved, calls, result
from support.builders.span_builders import intermediate, tools, words
from support.builders.spans_of_agents import OPERATION, says, user
from support.builders.witness import latest

Message = dict[str, Any]
S = 1_000_000_000
NO_SESSION = {OPERATION: "invoke_agent", "gen_ai.agent.name": "support"}


def test_two_requests_of_which_the_second_brings_the_result_are_one_turn() -> None:
    service = Service()

    approved(service)

    (turn,) = service.turns()
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Refund A", "Refunded.")
    assert tools(turn) == [("c1", "refund", {"amount": 5}, "done")]
    assert "capture" not in turn


@pytest.mark.parametrize("agent", [NO_SESSION, {OPERATION: "chat"}], ids=["agent", "chat"])
def test_without_a_session_the_call_tells(agent: dict[str, Any]) -> None:
    """As from AG-UI and the AI SDK, whose browser runs the tool and sends the result."""
    service = Service(agent)

    approved(service)

    (turn,) = service.turns()
    assert words(turn, "finalResponse") == "Refunded."


def test_without_a_session_what_two_turns_wait_for_is_joined_with_neither() -> None:
    service = Service(NO_SESSION)
    for _ in range(2):
        service.request((ASKED[:1], ASKED[1]))

    service.request(([*ASKED, result("c1", "done")], says("Refunded.")))

    assert [words(turn, "finalResponse") for turn in service.turns()] == [None, None, "Refunded."]


def test_another_session_is_another_turn() -> None:
    service = Service()
    service.request((ASKED[:1], ASKED[1]))

    given = [*ASKED, result("c1", "done")]
    service.request((given, says("Refunded.")), **{"gen_ai.conversation.id": "s2"})

    assert len(service.turns()) == 2


@pytest.mark.parametrize("answered", [True, False])
def test_a_user_who_asks_the_same_again_has_two_turns(answered: bool) -> None:
    """Also where a server numbers the calls of each response."""
    service = Service()
    asked = [user("Refund A"), calls("call_0", amount=5)]
    service.request((asked[:1], asked[1]))
    before = [*asked, result("call_0", "no"), says("No.")] if answered else asked

    service.request(([*before, asked[0]], asked[1]))
    service.request(([*before, *asked, result("call_0", "done")], says("Refunded.")))

    first, second = service.turns()
    assert words(first, "finalResponse") is None
    assert words(second, "userContent") == "Refund A"
    assert tools(second) == [("call_0", "refund", {"amount": 5}, "done")]


def test_a_turn_may_pause_more_than_once() -> None:
    service = Service()
    approved_twice = [*ASKED, result("c1", "done"), calls("c2", amount=7)]
    service.request((ASKED[:1], ASKED[1]))
    service.request((approved_twice[:3], approved_twice[3]))
    service.request(([*approved_twice, result("c2", "refused")], says("Only 5.")))

    (turn,) = service.turns()
    assert [one[3] for one in tools(turn)] == ["done", "refused"]
    assert words(turn, "finalResponse") == "Only 5."
    assert service.recorder.cases[-1]["source"]["revision"] == 3


def test_what_a_run_says_before_it_waits_is_no_answer() -> None:
    service = Service()
    said = {"role": "assistant", "parts": [*says("I ask.")["parts"], *ASKED[1]["parts"]]}
    service.request(([ASKED[0]], said))
    service.request(([ASKED[0], said, result("c1", "done")], says("Refunded.")))

    (turn,) = service.turns()
    assert (intermediate(turn), words(turn, "finalResponse")) == (["I ask."], "Refunded.")


def test_a_file_with_both_parts_has_one_turn(tmp_path: Path) -> None:
    service = Service()
    approved(service)
    file, out, report = (
        service.written(tmp_path / "t.pb"),
        tmp_path / "s.evalset.json",
        ReadingReport(),
    )

    (case,) = read_cases([file], report=report)
    streamed = list(stream_cases([file], ReadingReport()))

    assert report.turns == 1
    assert latest(streamed) == [case]
    assert main(["record", "otlp", str(file), "--out", str(out)]) == 0
    (written,) = json.loads(out.read_text())["evalCases"]
    assert [words(turn, "finalResponse") for turn in written["actualConversation"]] == ["Refunded."]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
def test_a_store_has_the_whole_turn_once_however_often_a_file_is_read(
    tmp_path: Path, at_once: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service()
    approved(service)
    log, db = str(tmp_path / "l.db"), str(tmp_path / "x.duckdb")
    if not at_once:  # before the approval
        first = service.written(tmp_path / "first.pb", slice(2))
        assert main(["record", "otlp", str(first), "--log", log]) == 0
        assert main(["consume", "--log", log, "--db", db, "--until-idle"]) == 0
    whole = service.written(tmp_path / "whole.pb")
    for _ in range(2):
        assert main(["record", "otlp", str(whole), "--log", log]) == 0
        assert main(["consume", "--log", log, "--db", db, "--until-idle"]) == 0
    capsys.readouterr()

    assert (
        main(["sql", "--db", db, "--json", "SELECT user_text, final_text FROM latest_turns"]) == 0
    )
    assert json.loads(capsys.readouterr().out) == [
        {"user_text": "Refund A", "final_text": "Refunded."}
    ]


# -- what the assembler is given ---------------------------------------------------------------------


def part(run_id: str, at: int, *events: Observation, paused: bool = False) -> WholeRun:
    """Return a run that asks, or goes on, at a second."""
    begun = RunStarted(run_id, at * S, session_id="s1", trace_id=run_id * 16)
    ended = RunEnded(
        run_id, (at + 2) * S, close_reason=PAUSED if paused else "run_ended", resumed=not paused
    )
    asked = UserMessage(run_id, at * S, "Refund A")
    return WholeRun(run_id, at * S, (begun, asked, *events, ended))  # type: ignore[arg-type]


FIRST = part("r1", 100, ToolCalled("r1", 101 * S, "c1", "refund", {"amount": 5}), paused=True)
NEXT = part(
    "r2",
    900,
    ToolCalled("r2", 900 * S, "c1", "refund", {"amount": 3}),
    ToolReturned("r2", 901 * S, "c1", "done", duration_ms=1000.0),
    ToolCalled("r2", 901 * S, "c1#2", "refund", {"amount": 1}),
    Responded("r2", 902 * S, "Refunded."),
)


def test_the_time_that_a_person_takes_is_not_the_agents() -> None:
    assembler = Assembler()

    (*_, case) = [case for one in (FIRST, NEXT) for case in assembler.feed(one)]

    (turn,) = case["actualConversation"]
    assert turn["telemetry"]["latencyMs"] == 4000.0
    assert turn["telemetry"]["traceId"] == "r2" * 16, "feedback is about the trace of the answer"
    assert turn["invocationId"] == "r1"


def test_a_call_is_told_as_it_was_approved() -> None:
    assembler = Assembler()

    (*_, case) = [case for one in (FIRST, NEXT) for case in assembler.feed(one)]

    assert tools(case["actualConversation"][0]) == [
        ("c1", "refund", {"amount": 3}, "done"),
        ("c1#2", "refund", {"amount": 1}, None),
    ]


def test_a_part_that_is_read_again_revises_the_turn() -> None:
    assembler = Assembler()
    for one in (FIRST, NEXT):
        assembler.feed(one)
    looked = ToolCalled("r1", 100 * S, "c0", "look", {})
    answer = Responded("r2", 902 * S, "All refunded.")

    again = [*FIRST.events[:2], looked, *FIRST.events[2:]]
    (first,) = assembler.feed(WholeRun("r1", 100 * S, tuple(again)))
    (last,) = assembler.feed(WholeRun("r2", 900 * S, (*NEXT.events[:-2], answer, NEXT.events[-1])))

    assert [case["source"]["revision"] for case in (first, last)] == [3, 4]
    (turn,) = last["actualConversation"]
    assert [one[1] for one in tools(turn)] == ["look", "refund", "refund"]
    assert words(turn, "finalResponse") == "All refunded."
    assert len(assembler.feed(NEXT)) == 1
    assert assembler.feed(NEXT) == []


def test_a_turn_that_waits_for_too_long_is_forgotten_and_the_next_part_a_turn() -> None:
    assembler = Assembler()
    assembler.feed(FIRST)
    day = int(continuations.HELD_SECONDS)

    assembler.expire((103 + day) * S)
    (case,) = assembler.feed(NEXT)

    (turn,) = case["actualConversation"]
    assert (turn["invocationId"], words(turn, "userContent")) == ("r2", "Refund A")


def test_a_loop_whose_model_calls_are_traces_is_one_turn_however_long_it_is() -> None:
    service = Service({OPERATION: "chat"})
    said: list[Message] = [user("Refund A")]
    for number in range(30):
        asked = calls(f"c{number}", amount=number)
        service.request((said, asked))
        said += [asked, result(f"c{number}", number)]
    service.request((said, says("Refunded.")))

    (turn,) = service.turns()
    assert [one[3] for one in tools(turn)] == [*range(30)]
    assert (words(turn, "finalResponse"), len(service.recorder.cases)) == ("Refunded.", 31)
    revisions = [one["source"]["revision"] for one in service.recorder.cases]
    assert revisions == [*range(1, 32)]


def test_a_part_that_was_merged_is_not_revised() -> None:
    assembler = Assembler()
    runs = [part(f"r{number}", number, *FIRST.events[2:-1], paused=True) for number in range(1)]
    for number in range(1, continuations.MAX_PARTS + 3):
        again = ToolCalled("r", number * S, f"c{number}", "refund", {"amount": number})
        run = part(f"r{number}", number, *FIRST.events[2:-1], again)
        ended = RunEnded(run.run_id, number * S + 1, close_reason=PAUSED, resumed=True)
        runs.append(WholeRun(run.run_id, number * S, (*run.events[:-1], ended)))
    for one in runs:
        assert len(assembler.feed(one)) == 1

    late = ToolCalled("r1", S, "c99", "look", {})
    assert assembler.feed(WholeRun("r1", S, (*runs[1].events, late))) == []


def test_only_so_many_turns_wait() -> None:
    held = continuations.Continuations()
    known: set[str] = set()
    for number in range(continuations.MAX_TURNS + 10):
        run = part(f"r{number}", number, paused=True)
        held.joined(run.run_id, run.events, known)

    assert held.held_turns == continuations.MAX_TURNS
    assert 0 < held.held_bytes < continuations.MAX_BYTES
