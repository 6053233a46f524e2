"""Plain JSON data: used on hot paths instead of models."""

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]  # Any: a JSON value, checked where it is used
"""A decoded JSON object."""

CaseData: TypeAlias = JsonObject
"""An eval case in canonical form."""
