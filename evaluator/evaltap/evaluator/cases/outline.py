"""Lazy cases: only an outline is decoded until something reads the rest.

Most tool calls of a recorded trace equal their reference, and equal bytes prove that without decoding them.
So arguments and results remain bytes.  The outline's types are derived from the models and accept only lines
that the models would accept unchanged; other lines are decoded in full.

One error is reported later than elsewhere: a number beyond the range of a double in arguments or results is
only rejected when a metric reads it.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct
from pydantic import BaseModel

from evaltap.evaluator.cases.turn import FAILED_RUNS, Turn
from evaltap.schemas.data import CaseData
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import read_case
from evaltap.schemas.formats.case import EvalCase, Tool

_NO_BYTES: Final = Raw(b"")
_NO_CAPTURE: Final[Mapping[str, str]] = {}
_NOT_YET: Final[Mapping[str, Any]] = {}


class LazyCall(Struct, gc=False):
    """A tool call with arguments and result as bytes; `get` works as on the call's JSON data.

    Equal bytes mean equal values.  Different bytes may still be equal values, formatted differently.
    """

    name: str = ""
    arguments: Raw = _NO_BYTES
    result: Raw = _NO_BYTES

    def get(self, field: str) -> Any:
        """Return a field of the call, None if it is missing; raise FormatError for an invalid number."""
        value = getattr(self, field, None)
        if type(value) is Raw:
            text = bytes(value)
            return canonical.loads(text) if text else None
        if isinstance(value, Struct):
            return msgspec.to_builtins(value)
        return None if value == "" else value

    def __bool__(self) -> bool:
        return True


AnyCall: TypeAlias = dict[str, Any] | LazyCall  # JSON data
"""A tool call, decoded or not; read it with `get`."""


class LazyTurn(Turn, eq=False, gc=False, kw_only=True):
    """A turn with an outline; reading `data` or `tools` decodes the whole case."""

    case: "LazyCase"
    side: str
    outline: Any

    @property
    def data(self) -> Mapping[str, Any]:
        """The invocation's JSON data, decoded with the whole case."""
        if not self.referenced:
            return {}  # a turn without a reference
        turns = getattr(self.case.outline, self.side)
        place = next(i for i, one in enumerate(turns) if one is self.outline)
        data: Mapping[str, Any] = self.case[self.side][place]
        return data

    @property
    def invocation_id(self) -> str:
        """The invocation's id; empty if it has none."""
        return self.outline.invocationId or ""

    @property
    def user_text(self) -> str | None:
        """The text of the user's message; None without a message."""
        message = self.outline.userContent
        return (message.content or "") if message else None

    @property
    def final_text(self) -> str | None:
        """The text of the final response; None without a response."""
        message = self.outline.finalResponse
        return (message.content or "") if message else None

    @property
    def references(self) -> Sequence[Turn]:
        """Always empty: cases with alternatives have no outline."""
        return ()

    @property
    def run_failed(self) -> bool:
        """Whether the run failed, never ended or was cut off."""
        telemetry = self.outline.telemetry
        return bool(telemetry) and telemetry.status in FAILED_RUNS

    @property
    def calls(self) -> Sequence[Any]:
        """The tool calls; use only their `get`."""
        return self.outline.tools or ()

    @property
    def marked_calls(self) -> Sequence[Any]:
        """The calls with a `capture`, of which some field was not recorded unchanged."""
        return [call for call in self.outline.tools or () if call.capture]

    @property
    def capture(self) -> Mapping[str, str]:
        """The fields that were not recorded unchanged, and why."""
        return self.outline.capture or _NO_CAPTURE


class LazyCase(Mapping[str, Any]):
    """A case from a line of JSON; fields outside the outline are decoded when they are read."""

    __slots__ = ("_whole", "line", "outline")
    recorded_here = False
    """Whether evaltap landed the case, so that turns without a reference are not compared."""

    def __init__(self, line: bytes, outline: Any) -> None:
        self.outline = outline
        self.line = line
        self._whole: CaseData | None = None

    @property
    def app_name(self) -> str:
        """The application of the session; empty if it has none."""
        return self.outline.sessionInput.appName or "" if self.outline.sessionInput else ""

    def paired_turns(self) -> "tuple[tuple[LazyTurn, ...], tuple[LazyTurn, ...]] | None":
        """Return the actual and expected turns of a recorded case whose pairing is simple.

        None for other cases: pairing them needs the whole case.
        """
        known = self.outline
        actual, expected = known.actualConversation, known.conversation
        if not actual or not expected or len(actual) != len(expected):
            return None
        if known.evalMode != "trace" or not known.sessionInput or _changes_pairing(known):
            return None
        for turn in actual:
            if not turn.userContent:
                return None
        return self.turns("actualConversation"), self.turns("conversation")

    def turns(self, side: str) -> tuple[LazyTurn, ...]:
        """Return the turns of `conversation` or `actualConversation`."""
        turns = []
        for turn in getattr(self.outline, side) or ():
            unmarked = not turn.capture
            for call in turn.tools or ():
                if call.capture:
                    unmarked = False
            turns.append(LazyTurn(_NOT_YET, unmarked, case=self, side=side, outline=turn))
        return tuple(turns)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a field, without decoding the case if the outline has it."""
        value = getattr(self.outline, key, None) if key in _CASE_FIELDS else None
        if value is None:
            return default
        return value if type(value) in _SCALARS else self[key]

    def __getitem__(self, key: str) -> Any:
        if self._whole is None:
            self._whole = self._decoded()
        return self._whole[key]

    def _decoded(self) -> CaseData:
        return read_case(self.line)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return (field for field in _CASE_FIELDS if getattr(self.outline, field) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def lazy_case(line: bytes) -> LazyCase | None:
    """Return the lazy case of a line; None if the line must be decoded in full."""
    try:
        outline: Any = _decoder.decode(line)  # its fields are those of a model
        if not line.isascii():
            line.decode()  # msgspec does not check the UTF-8 of skipped values
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return LazyCase(line, outline) if outline.evalId else None


def _changes_pairing(outline: Any) -> bool:
    """Return whether a case has fields that change how its turns are paired."""
    return bool(
        outline.contextMessages
        or outline.conversationScenario
        or outline.rubrics
        or outline.expectedRunnerEnabled
    )


_SCALARS: Final = frozenset({str, bool, int, float})
_outlines: dict[tuple[type[BaseModel], bool], type[Struct] | None] = {}


def outline_type(model: type[BaseModel], *, strict: bool = True) -> type[Struct] | None:
    """Return the struct of a model, with None for what is missing; None while it is being made (recursion).

    Unless `strict`, null and fields that the model does not have are accepted anywhere.
    """
    if (model, strict) in _outlines:
        return _outlines[model, strict]
    _outlines[model, strict] = None
    base = LazyCall if model is Tool else Struct
    fields: list[tuple[str, Any, Any]] = []
    for name, field in model.model_fields.items():
        kind = _kind(field.annotation, strict=strict)
        if (field.alias or name) in base.__struct_fields__:
            continue
        if kind is Raw:
            fields.append((field.alias or name, Raw, _NO_BYTES))
        elif kind is not None:
            # Fields left out here are unknown to the outline, so cases with them are decoded in full.
            fields.append((field.alias or name, kind if strict else kind | None, None))
    known = _outlines[model, strict] = msgspec.defstruct(
        model.__name__,
        fields,
        bases=(base,),
        forbid_unknown_fields=strict,
        omit_defaults=True,
        gc=False,
    )
    return known


def _optional(arguments: Sequence[Any], *, strict: bool) -> Any:
    given = [argument for argument in arguments if argument is not type(None)]
    kind = _kind(given[0], strict=strict) if len(given) == 1 else None
    return kind if strict or kind is None or kind is Raw else kind | None


def _kind(annotation: Any, *, strict: bool) -> Any:
    """Return the type of a field in the outline; None if it has none."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0], strict=strict)
    if origin in (Union, types.UnionType):
        return _optional(arguments, strict=strict)
    if origin in (list, dict):
        item = _kind(arguments[-1], strict=strict)
        return None if item is None else types.GenericAlias(origin, (*arguments[:-1], item))
    if annotation is Any:
        return Raw
    if origin is Literal or annotation in _SCALARS:
        return annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return outline_type(annotation, strict=strict)
    return None


_CASE_FIELDS: Final = frozenset(
    field.alias or name for name, field in EvalCase.model_fields.items()
)
_decoder: Final = msgspec.json.Decoder(outline_type(EvalCase) or Struct)
