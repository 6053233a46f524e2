"""Keep the results of cases while they are scored, for result files."""

import re
import time
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.scoring.evaluate import case_result
from evaltap.evaluator.scoring.results.result_file import eval_set_result, result_path
from evaltap.evaluator.scoring.scorer import CaseScore
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import write_document
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.formats.result import EvalCaseResult

_TRIAL: Final = re.compile(r"@(trial-\d+)$")
"""The end of a set's name that tells occurrences of its cases apart (`cases.datasets.trials`)."""


class KeptResults:
    """Keeps the result of every case, by eval set and run, for the result files."""

    def __init__(self) -> None:
        self._results: dict[tuple[str, str], dict[str, list[EvalCaseResult]]] = {}

    def add(self, identity: CaseIdentity, case: CaseData, score: CaseScore) -> None:
        """Keep the result of a case; its repeats are runs of one eval set."""
        name = identity.eval_set_id
        trial = _TRIAL.search(name)
        run = trial[1] if trial else (case.get("source") or {}).get("run") or ""
        name = name.removesuffix(f"@{run}") if run else name
        result = case_result(case, score, eval_set_id=name, run_id=1)
        runs = self._results.setdefault((identity.app_name, name), {})
        runs.setdefault(run, []).append(result)

    def write(self, target: Path) -> None:
        """Write the results of one eval set to a file, or those of several into a folder."""
        if target.suffix == ".json" and len(self._results) > 1:
            raise InputError(
                f"--result {target}: the cases belong to {len(self._results)} eval sets; expected a folder"
            )
        for (app_name, eval_set_id), runs in self._results.items():
            results = [
                result.model_copy(update={"run_id": number})
                for number, run in enumerate(sorted(runs, key=_natural), start=1)
                for result in runs[run]
            ]
            result = eval_set_result(
                eval_set_id, results, app_name=app_name, created_at=time.time(), num_runs=len(runs)
            )
            write_document(result_path(target, result, app_name), result)


def _natural(run: str) -> list[tuple[int, str]]:
    """Return the sort key of a run's name: numbers in it count as such."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", run)]
