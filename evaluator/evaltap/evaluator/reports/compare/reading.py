"""Read a side of a comparison: a file, some of its runs, or traffic."""

from collections.abc import Sequence
from pathlib import Path

from evaltap.evaluator.reports.compare.baseline import read_baseline, write_baseline
from evaltap.evaluator.reports.compare.comparison import compare
from evaltap.evaluator.reports.compare.model import Comparison, Rules
from evaltap.evaluator.reports.compare.result_files import read_result_side
from evaltap.evaluator.reports.compare.score_lines import read_score_lines, write_score_lines
from evaltap.evaluator.reports.compare.selections import selection_of
from evaltap.evaluator.reports.compare.sides import ScoreRow, Side, merged
from evaltap.evaluator.store.file_type import is_database
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import LINES_ENDINGS, read_bytes

FORMS = (
    "a DuckDB file (all runs, or FILE#RUN,RUN), a baseline.json, an .evalset_result.json or"
    " JSON Lines of scores"
)


def split_runs(text: str) -> tuple[Path, tuple[str, ...]]:
    """Return the file and the runs of `FILE#RUN,RUN`; an existing file of that whole name takes
    precedence."""
    whole = Path(text)
    name, mark, runs = text.rpartition("#")
    if not mark or whole.exists():
        return whole, ()
    return Path(name), tuple(run for run in runs.split(",") if run)


def read_side(text: str) -> Side:
    """Return the scores that an argument names; raise InputError for an invalid argument."""
    path, runs = split_runs(text)
    if is_database(path):
        from evaltap.evaluator.reports.compare.stores import read_store_side

        return read_store_side(path, runs)
    if runs:
        raise FormatError(
            f"#{','.join(runs)} names runs of a DuckDB file, but this is not a DuckDB file",
            path=str(path),
        )
    if path.suffix in LINES_ENDINGS:
        return read_score_lines(path)
    data = canonical.loads(read_bytes(path), path=str(path))
    if isinstance(data, dict) and "format" in data:
        return read_baseline(data, path)
    if isinstance(data, str) or (isinstance(data, dict) and "evalCaseResults" in data):
        return read_result_side(path)
    raise FormatError(f"contains no scores; expected {FORMS}", path=str(path))


def compare_sides(base: str, head: str, rules: Rules) -> Comparison:
    """Compare the sides named by two arguments: runs case by case, slices of traffic as a whole.

    Raises InputError for an invalid argument, and if one side is runs and the other traffic.
    """
    selections = [selection_of(text) for text in (base, head)]
    first, second = selections
    if first is not None and second is not None:
        from evaltap.evaluator.reports.compare.traffic import compare_traffic

        return compare_traffic(first, second, rules)
    if first is not None or second is not None:
        raise InputError(
            f"{base} and {head}: one is traffic (FILE@...), the other runs; expected two of the same kind"
        )
    return compare(read_side(base), read_side(head), rules)


def export_scores(texts: Sequence[str], out: Path) -> int:
    """Write the scores that arguments name as JSON Lines (`.jsonl`) or as a baseline (`.json`).

    Returns the number of written scores or cases; raises InputError for another extension.
    """
    sides = [read_side(text) for text in texts]
    if out.suffix in LINES_ENDINGS:
        rows = [
            row if len(sides) == 1 else row._replace(trial=f"{side.name} {row.trial}")
            for side in sides
            for row in _rows(side)
        ]
        write_score_lines(out, rows)
        return len(rows)
    if out.suffix != ".json":
        raise InputError(
            f"{out}: expected .json for a baseline of counts, or .jsonl for every score"
        )
    side = merged(sides)
    write_baseline(out, side)
    return len(side.cases)


def _rows(side: Side) -> Sequence[ScoreRow]:
    if not side.rows:
        raise InputError(
            f"{side.name}: has only counts, not every score; write a .json baseline instead"
        )
    return side.rows
