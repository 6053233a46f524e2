"""The columns of a data set, by the fields of a case that they fill."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from evaltap.schemas.data import Json
from evaltap.schemas.errors import InputError

RUN: Final = "result_run"
"""The column of a repeat's name, in rows of results."""
TELEMETRY: Final = "result_telemetry"
"""The column of the turn's telemetry, in rows of results."""
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "case": ("eval_case", "case_json"),
    "id": ("evalId", "eval_id", "id", "name", "key"),
    "input": ("input", "question", "prompt", "query", "instruction", "user_input", "inputs"),
    "output": ("actual_output", "actualOutput", "output", "response", "completion", "prediction"),
    "expected": (
        "expected_output",
        "expectedOutput",
        "expected",
        "reference",
        "ground_truth",
        "ideal",
        "answer",
        "target",
    ),
    "tools": ("tools_called", "toolsCalled", "tool_calls"),
    "expected_tools": ("expected_tools", "expectedTools", "reference_tool_calls"),
    "messages": ("turns", "messages", "conversation", "conversations"),
    "run": (RUN,),
}
"""The fields, each with the known names of its column; the first existing one is used."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The mapping from fields of a case to columns of a data set."""

    given: Mapping[str, str] = field(default_factory=dict)
    """Columns by field; these override the known names."""

    def value(self, name: str, row: Mapping[str, Json]) -> Json:
        """Return a row's value for a field; None if it has none."""
        column = self.column(name, row)
        return None if column is None else value_at(row, column)

    def answer(self, row: Mapping[str, Json]) -> Json:
        """Return a row's expected answer; None if it has none, or an empty list of right answers."""
        found = self.value("expected", row)
        return None if found == [] else found

    @property
    def mapped(self) -> frozenset[str]:
        """The columns that fields are mapped to, or into."""
        paths = self.given.values()
        return frozenset({*paths, *(path.partition(".")[0] for path in paths)})

    def column(self, name: str, row: Mapping[str, Json]) -> str | None:
        """Return the column of a field in a row, or the dotted path to it."""
        if name in self.given:
            return self.given[name] if value_at(row, self.given[name]) is not None else None
        taken = set(self.given.values())
        return next(
            (one for one in FIELDS[name] if row.get(one) is not None and one not in taken), None
        )


def value_at(row: Mapping[str, Json], path: str) -> Json:
    """Return a row's value in a column, or at a dotted path into one; None if it is missing."""
    if path in row:
        return row[path]
    value: Json = row
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def parse_columns(pairs: Sequence[str]) -> Columns:
    """Return the mapping of `field=column` pairs; raise InputError for an invalid pair."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not equals or not column or name not in FIELDS:
            raise InputError(
                f"--map {pair}: expected FIELD=COLUMN, where FIELD is one of {', '.join(FIELDS)}"
            )
        given[name] = column
    return Columns(given)
