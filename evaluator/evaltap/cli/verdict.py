"""The verdict at the end of a command: summary, reports, the worst cases, and the exit code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from evaltap.cli.messages import say
from evaltap.cli.options.shared import GuardOptions
from evaltap.cli.redaction import told
from evaltap.cli.settings import named_in_hints
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.reports.exit_status import FailOn, latency_guard
from evaltap.evaluator.reports.formats import write_report
from evaltap.evaluator.reports.redaction import redacted
from evaltap.evaluator.reports.summary import Difference, Summary, exit_code
from evaltap.evaluator.store.queries import StoreReader

_READ_AGAIN_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Scope:
    """The scores that a verdict covers, and the files with their turns."""

    run_id: str | None = None
    digests: tuple[str, ...] = ()
    case_files: tuple[Path, ...] = ()
    references: References | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The summary and exit code of the scores, and how the worst cases differ from what was expected."""

    summary: Summary
    exit_code: int
    differences: Sequence[Difference]

    @classmethod
    def of(
        cls,
        command: str,
        store: StoreReader,
        summary: Summary,
        scope: Scope,
        *,
        guards: GuardOptions,
        reports: Sequence[Path],
        examples: bool,
        clean: Callable[[str], str] | None = None,
    ) -> "Verdict":
        """Write the reports and return the verdict, with `examples` of failures; `clean` redacts texts."""
        write_reports(command, reports, store, scope, clean=clean)
        code = guarded_exit(command, guards, store, summary, scope)
        differences = worst_differences(store, summary, scope) if examples else []
        if clean is not None:
            summary, differences = redacted(summary, clean), redacted(differences, clean)
        return cls(summary, code, differences)

    def print(self, store: Path | None) -> None:
        """Print the summary and the differences; hints name the store, if there is one."""
        from evaltap.evaluator.reports import console, terminal  # rich: not for --json

        hinted = None if store is None else named_in_hints(store)
        terminal.print_summary(self.summary, console.console(), self.differences, store=hinted)


def write_reports(
    command: str,
    files: Sequence[Path],
    store: StoreReader,
    scope: Scope,
    *,
    clean: Callable[[str], str] | None = None,
) -> None:
    """Write the requested reports, with texts redacted by `clean`."""
    if not files:
        return
    # The reader of reports is a tenth of what `evaltap score` would load.
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
        say(command, f"report written to {path}{told(clean is not None)}")


def worst_differences(store: StoreReader, summary: Summary, scope: Scope) -> list[Difference]:
    """Return the calls in which the worst cases differ from the expected turns.

    Files above 8 MiB are not read again for this; use a report to see their differences.
    """
    small = [path for path in scope.case_files if path.stat().st_size <= _READ_AGAIN_BYTES]
    if not summary.worst or (scope.case_files and not small):
        return []
    from evaltap.evaluator.reports.reader import read_differences  # see write_reports

    return read_differences(
        store, summary, digests=scope.digests, case_files=small, references=scope.references
    )


def guarded_exit(
    command: str, guards: GuardOptions, store: StoreReader, summary: Summary, scope: Scope
) -> int:
    """Return the exit code of a summary under the guards; report the findings of the guards."""
    findings = []
    if guards.p95_ms is not None:
        from evaltap.evaluator.reports.reader import read_uses  # see write_reports

        uses = read_uses(
            store, run_id=summary.run_id, digests=scope.digests, case_files=scope.case_files
        )
        # A run that failed immediately was not a fast answer.
        latencies = [inf if use.run_failed else use.latency_ms for use in uses]
        found = latency_guard(latencies, guards.p95_ms, [use.weight for use in uses])
        say(command, found.message)
        findings.append(found)
    return exit_code(
        summary, FailOn(guards.fail_on), findings, allow_crashes=guards.allow_agent_errors
    )
