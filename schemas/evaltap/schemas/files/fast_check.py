"""Fast check whether decoded JSON has the keys and types of an eval case in canonical form.

Validating a 5 KB case with the models costs more than decoding it. Almost every incoming case
already has the form that the models would give it, which type checks alone can establish. The
checks are generated from the models, so the field list is written once. Data that fails a check is
passed to the models, which read every variant and explain every mistake.
"""

import types
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from evaltap.schemas.formats.case import EvalCase

Check = Callable[[Any], bool]
_LARGE: Final = 1e100


def is_case_data(data: object) -> bool:
    """Return whether decoded JSON has the keys and types of an eval case, with no nulls."""
    return _model_check(EvalCase)(data)


_checks: dict[type[BaseModel], Check] = {}


def _model_check(model: type[BaseModel]) -> Check:
    if (known := _checks.get(model)) is not None:
        return known
    kinds: dict[str, type] = {}
    checks: dict[str, Check] = {}

    def check(value: object) -> bool:
        if type(value) is not dict:
            return False
        for key, item in value.items():
            # Most fields are texts or free JSON; one comparison covers them without a call.
            kind = kinds.get(key)
            if kind is type(item) or (kind is object and item is not None):
                continue
            if not checks.get(key, _never)(item):
                return False
        return True

    # Registered before its fields are visited: a turn may contain turns.
    _checks[model] = check
    for name, field in model.model_fields.items():
        key = field.alias or name
        if isinstance(field.annotation, type) and field.annotation in (str, bool, int):
            kinds[key] = field.annotation
        elif field.annotation is Any:
            kinds[key] = object
        else:
            checks[key] = _check(field.annotation)
    return check


def _check(annotation: object) -> Check:
    if annotation is Any:
        return lambda value: value is not None
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _check(arguments[0])
    if origin in (Union, types.UnionType):
        given = [argument for argument in arguments if argument is not type(None)]
        return _check(given[0]) if len(given) == 1 else _never
    if origin is Literal:
        return lambda value: type(value) is str and value in arguments
    if origin is list:
        return _list_check(_check(arguments[0]))
    if origin is dict:
        return _dict_check(arguments[1])
    return _plain_check(annotation)


def _plain_check(annotation: object) -> Check:
    if annotation is float:  # the models explain a number that is beyond every calendar
        return lambda value: (type(value) is float and abs(value) < _LARGE) or type(value) is int
    if annotation in (str, int, bool):
        return lambda value: type(value) is annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model_check(annotation)
    return _never


def _list_check(item: Check) -> Check:
    return lambda value: type(value) is list and all(map(item, value))


def _dict_check(annotation: object) -> Check:
    if annotation is Any:
        return lambda value: type(value) is dict
    item = _check(annotation)
    return lambda value: type(value) is dict and all(map(item, value.values()))


def _never(value: object) -> bool:
    return False
