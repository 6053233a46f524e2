"""The fields of a case that rows need, decoded straight from its bytes.

Most of a record is arguments, results and texts that rows store as JSON.  They are copied from the record
instead of being decoded and encoded again.
"""

from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from evaltap.schemas.formats.case import EvalCase

NOTHING: Final = Raw(b"")
DEEPEST: Final = 250
"""A nesting depth that every JSON encoder in use supports."""


class _Camel(Struct, rename="camel", gc=False):
    """An object of the record; fields that no row needs are skipped."""


class Message(_Camel):
    """A message; a missing `content` is an empty text."""

    content: str | None = ""


class ErrorFields(_Camel):
    """What went wrong."""

    type: str | None = None
    message: str | None = None


class ToolFields(_Camel):
    """A tool call."""

    id: str | None = None
    name: str | None = None
    agent: str | None = None
    parent_id: str | None = None
    arguments: Raw = NOTHING
    result: Raw = NOTHING
    error: ErrorFields | None = None
    start_time: float | None = None
    duration_ms: float | None = None


class UsageFields(_Camel):
    """The tokens of one model."""

    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class TelemetryFields(_Camel):
    """What a turn took."""

    status: str | None = None
    models: list[str] | None = None
    agents: list[str] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    usage: list[UsageFields] | None = None
    latency_ms: float | None = None
    error: ErrorFields | None = None
    trace_id: str | None = None
    root_span_id: str | None = None


class TurnFields(_Camel):
    """The turn of a record."""

    invocation_id: str = ""
    creation_timestamp: float | None = None
    user_content: Message | None = None
    final_response: Message | None = None
    tools: list[ToolFields | None] | None = None
    telemetry: TelemetryFields | None = None
    capture: Raw = NOTHING


class SessionFields(_Camel):
    """Whose session it is."""

    app_name: str | None = None
    user_id: str | None = None


class SourceFields(_Camel):
    """Where the record comes from."""

    service: str | None = None
    framework: str | None = None
    convention: str | None = None
    recorder_version: str | None = None
    inclusion_probability: float | None = None
    close_reason: str | None = None
    sampling_reason: str | None = None
    agent_name: str | None = None
    version: str | None = None
    environment: str | None = None
    tags: list[str] | None = None
    run: str | None = None
    revision: int | None = None


class CaseFields(NamedTuple):
    """A case without what its turn says."""

    eval_id: str
    eval_set_id: str | None
    eval_mode: str | None
    session: SessionFields
    source: SourceFields
    actual: Raw
    expected: Raw | None
    header: Any  # a struct or Raw: what msgspec writes as the case without its turns

    @property
    def header_json(self) -> str:
        """The case without its turns."""
        return _encode(self.header).decode()


_Parts: Final[Any] = msgspec.defstruct(
    "_Parts",
    [
        (name, list[Raw] | None if name in ("actualConversation", "conversation") else Raw, default)
        for name, default in (
            (
                field.alias or name,
                None if field.alias in ("actualConversation", "conversation") else NOTHING,
            )
            for name, field in EvalCase.model_fields.items()
        )
    ],
    omit_defaults=True,
    gc=False,
)
_parts: Final[Any] = msgspec.json.Decoder(_Parts)
_turn: Final = msgspec.json.Decoder(TurnFields)
_session: Final = msgspec.json.Decoder(SessionFields | None)
_source: Final = msgspec.json.Decoder(SourceFields | None)
_text: Final = msgspec.json.Decoder(str | None)
_NULL: Final = Raw(b"null")
_encode: Final = msgspec.json.Encoder().encode
_NO_SESSION: Final = SessionFields()
_NO_SOURCE: Final = SourceFields()

# A number beyond a double's range has an exponent of three digits or is very long.  Searching with a regular
# expression takes ten times as long as mapping all digits to one byte, brackets to another, and searching for
# a few bytes.
_CLASSES: Final = bytes(
    next(
        (ord(members[0]) for members in ("0123456789+", "eE", "[{") if chr(byte) in members),
        ord(" "),
    )
    for byte in range(256)
)
_EXPONENT: Final = b"0e000"
_LONGEST_NUMBER: Final = 200
"""Digits; with an exponent of two digits, such a number is still within a double's range."""
_LONG_NUMBER: Final = b"0" * _LONGEST_NUMBER
_STEP: Final = 25
_LONG_IN_STEPS: Final = b"0" * (_LONGEST_NUMBER // _STEP)
"""What a long number is in every 25th byte, which are searched in a fraction of the time."""
_BEFORE_A_NUMBER: Final = b":,[ \t\r\n"


def case_fields(value: bytes) -> tuple[CaseFields, TurnFields] | None:
    """Return the fields of a case that has exactly one turn, and of that turn; None for anything else."""
    try:
        return _case_fields(value)
    except msgspec.MsgspecError:
        return None


def _case_fields(value: bytes) -> tuple[CaseFields, TurnFields] | None:
    parts = _parts.decode(value)
    actual, expected = parts.actualConversation, parts.conversation
    if not actual or len(actual) != 1:
        return None
    eval_id = _text.decode(parts.evalId)
    turn = _turn.decode(actual[0])
    source = (_source.decode(parts.source) if parts.source else None) or _NO_SOURCE
    if not eval_id or not turn.invocation_id or (source.revision or 0) < 0:
        return None
    eval_set_id = _text.decode(parts.evalSetId) if parts.evalSetId else None
    parts.actualConversation = parts.conversation = None
    parts.evalSetId = NOTHING
    fields = CaseFields(
        eval_id,
        eval_set_id,
        _text.decode(parts.evalMode) if parts.evalMode else None,
        (_session.decode(parts.sessionInput) if parts.sessionInput else None) or _NO_SESSION,
        source,
        actual[0],
        known(expected[0]) if expected else None,
        parts,
    )
    return fields, turn


def known(part: Raw) -> Raw | None:
    """Return a part of a record; None if it is null or missing."""
    return part if len(part) > 4 or (part and part != _NULL) else None


def holds_no_surprise(value: bytes) -> bool:
    """Return whether well-formed JSON can surely be decoded and encoded again.

    A fast check that may return False without need.  True means that no number is too large and nothing is
    nested too deeply.
    """
    classes = value.translate(_CLASSES)
    if classes.count(b"[") >= DEEPEST:
        return False
    if _LONG_IN_STEPS in classes[::_STEP] and _LONG_NUMBER in classes:
        return False
    at = classes.find(_EXPONENT)
    while at >= 0:
        if _is_of_number(value, at):
            return False
        at = classes.find(_EXPONENT, at + 1)
    return True


def _is_of_number(value: bytes, at: int) -> bool:
    """Return whether the digit at a position may be of a number, not of an id such as `88a5e2`."""
    before = value[max(0, at - _LONGEST_NUMBER) : at].rstrip(b"0123456789.-")
    return not before or before[-1] in _BEFORE_A_NUMBER
