"""A turn of a case: a thin read-only view of its JSON data."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from evaltap.evaluator.cases.text import one_line
from evaltap.schemas.text import counted

Case: TypeAlias = Mapping[str, Any]  # JSON data in the form of the eval set format
"""An eval case, read only."""
ToolCall: TypeAlias = dict[str, Any]  # as above
"""A tool call of a turn."""

_NO_DATA: Final[Case] = {}
FAILED_RUNS: Final = frozenset({"error", "incomplete"})
"""The `telemetry.status` of runs that failed, and of those that never ended or were cut off."""
_ERROR_TEXT: Final = 300
_ABSENT_EVIDENCE: Final = frozenset({"missing", "redacted", "truncated"})
EARLIER_TURNS: Final = "earlierTurns"
"""The entry in `capture` of the first recorded turn after turns of its session that were not recorded."""


def absent_state(data: Case, field: str) -> str | None:
    """Return why a field of a turn or tool call is not usable as evidence; None if it is."""
    state = (data.get("capture") or _NO_DATA).get(field)
    return state if state in _ABSENT_EVIDENCE else None


def gaps_of(turn: Case) -> list[str]:
    """Describe the parts of a turn that are not usable as evidence or were left out."""
    gaps = [
        f"{name} is {state}"
        for name, state in (turn.get("capture") or {}).items()
        if name != EARLIER_TURNS
    ]
    if EARLIER_TURNS in (turn.get("capture") or {}):
        count = (turn.get("telemetry") or {}).get("earlierTurnsMissing")
        gaps.append(
            f"{counted(count, 'earlier turn') if isinstance(count, int) else 'earlier turns'}"
            f" {'was' if count == 1 else 'were'} not recorded"
        )
    return gaps


def run_failure(turn: Case, *, message: bool = True) -> str | None:
    """Return why a run failed, such as `the run failed (TimeoutError: …)`; None if it succeeded.

    Without `message`, only the type of the error is included.
    """
    telemetry = turn.get("telemetry") or _NO_DATA
    if telemetry.get("status") not in FAILED_RUNS:
        return None
    error = telemetry.get("error") or _NO_DATA
    parts = [text for key in ("type", "message") if (text := error.get(key))]
    detail = one_line(": ".join(parts if message else parts[:1]), _ERROR_TEXT)
    ended = "the run failed" if telemetry["status"] == "error" else "the run did not end"
    return f"{ended} ({detail})" if detail else ended


class Turn(Struct, eq=False, gc=False):
    """A read-only view of an invocation in canonical JSON form; None as data is an absent turn."""

    given: Case | None
    """The original invocation; read it through `data`."""
    unmarked: bool = False
    """Whether its evidence is known to be complete, so that `capture` need not be checked."""
    referenced: bool = True
    """Of an expected turn: whether it is a reference, so that it may be compared with."""

    @property
    def absent(self) -> bool:
        """Whether the turn is absent: null in the file."""
        return self.given is None

    @property
    def data(self) -> Case:
        """The invocation's JSON data; empty if the turn is absent."""
        return _NO_DATA if self.given is None else self.given

    @property
    def invocation_id(self) -> str:
        """The invocation's id; empty if it has none."""
        return self.data.get("invocationId") or ""

    @property
    def user_text(self) -> str | None:
        """The text of the user's message; None without a message."""
        message = self.data.get("userContent")
        return None if message is None else message.get("content") or ""

    @property
    def final_text(self) -> str | None:
        """The text of the final response; None without a response."""
        message = self.data.get("finalResponse")
        return None if message is None else message.get("content") or ""

    @property
    def references(self) -> "Sequence[Turn]":
        """Of an expected turn: alternatives that are equally good."""
        return [Turn(one) for one in self.data.get("references") or ()]

    @property
    def run_failed(self) -> bool:
        """Whether the run failed, never ended or was cut off; `run_failure` returns which."""
        return (self.data.get("telemetry") or _NO_DATA).get("status") in FAILED_RUNS

    @property
    def tools(self) -> list[ToolCall]:
        """The tool calls in order; a null entry of the file is None."""
        return self.data.get("tools") or []

    @property
    def calls(self) -> Sequence[Any]:
        """The tool calls, possibly not decoded yet; use only their `get`."""
        return self.data.get("tools") or ()

    @property
    def marked_calls(self) -> Sequence[Any]:
        """The calls with a `capture`, of which some field was not recorded unchanged."""
        return [call for call in self.data.get("tools") or () if call and "capture" in call]

    @property
    def capture(self) -> Mapping[str, str]:
        """The fields that were not recorded unchanged, and why."""
        return self.data.get("capture") or _NO_DATA

    def lacks(self, field: str) -> str | None:
        """Return why `field` is not usable as evidence (`finalResponse is redacted`); None if it is."""
        state = self.capture.get(field)
        return f"{field} is {state}" if state in _ABSENT_EVIDENCE else None

    def missing(self, field: str) -> str | None:
        """Return why `field` cannot be scored, as it is absent or not usable as evidence; None if it can.

        `tools` is never absent, since a turn may have no calls.  `tools.result` is a field of every call.
        """
        whole, _, part = field.partition(".")
        if (reason := self.lacks(whole)) is not None:
            return reason
        if whole != "tools":
            return f"{field} is absent" if self._is_absent(field) else None
        for call in self.marked_calls if part else ():
            if (state := absent_state(call, part)) is not None:
                return f"{part} of tool {call.get('name') or ''} is {state}"
        return None

    def _is_absent(self, field: str) -> bool:
        if field == "finalResponse":
            return self.final_text is None
        return self.user_text is None if field == "userContent" else self.data.get(field) is None

    def __repr__(self) -> str:
        return f"Turn({self.invocation_id!r})"
