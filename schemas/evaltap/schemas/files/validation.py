"""Validate decoded JSON against a model, with messages that state what was found and expected."""

from collections.abc import Iterator
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError

from evaltap.schemas.errors import FormatError
from evaltap.schemas.formats.model import WireModel
from evaltap.schemas.text import did_you_mean

Model = TypeVar("Model", bound=WireModel)


def parse(model: type[Model], data: object, *, path: str = "", place: str = "") -> Model:
    """Validate decoded JSON; raises FormatError with the first invalid place and type."""
    if not isinstance(data, dict):
        wanted = model.__name__
        raise FormatError(
            f"found {describe(data)}; expected an object ({wanted})", path=path, place=place
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        inner = _json_path(first["loc"])
        where = "".join((place, "." if place and not inner.startswith("[") else "", inner))
        if first["type"] == "extra_forbidden":
            raise FormatError(_unknown(model, first["loc"]), path=path, place=where) from None
        found = describe(first["input"])
        raise FormatError(
            f"found {found}; {_expected(first['type'], first['msg'])}", path=path, place=where
        ) from None


def _unknown(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Return the message for a key that the model at its place does not have."""
    for part in location[:-1]:
        for field in model.model_fields.values():
            if field.alias == part:
                model = next(_models(field.annotation), model)
                break
    known = [field.alias or name for name, field in model.model_fields.items()]
    key = str(location[-1])
    return f"no key {key!r}; {did_you_mean(key, known) or 'known keys: ' + ', '.join(known)}"


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models within an annotation: of a field, of the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _json_path(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


def _expected(kind: str, message: str) -> str:
    wanted = {
        "string_type": "a string",
        "float_type": "a number",
        "int_type": "a whole number",
        "bool_type": "true or false",
        "list_type": "a list",
        "dict_type": "an object",
        "model_type": "an object",
    }.get(kind)
    return f"expected {wanted}" if wanted else message[:1].lower() + message[1:]


def describe(value: object) -> str:
    """Describe a JSON value by its type, with a short excerpt of small ones."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the string {value[:40]!r}{'…' if len(value) > 40 else ''}"
    if isinstance(value, BaseModel):
        return "an object"
    return f"a list of {len(value)}" if isinstance(value, list) else "an object"
