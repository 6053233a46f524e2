"""Result files (`.evalset_result.json`) as a side of a comparison: each run is a trial."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.reports.compare.recordings import (
    RecordedTurn,
    Recording,
    contents_of,
    recording_of,
)
from evaltap.evaluator.reports.compare.sides import (
    VERDICTS,
    WITHOUT_VERDICT,
    ScoreRow,
    Side,
    metrics_of,
)
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import read_result
from evaltap.schemas.formats.case import Invocation
from evaltap.schemas.formats.result import EvalMetricResult, EvalMetricResultPerInvocation


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
