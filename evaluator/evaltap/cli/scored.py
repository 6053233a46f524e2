"""What becomes of the scores of `evaltap score`: its verdict, printed, and what takes them one by one."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from evaltap.cli.messages import print_json
from evaltap.cli.options.score import ScoreOptions
from evaltap.cli.redaction import report_redactor
from evaltap.cli.scoring import ChosenMetrics
from evaltap.cli.verdict import Scope, Verdict
from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.reports.summary import Summary
from evaltap.evaluator.scoring.batch import Observer
from evaltap.evaluator.scoring.results.sinks import ScoredCase
from evaltap.evaluator.scoring.scorer import CaseScore
from evaltap.evaluator.store.file_type import is_database
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData

if TYPE_CHECKING:
    from evaltap.evaluator.scoring.results.result_file import KeptResults


def observer(
    kept: "KeptResults | None", write: Callable[[ScoredCase], None] | None
) -> Observer | None:
    """Return what each case and its score are handed to; None if nobody takes them."""
    if kept is None and write is None:
        return None

    def observe(identity: CaseIdentity, case: CaseData, score: CaseScore) -> None:
        if kept is not None:
            kept.add(identity, case, score)
        if write is not None:
            write(ScoredCase(identity, case, score))

    return observe


def verdict_on(
    options: ScoreOptions, store: StoreReader, summary: Summary, scope: Scope
) -> Verdict:
    """Return the verdict on scores, with the requested reports written."""
    return Verdict.of(
        "score",
        store,
        summary,
        scope,
        guards=options.guards,
        reports=options.report,
        examples=not options.json,
        clean=report_redactor() if options.report and not options.no_redact else None,
    )


def print_verdict(
    options: ScoreOptions, verdict: Verdict, chosen: ChosenMetrics, bad_lines: int
) -> None:
    """Print a verdict as the options ask for it."""
    if options.json:
        data = {**verdict.summary.data(), "bad_lines": bad_lines, "not_run": chosen.not_run}
        print_json(data)
    else:
        verdict.print(options.cases[0] if is_database(options.cases[0]) else options.db)
