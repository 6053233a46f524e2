"""The judges of one run: limits and budget, checked before the first case, reported at the end."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured, UnreachableError
from evaltap.evaluator.scoring.judges.budget import Budget, BudgetAccount, BudgetLimits, Spending
from evaltap.evaluator.scoring.judges.settings import (
    divided_limits,
    embedding_models_of,
    judge_models_of,
)
from evaltap.schemas.formats.metric import EvalMetric, JudgeModel

if TYPE_CHECKING:  # with HTTP and SQLite, which most runs do not need
    from evaltap.evaluator.scoring.embeddings import EnvironmentEmbedders
    from evaltap.evaluator.scoring.judges.cache import JudgeCache
    from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """What is set for the judges of a run; the environment supplies the rest."""

    cache: str = ""
    budget: BudgetLimits | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables that are overridden."""

    def environ(self) -> dict[str, str]:
        """Return the environment, with the overridden variables."""
        return {**os.environ, **self.variables}


def to_stderr(text: str) -> None:
    """Print a message about the judges."""
    print(f"evaltap: {text}", file=sys.stderr, flush=True)


class JudgeSession:
    """The judges of one command: created by `services`, closed at the end of the block.

    At the end it reports a spent budget and a cache that failed. A second block, as after a reload, continues
    with the same budget. Each of several `workers` gets its share of the limits and uses the common `budget`.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        announce: Callable[[str], None] = to_stderr,
        *,
        workers: int = 1,
        budget: BudgetAccount | None = None,
    ) -> None:
        self.settings = settings
        self._announce = announce
        self._workers = workers
        self._shared = budget
        self._judges: EnvironmentJudges | None = None
        self._embedders: EnvironmentEmbedders | None = None
        self._cache: JudgeCache | None = None
        self._budget: Budget | None = None

    def services(self, metrics: Sequence[EvalMetric]) -> Services | None:
        """Return the services that the metrics need; None if no metric uses a model.

        Raises ConfigurationError for a cache that cannot be used, or a budget that cannot be enforced.
        """
        models = [model for metric in metrics for model in judge_models_of(metric)]
        if not models and not any(map(embedding_models_of, metrics)):
            return None
        from evaltap.evaluator.scoring.embeddings import EnvironmentEmbedders  # as above
        from evaltap.evaluator.scoring.judges.cache import cache_from
        from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges

        environ = self.settings.environ()
        self._embedders = EnvironmentEmbedders(environ, announce=self._announce)
        if not models:
            return Services(embeddings=self._embedders)
        environ = divided_limits(environ, self._workers)
        if self._shared is None and self._budget is None and self.settings.budget is not None:
            self._budget = Budget(self.settings.budget)
        if self._judges is None:  # otherwise, limits would start anew
            self._cache = cache_from(self.settings.cache, environ)
            self._judges = EnvironmentJudges(
                environ,
                cache=self._cache,
                budget=self._shared or self._budget,
                announce=self._announce,
            )
        self._check(models, self._judges)
        return Services(judge=self._judges, embeddings=self._embedders)

    def _check(self, models: Sequence[JudgeModel | None], judges: "EnvironmentJudges") -> None:
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

    def check_reachable(self, metrics: Iterable[EvalMetric], *, required: bool = True) -> None:
        """Connect once to each judge and embedder of the metrics, and report why any cannot answer.

        Call it after `services` and before the first case. If `required`, an unreachable model raises
        ConfigurationError. A judge whose answers are cached needs no connection.
        """
        if not (connections := dict.fromkeys(self._reaching(metrics))):
            return
        messages: dict[str, None] = {}
        for connect in connections:
            try:
                messages[connect()] = None
            except UnreachableError as error:
                if required:
                    raise UnreachableError(f"{error}; check the address and the network") from None
                messages[str(error)] = None
        for text in filter(None, messages):
            self._announce(text)

    def _reaching(self, metrics: Iterable[EvalMetric]) -> Iterator[Callable[[], str]]:
        """Yield a function that connects, for each judge and each embedder of the metrics."""
        judges, embedders = self._judges, self._embedders
        for metric in metrics:
            for model in judge_models_of(metric):
                with suppress(JudgeNotConfigured):
                    if judges is not None:
                        yield judges(model).reach
            for embedding in embedding_models_of(metric):
                if embedders is not None:
                    yield partial(embedders.reach, embedding)

    def unpriced(self, metrics: Iterable[EvalMetric]) -> list[str]:
        """Return the judges of the metrics whose prices are unknown; call it after `services`."""
        found: dict[str, None] = {}
        for metric in metrics:
            for model in judge_models_of(metric):
                with suppress(JudgeNotConfigured):
                    if self._judges is not None and not self._judges(model).has_prices:
                        found[self._judges(model).where] = None
        return list(found)

    def record_spending(self, spent: Spending, refused: int) -> None:
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
                self._announce(
                    f"judge cache {self._cache.path} was turned off during the run: {self._cache.problem}"
                )
            self._cache.close()
        self._judges = self._cache = None

    def _report_budget(self, budget: Budget) -> None:
        if not budget.refused:
            return
        spent = budget.spent
        usd = f"{spent.usd:.6f} USD, " if budget.limits.usd is not None else ""
        self._announce(
            f"the judge budget is spent ({usd}{spent.tokens:,} tokens,"
            f" {spent.calls:,} calls); the remaining cases were not evaluated; run it again with a larger"
            " budget to judge them (landed cases: with --retry)"
        )
