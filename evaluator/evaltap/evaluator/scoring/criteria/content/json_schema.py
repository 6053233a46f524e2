"""JSON Schema checks: draft 2020-12 unless the schema names another; never fetches anything.

Patterns are RE2 patterns: an agent's answer must not decide how long a check takes.  Only a criterion that
has a schema loads this module, because jsonschema takes a tenth of a second.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # no types
from referencing.exceptions import Unresolvable

from evaltap.evaluator.scoring.criteria.content.text import compile_pattern, encodable
from evaltap.schemas.data import Json


def compile_schema(schema: Json) -> Callable[[Json], str | None]:
    """Return a check that returns why a value violates `schema`, or None if it does not.

    An invalid schema makes every check fail with that reason.
    """
    if (problem := schema_problem(schema)) is not None:
        return lambda _: problem
    # An explicit registry keeps references to other documents from being downloaded. A reference to
    # the whole schema would read `$schema` again and select a validator with other patterns.
    named = schema
    if isinstance(schema, dict):
        named = {key: part for key, part in schema.items() if key != "$schema"}
    validator = _with_linear_patterns(_kind(schema))(named, registry=REGISTRY)

    def check(value: Json) -> str | None:
        try:
            error = next(validator.iter_errors(value), None)
        except Unresolvable as missing:
            return f"compile json schema: reference {missing.ref} is not in the schema"
        except RecursionError:
            return "json schema validation failed: the value or the schema is nested too deeply"
        except OverflowError:
            return "json schema validation failed: a number is out of the range of doubles"
        if error is None:
            return None
        return f"json schema validation failed: at {error.json_path}: {error.message[:400]}"

    return check


def schema_problem(schema: Json) -> str | None:
    """Return why `schema` is not a JSON Schema; None if it is."""
    if not isinstance(schema, dict | bool):
        return f"compile json schema: found {schema!r}, expected an object or a boolean"
    try:
        _kind(schema).check_schema(schema)
    except SchemaError as error:
        return f"compile json schema: at {error.json_path}: {error.message}"
    return next(_pattern_problems(schema), None)


_DATA: Final = ("const", "default", "enum", "examples")
"""Keywords whose values are data, not schemas."""


def _pattern_problems(schema: Json) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _pattern_problems(part)
    if not isinstance(schema, dict):
        return
    named = schema.get("patternProperties")
    patterns = [*named] if isinstance(named, dict) else []
    if named and "unevaluatedProperties" in schema:
        yield (
            "compile json schema: patternProperties beside unevaluatedProperties is not supported; use"
            " additionalProperties"
        )
    if isinstance(given := schema.get("pattern"), str):
        patterns.append(given)
    for pattern in patterns:
        try:
            compile_pattern(encodable(pattern))
        except ValueError as error:
            yield f"compile json schema: pattern {pattern!r}: {error}; patterns are those of RE2"
    for key, part in schema.items():
        if key not in _DATA:
            yield from _pattern_problems(part)


@cache
def _with_linear_patterns(kind: object) -> Any:  # a validator class, as jsonschema makes them
    return extend(  # type: ignore[no-untyped-call]  # the stubs have no types for it
        kind,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
        },
    )


def _found(pattern: str, text: str) -> bool:
    return compile_pattern(encodable(pattern)).search(encodable(text)) is not None


def _pattern(validator: Any, pattern: str, value: Json, _: Json) -> Iterator[Exception]:
    if isinstance(value, str) and not _found(pattern, value):
        yield ValidationError(f"{value!r:.200} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Json], value: Json, _: Json
) -> Iterator[Exception]:
    if isinstance(value, dict):
        for pattern, schema in patterns.items():
            for key, part in value.items():
                if _found(pattern, key):
                    yield from validator.descend(part, schema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Json, value: Json, schema: Mapping[str, Any]
) -> Iterator[Exception]:
    if not isinstance(value, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    more = [
        key
        for key in value
        if key not in known and not any(_found(pattern, key) for pattern in patterns)
    ]
    if isinstance(allowed, dict):
        for key in more:
            yield from validator.descend(value[key], allowed, path=key)
    elif not allowed and more:
        names = ", ".join(repr(key) for key in sorted(more))
        yield ValidationError(f"Additional properties are not allowed ({names:.200} unexpected)")


def _kind(schema: Json) -> Any:  # a validator class; the stubs forget boolean schemas
    return validator_for(schema, default=Draft202012Validator)
