"""Turn the options of the commands that score into judges, scorers, references and selections."""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evaltap.cli.messages import say
from evaltap.cli.options.score import SelectionOptions
from evaltap.cli.options.shared import (
    JudgeOptions,
    OtherReferenceOptions,
    ReferenceOptions,
    ScoringOptions,
)
from evaltap.cli.values import share
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.scoring.batch import compares
from evaltap.evaluator.scoring.judge_session import JudgeSession, JudgeSettings
from evaltap.evaluator.scoring.judges.budget import BudgetLimits
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.scoring.selection import Selection
from evaltap.evaluator.scoring.settings import check_code, require_thresholds, surprises
from evaltap.evaluator.scoring.time_limit import DEFAULT_SECONDS
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import iter_cases, read_metrics
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted


def judge_session(command: str, options: JudgeOptions) -> JudgeSession:
    """Return the judges of a command, whose messages begin with its name."""
    usd, tokens, calls = options.budget_usd, options.budget_tokens, options.budget_calls
    limited = any(limit is not None for limit in (usd, tokens, calls))
    given = {
        "EVALTAP_JUDGE_CONCURRENCY": options.judge_concurrency,
        "EVALTAP_JUDGE_RPM": options.judge_rpm,
        "EVALTAP_JUDGE_TPM": options.judge_tpm,
        "EVALTAP_ALLOW_VARIABLES": int(options.allow_variables),
        "EVALTAP_ALLOW_KEY_FOR": ",".join(options.allow_key_for),
    }
    settings = JudgeSettings(
        options.judge_cache,
        BudgetLimits(usd, tokens, calls) if limited else None,
        {name: str(value) for name, value in given.items() if value},
    )
    return JudgeSession(settings, lambda text: say(command, text))


def read_references(options: ReferenceOptions | OtherReferenceOptions) -> References | None:
    """Read the file of expected turns; None without one."""
    if (path := options.references) is None:
        return None
    return References.of(iter_cases(path), options.join, path=str(path))


def report_ineffective_settings(
    command: str, metrics: Sequence[EvalMetric], *, thresholds: bool = True
) -> None:
    """Report missing and ineffective settings of metrics; without `thresholds`, ignore thresholds."""
    for metric in metrics:
        if notes := surprises(metric, thresholds=thresholds):
            say(command, f"{metric.metric_name}: {'; '.join(notes)}")


def report_missing_references(command: str, cases: int, metrics: Sequence[EvalMetric]) -> None:
    """Report which metrics compared `cases` cases of files with an empty placeholder turn."""
    comparing = [metric.metric_name for metric in metrics if compares(metric)]
    if cases and comparing:
        say(
            command,
            f"{', '.join(comparing)} compared {counted(cases, 'case')} with an empty turn"
            " because they have no reference (`conversation` next to `actualConversation`); add references,"
            " or use metrics that need none",
        )


class ChosenMetrics(NamedTuple):
    """The scorer of the metrics that may run, and the names of the metrics that may not."""

    scorer: CaseScorer
    not_run: tuple[str, ...] = ()


def case_scorer(
    command: str, path: Path, options: ScoringOptions, judges: JudgeSession
) -> ChosenMetrics:
    """Build the scorer of the metrics file; raise InputError if it has none or an unusable metric."""
    if not (metrics := read_metrics(path)):
        raise InputError(f"{path}: contains no metrics; add at least one")
    check_code(metrics, path, allowed=options.limits.allow_code)
    metrics = _with_thresholds(
        metrics, {**thresholds_of_deepeval(command, metrics), **dict(options.limits.threshold)}
    )
    require_thresholds(metrics, path)
    seconds = options.limits.case_seconds
    scorer = CaseScorer(
        metrics,
        services=judges.services(metrics),
        unknown_metrics=options.unknown_metrics,
        placeholders=options.placeholders,
        case_seconds=DEFAULT_SECONDS if seconds is None else seconds,
    )
    report_ineffective_settings(command, scorer.metrics)
    if options.cost_class is None:
        return ChosenMetrics(scorer)
    return _of_cost(command, scorer, options.cost_class)


def _of_cost(command: str, scorer: CaseScorer, allowed: Sequence[str]) -> ChosenMetrics:
    """Keep the metrics whose cost class is allowed; report the others."""
    classes = scorer.cost_classes()
    names = [metric.metric_name for metric in scorer.metrics]
    left_out = [i for i, one in enumerate(classes) if one not in allowed]
    listed = ", ".join(f"{names[i]} ({classes[i]})" for i in left_out)
    option = f"--cost-class {','.join(allowed)}"
    if len(left_out) == len(names):
        raise InputError(f"{option}: no metric has this class; found {listed or 'none'}")
    if left_out:
        say(command, f"skipped because of {option}: {listed}")
    kept = [i for i in range(len(names)) if i not in left_out]
    return ChosenMetrics(scorer.only(kept), tuple(names[i] for i in left_out))


def thresholds_of_deepeval(command: str, metrics: Sequence[EvalMetric]) -> dict[str, float]:
    """Return the thresholds that DEEPEVAL_<METRIC>_THRESHOLD sets for metrics of DeepEval."""
    found = {}
    for metric in metrics:
        part = metric.criterion.deepeval if metric.criterion else None
        if part is None:
            continue
        name = re.split(r"[:.]", part.metric)[-1].removesuffix("Metric")
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
        variable = f"DEEPEVAL_{words.upper()}_THRESHOLD"
        if not (text := os.environ.get(variable, "").strip()):
            continue
        try:
            found[metric.metric_name] = share(text)
        except ArgumentTypeError as error:
            raise InputError(f"{variable}: {error}") from None
        say(command, f"{metric.metric_name}: {variable}={text}")
    return found


def _with_thresholds(metrics: Sequence[EvalMetric], instead: dict[str, float]) -> list[EvalMetric]:
    """Return the metrics with other thresholds; raise InputError for that of an unknown metric."""
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


def selection_of(
    options: SelectionOptions, chosen: Sequence[CaseKey] | None = None
) -> Selection | None:
    """Return the selection of cases to score, None for all; `chosen` are the cases of a filter."""
    tasks = [part.strip() for text in options.tasks for part in text.split(",") if part.strip()]
    keys = None if chosen is None else frozenset(key[1:] for key in chosen)
    return Selection(tasks, options.items, keys) if tasks or options.items or keys else None


def report_selection(selection: Selection | None) -> None:
    """Report how many cases were selected; raise InputError when none was."""
    if selection is None:
        return
    tasks = ",".join(selection.tasks)
    if selection.seen and not selection.taken:
        raise InputError(
            f"--tasks {tasks}: none of {selection.seen:,} cases matches; the first is"
            f" {selection.passed_over}"
        )
    notes = []
    if selection.tasks:
        notes.append(f"{selection.taken:,} of {selection.seen:,} cases match --tasks {tasks}")
    if selection.full:
        notes.append(f"stopped after {selection.items:,} (--items)")
    if notes:
        say("score", "; ".join(notes))
