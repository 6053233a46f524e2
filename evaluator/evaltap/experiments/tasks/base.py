"""What a task is, where tasks come from, and the cases that one makes of a source.

A package provides a task through an entry point in the group `evaltap.tasks`: its name, and a factory without
parameters.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Protocol, cast

import orjson

from evaltap.evaluator.cases.datasets.tables import Row, read_rows
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.files.documents import case_data, metrics_of
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted, did_you_mean_one_of, some_of

TASK_GROUP: Final = "evaltap.tasks"
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What the command line says to all tasks."""

    checkpoints: tuple[int, ...] = ()
    """After how many messages a growing context is measured; a row's own checkpoints come first."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


class Task(Protocol):
    """Makes cases for an agent of the rows of a data set, and says how its answers are scored."""

    @property
    def required(self) -> Sequence[str]:
        """The columns without which a row makes no case."""
        ...

    def load(self, source: str) -> Iterable[Row]:
        """Yield the rows of a source, each with its position; most tasks return `rows_of(source)`."""
        ...

    def format(self, row: Mapping[str, Json], options: TaskOptions) -> CaseData:
        """Return the case of a row: messages and what is expected; raise ValueError for a bad row."""
        ...

    def metrics(self) -> Sequence[EvalMetric]:
        """Return how the answers are scored."""
        ...


class ColumnTask:
    """A task of this package: its rows are read by `rows_of`, its metrics are a file.

    `golden` names the columns that are those of a golden of DeepEval, by that one's name.
    """

    def __init__(
        self,
        name: str,
        required: Sequence[str],
        format_row: Callable[[Mapping[str, Json], TaskOptions], CaseData],
        golden: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._format = format_row
        self._golden = golden or {}
        self.required = required

    def load(self, source: str) -> Iterator[Row]:
        """Yield the rows of a source; those of goldens under the names of this task."""
        for place, row in rows_of(source):
            more = row.get("additional_metadata") or row.get("additionalMetadata")
            renamed = {
                column: row[name]
                for name, column in self._golden.items()
                if row.get(name) is not None
            }
            yield place, {**(more if isinstance(more, dict) else {}), **renamed, **row}

    def format(self, row: Mapping[str, Json], options: TaskOptions) -> CaseData:
        """Return the case of a row."""
        return self._format(row, options)

    def metrics(self) -> list[EvalMetric]:
        """Return the metrics of the task's file."""
        data = files("evaltap.experiments.tasks").joinpath(f"{self._name}.metrics.json")
        return metrics_of(orjson.loads(data.read_bytes()))


@dataclass(frozen=True, slots=True)
class TaskCases:
    """The cases that a task made, and why it made none of some rows."""

    cases: list[CaseData]
    problems: list[str]


def installed() -> Mapping[str, EntryPoint]:
    """Return the installed tasks by name."""
    return {point.name: point for point in entry_points(group=TASK_GROUP)}


def find_task(name: str) -> Task:
    """Return an installed task; raise InputError for an unknown one."""
    known = installed()
    if name not in known:
        raise InputError(f"--tasks {name}: unknown; {did_you_mean_one_of(name, sorted(known))}")
    point = known[name]
    try:
        factory = cast(Callable[[], Task], point.load())
    except (ImportError, AttributeError) as error:
        raise InputError(f"--tasks {name}: {point.value} cannot be imported: {error}") from error
    return factory()


def make_cases(
    name: str, task: Task, source: str, options: TaskOptions, *, strict: bool
) -> TaskCases:
    """Return the cases of a source; with `strict`, raise InputError if a row makes none.

    Raises InputError for a source that cannot be read, or if no row makes a case.
    """
    made = TaskCases([], [])
    known: set[str] = set()
    for number, (place, row) in enumerate(task.load(source), 1):
        missing = [column for column in task.required if row.get(column) in (None, "", [], {})]
        try:
            if missing:
                raise ValueError(f"lacks {', '.join(missing)}")
            case = task.format(row, options)
            eval_id = _id_of(row) or f"{name}-{number}"
            if eval_id in known:
                raise ValueError(f"has the id {eval_id} of a row before it")
        except ValueError as error:
            made.problems.append(f"{place or f'row {number}'}: {error}")
            continue
        known.add(eval_id)
        session: dict[str, Any] = {"appName": name, "userId": "task"}
        defaults = {"evalId": eval_id, "evalSetId": name, "sessionInput": session}
        made.cases.append(case_data({**defaults, **case}))
    if made.problems and (strict or not made.cases):
        what = f"{counted(len(made.problems), 'row')} of {name} make no case"
        shown = some_of(made.problems, SHOWN, "\n  ")
        raise InputError(f"{source}: {what}:\n  {shown}")
    if not made.cases:
        raise InputError(f"{source}: has no rows for {name}")
    return made


def _id_of(row: Mapping[str, Json]) -> str:
    given = row.get("id")
    return str(given) if isinstance(given, str | int) else ""


def text_of(row: Mapping[str, Json], column: str) -> str:
    """Return a column that must be a text; raise ValueError for any other value."""
    value = row.get(column)
    if not isinstance(value, str):
        raise ValueError(f"{column} is {type(value).__name__}; expected a text")
    return value


def setting(environ: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return a variable that is one of some words, by default the first; raise ConfigurationError."""
    found = environ.get(name, "").strip().lower() or choices[0]
    if found not in choices:
        raise ConfigurationError(f"{name} is '{found}'; expected {' or '.join(choices)}")
    return found


HUB: Final = "hf:"
CONFIDENT: Final = "confident:"


def rows_of(source: str) -> Iterator[Row]:
    """Yield the rows of `hf:REPOSITORY[@SPLIT]`, `confident:ALIAS`, or of a file or folder.

    Raises InputError for a source that cannot be read, or whose package is not installed.
    """
    if source.startswith(HUB):
        yield from _of_hub(source)
    elif source.startswith(CONFIDENT):
        yield from _of_confident(source)
    else:
        yield from read_rows(Path(source))


def _of_hub(source: str) -> Iterator[Row]:
    try:
        datasets: Any = import_module("datasets")  # an optional package
    except ImportError as error:
        raise InputError(f"{source}: needs the package datasets; pip install datasets") from error
    name, _, split = source.removeprefix(HUB).partition("@")
    try:
        found: Any = datasets.load_dataset(name, split=split or None)
    except Exception as error:  # the hub, the network, a loading script
        raise InputError(f"{source}: {type(error).__name__}: {error}") from error
    parts: Mapping[str, Any] = found if isinstance(found, Mapping) else {split: found}
    for part, rows in parts.items():
        for number, row in enumerate(rows):
            yield f"row {number} of {part}", dict(row)


def _of_confident(source: str) -> Iterator[Row]:
    try:
        deepeval: Any = import_module("deepeval.dataset")  # an optional package
    except ImportError as error:
        raise InputError(f"{source}: needs DeepEval; install evaltap[deepeval]") from error
    found = deepeval.EvaluationDataset()
    try:
        found.pull(alias=source.removeprefix(CONFIDENT))
    except Exception as error:  # the service, the network, a missing login
        raise InputError(f"{source}: {type(error).__name__}: {error}") from error
    for number, golden in enumerate(found.goldens):
        row = golden.model_dump(exclude_none=True)
        yield f"golden {number}", {"id": golden.id, **row} if golden.id else row
