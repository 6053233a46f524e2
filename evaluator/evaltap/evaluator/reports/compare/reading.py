"""Read a side of a comparison: a file, some of its runs, or traffic."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.reports.compare.baseline import read_baseline, write_baseline
from evaltap.evaluator.reports.compare.comparison import compare
from evaltap.evaluator.reports.compare.model import Comparison, Rules
from evaltap.evaluator.reports.compare.score_lines import read_score_lines, write_score_lines
from evaltap.evaluator.reports.compare.sides import (
    VERDICTS,
    WITHOUT_VERDICT,
    RecordedTurn,
    Recording,
    ScoreRow,
    Side,
    contents_of,
    merged,
    metrics_of,
    recording_of,
)
from evaltap.evaluator.reports.compare.traffic import selection_of
from evaltap.evaluator.store.file_type import is_database
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import LINES_ENDINGS, read_bytes, read_result
from evaltap.schemas.formats.case import Invocation
from evaltap.schemas.formats.result import EvalMetricResult, EvalMetricResultPerInvocation

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


def read_result_side(path: Path) -> Side:
    """Return the runs of a result file; raise FormatError if it has no cases or unknown statuses."""
    result = read_result(path)
    rows: list[ScoreRow] = []
    recordings: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    made: defaultdict[CaseKey, dict[str, Sequence[Case]]] = defaultdict(dict)
    for place, case in enumerate(result.eval_case_results):
        key = ("", case.eval_set_id or result.eval_set_id, case.eval_id)
        trial = str(case.run_id)
        where = f"evalCaseResults[{place}]"
        rows += [
            _row(key, trial, metric, str(path), where)
            for metric in case.overall_eval_metric_results
        ]
        pairs = case.eval_metric_result_per_invocation
        made[key][trial] = [_data(pair.actual_invocation) or {} for pair in pairs]
        if pairs:
            recordings[key].append(recording_of(trial, [_seen(pair) for pair in pairs]))
    if not rows:
        raise FormatError("contains no scores; expected metric results of cases", path=str(path))
    runs = len({row.trial for row in rows})
    contents = contents_of(recordings)
    return Side(str(path), runs, metrics_of(rows), recordings, contents, lambda cases: made, rows)


def _row(key: CaseKey, trial: str, metric: EvalMetricResult, path: str, place: str) -> ScoreRow:
    status = metric.eval_status
    if status not in VERDICTS and status not in WITHOUT_VERDICT:
        known = ", ".join((*VERDICTS, *WITHOUT_VERDICT))
        raise FormatError(
            f"`evalStatus` of {metric.metric_name!r} is {status!r}; expected one of {known}",
            path=path,
            place=place,
        )
    # The format omits a score of zero.
    score = None if status in WITHOUT_VERDICT else metric.score or 0.0
    return ScoreRow(key, trial, metric.metric_name, "", status, score, metric.threshold)


def _seen(pair: EvalMetricResultPerInvocation) -> RecordedTurn:
    turn = _data(pair.actual_invocation) or {}
    used = turn.get("telemetry") or {}
    return RecordedTurn(
        Turn(turn).user_text,
        Turn(turn).final_text,
        _data(pair.expected_invocation),
        used.get("costUsd"),
        used.get("latencyMs"),
    )


def _data(invocation: Invocation | None) -> Case | None:
    return None if invocation is None else invocation.model_dump(by_alias=True)
