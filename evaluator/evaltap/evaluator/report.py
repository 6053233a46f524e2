"""What scores say, read from the store as plain data and printed as console tables."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evaltap.evaluator.store import Store

if TYPE_CHECKING:
    from rich.console import Console

WORST_CASES = 10
REASON_WIDTH = 200


@dataclass(frozen=True, slots=True)
class MetricCounts:
    """One metric over the cases of a run; rates are over what could be evaluated."""

    metric_name: str
    passed: int
    failed: int
    not_evaluated: int
    errors: int
    pass_rate: float | None
    mean_score: float | None


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case that did not pass a metric."""

    eval_set_id: str
    eval_id: str
    metric_name: str
    status: str
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Unscored:
    """Why cases have no score under a metric, and one of them."""

    metric_name: str
    status: str
    reason: str
    cases: int
    example: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a run, or of the latest scores of all cases when `run_id` is None."""

    run_id: str | None
    cases: int
    metrics: tuple[MetricCounts, ...]
    worst: tuple[CaseRow, ...]
    unscored: tuple[Unscored, ...]

    @property
    def exit_code(self) -> int:
        """0 when all passed, 1 when something failed, 3 when nothing failed but not all is known."""
        if any(metric.failed for metric in self.metrics):
            return 1
        known = any(metric.passed for metric in self.metrics)
        gaps = any(metric.not_evaluated or metric.errors for metric in self.metrics)
        return 3 if gaps or not known else 0

    def data(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        return {**asdict(self), "exit_code": self.exit_code}


def summarise(
    store: Store,
    *,
    run_id: str | None = None,
    metrics: Sequence[str] = (),
    worst: int = WORST_CASES,
) -> Summary:
    """Read the summary of a run, or of the latest scores; `metrics` limits it to metric digests."""
    source = "latest_scores" if run_id is None else "scores"
    parameters = {"run_id": run_id or "", "digests": list(metrics), "limit": worst}
    scope = (
        f"FROM {source} WHERE ($run_id = '' OR run_id = $run_id)"
        " AND (len($digests::VARCHAR[]) = 0 OR metric_digest IN $digests::VARCHAR[])"
    )

    def read(query: str) -> list[tuple[Any, ...]]:
        used = {name: value for name, value in parameters.items() if f"${name}" in query}
        return store.rows(query, used)

    counts = read(f"""
        SELECT metric_name,
               count(*) FILTER (status = 'passed'), count(*) FILTER (status = 'failed'),
               count(*) FILTER (status = 'not_evaluated'), count(*) FILTER (status = 'error'),
               count(*) FILTER (status = 'passed')
                 / nullif(count(*) FILTER (status IN ('passed', 'failed')), 0),
               avg(score)
        {scope} GROUP BY metric_name ORDER BY metric_name""")
    cases = read(f"SELECT count(DISTINCT (app_name, eval_set_id, eval_id)) {scope}")[0][0]
    worst_rows = read(f"""
        SELECT eval_set_id, eval_id, metric_name, status, score, coalesce(reason, '')
        {scope} AND status = 'failed'
        ORDER BY score NULLS FIRST, eval_set_id, eval_id, metric_name LIMIT $limit""")
    unscored = read(f"""
        SELECT metric_name, status, coalesce(reason, ''), count(*), min(eval_id)
        {scope} AND status IN ('not_evaluated', 'error')
        GROUP BY metric_name, status, reason ORDER BY count(*) DESC, metric_name LIMIT 20""")
    return Summary(
        run_id,
        cases,
        tuple(MetricCounts(*row) for row in counts),
        tuple(CaseRow(*row) for row in worst_rows),
        tuple(Unscored(*row) for row in unscored),
    )


def console() -> "Console":
    """Return a console that is plain in a pipe and never cuts a reason short there."""
    from rich.console import Console

    found = Console(highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(highlight=False, width=160)


def print_summary(summary: Summary, out: "Console") -> None:
    """Print the tables of a summary."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=counted(summary.cases, "case"), title_justify="left")
    table.add_column("metric")
    for name in ("passed", "failed", "not evaluated", "errors", "pass rate", "mean score"):
        table.add_column(name, justify="right")
    for row in summary.metrics:
        table.add_row(
            Text(row.metric_name),
            f"{row.passed:,}",
            f"{row.failed:,}",
            f"{row.not_evaluated:,}",
            f"{row.errors:,}",
            "-" if row.pass_rate is None else f"{row.pass_rate:.1%}",
            "-" if row.mean_score is None else f"{row.mean_score:.3f}",
        )
    out.print(table)
    if summary.worst:
        worst = Table(title="did not pass, worst first", title_justify="left")
        for name in ("case", "metric", "score", "why"):
            worst.add_column(name, overflow="fold")
        for case in summary.worst:
            score = case.status if case.score is None else f"{case.score:.3f}"
            worst.add_row(
                Text(case.eval_id), Text(case.metric_name), score, Text(shorten(case.reason))
            )
        out.print(worst)
    if summary.unscored:
        unscored = Table(title="not scored, and why", title_justify="left")
        for name in ("metric", "status", "cases", "for example", "why"):
            unscored.add_column(name, overflow="fold")
        for gap in summary.unscored:
            unscored.add_row(
                Text(gap.metric_name),
                gap.status,
                f"{gap.cases:,}",
                Text(gap.example),
                Text(shorten(gap.reason)),
            )
        out.print(unscored)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 case`, `1,200 cases`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shorten(text: str) -> str:
    """Return one line of at most REASON_WIDTH characters."""
    line = " ".join(text.split())
    return line if len(line) <= REASON_WIDTH else line[: REASON_WIDTH - 1] + "…"
