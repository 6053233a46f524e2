"""Case files to score: checks, reports of bad lines, and result files."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.pipeline.batch.run import FilesScored
from evaltap.evaluator.scoring.evaluate import case_result
from evaltap.evaluator.scoring.results.result_file import eval_set_result, result_path
from evaltap.evaluator.scoring.scorer import CaseScore
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import write_document
from evaltap.schemas.files.missing import no_such_file
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.formats.result import EvalCaseResult
from evaltap.schemas.text import counted

SHOWN_BAD_LINES = 5


def check_files(paths: Sequence[Path]) -> None:
    """Raise InputError for a path that is not a file."""
    for path in paths:
        if not path.is_file():
            expected = "expected a file with eval cases"
            if path.is_dir():
                raise InputError(
                    f"{path}: is a folder; {expected} (`evaltap convert` makes one from a data set)"
                )
            raise InputError(no_such_file(path, expected))


def bad_input_exit(scored: FilesScored) -> int:
    """Report lines that are not cases, and repeated ids; return exit code 2 if there are any, otherwise 0."""
    lines = scored.bad_lines
    for line in lines[:SHOWN_BAD_LINES]:
        print(f"evaltap score: {line.message}", file=sys.stderr)
    if len(lines) > SHOWN_BAD_LINES:
        print(f"evaltap score: ... and {len(lines) - SHOWN_BAD_LINES:,} more", file=sys.stderr)
    if lines:
        print(
            f"evaltap score: not scored because they are not eval cases: {counted(len(lines), 'line')};"
            " with --db they are kept in dead_letters",
            file=sys.stderr,
        )
    if scored.repeated_ids:
        print(
            "evaltap score: several cases of one eval set have the same evalId"
            f" ({', '.join(scored.repeated_ids)}, …), so their scores cannot be told apart; give each case"
            " its own id, put the turns of a session into one case, or name repeats in `source.run`",
            file=sys.stderr,
        )
    return 2 if lines or scored.repeated_ids else 0


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
