"""Which file, and which runs of it, a side of a comparison is."""

from collections.abc import Sequence
from pathlib import Path

from evaltap.evaluator.compare.baseline import read_baseline, write_baseline
from evaltap.evaluator.compare.result_files import read_result_side
from evaltap.evaluator.compare.score_lines import read_score_lines, write_score_lines
from evaltap.evaluator.compare.sides import ScoreRow, Side, merged
from evaltap.evaluator.store.file_type import is_database
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import read_bytes

FORMS = (
    "a DuckDB file (all runs, or FILE#RUN,RUN), a baseline.json, an .evalset_result.json or"
    " JSON Lines of scores"
)


def split_runs(text: str) -> tuple[Path, tuple[str, ...]]:
    """Return the file and the runs that `FILE#RUN,RUN` names; a file of that very name comes first."""
    whole = Path(text)
    name, mark, runs = text.rpartition("#")
    if not mark or whole.exists():
        return whole, ()
    return Path(name), tuple(run for run in runs.split(",") if run)


def read_side(text: str) -> Side:
    """Return the scores that an argument names; raises InputError for what is none."""
    path, runs = split_runs(text)
    if is_database(path):
        from evaltap.evaluator.compare.stores import read_store_side

        return read_store_side(path, runs)
    if runs:
        raise FormatError(
            f"#{','.join(runs)} names runs of a DuckDB file, and this is none", path=str(path)
        )
    if path.suffix in (".jsonl", ".ndjson"):
        return read_score_lines(path)
    data = canonical.loads(read_bytes(path), path=str(path))
    if isinstance(data, dict) and "format" in data:
        return read_baseline(data, path)
    if isinstance(data, str) or (isinstance(data, dict) and "evalCaseResults" in data):
        return read_result_side(path)
    raise FormatError(f"holds no scores; expected {FORMS}", path=str(path))


def read_rows(text: str) -> list[ScoreRow]:
    """Return the scores that an argument names one by one; raises InputError for other than a DuckDB file."""
    from evaltap.evaluator.compare.stores import read_score_rows

    path, runs = split_runs(text)
    if not is_database(path):
        raise FormatError("is no DuckDB file; expected one with scores", path=str(path))
    return read_score_rows(path, runs)


def export_scores(texts: Sequence[str], out: Path) -> int:
    """Write the scores that arguments name as JSON Lines (`.jsonl`) or as a baseline (`.json`).

    Returns how many scores or cases were written; raises InputError for another ending.
    """
    if out.suffix in (".jsonl", ".ndjson"):
        rows = [
            row if len(texts) == 1 else row._replace(trial=f"{text} {row.trial}")
            for text in texts
            for row in read_rows(text)
        ]
        write_score_lines(out, rows)
        return len(rows)
    if out.suffix != ".json":
        raise InputError(
            f"{out}: expected .json for a baseline of counts, or .jsonl for every score"
        )
    side = merged([read_side(text) for text in texts])
    write_baseline(out, side)
    return len(side.cases)
