"""Arbitrarily odd input to a plugin's bookkeeping does not affect the agent."""

import time
from typing import Any

from evaltap.recorder.observation import Origin, failure_of
from evaltap.recorder.plugins.langchain_values import result_of, state_of, tool_output_value
from evaltap.recorder.plugins.support import first_items, first_of, text_of
from evaltap.recorder.run import ObservedRun
from support.builders.inline_recorder import InlineRecorder


class Hostile:
    """An object of which nothing can be asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")


class HostileError(Exception):
    """An error that cannot tell what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_objects_that_cannot_be_asked_anything_do_no_harm() -> None:
    recorder = InlineRecorder()

    run = ObservedRun(recorder, Origin())
    run.tool_called("c1", "odd", {})
    run.tool_returned("c1", {"odd": Hostile()})
    run.end("error", failure_of(HostileError()))

    (turn,) = recorder.cases[0]["actualConversation"]
    (tool,) = turn["tools"]
    assert "<" in str(tool["result"]), "only the name of a type may be left of it"
    assert turn["telemetry"]["error"]["type"].endswith("HostileError")


class Asked:
    """An object that says when its code runs."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    def __bool__(self) -> bool:
        raise AssertionError("bool")

    def __repr__(self) -> str:
        raise AssertionError("repr")

    __str__ = __repr__


class Incomparable(dict[str, int]):
    """A result of which no truth can be told, as of two tables of pandas."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None


def test_a_result_that_cannot_be_compared_is_recorded() -> None:
    recorder = InlineRecorder()

    run = ObservedRun(recorder, Origin())
    run.tool_called("c1", "table", {})
    run.tool_returned("c1", Incomparable(rows=2))
    run.end()

    (turn,) = recorder.cases[0]["actualConversation"]
    assert turn["tools"][0]["result"] == {"rows": 2}
    assert not run.is_waiting


def test_an_answer_of_any_size_is_text_in_no_time() -> None:
    shared: Any = ["text"] * 9
    for _ in range(9):
        shared = [shared] * 9

    for answer in (shared, {"a": shared}, "x" * 5_000_000, {str(n): n for n in range(100_000)}):
        began = time.thread_time()
        result_of({"structured_response": answer, "messages": []})
        if not isinstance(answer, str):
            assert len(text_of(answer)) < 140_000
        assert time.thread_time() - began < 2


def test_no_plugin_runs_code_of_an_answer_an_id_or_a_result() -> None:
    assert text_of(Asked()) == "<Asked>"
    assert text_of({"total": 3, "who": Asked()}) == '{"total":3,"who":"<Asked>"}'
    assert first_of({"thread_id": Asked(), "b": 7}, ("a", "thread_id", "b")) == "<Asked>"
    assert first_of({"a": "", "b": 0, "c": 7}, ("a", "b", "c")) == "7"
    result = Asked()
    assert tool_output_value(result, "c1") == (result, False)


def test_no_more_of_a_state_is_read_than_is_kept() -> None:
    state = {"messages": [], **{str(n): n for n in range(100_000)}}

    assert len(state_of(state)) < 2_000
    assert list(first_items({1: 2, "a": 3})) == [("1", 2), ("a", 3)]  # type: ignore[dict-item]  # on purpose
