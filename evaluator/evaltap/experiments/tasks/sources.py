"""Where the rows of a task come from: files, the Hugging Face hub, Confident AI."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from evaltap.evaluator.cases.datasets.tables import Row, read_rows
from evaltap.schemas.errors import InputError

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
