"""`evaltap calibrate`: compare a judge's verdicts with human labels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.table import Table
from rich.text import Text

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.score import CalibrateOptions
from evaltap.cli.progress import progress
from evaltap.cli.scoring import case_scorer, judge_session
from evaltap.evaluator.analysis.estimates.label_files import GivenLabels, read_labels
from evaltap.evaluator.analysis.estimates.labels import feedback_labels
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.curation.calibration.verdicts import (
    Calibrated,
    calibrate_metric,
    calibration_data,
)
from evaltap.evaluator.pipeline.batch.files import FileScorer
from evaltap.evaluator.pipeline.batch.run import score_files
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store, open_store
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.refused import no_such_file
from evaltap.schemas.text import counted

SHOWN_DISAGREEMENTS = 5
_EXIT_CODES = {"trust": 0, "with care": 0, "do not": 1, "too few labels": 3}


def run(options: CalibrateOptions) -> int:
    """Compare and print; return the exit code of the worst metric."""
    _check(options)
    labels, note = read_labels(options.labels) if options.labels else GivenLabels()
    with judge_session("calibrate", options.scoring.judges) as judges:
        scorer = case_scorer("calibrate", options.metrics, options.scoring, judges).scorer
        if options.cases:
            judges.check_reachable(scorer.metrics)
        with _scored(options, scorer) as store:
            if options.labels_from and not (labels := feedback_labels(store)):
                raise InputError(f"{options.db}: no turn has thumbs up or down from a user")
            found = [
                calibrated
                for metric in run_metrics(scorer, store=store)
                for calibrated in calibrate_metric(store, metric, labels)
            ]
    if not found:
        names = ", ".join(metric.metric_name for metric in scorer.metrics)
        raise InputError(
            f"{options.labels or options.db}: no label is for one of these metrics ({names}); check"
            " metricName"
        )
    code = max(_EXIT_CODES[one.calibration.trust] for one in found)
    if options.json:
        rows = [calibration_data(one) for one in found]
        print_json({"calibrations": rows, "exit_code": code})
    else:
        _print(found)
    if note:
        say("calibrate", note)
    return code


def _check(options: CalibrateOptions) -> None:
    if not (options.db or options.cases):
        raise InputError(
            "no verdicts to compare with; give a scored file with --db, or cases to score with --cases"
        )
    if options.scoring.expected.references:
        raise InputError(
            "--references: not supported here; score with `evaltap score --references` and"
            " give its file with --db"
        )
    if (options.labels is None) == (options.labels_from is None):
        raise InputError("give either LABELS or --labels-from feedback")
    if options.labels_from and not options.db:
        raise InputError("--labels-from feedback: needs --db, the file that the feedback landed in")


@contextmanager
def _scored(options: CalibrateOptions, scorer: CaseScorer) -> Iterator[Store]:
    """Yield a store with the verdicts, after scoring `--cases` into it."""
    with open_store(options.db, create=bool(options.cases)) as store:
        if options.cases:
            for path in options.cases:
                if not path.is_file():
                    raise InputError(
                        no_such_file(path, "expected eval cases (.evalset.json or JSON Lines)")
                    )
            files = FileScorer(
                scorer, options.cases, workers=1, concurrency=options.scoring.concurrency
            )
            with progress("cases scored") as report:
                score_files(store, files, scorer, ", ".join(map(str, options.cases)), report)
        yield store


def _print(found: Sequence[Calibrated]) -> None:
    out = console()
    for one in found:
        result = one.calibration
        table = Table(title=f"{one.metric_name}, {one.level}", title_justify="left")
        for name in ("", "found", "95% interval"):
            table.add_column(name)
        for name, value, interval in _rows(one):
            table.add_row(Text(name), value, interval)
        out.print(table)
        reasons = "; ".join(result.reasons)
        out.print(Text(f"verdict: {result.trust.value} ({reasons})"), soft_wrap=True)
        if one.without_verdict:
            out.print(f"{counted(one.without_verdict, 'label')} without a verdict (not counted)")
        if one.picked:
            out.print(
                f"{one.picked:,} of {result.table.total:,} labels were picked, not drawn (`evaltap review"
                f" add --draw {one.metric_name}`): each counts for one turn, as if chosen at random"
            )
        for eval_id, invocation, rubric, passes in one.disagreements[:SHOWN_DISAGREEMENTS]:
            about = " ".join(part for part in (eval_id, invocation, rubric) if part)
            verb = "passes, people fail" if passes else "fails, people pass"
            out.print(Text(f"  the judge {verb}: {about}"), soft_wrap=True)
        rest = len(one.disagreements) - SHOWN_DISAGREEMENTS
        if rest > 0:
            out.print(f"  ... and {rest:,} more (--json lists all)")


def _rows(one: Calibrated) -> list[tuple[str, str, str]]:
    result = one.calibration
    table, corrected = result.table, result.corrected
    return [
        ("labels", f"{table.total:,}", f"{table.human_pass:,} pass, {table.human_fail:,} fail"),
        ("agreement", *_figures(result.agreement)),
        ("Cohen's kappa", *_figures(result.kappa, ".2f")),
        ("false passes (of what people fail)", *_figures(result.false_pass_rate)),
        ("false fails (of what people pass)", *_figures(result.false_fail_rate)),
        ("agreement of a constant answer", _share(result.constant_baseline), ""),
        ("pass rate by judge", _share(corrected.observed), ""),
        ("estimated pass rate by people", *_figures(corrected.rate)),
    ]


def _figures(rate: Rate | None, spec: str = ".1%") -> tuple[str, str]:
    if rate is None:
        return "-", ""
    return f"{rate.value:{spec}}", f"{rate.interval:{spec}}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
