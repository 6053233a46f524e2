"""Builders of reports for tests: cases are scored for real, then read back from the store."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from evaltap.evaluator.pipeline.batch.files import FileScorer
from evaltap.evaluator.pipeline.batch.run import score_files
from evaltap.evaluator.reports.model import Limits, Report
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import JudgeReply, ScriptedJudge
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas import EvalMetric


def rubric_answer(score: int, reason: str = "because") -> str:
    """Return a judge's answer about rubric 1."""
    return orjson.dumps({"rubricScores": [{"id": "1", "score": score, "reason": reason}]}).decode()


def write_cases(folder: Path, cases: Sequence[dict[str, Any]], name: str = "set.jsonl") -> Path:
    """Write cases as JSON Lines."""
    path = folder / name
    path.write_bytes(b"".join(orjson.dumps(case) + b"\n" for case in cases))
    return path


def score_into(
    store: Store,
    path: Path,
    metrics: Sequence[dict[str, Any]],
    answer: Callable[[], JudgeReply | str] | None = None,
) -> str:
    """Score the cases of a file; judged metrics are answered by `answer`.  Returns the run id."""
    services = None
    if answer is not None:
        judge = ScriptedJudge(lambda _: answer())
        services = Services(judge=lambda _: judge)
    scorer = CaseScorer([EvalMetric.model_validate(one) for one in metrics], services=services)
    files = FileScorer(scorer, [path], workers=1)
    return score_files(store, files, scorer, str(path), lambda _: None).run.run_id


def report_of(
    folder: Path,
    cases: Sequence[dict[str, Any]],
    metrics: Sequence[dict[str, Any]],
    *,
    answer: Callable[[], JudgeReply | str] | None = None,
    limits: Limits | None = None,
) -> Report:
    """Score cases from a file and return the report over them, read with the file."""
    path = write_cases(folder, cases)
    with Store(":memory:") as store:
        run_id = score_into(store, path, metrics, answer)
        return read_report(store, run_id=run_id, case_files=[path], limits=limits)
