"""Plain JSON data: what hot paths work on in place of models."""

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]  # Any: a JSON value, looked at where it is read
"""A decoded JSON object."""

CaseData: TypeAlias = JsonObject
"""An eval case in canonical form."""
