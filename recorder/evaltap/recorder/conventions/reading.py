"""One convention's reading of one span, and how several readings are merged.

A dialect is an object with a `name`, the `marks` of its spans and a `read` method. It inspects one
span (and the log records written inside it) and returns a `Reading`, or None when it finds no
evidence of its own. A span may use several dialects at once; each *field* comes from the first
dialect that knows it, so a dialect leaves unknown fields as None and never repeats another's guess.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, TypeVar

from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import STATUS_ERROR, LogRecord, Span
from evaltap.recorder.tokens import Tokens
from evaltap.schemas.chat.evidence import Evidence, Flaw, decode
from evaltap.schemas.chat.messages import Answer, Message

_Number = TypeVar("_Number", int, float)
Kind = Literal["run", "agent", "model", "tool", "handoff", "guardrail", "other", "dropped"]
"""What a span represents.

run      a runner or workflow: may be the root of a turn, is not an agent
agent    one agent's work: may be the root of a turn
model    one call of a language model
tool     one execution of a tool
handoff  control passes to another agent; not a tool call
guardrail  a check beside the dialogue; what happens within it is no part of the turn
other    recognized, but none of the above (embedding, retrieval, setup)
dropped  an artifact of the instrumentation, to be ignored
"""


@dataclass(slots=True)
class Reading:
    """The facts found on one span; None is *not seen*."""

    convention: str
    kind: Kind | None = None
    agent_name: str | None = None
    app_name: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    invocation_id: str | None = None
    """The framework's own id of the run, if it has one."""
    input: tuple[Message, ...] | None = None
    """The input: the conversation so far for a model, the new messages for a run."""
    output: tuple[Message, ...] | None = None
    """The output: one message of a model; for a run possibly all of its messages."""
    context: tuple[Message, ...] | None = None
    """A model's instructions, when they are not among the messages."""
    user: Evidence | None = None
    """A run's user message, if the convention states it."""
    final: Evidence | None = None
    """A run's final answer, if the convention states it."""
    user_fallback: Evidence | None = None
    """Text that went into the run; used only when nothing better is seen."""
    final_fallback: Evidence | None = None
    """Text that came out of the run; used only when no model text is seen."""
    model: str | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: float | None = None
    tool_name: str | None = None
    call_id: str | None = None
    arguments: Evidence | None = None
    result: Evidence | None = None
    failure: Failure | None = None
    """A failure that the convention states in its own attributes."""
    output_tools: frozenset[str] | None = None
    """Names of tools that only deliver the final answer and are not tool calls."""
    flattens_agents: bool | None = None
    """True when sub-agents' spans are siblings of the tool span that ran them."""
    awaited: bool | None = None
    """True for a tool whose result is not the last: that comes when the turn goes on."""
    resumed: bool | None = None
    """True when a run states that it goes on with what a person said."""
    overwritten: bool | None = None
    """True for an agent span overwritten by its model calls: `input` and `output` are those of the
    last call."""
    repair: "Callable[[Reading], None] | None" = None
    """Repairs what the framework writes incorrectly, after all dialects were read."""
    flaws: dict[str, Flaw] = field(default_factory=dict)
    """Why `input` or `output` could not be used: truncated or redacted."""

    def note_flaws(self, **seen: Flaw | None) -> None:
        """Keep the flaws of what was seen, by field."""
        self.flaws |= {name: flaw for name, flaw in seen.items() if flaw}

    def use(self, used: Tokens) -> None:
        """Take over a model call's tokens."""
        self.input_tokens, self.output_tokens = used.input, used.output
        self.cache_read_tokens, self.cache_write_tokens = used.cache_read, used.cache_write


class Dialect(Protocol):
    """Reads the attributes of one family of conventions.

    `read` is called once per span, from the recorder's thread or a file reader, with the log
    records of that span in time order. It must be pure, and must not raise on any attribute value,
    since values come from other processes.
    """

    name: str

    @property
    def marks(self) -> tuple[str, ...]:
        """Prefixes of attribute names.

        The dialect is not called for a span without such an attribute, an event, a log record or a
        recognizable name (`conventions.is_known_by_name`).
        """
        ...

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return this convention's reading of the span, or None."""


EMPTY_IDS = frozenset({"", "null", "none", "undefined", "nil", "nan", "n/a", "{}", "[]"})
"""Placeholders that instrumentations write for a missing id: `str(None)`, the JSON `null`."""


def drop_empty_ids(reading: Reading) -> None:
    """Drop a session or user id that is a placeholder for none.

    Taken literally, it would put everybody's runs into one session.
    """
    for name in ("session_id", "user_id"):
        given = getattr(reading, name)
        if given is not None and given.strip(" \t\n'\"").lower() in EMPTY_IDS:
            setattr(reading, name, None)


def merge(readings: Iterable[Reading]) -> Reading | None:
    """Return one reading that takes each field from the first reading that has it."""
    merged: Reading | None = None
    for reading in readings:
        if merged is None:
            merged = reading
            continue
        absorb(merged, reading)
    return merged


def absorb(target: Reading, source: Reading) -> None:
    """Fill the unknown fields of `target` from `source`."""
    for name in _MERGED:
        if getattr(target, name) is None:
            setattr(target, name, getattr(source, name))
    for name, flaw in source.flaws.items():
        target.flaws.setdefault(name, flaw)


_MERGED = [item.name for item in fields(Reading) if item.name not in ("convention", "flaws")]


def failure_of(span: Span, stated: Failure | None = None) -> Failure | None:
    """Return the span's failure, or None when it did not fail.

    Evidence is any of: the convention's statement, an error status, `error.type`, an exception
    event. The exception event is the most precise about type and message.
    """
    event = next((event for event in reversed(span.events) if event.name == "exception"), None)
    error_type = text(span.attributes.get("error.type"))
    if stated is None and event is None and error_type is None and span.status_code != STATUS_ERROR:
        return None
    told = stated or Failure()
    if told.type is None and _PAUSE.match(span.status_message or ""):
        return None
    raised: Mapping[str, object] = {} if event is None else event.attributes
    kind, message = _split(
        text(raised.get("exception.type")) or error_type,
        text(raised.get("exception.message")) or span.status_message or None,
    )
    told_kind, told_message = _split(told.type, told.message)
    kind, message = told_kind or kind, told_message or message
    if _PAUSE.match(kind or message or ""):
        return None
    return Failure(type=kind, message=message if message != kind else None)


def failure_of_answer(answer: Answer) -> Failure:
    """Return the failure that a tool result for the model reports in its status."""
    words = answer.result.value if answer.result is not None else None
    return Failure(message=words if isinstance(words, str) else None)


def waits(span: Span) -> bool:
    """Return whether a span ended because a person or another program has to act first."""
    raised = (event.attributes for event in span.events if event.name == "exception")
    kinds = [*(text(one.get("exception.type")) for one in raised), span.status_message]
    return any(_WAIT.match(kind) for kind in kinds if kind)


_WAITS = r"(?:[A-Za-z_]\w*\.)*(?:GraphInterrupt|NodeInterrupt|ApprovalRequired|CallDeferred)\b"
_WAIT = re.compile(_WAITS)
"""What frameworks raise to wait for a person."""
_PAUSE = re.compile(
    _WAITS + r"|(?:[A-Za-z_]\w*\.)*(?:Tool)?(?:Input|Output)GuardrailTripwireTriggered\b"
    r"|Guardrail tripwire triggered\b"
)
"""What they raise to wait, or to stop on purpose: the run did not crash."""
_CONSTRUCTED = re.compile(r"^([A-Za-z_][\w.]*)\((['\"])(.*?)\2,?\)(?:\s*Traceback.*)?$", re.DOTALL)
_PREFIXED = re.compile(
    r"^(?:Error: )?([A-Za-z_][\w.]*(?:Error|Exception|Retry|Timeout|Interrupt))(?:: | - )(.*)$",
    re.DOTALL,
)


def _split(kind: str | None, message: str | None) -> tuple[str | None, str | None]:
    """Parse the type from a message such as `ValueError('no')` or `ValueError: no`."""
    if message is None:
        return kind, None
    if kind not in (None, "Exception", "Error"):
        prefix = f"{kind}: "
        return kind, message.removeprefix(prefix)
    if found := _CONSTRUCTED.match(message):
        return found.group(1), found.group(3)
    found = _PREFIXED.match(message)
    return (found.group(1), found.group(2)) if found else (kind, message)


_DECORATED = re.compile(r"^\w+ \[(?P<name>.+)\]$")
_OPERATION = re.compile(r"^(?:[A-Za-z_]\w*\.[\w-]+|invoke_agent|agent_run|agent|run)$")


def agent_in_name(span_name: str) -> str | None:
    """Return the agent a span is named after; None for an operation, such as `CodeAgent.run`."""
    name = span_name.removeprefix("invoke_agent ").removeprefix("process_thread_run ")
    name = name.removesuffix("._execute_core").strip()
    if decorated := _DECORATED.match(name):
        return decorated["name"]
    return None if not name or _OPERATION.match(name) else name


def text(value: object) -> str | None:
    """Return the value if it is non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def whole(value: object) -> int | None:
    """Return the value as an integer, or None."""
    return _converted(value, int)


def number(value: object) -> float | None:
    """Return the value as a number, or None."""
    return _converted(value, float)


def _converted(value: Any, kind: Callable[[Any], _Number]) -> _Number | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        return None


def first_value(
    attributes: Mapping[str, object],
    names: Sequence[str],
    read: Callable[[object], Evidence] = decode,
) -> Evidence | None:
    """Return the decoded value of the first attribute of `names` that there is."""
    found = next((attributes[name] for name in names if name in attributes), None)
    return None if found is None else read(found)


def first_text(attributes: Mapping[str, object], *names: str) -> str | None:
    """Return the first attribute of `names` that is non-empty text."""
    for name in names:
        value = attributes.get(name)
        if value and isinstance(value, str):
            return value
    return None


def first_whole(attributes: Mapping[str, object], *names: str) -> int | None:
    """Return the first attribute of `names` that is an integer."""
    for name in names:
        value = attributes.get(name)
        if value is not None and (found := whole(value)) is not None:
            return found
    return None
