"""The base of every model of a file format, and the omission rules of its written form.

The formats are those of tRPC-Agent-Go's evaluation module. Its JSON omits every field that holds
its zero value, except where a zero is meaningful; `Keep` and `Always` mark those fields:

* unmarked: omitted when `None`, `""`, `0`, `False`, `[]` or `{}` (a nested object is kept);
* `Keep`: omitted only when `None` (the format distinguishes "zero" from "not given");
* `Always`: written even when it is zero.

Objects with free keys are written in byte order of their keys, as Go writes maps: at every depth
for free JSON (`Free`), at the first level for a map of typed objects (`Map`).

Reading follows the same source: a key matches its field case-insensitively when no key matches
exactly, `null` means "not given", and types are strict. Unknown keys are preserved.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel

from evaltap.schemas.data import Json


class _Rule:
    """A marker in a field's annotation; compared by identity."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


Keep: Final = _Rule("Keep")
Always: Final = _Rule("Always")

Free: Final = _Rule("Free")
Map: Final = _Rule("Map")

AnyValue: TypeAlias = Annotated[Json, Keep, Free]
"""A field of any JSON type, omitted only when it is null."""

FreeObject: TypeAlias = Annotated[dict[str, Json], Free]
"""A JSON object with user-defined keys."""


class WireModel(BaseModel):
    """A frozen model whose `model_dump(by_alias=True)` is the canonical written form."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        # Most commands use few of these models; building all of them would delay every start.
        defer_build=True,
        extra="allow",
        frozen=True,
        populate_by_name=True,
        serialize_by_alias=True,
        strict=True,
        protected_namespaces=(),
    )

    @model_validator(mode="before")
    @classmethod
    def _read_like_the_peer(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        names = _names(cls)
        if all(key in names and value is not None for key, value in data.items()):
            return data
        return _matched(data, names)

    @model_serializer(mode="wrap")
    def _leave_out_zeros(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        rules = _rules(type(self))
        for name, field in type(self).model_fields.items():
            key = field.alias if info.by_alias is not False and field.alias else name
            value = written.get(key)
            if not value:
                kept = name in rules.always or (value is not None and name in rules.keep)
                if not kept and not isinstance(getattr(self, name), BaseModel):
                    written.pop(key, None)
            elif name in rules.free:
                written[key] = _sorted(value)
            elif name in rules.maps:
                written[key] = dict(sorted(value.items()))
        return written


class _Rules(NamedTuple):
    """A model's field names by marker."""

    keep: frozenset[str]
    always: frozenset[str]
    free: frozenset[str]
    maps: frozenset[str]


def _sorted(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _names(model: type[BaseModel]) -> frozenset[str]:
    cached: frozenset[str] | None = model.__dict__.get("_evaltap_names")
    if cached is None:
        aliases = (field.alias or name for name, field in model.model_fields.items())
        cached = frozenset(aliases) | frozenset(model.model_fields)
        type.__setattr__(model, "_evaltap_names", cached)
    return cached


def _matched(data: Mapping[str, object], names: frozenset[str]) -> dict[str, Any]:
    """Return `data` with keys matched case-insensitively and known nulls removed."""
    by_fold = {name.casefold(): name for name in names if "_" not in name}
    by_fold |= {name.casefold(): name for name in names if name.casefold() not in by_fold}
    read: dict[str, Any] = {}
    for key, value in data.items():
        name = key if key in names else by_fold.get(key.casefold())
        if name is None:
            read[key] = value
        elif value is not None and (name == key or data.get(name) is None):
            read[name] = value
    return read


def _rules(model: type[BaseModel]) -> _Rules:
    cached: _Rules | None = model.__dict__.get("_evaltap_rules")
    if cached is None:
        fields = model.model_fields.items()
        cached = _Rules(
            *(
                frozenset(name for name, field in fields if marker in field.metadata)
                for marker in (Keep, Always, Free, Map)
            )
        )
        type.__setattr__(model, "_evaltap_rules", cached)
    return cached
