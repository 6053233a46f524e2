"""`evaluate`, and the runs and comparisons that it leads to."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from rich.console import Console
from rich.text import Text

from evaltap.api.given import Cases, case_files
from evaltap.api.table import Table
from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.restricted import restricted
from evaltap.evaluator.cases.datasets.trials import trials_apart
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.pipeline.batch.files import FileScorer
from evaltap.evaluator.pipeline.batch.run import score_files
from evaltap.evaluator.reports.compare.comparison import compare
from evaltap.evaluator.reports.compare.console import console_lines
from evaltap.evaluator.reports.compare.files import write_baseline
from evaltap.evaluator.reports.compare.model import Comparison, Rules, comparison_data
from evaltap.evaluator.reports.compare.reading import read_side, side_of, with_case_files
from evaltap.evaluator.reports.compare.sides import Side, TrialCases
from evaltap.evaluator.reports.console import visible_console
from evaltap.evaluator.reports.reader import read_differences
from evaltap.evaluator.reports.summary import Difference, Summary, exit_code, summarise
from evaltap.evaluator.reports.terminal import print_summary
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.given import Metrics, scorer_of
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store, TemporaryStore
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.api import evaluate as run_agent
from evaltap.experiments.outcome import Outcome
from evaltap.experiments.tool_calls import MockChoice
from evaltap.experiments.units import read_units
from evaltap.schemas.errors import EvaltapError, InputError

_WIDTH: Final = 100
_PRE: Final = '<pre style="line-height: 1.3">{code}</pre>'
_SCORES: Final = {
    "app": "VARCHAR",
    "eval_set_id": "VARCHAR",
    "eval_id": "VARCHAR",
    "trial": "VARCHAR",
    "metric": "VARCHAR",
    "metric_digest": "VARCHAR",
    "status": "VARCHAR",
    "score": "DOUBLE",
    "threshold": "DOUBLE",
    "reason": "VARCHAR",
}


class RegressionError(EvaltapError):
    """Raised by `raise_if_regressed`; its text is the comparison."""

    exit_code = 1


class AgentOptions(TypedDict, total=False):
    """What only a run of an agent takes, as in `evaltap.experiments.evaluate`."""

    runs: int
    version: str
    until: str
    resume: bool
    concurrency: int
    turn_seconds: float
    budget_usd: float | None
    tools: MockChoice | None
    user: object
    expected_agent: object


@dataclass(frozen=True, slots=True)
class Compared:
    """What changed from one run to another, and whether it is worse; a notebook shows it as text."""

    found: Comparison

    @property
    def verdict(self) -> str:
        """One of regression, below_minimum, inconclusive, improvement and pass."""
        return self.found.verdict

    def raise_if_regressed(self) -> None:
        """Raise RegressionError if it got worse, or is below the minimum; not if that is inconclusive."""
        if self.found.exit_code == RegressionError.exit_code:
            raise RegressionError(repr(self))

    def data(self) -> dict[str, Any]:
        """Return it as JSON data, as `evaltap compare --json` prints it."""
        return comparison_data(self.found)

    def __repr__(self) -> str:
        return "\n".join(console_lines(self.found))

    def _repr_html_(self) -> str:
        return _html(lambda out: out.print(Text(repr(self)), soft_wrap=True))


@dataclass(frozen=True, slots=True)
class Run:
    """The scores of a run; a notebook shows its metrics with intervals, and the failing cases."""

    summary: Summary
    differences: Sequence[Difference]
    """How the calls of the worst cases differ from the expected ones."""
    side: Side
    """The scores as a side of a comparison."""
    outcome: Outcome | None = None
    """Of a run of an agent: repeats, flaky cases, costs."""
    is_whole: bool = True
    """Whether no run of an agent is missing or invalid."""

    @property
    def passed(self) -> bool:
        """Whether every case passed every metric, and none is missing."""
        return self.is_whole and exit_code(self.summary) == 0

    def scores(self) -> Table:
        """Return a row for each case, trial and metric."""
        rows = [(*row.case, *row[1:]) for row in self.side.rows]
        return Table(_SCORES, rows)

    # Any: frames of packages that need not be installed
    def df(self) -> Any:
        """Return `scores` as a data frame of pandas; raise ConfigurationError if it is not installed."""
        return self.scores().df()

    def arrow(self) -> Any:
        """Return `scores` as a table of pyarrow; raise ConfigurationError if it is not installed."""
        return self.scores().arrow()

    def compare(self, baseline: "Run | str | Path", rules: Rules | None = None) -> Compared:
        """Compare with an earlier run: a `Run`, or what `evaltap compare` takes as a side.

        Raises InputError if they have no case or no metric version in common.
        """
        base = baseline.side if isinstance(baseline, Run) else read_side(str(baseline))
        return Compared(compare(base, self.side, rules))

    def write_baseline(self, path: str | Path) -> None:
        """Write how often each case passed, for later comparisons; small enough for git."""
        write_baseline(Path(path), self.side)

    def __repr__(self) -> str:
        written = StringIO()
        self._print(visible_console(written, width=_WIDTH))
        return written.getvalue().rstrip()

    def _repr_html_(self) -> str:
        return _html(self._print)

    def _print(self, out: Console) -> None:
        print_summary(self.summary, out, self.differences)


def evaluate(
    cases: Cases,
    metrics: Metrics,
    *,
    agent: object = None,
    db: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    services: Services | None = None,
    **options: Unpack[AgentOptions],
) -> Run:
    """Score recorded cases, or with `agent`, run it on the cases and score that.

    `cases` are files, data frames (`columns` maps fields of a case to their columns), or lists of eval cases
    or rows; `metrics` a file, or a list of names, functions, evaluators and metrics.  `agent` and the further
    options are those of `evaltap.experiments.evaluate`.  Scores go to the store `db`; without it, they are
    only in the returned run.  Metrics may run code and call judges, as the given file or list says.

    Raises InputError for anything that keeps the cases from being scored, a single bad row included.

        evaluate("golden.evalset.json", ["tool_trajectory_avg_score"], agent=make_agent, runs=5)

    >>> case = {
    ...     "evalId": "s-1", "evalMode": "trace", "sessionInput": {}, "actualConversation": [
    ...         {"invocationId": "t-1", "userContent": {"role": "user", "content": "When?"},
    ...          "finalResponse": {"role": "assistant", "content": "On Monday."}}]}
    >>> def brief(turn, expected):
    ...     return len(turn.final_text) < 500
    >>> evaluate([case], [brief]).passed
    True
    """
    if agent is None and options:
        raise InputError(f"{', '.join(options)}: only with an agent; add agent=, or leave it out")
    scorer = scorer_of(metrics, services)
    with (
        case_files(cases, columns or {}) as paths,
        TemporaryStore() if db is None else Store(db) as store,
    ):
        if agent is None:
            return _scored(paths, scorer, store)
        if len(paths) > 1:
            raise InputError("cases: an agent runs on the cases of one file; give one")
        found = run_agent(paths[0], scorer, agent=agent, db=store, **options)
        if not found.outcome.scored + found.outcome.crashed:
            reasons = dict.fromkeys(why for case in found.outcome.cases for why in case.reasons)
            raise InputError(
                f"no run was scored: {'; '.join(reasons) or found.progress.stopped_by}"
            )
        units = read_units(store, found.plan.experiment_id).values()
        name = found.plan.version or found.plan.experiment_id
        with restricted(store, Choice(), [unit.key for unit in units]):
            made = run_of(store, name, outcome=found.outcome)
        return replace(made, is_whole=found.is_whole)


def _scored(paths: Sequence[Path], scorer: CaseScorer, store: Store) -> Run:
    with trials_apart(paths) as trials:
        files = trials.files.paths
        source = ", ".join(path.name for path in paths)
        # Workers are forked, which a notebook with its threads does not survive.
        with closing(FileScorer(scorer, files, workers=1)) as scoring:
            counts: list[int] = []
            scored = score_files(store, scoring, scorer, source, counts.append)
        bad_lines = [*trials.files.bad_lines, *scored.bad_lines]
        if bad_lines:
            raise InputError("\n".join(line.message for line in bad_lines[:5]))
        if not any(counts):
            raise InputError(f"{source}: has no cases; expected at least one")
        return run_of(store, source, run_id=scored.run.run_id, case_files=files)


def run_of(
    store: StoreReader,
    name: str,
    *,
    run_id: str | None = None,
    case_files: Sequence[Path] = (),
    outcome: Outcome | None = None,
) -> Run:
    """Return the scores of a run, or all that a reader sees; nothing of it needs the store afterwards."""
    summary = summarise(store, run_id=run_id)
    differences = read_differences(store, summary, case_files=case_files)
    side = side_of(store, () if run_id is None else (run_id,))
    made = side.trials(list(side.recordings))
    if run_id is not None:
        side = with_case_files(side, run_id, case_files)

    def trials(cases: Collection[CaseKey]) -> TrialCases:
        return {key: made[key] for key in cases if key in made}

    return Run(summary, differences, replace(side, name=name, trials=trials), outcome)


def _html(printing: Callable[[Console], None]) -> str:
    out = visible_console(StringIO(), width=_WIDTH)
    out.record = True
    printing(out)
    return out.export_html(inline_styles=True, code_format=_PRE)
