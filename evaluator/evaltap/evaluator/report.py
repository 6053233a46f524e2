"""What scores say, read from the store as plain data and printed as console tables."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from evaltap.evaluator.guards import exit_code
from evaltap.evaluator.intervals import Interval, wilson
from evaltap.evaluator.reports.safe_text import one_line, visible
from evaltap.evaluator.store import Store
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

WORST_CASES = 10
REASON_WIDTH = 200
_COLOURS = {"-": "red", "+": "green", "!": "yellow", ">": "yellow"}
_COUNTS = ("passed", "failed", "not evaluated", "errors")


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
    interval: Interval | None = None
    """Of the pass rate, at 95 % (Wilson): what it may be in truth when the cases are a fair sample."""


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One case that did not pass a metric."""

    eval_set_id: str
    eval_id: str
    metric_name: str
    status: str
    score: float | None
    reason: str
    app_name: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """The calls of a case beside those that were expected, a line each, as in a `diff`."""

    eval_id: str
    lines: list[str]


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
        return exit_code(self)

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
    scope, chosen = score_scope(store, run_id, metrics)

    def read(query: str, **more: object) -> list[tuple[Any, ...]]:
        return store.rows(query, {**chosen, **more})

    counts = read(f"""
        SELECT metric_name,
               count(*) FILTER (status = 'passed'), count(*) FILTER (status = 'failed'),
               count(*) FILTER (status = 'not_evaluated'), count(*) FILTER (status = 'error'),
               count(*) FILTER (status = 'passed')
                 / nullif(count(*) FILTER (status IN ('passed', 'failed')), 0),
               avg(score)
        {scope} GROUP BY metric_name ORDER BY metric_name""")
    cases = read(f"SELECT count(DISTINCT (app_name, eval_set_id, eval_id)) {scope}")[0][0]
    worst_rows = read(
        f"""
        SELECT eval_set_id, eval_id, metric_name, status, score, coalesce(reason, ''), app_name
        {scope} AND status = 'failed'
        ORDER BY score NULLS FIRST, app_name, eval_set_id, eval_id, metric_name LIMIT $limit""",
        limit=worst,
    )
    unscored = read(f"""
        SELECT metric_name, status, coalesce(reason, ''), count(*), min(eval_id)
        {scope} AND status IN ('not_evaluated', 'error')
        GROUP BY metric_name, status, reason ORDER BY count(*) DESC, metric_name, status, reason LIMIT 20""")
    return Summary(
        run_id,
        cases,
        tuple(_metric_counts(row) for row in counts),
        tuple(CaseRow(*row) for row in worst_rows),
        tuple(Unscored(*row) for row in unscored),
    )


def check_run(store: Store, run_id: str) -> None:
    """Raise InputError when there is no such run."""
    known = [row[0] for row in store.rows("SELECT run_id FROM runs ORDER BY started_at")]
    if run_id not in known:
        raise InputError(f"no run {run_id!r}; runs here: {', '.join(known) or 'none'}")


def _metric_counts(row: tuple[Any, ...]) -> MetricCounts:
    name, passed, failed, not_evaluated, errors, rate, mean = row
    interval = wilson(passed, passed + failed)
    return MetricCounts(name, passed, failed, not_evaluated, errors, rate, mean, interval)


def score_scope(
    store: Store, run_id: str | None, digests: Sequence[str] = ()
) -> tuple[str, dict[str, object]]:
    """Return `FROM … WHERE …` over the scores of a run or the latest ones, and its parameters.

    A live run goes on with cases that grow: of each it is the score of the last revision.
    `digests` limits the scores to metric versions.
    """
    parameters: dict[str, object] = {"digests": list(digests)} if digests else {}
    wanted = "metric_digest IN $digests::VARCHAR[]" if digests else "TRUE"
    if run_id is None:
        return f"FROM latest_scores WHERE {wanted}", parameters
    scope = f"FROM scores WHERE run_id = $run_id AND {wanted}"
    parameters["run_id"] = run_id
    if store.rows("SELECT 1 FROM runs WHERE run_id = ? AND kind = 'live'", [run_id]):
        last = (
            "QUALIFY rank() OVER (PARTITION BY app_name, eval_set_id, eval_id, metric_name"
            " ORDER BY revision DESC) = 1"
        )
        scope = f"FROM (SELECT * {scope} {last}) WHERE TRUE"
    return scope, parameters


def console() -> "Console":
    """Return a console that is plain in a pipe and never cuts a reason short there."""
    from rich.console import Console

    found = Console(highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(highlight=False, width=160)


def print_summary(summary: Summary, out: "Console", differences: Sequence[Difference] = ()) -> None:
    """Print the tables of a summary, and the differences of the worst cases."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=counted(summary.cases, "case"), title_justify="left")
    table.add_column("metric")
    for name in (*_COUNTS, "pass rate", "95% interval", "mean score"):
        table.add_column(name, justify="right")
    for row in summary.metrics:
        table.add_row(
            _plain(row.metric_name),
            f"{row.passed:,}",
            f"{row.failed:,}",
            f"{row.not_evaluated:,}",
            f"{row.errors:,}",
            "-" if row.pass_rate is None else f"{row.pass_rate:.1%}",
            "-" if row.interval is None else f"{row.interval.low:.0%} to {row.interval.high:.0%}",
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
                _plain(case.eval_id), _plain(case.metric_name), score, _plain(case.reason)
            )
        out.print(worst)
    if differences:
        out.print(
            Text("calls of these cases: - expected, + made, ! other arguments, > out of order")
        )
    for difference in differences:
        out.print(Text(visible(difference.eval_id), style="bold"))
        for line in difference.lines:
            out.print(Text(visible(f"  {line}"), style=_COLOURS.get(line[:1], "")))
    if summary.unscored:
        unscored = Table(title="not scored, and why", title_justify="left")
        for name in ("metric", "status", "cases", "for example", "why"):
            unscored.add_column(name, overflow="fold")
        for gap in summary.unscored:
            unscored.add_row(
                _plain(gap.metric_name),
                gap.status,
                f"{gap.cases:,}",
                _plain(gap.example),
                _plain(gap.reason),
            )
        out.print(unscored)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 case`, `1,200 cases`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shorten(text: str) -> str:
    """Return recorded text for a terminal: one line of REASON_WIDTH, with nothing that could steer it."""
    return one_line(visible(text), REASON_WIDTH)


def _plain(text: str) -> "Text":
    from rich.text import Text

    return Text(shorten(text))
