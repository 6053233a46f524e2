"""What a plugin's bookkeeping is given may be as odd as can be: the agent does not notice."""

from typing import Any

from evaltap.recorder.observation import Origin, failure_of
from evaltap.recorder.run import ObservedRun
from inline_recorder import InlineRecorder


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
