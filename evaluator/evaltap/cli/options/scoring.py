"""Options of the commands that score: metrics, references, concurrency, thresholds."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from evaltap.cli.options.code import add_allow_code, check_code
from evaltap.cli.options.common import add_concurrency
from evaltap.cli.options.judges import JudgeOptions, JudgeSession, add_judging
from evaltap.cli.parsing import cost_classes, of_environment, seconds, threshold
from evaltap.cli.settings import of_settings
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import read_metrics

if TYPE_CHECKING:
    from evaltap.evaluator.cases.pairing import Placeholders
    from evaltap.evaluator.cases.references import Join, JoinCount, References
    from evaltap.evaluator.pipeline.batch.engine import Engine
    from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
    from evaltap.evaluator.scoring.scorer import CaseScorer, OnUnknownMetric
    from evaltap.evaluator.scoring.selection import Selection
    from evaltap.evaluator.store.database import Store
    from evaltap.schemas.formats.metric import EvalMetric
    from evaltap.schemas.formats.monitor import ScoreRule


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """The metrics to apply, and how to apply them."""

    command: str
    metrics: Path | None
    references: Path | None
    unknown_metrics: str
    cost_class: tuple[str, ...] | None
    concurrency: int
    threshold: tuple[tuple[str, float], ...]
    judges: JudgeOptions = field(default_factory=JudgeOptions)
    placeholders: str = "auto"
    join: str = "auto"
    case_seconds: float | None = None
    allow_code: bool = False

    def read_references(self) -> "References | None":
        """Read the file of expected turns; None without one."""
        return read_references(self.references, self.join)


@dataclass(frozen=True, slots=True)
class ChosenMetrics:
    """The scorer of the metrics that may run, and the names of the metrics that may not."""

    scorer: "CaseScorer"
    not_run: tuple[str, ...] = ()


def read_references(path: Path | None, join: str) -> "References | None":
    """Read a file of expected turns; None without one."""
    from evaltap.evaluator.cases.references import References

    return None if path is None else References.read(path, cast("Join", join))


def add_join(parser: argparse.ArgumentParser) -> None:
    """Add `--join`: how a case is matched with its reference."""
    parser.add_argument(
        "--join",
        choices=("auto", "eval_id", "user_text"),
        default="auto",
        help="how to match a case with its reference: by its eval_id, by the user_text (what the user said),"
        " or auto: by eval id if one matches, otherwise by user text (default: auto)",
    )


def add_references(parser: argparse.ArgumentParser) -> None:
    """Add the references to score landed cases against, and `--join`."""
    references = parser.add_argument(
        "--references",
        type=Path,
        metavar="R.evalset.json",
        help="references (expected turns) for recorded cases, landed or in files",
    )
    of_settings(references, "EVALTAP_REFERENCES")
    add_join(parser)


def add_other_references(parser: argparse.ArgumentParser) -> None:
    """Add references that replace those that landed cases were scored against, and `--join`."""
    parser.add_argument(
        "--references",
        type=Path,
        metavar="R.evalset.json",
        help="compare landed cases with these references (default: those they were scored against)",
    )
    add_join(parser)


def report_ineffective_settings(
    command: str, metrics: "Sequence[EvalMetric]", *, thresholds: bool = True
) -> None:
    """Report missing and ineffective settings of metrics; without `thresholds`, ignore thresholds."""
    from evaltap.evaluator.scoring.settings import surprises

    for metric in metrics:
        if notes := surprises(metric, thresholds=thresholds):
            print(f"evaltap {command}: {metric.metric_name}: {'; '.join(notes)}", file=sys.stderr)


def report_missing_references(command: str, cases: int, metrics: "Sequence[EvalMetric]") -> None:
    """Report which metrics compared `cases` cases of files with an empty placeholder turn."""
    from evaltap.evaluator.scoring.batch import compares
    from evaltap.schemas.text import counted

    comparing = [metric.metric_name for metric in metrics if compares(metric)]
    if cases and comparing:
        print(
            f"evaltap {command}: {', '.join(comparing)} compared {counted(cases, 'case')} with an empty turn"
            " because they have no reference (`conversation` next to `actualConversation`); add references,"
            " or use metrics that need none",
            file=sys.stderr,
        )


def report_joined(command: str, count: "JoinCount") -> None:
    """Report how many cases had a reference."""
    print(f"evaltap {command}: references: {count}", file=sys.stderr)


def add_scoring(parser: argparse.ArgumentParser, *, metrics_help: str, required: bool) -> None:
    """Add the options of every command that scores: metrics, references, concurrency."""
    add = parser.add_argument
    of_settings(
        add("--metrics", required=required, type=Path, metavar="M.json", help=metrics_help),
        "EVALTAP_METRICS",
    )
    add_references(parser)
    add(
        "--placeholders",
        choices=("auto", "peer"),
        default="auto",
        help="how to compare a turn without a reference; auto: not at all if evaltap recorded it (not"
        " evaluated), with an empty turn if it is from tRPC-Agent-Go, as that project does; peer: always with"
        " an empty turn (default: auto)",
    )
    add(
        "--unknown-metrics",
        choices=("error", "skip"),
        default="error",
        help="what to do with a metric whose evaluator is not installed (default: error)",
    )
    add(
        "--cost-class",
        type=cost_classes,
        metavar="CLASSES",
        help="run only metrics of these classes, e.g. free,local_model; classes: free, local_model,"
        " paid_judge (default: all)",
    )
    add_concurrency(parser)
    add(
        "--threshold",
        type=threshold,
        action="append",
        default=[],
        metavar="METRIC=X",
        help="override a metric's threshold; may be repeated (default: EVALTAP_THRESHOLDS, as"
        " METRIC=X,METRIC=X, or the metrics file)",
    )
    add(
        "--case-seconds",
        type=seconds,
        metavar="SECONDS",
        help="time limit for a case under a metric without a judge; beyond it the case gets an error"
        " (default: EVALTAP_CASE_SECONDS, or 60)",
    )
    add_allow_code(parser)
    add_judging(parser)


def case_scorer(options: ScoringOptions, judges: JudgeSession) -> ChosenMetrics:
    """Build the scorer of the metrics file; raise InputError if it has none or an unusable metric."""
    from evaltap.evaluator.scoring.scorer import CaseScorer
    from evaltap.evaluator.scoring.settings import require_thresholds

    assert options.metrics is not None  # the commands check this before
    metrics = read_metrics(options.metrics)
    if not metrics:
        raise InputError(f"{options.metrics}: contains no metrics; add at least one")
    check_code(metrics, options.metrics, allowed=options.allow_code)
    metrics = _with_thresholds(metrics, options.threshold)
    require_thresholds(metrics, options.metrics)
    unknown: OnUnknownMetric = "skip" if options.unknown_metrics == "skip" else "error"
    placeholders: Placeholders = "peer" if options.placeholders == "peer" else "auto"
    scorer = CaseScorer(
        metrics,
        services=judges.services(metrics),
        unknown_metrics=unknown,
        placeholders=placeholders,
        case_seconds=_case_seconds(options),
    )
    report_ineffective_settings(options.command, scorer.metrics)
    return _of_cost(scorer, options)


def _case_seconds(options: ScoringOptions) -> float:
    from evaltap.evaluator.scoring.time_limit import DEFAULT_SECONDS

    if options.case_seconds is not None:
        return options.case_seconds
    text = os.environ.get("EVALTAP_CASE_SECONDS", "").strip()
    return of_environment("EVALTAP_CASE_SECONDS", seconds, text) if text else DEFAULT_SECONDS


def _of_cost(scorer: "CaseScorer", options: ScoringOptions) -> ChosenMetrics:
    """Keep the metrics whose cost class is allowed; report the others."""
    if options.cost_class is None:
        return ChosenMetrics(scorer)
    classes = scorer.cost_classes()
    names = [metric.metric_name for metric in scorer.metrics]
    left_out = [i for i, one in enumerate(classes) if one not in options.cost_class]
    allowed = ",".join(options.cost_class)
    listed = ", ".join(f"{names[i]} ({classes[i]})" for i in left_out)
    if len(left_out) == len(names):
        raise InputError(
            f"--cost-class {allowed}: no metric has this class; found {listed or 'none'}"
        )
    if left_out:
        print(
            f"evaltap {options.command}: skipped because of --cost-class {allowed}: {listed}",
            file=sys.stderr,
        )
    kept = [i for i in range(len(names)) if i not in left_out]
    return ChosenMetrics(scorer.only(kept), tuple(names[i] for i in left_out))


def _with_thresholds(
    metrics: "Sequence[EvalMetric]", given: Sequence[tuple[str, float]]
) -> "list[EvalMetric]":
    """Return the metrics, with thresholds overridden by arguments and environment.

    Raises InputError for a threshold of an unknown metric.
    """
    text = os.environ.get("EVALTAP_THRESHOLDS", "")
    named = [part.strip() for part in text.split(",") if part.strip()]
    instead = dict(of_environment("EVALTAP_THRESHOLDS", threshold, part) for part in named)
    instead.update(given)
    names = [metric.metric_name for metric in metrics]
    for name in instead:
        if name not in names:
            raise InputError(
                f"threshold of {name!r}: no metric has this name; metrics: {', '.join(names)}"
            )
    return [
        metric.model_copy(update={"threshold": instead[metric.metric_name]})
        if metric.metric_name in instead
        else metric
        for metric in metrics
    ]


def pending_scorer(
    store: "Store",
    scorer: "CaseScorer",
    concurrency: int,
    *,
    references: "References | None" = None,
    selection: "Selection | None" = None,
    engine: "Engine | None" = None,
    rules: "Sequence[ScoreRule]" = (),
) -> "PendingScorer":
    """Build the scorer of landed cases."""
    from evaltap.evaluator.pipeline.batch.scorer import PendingScorer

    return PendingScorer(
        store,
        scorer,
        references=references,
        threads=concurrency if scorer.waits else 1,
        selection=selection,
        engine=engine,
        rules=rules,
    )
