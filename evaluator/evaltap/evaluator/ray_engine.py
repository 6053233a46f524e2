"""Scoring big batches on Ray Data: parts of files go to workers, results are Parquet files.

The same pure function scores a part here and in one process, so both give the same rows.  A part is
written to a folder of its own that is renamed when it is whole: a part that is scored again, because
its node died, leaves one result.  Nothing but counts comes back to the driver.

Files and results must lie where every node sees them, under the same path.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from evaltap.evaluator.bad_line import BadLine
from evaltap.evaluator.batch import NamedCase, case_identity, score_batches
from evaltap.evaluator.datasets.columns import Columns, case_or_bad_line
from evaltap.evaluator.datasets.tables import row_group, row_group_starts
from evaltap.evaluator.file_scoring import Part, part_cases, parts
from evaltap.evaluator.parquet_results import drop_unfinished, write_part
from evaltap.evaluator.runs import Run, write_run
from evaltap.evaluator.scores import ScoreWriter
from evaltap.evaluator.scoring import CaseScorer
from evaltap.evaluator.store import Store
from evaltap.schemas.documents import eval_set_name
from evaltap.schemas.errors import ConfigurationError, EvaltapError, InputError

PART_BYTES = 8 << 20
"""Bytes of JSON Lines in a part: a few seconds of work, so that little is done again after a fault."""
OBJECT_STORE_BYTES = 128 << 20
"""Memory that a cluster started here may take for what tasks return: counts and bad lines."""


@dataclass(frozen=True, slots=True)
class RayTask:
    """What every worker must know; sent to each."""

    run: Run
    folder: Path
    """Where the run's parts go."""
    make_scorer: Callable[[], CaseScorer]
    columns: Columns = field(default_factory=Columns)
    threads: int = 1


class PartScored(NamedTuple):
    """What became of a part."""

    cases: int
    without_reference: int
    bad_lines: list[BadLine]


def score_on_ray(
    task: RayTask,
    paths: Sequence[Path],
    *,
    address: str | None = None,
    part_bytes: int = PART_BYTES,
) -> Iterator[PartScored]:
    """Score files on a Ray cluster, one that is started here without `address`; yield as parts end.

    Raises ConfigurationError without Ray, InputError for a cluster or a file that cannot be reached.
    """
    numbered = [
        {"number": number, "part": orjson.dumps([*part])}
        for number, part in enumerate(_all_parts(paths, part_bytes), start=1)
    ]
    with _cluster(address) as ray:
        if not numbered:
            return
        data = ray.data.from_items(numbered, override_num_blocks=len(numbered))
        scored = data.map_batches(_score, batch_size=1, fn_kwargs={"task": task})
        try:
            for row in scored.iter_rows():
                bad = [BadLine(*line) for line in orjson.loads(row["bad_lines"])]
                bad = [line._replace(raw=bytes.fromhex(str(line.raw))) for line in bad]
                yield PartScored(row["cases"], row["without_reference"], bad)
        except ray.exceptions.RayError as error:
            raise _readable(error) from None
    drop_unfinished(task.folder)


class _cluster:
    """The Ray cluster at an address, or one on this machine for as long as the block lasts."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._began = False

    def __enter__(self) -> Any:  # the module, which has no types
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
            import ray.data
        except ImportError:
            raise ConfigurationError(
                "--engine ray needs the package ray; install evaltap[ray]"
            ) from None
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if not ray.is_initialized():
            own = self._address is None and not os.environ.get("RAY_ADDRESS")
            if own:
                quiet |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
            try:
                ray.init(self._address, **quiet)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"no Ray cluster at {self._address or os.environ.get('RAY_ADDRESS')}"
                    f" ({str(error).splitlines()[0]}); start one with `ray start --head`"
                ) from None
            self._began = True
        ray.data.DataContext.get_current().enable_progress_bars = False
        for name in ("ray", "ray.data"):
            # Made anew by `init`; what goes wrong comes as an exception.
            logging.getLogger(name).setLevel(logging.ERROR)
        return ray

    def __exit__(self, *_: object) -> None:
        if self._began:
            import ray

            ray.shutdown()


def _all_parts(paths: Sequence[Path], part_bytes: int) -> Iterator[Part]:
    for path in paths:
        if path.suffix.lower() == ".parquet":
            for number, first_row in enumerate(row_group_starts(path)):
                yield Part(str(path.resolve()), number, first_row)
        else:
            yield from parts([path.resolve()], part_bytes)


def _readable(error: Exception) -> EvaltapError:
    """Return the error of a worker as one of ours."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, EvaltapError):
            return cause
        if isinstance(cause, OSError):
            return InputError(
                f"a node cannot reach {cause.filename or 'a file'} ({cause.strerror}); input and"
                " results must lie under the same path on every node"
            )
        cause = getattr(cause, "cause", None) or cause.__cause__
    return InputError(f"Ray gave up: {str(error).strip().splitlines()[-1]}")


# -- on the workers --------------------------------------------------------------------------------


class _Worker:
    """What a worker process keeps from part to part: compiled metrics, a store to make rows in."""

    def __init__(self, task: RayTask) -> None:
        self.scorer = task.make_scorer()
        self.store = Store(":memory:")
        self.store.execute("SET threads = 1")
        write_run(self.store, task.run)
        self.writer = ScoreWriter(self.store, task.run)


_workers: Final[dict[str, _Worker]] = {}


def _score(batch: dict[str, Any], task: RayTask) -> dict[str, Any]:
    """Score the part of a batch of one."""
    number = int(batch["number"][0])
    scored = _score_part(task, number, Part(*orjson.loads(batch["part"][0])))
    bad_lines = [[*line[:-1], line.raw.hex()] for line in scored.bad_lines]
    return {
        "cases": [scored.cases],
        "without_reference": [scored.without_reference],
        "bad_lines": [orjson.dumps(bad_lines)],
    }


def _score_part(task: RayTask, number: int, part: Part) -> PartScored:
    worker = _workers.get(task.run.run_id)
    if worker is None:
        worker = _workers[task.run.run_id] = _Worker(task)
    bad_lines: list[BadLine] = []
    outlined = worker.scorer.outline_suffices
    if part.path.lower().endswith(".parquet"):
        cases = _row_group_cases(part, task.columns, bad_lines)
    else:
        cases = part_cases(part, bad_lines, outlined=outlined)
    scorer = worker.scorer
    size = 1 << 30  # all rows of the part at once
    batches = score_batches(scorer, cases, range(len(scorer.metrics)), size, task.threads)
    packed = [rows.packed() for rows in batches]
    worker.writer.write(packed)
    write_part(worker.store, task.folder, number)
    return PartScored(
        sum(rows.case_count for rows in packed),
        sum(rows.without_reference for rows in packed),
        bad_lines,
    )


def _row_group_cases(part: Part, columns: Columns, bad_lines: list[BadLine]) -> Iterator[NamedCase]:
    """Yield the cases of a row group of a Parquet file; of a part, `end` is its first row's number."""
    path = Path(part.path)
    name = eval_set_name(path.with_suffix(""))
    for number, row in row_group(path, part.start, part.end):
        found = case_or_bad_line(row, columns, number=number, path=part.path, place=f"row {number}")
        if isinstance(found, BadLine):
            bad_lines.append(found)
        else:
            yield case_identity(found, name), found
