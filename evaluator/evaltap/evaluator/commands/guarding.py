"""What the commands that end in a verdict share: reports to write, guards, the exit code."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from evaltap.evaluator.guards import FailOn, exit_code
from evaltap.schemas.errors import ConfigurationError, InputError

if TYPE_CHECKING:
    from evaltap.evaluator.report import Difference, Summary
    from evaltap.evaluator.selection import Selection
    from evaltap.evaluator.store import Store
    from evaltap.schemas.metric import EvalMetric

Value = TypeVar("Value")
_READ_AGAIN_BYTES = 8 << 20


def add_guards(parser: argparse.ArgumentParser) -> None:
    """Add what decides the exit code."""
    add = parser.add_argument_group("guards").add_argument
    add(
        "--fail-on",
        type=fail_on,
        metavar="{failed,error,not_evaluated,never}",
        help="what makes the exit code other than 0, each including those before it (default:"
        " EVALTAP_FAIL_ON, or not_evaluated); never: 0 whatever the scores are",
    )
    add(
        "--p95-ms",
        type=milliseconds,
        metavar="MS",
        help="95 of 100 turns must take no longer, else exit code 1; 3 where latencies are missing"
        " (default: EVALTAP_P95_MS, or no bound)",
    )


def add_reports(parser: argparse.ArgumentParser) -> None:
    """Add `--report`."""
    parser.add_argument(
        "--report",
        type=report_file,
        action="append",
        default=[],
        metavar="FILE",
        help="also write a report: .html, .md (Markdown), .xml (JUnit) or .json; may be repeated",
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add what limits the cases that are scored."""
    from evaltap.evaluator.commands.options import positive

    parser.add_argument(
        "--tasks",
        action="append",
        metavar="GLOB",
        help="score only cases whose eval id, eval set id or <eval set>/<eval id> fits; with commas"
        " between several, and may be repeated (default: EVALTAP_TASKS, or all)",
    )
    parser.add_argument(
        "--items",
        type=positive,
        metavar="N",
        help="score at most N cases, the first ones (default: EVALTAP_ITEMS, or all)",
    )


def selection_from(options: argparse.Namespace) -> "Selection | None":
    """Return which cases are to be scored, None for all."""
    from evaltap.evaluator.commands.options import positive
    from evaltap.evaluator.selection import Selection

    given = options.tasks
    if given is None:
        given = [os.environ.get("EVALTAP_TASKS", "")]
    tasks = [part.strip() for text in given for part in text.split(",") if part.strip()]
    items = options.items
    if items is None and (text := os.environ.get("EVALTAP_ITEMS", "").strip()):
        items = _of_environment("EVALTAP_ITEMS", positive, text)
    return Selection(tasks, items) if tasks or items else None


def tell_selection(options: argparse.Namespace, selection: "Selection | None") -> None:
    """Say what was left out; raise InputError when that was everything."""
    if selection is None:
        return
    tasks = ",".join(selection.tasks)
    if selection.seen and not selection.taken:
        raise InputError(
            f"--tasks {tasks}: none of {selection.seen:,} cases fits; the first is"
            f" {selection.passed_over}"
        )
    told = []
    if selection.tasks:
        told.append(f"{selection.taken:,} of {selection.seen:,} cases fit --tasks {tasks}")
    if selection.full:
        told.append(f"no more than {selection.items:,} were scored (--items)")
    if told:
        print(f"evaltap {options.command}: {'; '.join(told)}", file=sys.stderr)


def add_thresholds(parser: argparse.ArgumentParser) -> None:
    """Add `--threshold`."""
    parser.add_argument(
        "--threshold",
        type=threshold,
        action="append",
        default=[],
        metavar="METRIC=X",
        help="take the place of a metric's threshold; may be repeated (default: EVALTAP_THRESHOLDS,"
        " as METRIC=X,METRIC=X, or the metrics file)",
    )


def with_thresholds(
    metrics: "Sequence[EvalMetric]", given: Sequence[tuple[str, float]]
) -> "list[EvalMetric]":
    """Return the metrics with the thresholds of arguments and environment instead of their own.

    Raises InputError for a threshold of a metric that is not there.
    """
    text = os.environ.get("EVALTAP_THRESHOLDS", "")
    named = [part.strip() for part in text.split(",") if part.strip()]
    instead = dict(_of_environment("EVALTAP_THRESHOLDS", threshold, part) for part in named)
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


def write_reports(
    options: argparse.Namespace,
    store: "Store",
    *,
    run_id: str | None = None,
    digests: Sequence[str] = (),
    case_files: Sequence[Path] = (),
) -> None:
    """Write the reports that were asked for."""
    if not options.report:
        return
    from evaltap.evaluator.pending import References
    from evaltap.evaluator.reports.formats import write_report
    from evaltap.evaluator.reports.reading import read_report

    report = read_report(
        store,
        run_id=run_id,
        digests=digests,
        case_files=case_files,
        references=References(options.references) if options.references else None,
    )
    for path in options.report:
        write_report(report, path)
        print(f"evaltap {options.command}: report written to {path}", file=sys.stderr)


def worst_differences(
    options: argparse.Namespace,
    store: "Store",
    summary: "Summary",
    *,
    digests: Sequence[str] = (),
    case_files: Sequence[Path] = (),
) -> "list[Difference]":
    """Return the calls in which the worst cases differ from what was expected; none for `--json`.

    Large files are not read again for it: a report is for that.
    """
    small = [path for path in case_files if path.stat().st_size <= _READ_AGAIN_BYTES]
    if not summary.worst or options.json or (case_files and not small):
        return []
    from evaltap.evaluator.pending import References
    from evaltap.evaluator.reports.reading import read_differences

    references = References(options.references) if options.references else None
    return read_differences(
        store, summary, digests=digests, case_files=small, references=references
    )


def guarded_exit(
    options: argparse.Namespace,
    store: "Store",
    summary: "Summary",
    *,
    digests: Sequence[str] = (),
    case_files: Sequence[Path] = (),
) -> int:
    """Return the exit code of a summary under the guards; what a guard found is said."""
    strictness = options.fail_on
    if strictness is None:
        text = os.environ.get("EVALTAP_FAIL_ON", "").strip() or FailOn.NOT_EVALUATED
        strictness = _of_environment("EVALTAP_FAIL_ON", fail_on, text)
    limit = options.p95_ms
    if limit is None and (text := os.environ.get("EVALTAP_P95_MS", "").strip()):
        limit = _of_environment("EVALTAP_P95_MS", milliseconds, text)
    findings = []
    if limit is not None:
        from evaltap.evaluator.guards import latency_guard
        from evaltap.evaluator.reports.reading import read_uses

        uses = read_uses(store, run_id=summary.run_id, digests=digests, case_files=case_files)
        found = latency_guard([use.latency_ms for use in uses], limit)
        print(f"evaltap {options.command}: {found.message}", file=sys.stderr)
        findings.append(found)
    return exit_code(summary, strictness, findings)


def fail_on(text: str) -> FailOn:
    """Parse what makes a command fail."""
    try:
        return FailOn(text)
    except ValueError:
        known = ", ".join(one.value for one in FailOn)
        raise argparse.ArgumentTypeError(f"found {text!r}; expected one of {known}") from None


def milliseconds(text: str) -> float:
    """Parse a positive number of milliseconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected milliseconds, more than 0")
    return number


def threshold(text: str) -> tuple[str, float]:
    """Parse `metric=0.8`."""
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not name or number != number or abs(number) == float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected METRIC=NUMBER")
    return name, number


def report_file(text: str) -> Path:
    """Parse the name of a report, whose ending says the format."""
    from evaltap.evaluator.reports.formats import format_of

    try:
        format_of(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def _of_environment(name: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(f"{name}: {error}") from None
