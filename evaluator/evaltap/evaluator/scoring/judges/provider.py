"""Create the judge that a metric and the environment configure."""

import logging
import os
import threading
from collections.abc import Callable, Mapping

from evaltap.evaluator.scoring.contract.judge import Judge
from evaltap.evaluator.scoring.judges.budget import BudgetAccount
from evaltap.evaluator.scoring.judges.cache import JudgeCache
from evaltap.evaluator.scoring.judges.chain import JudgeChain
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings, judge_settings
from evaltap.evaluator.scoring.judges.limits import Limiter
from evaltap.schemas.formats.metric import JudgeModel

log = logging.getLogger(__name__)


def judge_from(model: JudgeModel | None, environ: Mapping[str, str]) -> Judge:
    """Return the judge of a metric, with retries and limits.

    Raises JudgeNotConfigured if no judge is configured.
    """
    return EnvironmentJudges(environ)(model)


class EnvironmentJudges:
    """The judge provider of production: one judge for each distinct configuration, created on first use.

    Judges with the same address, model and key share their limits; all judges share the cache and the budget.
    Reads the environment at each use; may be called from several threads.  `announce` is called with "asks
    MODEL at HOST" before the first request to each judge; by default it logs.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        cache: JudgeCache | None = None,
        budget: BudgetAccount | None = None,
        announce: Callable[[str], None] = log.info,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._cache = cache
        self._budget = budget
        self._announce = announce
        self._announced: set[str] = set()
        self._chains: dict[str, JudgeChain] = {}
        self._limiters: dict[tuple[str, str, str], Limiter] = {}
        self._lock = threading.Lock()

    def __call__(self, model: JudgeModel | None) -> JudgeChain:
        """Return the judge for a metric's `judgeModel`; raise JudgeNotConfigured if there is none."""
        settings = judge_settings(model, self._environ)
        key = f"{settings!r}\0{settings.base_url}\0{settings.api_key}"
        with self._lock:
            chain = self._chains.get(key)
            if chain is None:
                chain = self._chains[key] = self._make(settings)
            return chain

    def _make(self, settings: JudgeSettings) -> JudgeChain:
        where = (settings.base_url, settings.model, settings.api_key)
        limiter = self._limiters.get(where)
        if limiter is None:
            limiter = self._limiters[where] = Limiter(settings.limits)
        return JudgeChain(
            settings, limiter, cache=self._cache, budget=self._budget, announce=self._announce_once
        )

    def _announce_once(self, text: str) -> None:
        with self._lock:
            if text in self._announced:
                return
            self._announced.add(text)
        self._announce(text)

    def close(self) -> None:
        """Close the connections of all judges; a later use opens new ones."""
        with self._lock:
            chains = list(self._chains.values())
            self._chains.clear()
        for chain in chains:
            chain.close()
