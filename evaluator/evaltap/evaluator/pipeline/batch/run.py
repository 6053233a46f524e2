"""Score the cases of files as a run."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.pipeline.batch.files import FileScorer
from evaltap.evaluator.scoring.batch import BATCH_SECONDS, Progress
from evaltap.evaluator.scoring.results.rows import PackedRows
from evaltap.evaluator.scoring.results.runs import Run, end_run, start_run
from evaltap.evaluator.scoring.results.writer import ScoreWriter
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store, utc_now

ROWS_PER_WRITE = 25_000
"""Turn scores per statement: enough that its fixed cost does not matter, and few enough that the last
statement, during which no worker scores, is short."""


@dataclass(frozen=True, slots=True)
class FilesScored:
    """The result of scoring files, apart from the scores."""

    run: Run
    bad_lines: list[BadLine]
    without_reference: int
    """Cases that were compared with placeholders because they have no reference."""
    sampled: int
    """Cases that sampling kept with a probability below 1: their rates are not those of the traffic."""
    repeated_ids: list[str]
    """Some eval ids that several cases of an eval set share: their scores cannot be distinguished."""


def score_files(
    store: Store, files: FileScorer, scorer: CaseScorer, source: str, progress: Progress
) -> FilesScored:
    """Score the cases of files as a new run; lines that are not cases become dead letters.

    A run without judges is one transaction: all its rows are written, or none.
    """
    run = start_run(store, "files", source, run_metrics(scorer))
    writer, bad_lines = ScoreWriter(store, run), []
    waiting: list[PackedRows] = []
    cases, without_reference, sampled, written = 0, 0, 0, time.monotonic()
    # Judged scores cost money, so they are committed as they arrive.
    whole = nullcontext() if files.judged else store.transaction()
    with store.limited_memory(), whole:
        for batch in files.batches():
            waiting.append(batch.rows)
            cases += batch.rows.case_count
            without_reference += batch.rows.without_reference
            sampled += batch.rows.sampled
            if batch.bad_lines:
                bad_lines.extend(batch.bad_lines)
                write_bad_lines(store, batch.bad_lines)
            late = files.judged and time.monotonic() - written >= BATCH_SECONDS
            if late or sum(one.turn_scores.rows for one in waiting) >= ROWS_PER_WRITE:
                writer.write(waiting)
                waiting.clear()
                written = time.monotonic()
            progress(cases)
        writer.write(waiting)
    return end_files(store, run, cases, bad_lines, without_reference, sampled)


def end_files(
    store: Store,
    run: Run,
    cases: int,
    bad_lines: list[BadLine],
    without_reference: int,
    sampled: int,
) -> FilesScored:
    """End a run over files and return its result."""
    end_run(store, run, cases)
    repeated = store.rows(_REPEATED_IDS, {"run_id": run.run_id})
    ids = [eval_id for (eval_id,) in repeated]
    return FilesScored(run, bad_lines, without_reference, sampled, ids)


_REPEATED_IDS = """
SELECT eval_id FROM scores
WHERE run_id = $run_id
  AND metric_name = (SELECT any_value(metric_name) FROM run_metrics WHERE run_id = $run_id)
GROUP BY app_name, eval_set_id, eval_id
HAVING count(*) > 1
ORDER BY eval_id LIMIT 3
"""


def write_bad_lines(store: Store, lines: Sequence[BadLine]) -> None:
    """Store lines that are not usable cases as dead letters."""
    now = utc_now()
    with store.transaction():
        store.append(
            "dead_letters",
            [
                (
                    f"file:{line.path}",
                    0,
                    line.offset,
                    "invalid_case",
                    line.message,
                    False,
                    None,
                    None,
                    line.raw,
                    now,
                )
                for line in lines
            ],
        )
