"""JSON Schema checks, draft 2020-12 unless the schema names another; never fetches anything."""

from collections.abc import Callable
from typing import Any

from evaltap.schemas.formats.model import Json


def compile_schema(schema: Json) -> Callable[[Json], str | None]:
    """Return a check that says why a value breaks `schema`, None when it does not.

    A schema that is itself invalid makes every check fail with that reason.
    """
    problem = schema_problem(schema)
    if problem is not None:
        return lambda _: problem
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # no types
    from referencing.exceptions import Unresolvable

    # An explicit registry keeps references to other documents from being downloaded.
    validator = _kind(schema)(schema, registry=REGISTRY)

    def check(value: Json) -> str | None:
        try:
            error = next(validator.iter_errors(value), None)
        except Unresolvable as missing:
            return f"compile json schema: reference {missing.ref} is not in the schema"
        except RecursionError:
            return "json schema validation failed: the value or the schema is nested too deeply"
        if error is None:
            return None
        return f"json schema validation failed: at {error.json_path}: {error.message[:400]}"

    return check


def schema_problem(schema: Json) -> str | None:
    """Return why `schema` is not a JSON Schema, None when it is one."""
    from jsonschema.exceptions import SchemaError

    if not isinstance(schema, dict | bool):
        return f"compile json schema: found {schema!r}, expected an object or a boolean"
    try:
        _kind(schema).check_schema(schema)
    except SchemaError as error:
        return f"compile json schema: at {error.json_path}: {error.message}"
    return None


def _kind(schema: Json) -> Any:  # a validator class; the stubs forget boolean schemas
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)
