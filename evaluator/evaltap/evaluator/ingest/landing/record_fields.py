"""The fields of a case that rows need, decoded straight from its bytes.

Most of a record is arguments, results and texts that rows store as JSON.  They are copied from the record
instead of being decoded and encoded again.
"""

from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct, structs
from pydantic import BaseModel

from evaltap.evaluator.cases.outline import outline_type
from evaltap.schemas.formats.case import CaseSource, EvalCase, Invocation, SessionInput

NOTHING: Final = Raw(b"")
DEEPEST: Final = 250
"""A nesting depth that every JSON encoder in use supports."""


class CaseFields(NamedTuple):
    """A case without what its turn says."""

    eval_id: str
    eval_set_id: str | None
    eval_mode: str | None
    session: Any  # outlines of the models, as is what follows
    source: Any
    actual: Raw
    expected: Raw | None
    value: bytes
    """The whole case."""
    header: str | None = None

    @property
    def header_json(self) -> str:
        """The case without its turns."""
        if self.header is not None:
            return self.header
        parts = _parts.decode(self.value)
        for name in WITHOUT:
            setattr(parts, name, NOTHING)
        return _encode(parts).decode()


WITHOUT: Final = ("actualConversation", "conversation", "evalSetId")
"""The fields of a case that its header lacks."""
_parts: Final = msgspec.json.Decoder(
    msgspec.defstruct(
        "Parts",
        [(field.alias or name, Raw, NOTHING) for name, field in EvalCase.model_fields.items()],
        omit_defaults=True,
        gc=False,
    )
)
_encode: Final = msgspec.json.Encoder().encode


@cache
def _decoders(*, strict: bool) -> tuple[Any, Any]:
    """Return decoders of a case whose turns remain bytes, and of a turn."""
    turns = list[Raw] if strict else list[Raw] | None
    fields = [
        (field.name, turns if field.name in WITHOUT[:2] else field.type, None)
        for field in structs.fields(outline_type(EvalCase, strict=strict) or Struct)
    ]
    case = msgspec.defstruct("Case", fields, forbid_unknown_fields=strict, gc=False)
    return msgspec.json.Decoder(case), msgspec.json.Decoder(outline_type(Invocation, strict=strict))


_STRICT: Final = _decoders(strict=True)
_NULL: Final = Raw(b"null")


def empty(model: type[BaseModel]) -> Any:  # the fields are those of the model
    """Return an outline of which everything is missing."""
    return (outline_type(model) or Struct)()


_NO_SOURCE: Final = empty(CaseSource)
_NO_SESSION: Final = empty(SessionInput)

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
_OF_A_NUMBER: Final = b"0123456789.-"
_BEFORE_A_NUMBER: Final = b":,[ \t\r\n"


def case_fields(value: bytes, *, strict: bool = True) -> tuple[CaseFields, Any] | None:
    """Return the fields of a case that has exactly one turn, and of that turn; None for anything else.

    With `strict`, the case has an outline, and so is as well-formed as one that was validated.  Without, it
    may have nulls and unknown fields.
    """
    decode_case, decode_turn = _STRICT if strict else _decoders(strict=False)
    try:
        case = decode_case.decode(value)
        turns, expected = case.actualConversation, case.conversation
        if not turns or len(turns) != 1:
            return None
        turn = decode_turn.decode(turns[0])
        if strict:
            for one in expected or ():
                decode_turn.decode(one)
            if not value.isascii():
                value.decode()  # msgspec does not check the UTF-8 of skipped values
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    source = case.source or _NO_SOURCE
    if not case.evalId or not turn.invocationId or (source.revision or 0) < 0:
        return None
    fields = CaseFields(
        case.evalId,
        case.evalSetId,
        case.evalMode,
        case.sessionInput or _NO_SESSION,
        source,
        turns[0],
        known(expected[0]) if expected else None,
        value,
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
    for place in range(at, max(-1, at - _LONGEST_NUMBER), -1):
        if value[place] not in _OF_A_NUMBER:
            return value[place] in _BEFORE_A_NUMBER
    return True
