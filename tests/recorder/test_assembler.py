"""The assembler: one turn for each run, regardless of the order, within its limits."""

import gc
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.recorder.assembly.assembler import Assembler, AssemblerLimits
from evaltap.recorder.memory import weigh
from evaltap.recorder.observation import (
    Failure,
    ModelCalled,
    Observation,
    Origin,
    Responded,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolCalled,
    ToolReturned,
    UserMessage,
    WholeRun,
)
from evaltap.recorder.tokens import Tokens

S = 1_000_000_000


def a_run(run_id: str = "r1", session_id: str | None = "s1", at: int = 100 * S) -> list[RunEvent]:
    return [
        RunStarted(
            run_id,
            at,
            session_id=session_id,
            app_name="shop",
            user_id="u-1",
            agent_name="support",
            origin=Origin("svc", "google-adk", "otel-genai"),
            trace_id="t" * 32,
            root_span_id="a" * 16,
        ),
        UserMessage(run_id, at, "Where is A-100?"),
        ModelCalled(run_id, at + S, model="m-1", text="Let me see.", tokens=Tokens(11, 5)),
        ToolCalled(run_id, at + S + 1, "c1", "get_order", {"order_id": "A-100"}, "support"),
        ToolCalled(run_id, at + S + 2, "c2", "get_order", {"order_id": "A-101"}, "support"),
        ToolReturned(run_id, at + 2 * S, "c2", {"status": "open"}, duration_ms=1.5),
        ToolReturned(run_id, at + 3 * S, "c1", {"status": "delivered"}, duration_ms=2.5),
        ModelCalled(run_id, at + 4 * S, model="m-1", tokens=Tokens(20, 7), span_id="b" * 16),
        Responded(run_id, at + 5 * S, "Delivered."),
        RunEnded(run_id, at + 5 * S),
    ]


def feed(assembler: Assembler, observations: Sequence[Observation]) -> list[dict[str, Any]]:
    return [case for item in observations for case in assembler.feed(item)]


@pytest.mark.slow
def test_a_closed_run_at_rest_costs_the_garbage_collector_little_and_is_revised_as_ever() -> None:
    resting, awake = Assembler(), Assembler()
    for number in range(200):
        assert feed(resting, a_run(f"r{number}")) == feed(awake, a_run(f"r{number}"))
    gc.collect()
    before = len(gc.get_objects())
    resting.expire(106 * S)
    gc.collect()
    assert len(gc.get_objects()) < before - 200 * 10

    late = ToolCalled("r7", 105 * S, "c3", "get_order", {"order_id": "A-102"}, "support")
    for _ in range(2):
        revised = feed(resting, [late])
        assert revised == feed(awake, [late])
        resting.expire(106 * S)
    assert resting.held_bytes == awake.held_bytes


@pytest.mark.slow
def test_runs_that_are_forgotten_are_held_no_longer_also_when_nobody_looks_after_them() -> None:
    assembler = Assembler(AssemblerLimits(max_closed_runs=10))
    for number in range(100):
        feed(assembler, a_run(f"forgotten-{number}"))
    gc.collect()

    ends = [item for item in gc.get_objects() if isinstance(item, RunEnded)]
    assert len([end for end in ends if end.run_id.startswith("forgotten-")]) <= 10


def turn(case: dict[str, Any]) -> dict[str, Any]:
    (only,) = case["actualConversation"]
    found: dict[str, Any] = only
    return found


def without_revision(case: dict[str, Any]) -> dict[str, Any]:
    return {**case, "source": {**case["source"], "revision": 0}}


def test_a_run_becomes_one_case_in_trace_mode_with_one_turn() -> None:
    (case,) = feed(Assembler(recorder_version="0.1.0"), a_run())

    assert case == {
        "evalId": "s1",
        "evalMode": "trace",
        "actualConversation": [
            {
                "invocationId": "r1",
                "userContent": {"role": "user", "content": "Where is A-100?"},
                "finalResponse": {"role": "assistant", "content": "Delivered."},
                "tools": [
                    {
                        "id": "c1",
                        "name": "get_order",
                        "arguments": {"order_id": "A-100"},
                        "result": {"status": "delivered"},
                        "startTime": 101.000000001,
                        "durationMs": 2.5,
                        "agent": "support",
                    },
                    {
                        "id": "c2",
                        "name": "get_order",
                        "arguments": {"order_id": "A-101"},
                        "result": {"status": "open"},
                        "startTime": 101.000000002,
                        "durationMs": 1.5,
                        "agent": "support",
                    },
                ],
                "intermediateResponses": [{"role": "assistant", "content": "Let me see."}],
                "creationTimestamp": 100.0,
                "telemetry": {
                    "traceId": "t" * 32,
                    "rootSpanId": "a" * 16,
                    "lastChatSpanId": "b" * 16,
                    "models": ["m-1"],
                    "inputTokens": 31,
                    "outputTokens": 12,
                    "latencyMs": 5000.0,
                    "status": "ok",
                    "agents": ["support"],
                },
            }
        ],
        "sessionInput": {"appName": "shop", "userId": "u-1"},
        "creationTimestamp": 100.0,
        "source": {
            "service": "svc",
            "framework": "google-adk",
            "convention": "otel-genai",
            "recorderVersion": "0.1.0",
            "closeReason": "run_ended",
            "revision": 1,
        },
    }


@given(st.permutations(a_run()), st.lists(st.sampled_from(a_run()), max_size=4))
def test_any_order_with_any_repetition_gives_the_same_case(
    order: list[RunEvent], repeated: list[RunEvent]
) -> None:
    expected = feed(Assembler(), a_run())[-1]

    cases = feed(Assembler(), [*order, *repeated])

    assert without_revision(cases[-1]) == without_revision(expected)


def test_runs_of_one_session_are_turns_with_the_same_eval_id() -> None:
    first, second = feed(Assembler(), [*a_run("r1"), *a_run("r2", at=200 * S)])

    assert first["evalId"] == second["evalId"] == "s1"
    assert turn(first)["invocationId"] != turn(second)["invocationId"]


def test_a_late_observation_revises_the_turn_and_makes_no_second_one() -> None:
    assembler = Assembler()
    feed(assembler, a_run())

    (revised,) = assembler.feed(ToolCalled("r1", 104 * S, "c3", "refund", {"amount": 5}))

    assert revised["source"]["revision"] == 2
    assert [tool["name"] for tool in turn(revised)["tools"]] == ["get_order", "get_order", "refund"]


def test_a_late_duplicate_is_no_revision() -> None:
    assembler = Assembler()
    observations = a_run()
    feed(assembler, observations)

    assert feed(assembler, observations) == []


def whole(*events: RunEvent) -> WholeRun:
    return WholeRun(events[0].run_id, events[0].time_ns, events)


def test_a_run_that_is_read_again_replaces_what_was_read_before() -> None:
    assembler = Assembler()
    (first,) = assembler.feed(whole(*a_run()))
    again = whole(
        RunStarted("r1", 100 * S, session_id="s1"),
        UserMessage("r1", 100 * S, "Where?"),
        ModelCalled("r1", 101 * S, tokens=Tokens(40)),
        RunEnded("r1", 105 * S),
    )

    (revised,) = assembler.feed(again)

    assert [first] == feed(Assembler(), a_run())
    assert revised["source"]["revision"] == 2
    assert turn(revised)["telemetry"]["inputTokens"] == 40
    assert "tools" not in turn(revised)


def test_a_run_that_is_read_again_and_says_the_same_is_no_revision() -> None:
    assembler = Assembler()
    read = whole(*a_run())
    assembler.feed(read)

    assert assembler.feed(read) == []
    assert assembler.held_bytes == 0


def test_only_the_digests_of_so_many_runs_are_kept() -> None:
    assembler = Assembler(AssemblerLimits(max_known_runs=10))

    for number in range(100):
        assembler.feed(whole(*a_run(f"r{number}")))

    assert len(assembler._revisions) == 10


def test_the_first_call_and_the_last_result_of_a_call_id_win() -> None:
    observations: list[Observation] = [
        *a_run()[:2],
        ToolCalled("r1", 101 * S, "c1", "get_order", {"order_id": "A"}),
        ToolCalled("r1", 102 * S, "c1", "get_order", {"order_id": "B"}),
        ToolReturned("r1", 103 * S, "c1", failure=Failure("TimeoutError", "slow")),
        ToolReturned("r1", 104 * S, "c1", "fine"),
        RunEnded("r1", 105 * S),
    ]

    (case,) = feed(Assembler(), observations)

    (tool,) = turn(case)["tools"]
    assert (tool["arguments"], tool["result"]) == ({"order_id": "A"}, "fine")
    assert "error" not in tool


def test_a_run_without_session_id_is_synthesized_from_its_run_id_and_says_so() -> None:
    (case,) = feed(Assembler(), a_run("trace-root", session_id=None))

    assert case["evalId"] == "trace-root"
    assert turn(case)["capture"] == {"sessionId": "synthesized"}


def test_a_session_id_that_comes_late_takes_the_place_of_the_synthesized_one() -> None:
    observations: list[Observation] = [
        RunStarted("r1", 100 * S, capture={"sessionId": "synthesized"}),
        RunStarted("r1", 101 * S, session_id="s1"),
        RunEnded("r1", 102 * S),
    ]

    (case,) = feed(Assembler(), observations)

    assert case["evalId"] == "s1"
    assert "capture" not in turn(case)


def test_a_failed_run_has_its_error_and_no_final_response() -> None:
    observations: list[Observation] = [
        *a_run()[:-1],
        RunEnded("r1", 105 * S, "error", Failure("TimeoutError", "model timed out")),
    ]

    (case,) = feed(Assembler(), observations)

    telemetry = turn(case)["telemetry"]
    assert telemetry["status"] == "error"
    assert telemetry["error"] == {"type": "TimeoutError", "message": "model timed out"}
    assert "finalResponse" not in turn(case)
    assert "finalResponse" not in turn(case).get("capture", {})


def test_content_that_the_source_could_not_see_is_missing_and_not_empty() -> None:
    observations: list[Observation] = [
        RunStarted("r1", S, session_id="s1"),
        UserMessage("r1", S, None, {"userContent": "missing"}),
        ToolCalled("r1", 2 * S, "c1", "f", None, capture={"arguments": "missing"}),
        ToolReturned("r1", 3 * S, "c1", None, capture={"result": "redacted"}),
        Responded("r1", 4 * S, None, {"finalResponse": "missing"}),
        RunEnded("r1", 4 * S),
    ]

    (case,) = feed(Assembler(), observations)

    assert turn(case)["capture"] == {"userContent": "missing", "finalResponse": "missing"}
    assert "userContent" not in turn(case)
    (tool,) = turn(case)["tools"]
    assert tool["capture"] == {"arguments": "missing", "result": "redacted"}
    assert "arguments" not in tool


def test_an_empty_text_and_empty_arguments_are_content() -> None:
    observations: list[Observation] = [
        RunStarted("r1", S, session_id="s1"),
        UserMessage("r1", S, ""),
        ToolCalled("r1", 2 * S, "c1", "now", {}),
        ToolReturned("r1", 3 * S, "c1", ""),
        RunEnded("r1", 4 * S),
    ]

    (case,) = feed(Assembler(), observations)

    assert turn(case)["userContent"]["content"] == ""
    (tool,) = turn(case)["tools"]
    assert (tool["arguments"], tool["result"]) == ({}, "")


def test_a_call_without_a_return_has_a_missing_result() -> None:
    observations: list[Observation] = [
        *a_run()[:2],
        ToolCalled("r1", 101 * S, "c1", "f", {}),
        RunEnded("r1", 102 * S),
    ]

    (case,) = feed(Assembler(), observations)

    assert turn(case)["tools"][0]["capture"] == {"result": "missing"}


def test_a_made_up_call_id_does_not_appear_in_the_case() -> None:
    observations: list[Observation] = [
        *a_run()[:2],
        ToolCalled("r1", 101 * S, "span-1", "outer", {}, id_known=False, capture={"id": "missing"}),
        ToolCalled("r1", 102 * S, "c2", "inner", {}, parent_call_id="span-1"),
        RunEnded("r1", 103 * S),
    ]

    (case,) = feed(Assembler(), observations)

    outer, inner = turn(case)["tools"]
    assert "id" not in outer
    assert "parentId" not in inner


def test_an_idle_run_is_closed_as_incomplete() -> None:
    assembler = Assembler(AssemblerLimits(idle_seconds=60))
    for item in a_run()[:4]:
        assembler.feed(item, 1000 * S)

    assert assembler.expire(1059 * S) == []
    (case,) = assembler.expire(1060 * S)

    assert case["source"]["closeReason"] == "idle_timeout"
    assert turn(case)["telemetry"]["status"] == "incomplete"
    assert "finalResponse" not in turn(case)


def test_shutdown_closes_every_open_run_as_incomplete() -> None:
    assembler = Assembler()
    feed(assembler, [*a_run("r1")[:3], *a_run("r2")[:3]])

    cases = list(assembler.close_all("shutdown"))

    assert [case["source"]["closeReason"] for case in cases] == ["shutdown", "shutdown"]
    assert assembler.open_runs == 0


def test_an_end_after_an_incomplete_close_revises_the_turn_to_complete() -> None:
    assembler = Assembler()
    observations = a_run()
    feed(assembler, observations[:4])
    list(assembler.close_all("idle_timeout"))

    cases = feed(assembler, observations[4:])

    assert without_revision(cases[-1]) == without_revision(feed(Assembler(), observations)[-1])
    assert cases[-1]["source"]["revision"] > 1


def test_the_run_idle_for_longest_is_evicted_beyond_the_limit_of_open_runs() -> None:
    assembler = Assembler(AssemblerLimits(max_open_runs=2))
    starts = [RunStarted(f"r{number}", number * S) for number in range(3)]

    (case,) = feed(assembler, starts)

    assert case["actualConversation"][0]["invocationId"] == "r0"
    assert case["source"]["closeReason"] == "evicted"
    assert turn(case)["telemetry"]["status"] == "incomplete"


def test_bytes_held_stay_below_their_limit() -> None:
    assembler = Assembler(AssemblerLimits(max_bytes=50_000))

    for number in range(500):
        assembler.feed(UserMessage(f"r{number % 7}", number * S, "x" * 1_000))
        assert assembler.held_bytes <= 50_000


def test_what_comes_for_a_forgotten_run_makes_no_turn() -> None:
    assembler = Assembler(AssemblerLimits(max_closed_runs=1))
    feed(assembler, [*a_run("r1"), *a_run("r2")])

    cases = assembler.feed(Responded("r1", 200 * S, "late"))

    assert cases == []


def test_nothing_is_kept_of_runs_closed_long_ago() -> None:
    assembler = Assembler(AssemblerLimits(revise_seconds=60))
    for item in a_run():
        assembler.feed(item, 1000 * S)

    assembler.expire(1060 * S)

    assert assembler.held_bytes == 0


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_the_weight_of_an_observation_grows_with_its_text(size: int) -> None:
    small, large = UserMessage("r", 0, ""), UserMessage("r", 0, "x" * size)

    assert weigh(large) - weigh(small) == size
