"""Create the judge that a metric and the environment configure: a client in all its layers."""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from evaltap.evaluator.scoring.contract.judge import (
    Judge,
    JudgeInvalid,
    JudgeReply,
    JudgeRequest,
    UnreachableError,
)
from evaltap.evaluator.scoring.judges.budget import BudgetAccount, BudgetedJudge
from evaltap.evaluator.scoring.judges.cache import CachedJudge, JudgeCache
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings, judge_settings
from evaltap.evaluator.scoring.judges.limits import LimitedJudge, Limiter
from evaltap.evaluator.scoring.judges.openai import OpenAIJudge
from evaltap.evaluator.scoring.judges.prices import Pricing, pricing_of
from evaltap.evaluator.scoring.judges.retries import RetryingJudge
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

    def __call__(self, model: JudgeModel | None) -> "JudgeChain":
        """Return the judge for a metric's `judgeModel`; raise JudgeNotConfigured if there is none."""
        settings = judge_settings(model, self._environ)
        key = f"{settings!r}\0{settings.base_url}\0{settings.api_key}"
        with self._lock:
            chain = self._chains.get(key)
            if chain is None:
                chain = self._chains[key] = self._make(settings)
            return chain

    def named(self, model: JudgeModel | None) -> str:
        """Return the model that the environment names instead of the metric; empty: it names none.

        Raises JudgeNotConfigured if neither names one.
        """
        name = judge_settings(model, self._environ).model
        return "" if model is not None and name == model.model_name else name

    def _make(self, settings: JudgeSettings) -> "JudgeChain":
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


class PricedJudge:
    """Adds its cost to each answer, usable or not, if prices and tokens are known."""

    def __init__(self, judge: Judge, pricing: Pricing | None) -> None:
        self._judge = judge
        self._pricing = pricing

    def answer(self, request: JudgeRequest) -> JudgeReply:
        try:
            return self._priced(self._judge.answer(request))
        except JudgeInvalid as error:
            error.reply = error.reply and self._priced(error.reply)
            raise

    def _priced(self, reply: JudgeReply) -> JudgeReply:
        if self._pricing is None or reply.input_tokens is None or reply.output_tokens is None:
            return reply
        cost = self._pricing(reply.input_tokens, reply.output_tokens)
        return replace(reply, cost_usd=cost)


class JudgeChain:
    """A judge with all its layers, as a run uses it.

    From the outside in: a cached answer costs nothing and waits for nothing; each retry passes through the
    limits and the budget again.  The client, whose library is slow to load, is created when the first answer
    is not cached.
    """

    shares_thread = True

    def __init__(
        self,
        settings: JudgeSettings,
        limiter: Limiter,
        *,
        cache: JudgeCache | None = None,
        budget: BudgetAccount | None = None,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self.limiter = limiter
        self._announce = announce
        self._budget = budget
        self._line = _Line(self._connect)
        self._judge: Judge = self._line
        if cache is not None:
            self._judge = CachedJudge(self._line, cache, settings)

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer, from the cache or the judge; raise a JudgeError."""
        return self._judge.answer(request)

    @property
    def where(self) -> str:
        """The judge's model and host."""
        return self._settings.where

    @property
    def has_prices(self) -> bool:
        """Whether the cost of an answer is known."""
        return pricing_of(self._settings) is not None

    def check(self) -> None:
        """Raise ConfigurationError if the budget cannot be enforced for this judge."""
        if self._budget is not None:
            BudgetedJudge(self._line, self._budget, self._settings)

    def reach(self) -> str:
        """Check the connection; return what would delay answers, or an empty string.

        Raises UnreachableError if nothing answers at the judge's address and none of its answers are cached.
        """
        try:
            slow = OpenAIJudge(self._settings).check()
            return f"judge {self._settings.where}: {slow}" if slow else ""
        except UnreachableError as error:
            said = f"judge {self._settings.where} cannot be reached: {error}"
        if isinstance(self._judge, CachedJudge) and self._judge.has_answers():
            return f"{said}; only answers from the cache are used"
        raise UnreachableError(said)

    def close(self) -> None:
        self._line.close()

    def __repr__(self) -> str:
        return f"JudgeChain({self._settings.where!r})"

    def _connect(self) -> tuple[Judge, OpenAIJudge]:
        client = OpenAIJudge(self._settings)
        self._announce(self._settings.announcement)
        judge: Judge = PricedJudge(client, pricing_of(self._settings))
        if self._budget is not None:
            judge = BudgetedJudge(judge, self._budget, self._settings)
        return RetryingJudge(LimitedJudge(judge, self.limiter), self._settings.retries), client


class _Line:
    """Connects on the first request."""

    def __init__(self, connect: Callable[[], tuple[Judge, OpenAIJudge]]) -> None:
        self._connect = connect
        self._connected: tuple[Judge, OpenAIJudge] | None = None
        self._lock = threading.Lock()

    def answer(self, request: JudgeRequest) -> JudgeReply:
        with self._lock:
            if self._connected is None:
                self._connected = self._connect()
            judge, _ = self._connected
        return judge.answer(request)

    def close(self) -> None:
        with self._lock:
            if self._connected is not None:
                self._connected[1].close()
                self._connected = None
