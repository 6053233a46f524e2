"""Keep the results of cases while they are scored, for result files."""

import time
from pathlib import Path

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.scoring.evaluate import case_result
from evaltap.evaluator.scoring.results.result_file import eval_set_result, result_path
from evaltap.evaluator.scoring.scorer import CaseScore
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import write_document
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.formats.result import EvalCaseResult


class KeptResults:
    """Keeps the result of every case, by eval set, for the result files."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], list[EvalCaseResult]] = {}

    def add(self, identity: CaseIdentity, case: CaseData, score: CaseScore) -> None:
        """Keep the result of a case."""
        result = case_result(case, score, eval_set_id=identity.eval_set_id, run_id=1)
        self._results.setdefault((identity.app_name, identity.eval_set_id), []).append(result)

    def write(self, target: Path) -> None:
        """Write the results of one eval set to a file, or those of several into a folder."""
        if target.suffix == ".json" and len(self._results) > 1:
            raise InputError(
                f"--result {target}: the cases belong to {len(self._results)} eval sets; expected a folder"
            )
        for (app_name, eval_set_id), results in self._results.items():
            result = eval_set_result(
                eval_set_id, results, app_name=app_name, created_at=time.time()
            )
            write_document(result_path(target, result, app_name), result)
