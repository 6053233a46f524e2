"""The cases that a gate judged: its verdicts, and the cases themselves."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.model import SEVERITY, CaseReport, GateVerdict
from evaltap.evaluator.reports.scope import ReportedScores
from evaltap.schemas.formats.case import CaseData


def with_verdicts(scored: ReportedScores, cases: Iterable[CaseReport]) -> list[CaseReport]:
    """Return the cases of some scores with the verdicts of gates, worst first.

    A case that a gate could not check has not passed, regardless of other scores.
    """
    verdicts = {
        (app, eval_set, eval_id): GateVerdict(*verdict)
        for app, eval_set, eval_id, *verdict in scored.rows(_VERDICTS)
    }
    found = [_judged(case, verdicts) for case in cases]
    return sorted(found, key=lambda case: SEVERITY.index(case.status))


def judged_cases(scored: ReportedScores) -> Iterator[tuple[CaseKey, CaseData]]:
    """Yield the cases of some scores as gates judged them."""
    for app, eval_set, eval_id, text in scored.rows(_CASES):
        yield (app, eval_set, eval_id), orjson.loads(text)


def _judged(case: CaseReport, verdicts: Mapping[CaseKey, GateVerdict]) -> CaseReport:
    verdict = verdicts.get((case.app_name, case.eval_set_id, case.eval_id))
    if verdict is None:
        return case
    status = case.status
    if verdict.status == "incomplete" and status == "passed":
        status = "not_evaluated"
    return replace(case, status=status, gate=verdict)


_BEHIND: Final = """
FROM gate_results
SEMI JOIN {scores} USING (run_id, app_name, eval_set_id, eval_id, revision)
QUALIFY row_number() OVER (PARTITION BY app_name, eval_set_id, eval_id ORDER BY revision DESC) = 1
"""
_VERDICTS: Final = f"SELECT app_name, eval_set_id, eval_id, status, attempt, feedback {_BEHIND}"
_CASES: Final = f"SELECT app_name, eval_set_id, eval_id, case_json {_BEHIND}"
