"""Iterate over the rows of data sets on disk, in any supported file format.

JSON Lines, also in a folder as `evaltap set export` writes it, JSON arrays, CSV; YAML through PyYAML; Parquet
and Arrow files, and folders that Hugging Face `datasets` saved (`save_to_disk`, or Parquet files), through
pyarrow.  Nothing is downloaded.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import orjson

from evaltap.evaluator.cases.datasets import pydantic_evals
from evaltap.evaluator.cases.datasets.inspect_logs import is_inspect_log, refuse_binary, samples_of
from evaltap.evaluator.cases.datasets.promptfoo import is_result, is_results, numbered, results_of
from evaltap.evaluator.cases.datasets.shapes import is_dialogue, is_trajectory
from evaltap.schemas.data import Json
from evaltap.schemas.errors import ConfigurationError, FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import iter_case_lines, read_bytes
from evaltap.schemas.files.documents import warn_once
from evaltap.schemas.files.refused import no_such_file, regular_files
from evaltap.schemas.files.validation import describe
from evaltap.schemas.text import counted

_TEST_RUN: Final = ("testCases", "conversationalTestCases")
"""Keys of a file that `deepeval test run` has written."""

Row = tuple[str, dict[str, Json]]
"""The position of a row in its file (`line 3`, `row 3 of train`), and its columns."""

FORMS: Final = (
    "a file .jsonl, .ndjson, .json, .yaml, .csv, .parquet or .arrow, or a folder of Hugging Face"
    " datasets"
)


def read_rows(path: Path, *, split: str = "") -> Iterator[Row]:
    """Yield the rows of a data set; `split` selects a split of a folder, or all if empty.

    Raises InputError for an unreadable file, and FormatError for one that is not a table.
    """
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except PermissionError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    if is_folder:
        yield from _folder_rows(path, split)
        return
    if not exists:
        raise InputError(no_such_file(path, f"expected {FORMS}"))
    if split:
        raise InputError(f"--split {split}: {path} is one file; splits are folders")
    read = _READERS.get(path.suffix.lower())
    refuse_binary(path)
    if read is None:
        raise InputError(f"{path}: unknown format; expected {FORMS}")
    archived = 0
    for place, row in read(path):
        if "datasetName" in row and row.get("status") == "ARCHIVED":
            archived += 1  # Langfuse runs no such item
        else:
            yield place, row
    if archived:
        warn_once(f"{path}: left out {counted(archived, 'item')} that Langfuse has archived")


def _json_lines(path: Path) -> Iterator[Row]:
    rows = _lines(path)
    if (first := next(rows, None)) is None:
        return
    if is_result(first[1]):
        places, results = zip(first, *rows, strict=True)
        yield from zip(places, numbered(results), strict=True)
    else:
        yield first
        yield from rows


def _lines(path: Path) -> Iterator[Row]:
    for number, line in iter_case_lines(path):
        place = f"line {number}"
        yield place, _object(canonical.loads(line, path=str(path), place=place), path, place)


def _json(path: Path) -> Iterator[Row]:
    yield from _document_rows(canonical.loads(read_bytes(path), path=str(path)), path)


def _yaml(path: Path) -> Iterator[Row]:
    """Read one YAML document as the JSON that it stands for."""
    try:
        import yaml
    except ImportError as error:
        raise ConfigurationError(
            "YAML files need the package PyYAML; install evaltap[datasets]"
        ) from error
    try:
        # Dates become texts, and other keys than texts, such as `on:`, their JSON form.
        value = yaml.safe_load(read_bytes(path))
        text = orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise FormatError(f"not YAML that JSON can express: {reason}", path=str(path)) from None
    yield from _document_rows(orjson.loads(text), path)


def _document_rows(data: Json, path: Path) -> Iterator[Row]:
    if isinstance(data, dict) and is_trajectory(data):
        yield "", data
        return
    if is_dialogue(data):
        yield "", {"messages": data}
        return
    if isinstance(data, dict) and is_inspect_log(data):
        for number, sample in enumerate(samples_of(data)):
            yield f"samples[{number}]", _object(sample, path, f"samples[{number}]")
        return
    if isinstance(data, dict) and not {"evalCases", "eval_cases"}.isdisjoint(data):
        raise FormatError(
            "is an eval set, which every command reads unchanged; expected rows of a data set (to rewrite"
            " ADK's in evaltap's form, use `evaltap set fmt --to trpc`)",
            path=str(path),
        )
    if isinstance(data, dict):
        data = _wrapped(data, path)
    if not isinstance(data, list):
        raise FormatError(f"found {describe(data)}; expected an array of rows", path=str(path))
    for number, row in enumerate(data):
        place = f"[{number}]"
        yield place, _object(row, path, place)


def _wrapped(data: Mapping[str, Json], path: Path) -> Json:
    """Return the rows in an object; an object without rows is returned unchanged."""
    if (rows := test_run(data)) is not None:
        return rows
    if len(data.keys() - {"meta"}) == 1:
        # Some tools wrap the rows as {"data": [...]}, with the number of the page in "meta".
        page = data.get("meta")
        (rows,) = (value for key, value in data.items() if key != "meta")
        if isinstance(page, dict) and page.get("totalPages") not in (None, 0, 1):
            warn_once(
                f"{path}: is page {page.get('page')} of {page['totalPages']}; read all of them"
            )
        return rows
    if is_results(data):
        return results_of(data)
    if (rows := pydantic_evals.report_rows(data)) is not None:
        return rows
    if pydantic_evals.is_dataset(data):
        if left_out := [name for name in ("evaluators", "report_evaluators") if data.get(name)]:
            warn_once(f"{path}: left out {' and '.join(left_out)} of all cases")
        return pydantic_evals.dataset_rows(data)
    return data


def test_run(data: Mapping[str, Json]) -> list[Json] | None:
    """Return the rows of a test run that DeepEval saved; None for other objects."""
    run = data.get("testRunData", data)  # so wrapped in `.latest_test_run.json`
    if not isinstance(run, Mapping) or not all(isinstance(run.get(key), list) for key in _TEST_RUN):
        return None
    return [row for key in _TEST_RUN for row in run[key]]


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(1 << 30)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            twice = [name for name, count in Counter(reader.fieldnames or ()).items() if count > 1]
            if twice:
                raise FormatError(
                    f"several columns have the name {twice[0]!r}; give each its own", path=str(path)
                )
            for row in reader:
                place = f"line {reader.line_num}"
                if None in row or None in row.values():
                    raise FormatError(
                        f"another number of cells than the {len(reader.fieldnames or [])} columns",
                        path=str(path),
                        place=place,
                    )
                # An empty cell means no value, because it cannot be distinguished from an empty
                # text.
                yield place, {key: value or None for key, value in row.items()}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise FormatError(f"not CSV in UTF-8: {error}", path=str(path)) from None


def _parquet(path: Path) -> Iterator[Row]:
    with _pyarrow(path) as arrow, arrow.parquet.ParquetFile(path) as file:
        yield from _batch_rows(file.iter_batches(batch_size=1000))


def row_group_starts(path: Path) -> list[int]:
    """Return the number of the first row of each row group of a Parquet file."""
    with _pyarrow(path) as arrow, arrow.parquet.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    return list(accumulate(sizes, initial=0))[:-1]


def row_group(path: Path, number: int, first_row: int) -> Iterator[tuple[int, dict[str, Json]]]:
    """Yield the rows of one row group of a Parquet file, numbered starting at `first_row`."""
    with _pyarrow(path) as arrow, arrow.parquet.ParquetFile(path) as file:
        batches = file.iter_batches(batch_size=1000, row_groups=[number])
        yield from enumerate((row for _, row in _batch_rows(batches)), start=first_row)


def _arrow(path: Path) -> Iterator[Row]:
    """Read the streaming format, which `datasets` writes, or the file format."""
    with _pyarrow(path, "an Arrow") as arrow, arrow.memory_map(str(path)) as source:
        try:
            batches: object = arrow.ipc.open_stream(source)
        except arrow.ArrowInvalid:
            reader = arrow.ipc.open_file(source)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        yield from _batch_rows(batches)


_READERS: Final[Mapping[str, Callable[[Path], Iterator[Row]]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".traj": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
}


def _folder_rows(path: Path, split: str) -> Iterator[Row]:
    """Read the output of `save_to_disk` (one data set, or splits), or Parquet or JSON Lines files."""
    splits = _splits(path)
    if split and split not in splits:
        known = ", ".join(filter(None, splits)) or "none"
        raise InputError(f"--split {split}: {path} has the splits {known}")
    for name, files in splits.items():
        if split in ("", name):
            number = 0
            for file in files:
                for _, row in _READERS[file.suffix](file):
                    yield f"row {number}" + (f" of {name}" if name else ""), row
                    number += 1


def _splits(path: Path) -> dict[str, list[Path]]:
    """Return the files of each split; the name is '' for a data set without splits."""
    if (path / "dataset_dict.json").is_file():
        data = _described(path / "dataset_dict.json")
        names = data.get("splits")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FormatError(
                "expected `splits`, a list of names", path=f"{path}/dataset_dict.json"
            )
        return {name: _saved(path / name) for name in names}
    if (path / "state.json").is_file():
        return {"": _saved(path)}
    found = regular_files(path, "*.parquet") or regular_files(path, "*.jsonl")
    if not found:
        raise InputError(
            f"{path}: contains no data set; expected dataset_dict.json or state.json (save_to_disk), or"
            " Parquet or JSON Lines files"
        )
    splits: dict[str, list[Path]] = {}
    for file in found:
        # Hugging Face names shards `train-00000-of-00002.parquet`.
        splits.setdefault(file.stem.split("-")[0], []).append(file)
    return splits


def _saved(path: Path) -> list[Path]:
    state = _described(path / "state.json")
    files = state.get("_data_files")
    given = [one.get("filename") for one in files] if isinstance(files, list) else [None]
    names = [name for name in given if isinstance(name, str) and Path(name).name == name]
    if len(names) < len(given):
        raise FormatError("expected `_data_files` with file names", path=str(path / "state.json"))
    if state.get("_indices_data_files"):
        raise FormatError(
            "the data set is a selection of rows; call flatten_indices() before save_to_disk()",
            path=str(path / "state.json"),
        )
    return [path / name for name in names]


def _described(path: Path) -> dict[str, Json]:
    return _object(canonical.loads(read_bytes(path), path=str(path)), path, "")


def _batch_rows(batches: Any) -> Iterator[Row]:
    number = 0
    for batch in batches:
        batch.validate(full=True)  # invalid offsets would crash the process
        for row in batch.to_pylist():
            yield f"row {number}", row
            number += 1


def _object(row: Json, path: Path, place: str) -> dict[str, Json]:
    if not isinstance(row, dict):
        raise FormatError(
            f"found {describe(row)}; expected an object with columns", path=str(path), place=place
        )
    return row


@contextmanager
def _pyarrow(path: Path, kind: str = "a Parquet") -> Iterator[Any]:  # the module
    """Yield the package that reads a file; raise FormatError if the file is broken."""
    try:
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigurationError(
            "Parquet and Arrow files need the package pyarrow; install evaltap[datasets]"
        ) from error
    try:
        yield pyarrow
    except (
        pyarrow.ArrowException,
        OSError,
        SystemError,
        UnicodeDecodeError,
        OverflowError,
    ) as error:
        raise FormatError(f"not {kind} file: {error}", path=str(path)) from None
