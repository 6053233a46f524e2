"""Options of the commands that end in a verdict: reports, guards, and the exit code."""

import argparse
import os
import sys
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.parsing import fail_on, milliseconds, of_environment, report_file, yes_or_no
from evaltap.evaluator.reports.exit_status import FailOn

if TYPE_CHECKING:
    from collections.abc import Callable

    from evaltap.evaluator.cases.references import References
    from evaltap.evaluator.reports.summary import Difference, Summary
    from evaltap.evaluator.store.queries import StoreReader

_READ_AGAIN_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """The options that decide the exit code."""

    command: str
    fail_on: FailOn | None
    p95_ms: float | None
    allow_agent_errors: bool = False

    def crashes_allowed(self) -> bool:
        """Check whether crashed runs do not affect the exit code, by option or environment."""
        text = os.environ.get("EVALTAP_ALLOW_AGENT_ERRORS", "").strip()
        return self.allow_agent_errors or (
            bool(text) and of_environment("EVALTAP_ALLOW_AGENT_ERRORS", yes_or_no, text)
        )

    def strictness(self) -> FailOn:
        """Return the verdicts that fail the command: by option, EVALTAP_FAIL_ON or default."""
        if self.fail_on is not None:
            return self.fail_on
        text = os.environ.get("EVALTAP_FAIL_ON", "").strip() or FailOn.NOT_EVALUATED
        return of_environment("EVALTAP_FAIL_ON", fail_on, text)

    def latency_limit(self) -> float | None:
        """Return the limit of the 95th percentile in milliseconds, by option or EVALTAP_P95_MS."""
        text = os.environ.get("EVALTAP_P95_MS", "").strip()
        if self.p95_ms is None and text:
            return of_environment("EVALTAP_P95_MS", milliseconds, text)
        return self.p95_ms


@dataclass(frozen=True, slots=True)
class Scope:
    """The scores that a verdict covers, and the files with their turns."""

    run_id: str | None = None
    digests: tuple[str, ...] = ()
    case_files: tuple[Path, ...] = ()
    references: "References | None" = None


def add_guards(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide the exit code."""
    add = parser.add_argument_group("guards").add_argument
    add(
        "--fail-on",
        type=fail_on,
        metavar="{failed,error,not_evaluated,never}",
        help="which verdicts make the exit code nonzero; failed: only failures; error: also errors;"
        " not_evaluated: also missing evidence; never: none (default: EVALTAP_FAIL_ON, or not_evaluated)",
    )
    add(
        "--allow-agent-errors",
        action="store_true",
        help="do not fail the command because of crashed cases, whose run failed, never ended or was cut"
        " off (default: EVALTAP_ALLOW_AGENT_ERRORS, or fail)",
    )
    add(
        "--p95-ms",
        type=milliseconds,
        metavar="MS",
        help="upper limit for the 95th percentile of turn latency (a crashed run counts as exceeding it);"
        " exit code 1 above the limit, 3 if latencies are missing (default: EVALTAP_P95_MS, or no limit)",
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


def write_reports(
    command: str,
    files: tuple[Path, ...],
    store: "StoreReader",
    scope: Scope,
    *,
    clean: "Callable[[str], str] | None" = None,
) -> None:
    """Write the requested reports, with texts redacted by `clean`."""
    if not files:
        return
    from evaltap.evaluator.reports.formats import write_report
    from evaltap.evaluator.reports.model import redacted
    from evaltap.evaluator.reports.reader import read_report

    report = read_report(
        store,
        run_id=scope.run_id,
        digests=scope.digests,
        case_files=scope.case_files,
        references=scope.references,
    )
    if clean is not None:
        report = redacted(report, clean)
    for path in files:
        write_report(report, path)
        print(f"evaltap {command}: report written to {path}", file=sys.stderr)


def worst_differences(store: "StoreReader", summary: "Summary", scope: Scope) -> "list[Difference]":
    """Return the calls in which the worst cases differ from the expected turns.

    Files above 8 MiB are not read again for this; use a report to see their differences.
    """
    small = [path for path in scope.case_files if path.stat().st_size <= _READ_AGAIN_BYTES]
    if not summary.worst or (scope.case_files and not small):
        return []
    from evaltap.evaluator.reports.reader import read_differences

    return read_differences(
        store, summary, digests=scope.digests, case_files=small, references=scope.references
    )


def guarded_exit(
    options: GuardOptions, store: "StoreReader", summary: "Summary", scope: Scope
) -> int:
    """Return the exit code of a summary under the guards; report the findings of the guards."""
    from evaltap.evaluator.reports.summary import exit_code

    strictness, limit = options.strictness(), options.latency_limit()
    findings = []
    if limit is not None:
        from evaltap.evaluator.reports.exit_status import latency_guard
        from evaltap.evaluator.reports.reader import read_uses

        uses = read_uses(
            store, run_id=summary.run_id, digests=scope.digests, case_files=scope.case_files
        )
        # A run that failed immediately was not a fast answer.
        latencies = [inf if use.run_failed else use.latency_ms for use in uses]
        found = latency_guard(latencies, limit, [use.weight for use in uses])
        print(f"evaltap {options.command}: {found.message}", file=sys.stderr)
        findings.append(found)
    return exit_code(summary, strictness, findings, allow_crashes=options.crashes_allowed())
