"""Options of the commands that use judges: cache, limits and budget."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from evaltap.cli.parsing import amount, of_environment, positive
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured

if TYPE_CHECKING:
    from evaltap.evaluator.scoring.contract.context import Services
    from evaltap.evaluator.scoring.judges.budget import (
        Budget,
        BudgetAccount,
        BudgetLimits,
        Spending,
    )
    from evaltap.evaluator.scoring.judges.cache import JudgeCache
    from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges
    from evaltap.schemas.formats.metric import EvalMetric, JudgeModel


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """Settings of judges; the environment supplies options that are not given."""

    command: str = "score"
    judge_cache: str = ""
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_calls: int | None = None
    judge_concurrency: int | None = None
    judge_rpm: int | None = None
    judge_tpm: int | None = None
    allow_variables: bool = False
    allow_key_for: tuple[str, ...] = ()

    def environ(self) -> dict[str, str]:
        """Return the environment, overridden by the limits given here."""
        given = {
            "EVALTAP_JUDGE_CONCURRENCY": self.judge_concurrency,
            "EVALTAP_JUDGE_RPM": self.judge_rpm,
            "EVALTAP_JUDGE_TPM": self.judge_tpm,
            "EVALTAP_ALLOW_VARIABLES": int(self.allow_variables),
            "EVALTAP_ALLOW_KEY_FOR": ",".join(self.allow_key_for),
        }
        return {**os.environ, **{name: str(value) for name, value in given.items() if value}}

    def without_budget(self) -> "JudgeOptions":
        """Return the options for a process whose budget another process manages."""
        return replace(self, budget_usd=None, budget_tokens=None, budget_calls=None)

    def budget_limits(self, environ: Mapping[str, str]) -> "BudgetLimits | None":
        """Return the budget, None without one; raise ConfigurationError if it is not an amount."""
        from evaltap.evaluator.scoring.judges.budget import BudgetLimits

        given = {"USD": self.budget_usd, "TOKENS": self.budget_tokens, "CALLS": self.budget_calls}
        found: dict[str, float | None] = {}
        for kind, value in given.items():
            name = f"EVALTAP_JUDGE_BUDGET_{kind}"
            text = environ.get(name, "").strip()
            found[kind] = of_environment(name, amount, text) if value is None and text else value
        if all(value is None for value in found.values()):
            return None
        tokens, calls = found["TOKENS"], found["CALLS"]
        return BudgetLimits(
            found["USD"],
            None if tokens is None else int(tokens),
            None if calls is None else int(calls),
        )


def add_judging(parser: argparse.ArgumentParser) -> None:
    """Add the options about judges."""
    add = parser.add_argument_group("judges").add_argument
    add(
        "--judge-cache",
        metavar="PATH",
        default="",
        help="file that caches judges' answers, or 'off' (default: EVALTAP_JUDGE_CACHE, or"
        " evaltap/judge-cache.db in the user's cache folder)",
    )
    add(
        "--budget-usd",
        type=amount,
        metavar="USD",
        help="set a budget: spend at most this much on judges",
    )
    add(
        "--budget-tokens",
        type=positive,
        metavar="N",
        help="... use at most this many tokens, input and output",
    )
    add("--budget-calls", type=positive, metavar="N", help="... send at most this many requests")
    add("--judge-concurrency", type=positive, metavar="N", help="concurrent requests to one judge")
    add("--judge-rpm", type=positive, metavar="N", help="requests to one judge per minute")
    add("--judge-tpm", type=positive, metavar="N", help="tokens to and from one judge per minute")
    add(
        "--allow-variables",
        action="store_true",
        help="let the metrics file read the environment: expand $NAME in its baseURL and modelName, and"
        " any variable in its apiKey (default: only variables named like keys, only in apiKey)",
    )
    add(
        "--allow-key-for",
        action="append",
        default=[],
        metavar="HOST",
        help="let the metrics file have a key sent to this host, e.g. llm.example.com or localhost:8000;"
        " may be repeated (default: EVALTAP_ALLOW_KEY_FOR; otherwise a key goes only to its provider and to"
        " EVALTAP_JUDGE_BASE_URL)",
    )


class JudgeSession:
    """The judges of one command: created by `services`, closed at the end of the block.

    At the end it reports a spent budget and a cache that failed. Each of several `workers` gets its share
    of the limits and uses the common `budget`.
    """

    def __init__(
        self,
        options: JudgeOptions,
        *,
        workers: int = 1,
        budget: "BudgetAccount | None" = None,
    ) -> None:
        self.options = options
        self._workers = workers
        self._shared = budget
        self._judges: EnvironmentJudges | None = None
        self._cache: JudgeCache | None = None
        self._budget: Budget | None = None

    def services(self, metrics: "Sequence[EvalMetric]") -> "Services | None":
        """Return the services that the metrics need; None if no metric uses a model.

        Raises ConfigurationError for a cache that cannot be used, or a budget that cannot be enforced.
        """
        from evaltap.evaluator.scoring.contract.context import Services
        from evaltap.evaluator.scoring.embeddings import EnvironmentEmbedders
        from evaltap.evaluator.scoring.judges.budget import Budget
        from evaltap.evaluator.scoring.judges.cache import cache_from
        from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges
        from evaltap.evaluator.scoring.judges.settings import (
            divided_limits,
            embedding_models_of,
            judge_models_of,
        )

        models = [model for metric in metrics for model in judge_models_of(metric)]
        embedders = EnvironmentEmbedders(announce=self._announce)
        if not models:
            return (
                Services(embeddings=embedders) if any(map(embedding_models_of, metrics)) else None
            )
        environ = divided_limits(self.options.environ(), self._workers)
        if self._shared is None and (limits := self.options.budget_limits(environ)) is not None:
            self._budget = Budget(limits)
        self._cache = cache_from(self.options.judge_cache, environ)
        self._judges = EnvironmentJudges(
            environ,
            cache=self._cache,
            budget=self._shared or self._budget,
            announce=self._announce,
        )
        self._check(models, self._judges)
        return Services(judge=self._judges, embeddings=embedders)

    def _check(self, models: "Sequence[JudgeModel | None]", judges: "EnvironmentJudges") -> None:
        """Report once, before scoring starts, which judges are not configured.

        Their metrics are not evaluated; the other metrics are scored.
        """
        messages: dict[str, None] = {}
        for model in models:
            try:
                judges(model).check()
            except JudgeNotConfigured as error:
                messages[str(error)] = None
        for text in messages:
            self._announce(text)

    def check_reachable(self, metrics: "Iterable[EvalMetric]", *, required: bool = True) -> None:
        """Connect once to each judge and embedder of the metrics, and report why any cannot answer.

        Call it after `services` and before the first case. If `required`, an unreachable model raises
        ConfigurationError. A judge whose answers are cached needs no connection.
        """
        from evaltap.evaluator.scoring.judges.http import UnreachableError

        messages: dict[str, None] = {}
        for reach in dict.fromkeys(self._reaching(metrics)):
            try:
                messages[reach()] = None
            except UnreachableError as error:
                if required:
                    raise UnreachableError(f"{error}; check the address and the network") from None
                messages[str(error)] = None
        for text in filter(None, messages):
            self._announce(text)

    def _reaching(self, metrics: "Iterable[EvalMetric]") -> "Iterator[Callable[[], str]]":
        """Yield a function that connects, for each judge and each embedder of the metrics."""
        from evaltap.evaluator.scoring.embeddings import reach
        from evaltap.evaluator.scoring.judges.settings import embedding_models_of, judge_models_of

        judges = self._judges
        for metric in metrics:
            for model in judge_models_of(metric):
                with suppress(JudgeNotConfigured):
                    if judges is not None:
                        yield judges(model).reach
            for embedding in embedding_models_of(metric):
                yield partial(reach, embedding, self.options.environ())

    def _announce(self, text: str) -> None:
        from evaltap.evaluator.reports.safe_text import visible

        print(visible(f"evaltap {self.options.command}: {text}"), file=sys.stderr, flush=True)

    def record_spending(self, spent: "Spending", refused: int) -> None:
        """Add the spending of judges in other processes, and the calls that were refused there."""
        if self._budget is not None:
            self._budget.record(spent, refused)

    def __enter__(self) -> "JudgeSession":
        return self

    def __exit__(self, *_: object) -> None:
        if self._judges is not None:
            self._judges.close()
        if self._budget is not None:
            self._report_budget(self._budget)
        if self._cache is not None:
            if self._cache.problem:
                print(
                    f"evaltap {self.options.command}: judge cache {self._cache.path} was turned off"
                    f" during the run: {self._cache.problem}",
                    file=sys.stderr,
                )
            self._cache.close()

    def _report_budget(self, budget: "Budget") -> None:
        if not budget.refused:
            return
        spent = budget.spent
        usd = f"{spent.usd:.6f} USD, " if budget.limits.usd is not None else ""
        print(
            f"evaltap {self.options.command}: the judge budget is spent ({usd}{spent.tokens:,} tokens,"
            f" {spent.calls:,} calls); the remaining cases were not evaluated; run it again with a larger"
            " budget to judge them (landed cases: with --retry)",
            file=sys.stderr,
        )
