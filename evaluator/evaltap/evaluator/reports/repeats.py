"""Repeated recordings of cases: how often at least one of k tries passes, and how often all pass."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeAlias

from rich.console import Console
from rich.text import Text

from evaltap.evaluator.analysis.stats.estimate import mean_of_cases
from evaltap.evaluator.analysis.stats.rate import Rate, pass_at_k, pass_hat_k, pass_hat_k_unbiased
from evaltap.evaluator.reports.console import plain_table
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.scope import score_scope
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader

_Sets: TypeAlias = defaultdict[tuple[str, str], defaultdict[str, dict[str, bool]]]
"""By app and eval set, and by run: whether each case passed."""


@dataclass(frozen=True, slots=True)
class PassK:
    """The result for k tries of one metric, or the whole set, under one version of the agent."""

    metric_name: str | None
    """None: the whole set, which passes if every metric passes every case."""
    version: str | None
    k: int
    cases: int
    """The number of cases with at least k runs, over which the mean is computed; 1 for the whole set."""
    most_runs: int
    """The maximum number of runs of a case."""
    pass_at: Rate | None
    """The probability that one of k passes, 1 - C(n-c, k) / C(n, k); None without enough runs."""
    pass_hat: Rate | None
    """The probability that all of k pass, C(c, k) / C(n, k)."""
    pass_hat_plain: float | None
    """The probability that all of k pass, (c/n)^k, as in tRPC-Agent-Go."""

    def data(self) -> dict[str, Any]:
        at, hat = self.pass_at, self.pass_hat
        return {
            "metric_name": self.metric_name,
            "version": self.version,
            "k": self.k,
            "cases": self.cases,
            "most_runs": self.most_runs,
            "pass_at_k": at and at.value,
            "pass_at_k_interval": at and at.interval,
            "pass_hat_k": self.pass_hat_plain,
            "pass_hat_k_unbiased": hat and hat.value,
            "pass_hat_k_unbiased_interval": hat and hat.interval,
        }


def read_pass_k(store: StoreReader, ks: Sequence[int], run_id: str | None = None) -> list[PassK]:
    """Return pass@k and pass^k by metric and version, then those of whole sets.

    The repeats of a case are its recordings with different `run` names and the same version.  A run of
    only some cases of a set is no trial of the whole set.
    """
    scope, parameters = score_scope(store, run_id)
    rows = store.rows(sql(__name__, "report_repeats").format(scope=scope), parameters)
    cases: dict[tuple[str, str | None], list[tuple[int, int]]] = defaultdict(list)
    sets: dict[str | None, _Sets] = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for metric, version, app, name, case, verdicts in rows:
        cases[metric, version].append((len(verdicts), sum(one["passed"] for one in verdicts)))
        for one in verdicts:
            passes = sets[version][app, name][one["run"]]
            passes[case] = passes.get(case, True) and one["passed"]
    found = [
        _pass_k(metric, version, k, counts)
        for (metric, version), counts in sorted(
            cases.items(), key=lambda one: (one[0][0], one[0][1] or "")
        )
        for k in ks
    ]
    for version, of_version in sorted(sets.items(), key=lambda one: one[0] or ""):
        counts = [_trials(runs) for runs in of_version.values()]
        found += [_pass_k(None, version, k, counts) for k in ks]
    return found


def _trials(runs: Mapping[str, Mapping[str, bool]]) -> tuple[int, int]:
    """Return the number of runs that have every case of their set, and of those that passed them all."""
    size = len(set().union(*runs.values()))
    whole = [passes for passes in runs.values() if len(passes) == size]
    return len(whole), sum(all(passes.values()) for passes in whole)


def _pass_k(
    metric: str | None, version: str | None, k: int, counts: Sequence[tuple[int, int]]
) -> PassK:
    enough = [(n, c) for n, c in counts if n >= k]
    most = max((n for n, _ in counts), default=0)
    return PassK(
        metric,
        version,
        k,
        len(enough),
        most,
        mean_of_cases(pass_at_k(n, c, k) for n, c in enough),
        mean_of_cases(pass_hat_k_unbiased(n, c, k) for n, c in enough),
        fmean(pass_hat_k(n, c, k) for n, c in enough) if enough else None,
    )


def print_pass_k(rows: Sequence[PassK], out: Console) -> None:
    """Print the table; rows without enough runs state how many are needed."""
    title = "k trials: at least one passes (pass@k), all pass (pass^k: unbiased, and (c/n)^k)"
    table = plain_table(2, edge=False)
    table.add_column("metric", no_wrap=True)
    table.add_column("version", overflow="fold")
    for name in ("k", "cases", "pass@k", "pass^k", "(c/n)^k"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        rates = (row.pass_at, row.pass_hat)
        figures = (*(one and one.value for one in rates), row.pass_hat_plain)
        cells = ["-" if one is None else f"{one:.1%}" for one in figures]
        table.add_row(
            Text(visible(row.metric_name or "whole set")),
            Text(visible(row.version or "-")),
            str(row.k),
            f"{row.cases:,}",
            *((f"needs {row.k} runs", "", "") if row.pass_hat_plain is None else cells),
        )
    out.print(Text(title), soft_wrap=True)
    out.print(table, crop=False)
    _print_intervals(rows, out)


def _print_intervals(rows: Sequence[PassK], out: Console) -> None:
    if named := [(row, row.pass_at) for row in rows if row.metric_name and row.pass_at]:
        out.print(Text("95 % intervals, over cases: pass@k, pass^k"))
    for row, pass_at in named:
        name = " ".join(filter(None, (row.metric_name, row.version)))
        hat = row.pass_hat
        ends = f"{pass_at.interval:.0%}, {f'{hat.interval:.0%}' if hat else '-'}"
        out.print(Text(f"  {visible(name)}, k {row.k}: {ends}"), soft_wrap=True)
