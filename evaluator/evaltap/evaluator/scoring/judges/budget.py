"""A budget for judges: each request first reserves its maximum cost, then books its actual cost.

So the budget is never exceeded, regardless of the number of threads.  Only a server that bills more than the
request allows can exceed it; then no more requests are sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import orjson

from evaltap.evaluator.scoring.contract.judge import (
    BudgetSpentError,
    Judge,
    JudgeError,
    JudgeInvalid,
    JudgeRejected,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
)
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.evaluator.scoring.judges.prices import pricing_of
from evaltap.evaluator.scoring.waiting import Condition
from evaltap.schemas.errors import ConfigurationError


class Spending(NamedTuple):
    """USD, tokens and calls, spent or reserved."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0

    def plus(self, other: "Spending", sign: int = 1) -> "Spending":
        """Return the sum, or with `sign` -1 the difference."""
        return Spending(
            self.usd + sign * other.usd,
            self.tokens + sign * other.tokens,
            self.calls + sign * other.calls,
        )


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The most that may be spent; None means no bound."""

    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None


# Sums of prices are rounded; a difference this small is a rounding error.
_ROUNDING: Final = 1e-9


class BudgetAccount(Protocol):
    """The interface of a budget for a judge; used from several threads concurrently."""

    @property
    def limits(self) -> BudgetLimits:
        """The most that may be spent."""
        ...

    def reserve(self, worst: Spending) -> None:
        """Reserve the worst case of a request; raise BudgetSpentError if it does not fit into the budget."""

    def settle(self, worst: Spending, actual: Spending) -> None:
        """Replace a reservation with the actual spending."""


class Budget:
    """One budget for all judges of a run; used from several threads concurrently."""

    def __init__(self, limits: BudgetLimits) -> None:
        self.limits = limits
        self._changed = Condition()
        self.spent = Spending()
        """The spending so far, including the worst case of requests whose answer never arrived."""
        self._reserved = Spending()
        self.refused = 0
        """The number of requests that were not sent."""

    def reserve(self, worst: Spending) -> None:
        """Reserve the worst case of a request; raise BudgetSpentError if it does not fit into the budget.

        Waits for running requests as long as the reservations that they return could suffice.
        """
        with self._changed:
            while not self.try_reserve(worst):
                self._changed.wait()

    def try_reserve(self, worst: Spending) -> bool:
        """Like `reserve`, but return False instead of waiting."""
        with self._changed:
            if short := self._short(self.spent.plus(self._reserved).plus(worst)):
                if not self._reserved.calls or self._short(self.spent.plus(worst)):
                    self.refused += 1
                    raise BudgetSpentError(f"budget spent: {short}")
                return False
            self._reserved = self._reserved.plus(worst)
            return True

    def settle(self, worst: Spending, actual: Spending) -> None:
        with self._changed:
            self._reserved = self._reserved.plus(worst, -1)
            self.spent = self.spent.plus(actual)
            self._changed.notify_all()

    def record(self, spent: Spending, refused: int) -> None:
        """Add spending and refusals of other machines."""
        with self._changed:
            self.spent = self.spent.plus(spent)
            self.refused += refused

    def _short(self, wanted: Spending) -> str:
        """Return the bound that `wanted` would exceed, with the rest; empty if it exceeds none."""
        limits, spent = self.limits, self.spent
        if limits.usd is not None and wanted.usd > limits.usd + _ROUNDING:
            return f"{spent.usd:.6f} of {limits.usd:g} USD, the next call could pass it"
        if limits.tokens is not None and wanted.tokens > limits.tokens:
            return f"{spent.tokens} of {limits.tokens} tokens, the next call could pass it"
        if limits.calls is not None and wanted.calls > limits.calls:
            return f"{spent.calls} of {limits.calls} calls"
        return ""


class BudgetedJudge:
    """Sends no request whose worst case does not fit into the budget.

    If it is unknown whether the server billed (a timeout, a broken connection), the worst case counts.  The
    constructor raises ConfigurationError for a budget in USD if the judge's prices are unknown.
    """

    def __init__(self, judge: Judge, budget: BudgetAccount, settings: JudgeSettings) -> None:
        self._judge = judge
        self._budget = budget
        self._bound = output_bound(settings.extra_body)
        self._pricing = None
        if budget.limits.usd is not None:
            self._pricing = pricing_of(settings)
            if self._pricing is None:
                raise ConfigurationError(
                    f"a budget in USD needs prices, and those of {settings.where} are"
                    " unknown; give them (EVALTAP_JUDGE_PRICE_INPUT and"
                    " EVALTAP_JUDGE_PRICE_OUTPUT in USD for a million tokens, or"
                    " judgeModel.prices), or a budget in tokens or calls"
                )

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer; raise BudgetSpentError without sending the request, or the judge's error."""
        tokens = worst_tokens(request, self._bound)
        if tokens[1] == UNBOUNDED_OUTPUT and self._counts_tokens:
            raise BudgetSpentError(
                "budget cannot be kept, as the judge's answer has no bound;"
                " set generationConfig.max_tokens"
            )
        worst = self._spending(*tokens)
        self._budget.reserve(worst)
        actual = worst
        try:
            reply = self._judge.answer(request)
            actual = self._settled(reply, tokens)
            return reply
        except JudgeError as error:
            if isinstance(error, JudgeInvalid) and error.reply is not None:
                actual = self._settled(error.reply, tokens)
            elif isinstance(error, JudgeRejected) or (
                isinstance(error, JudgeUnavailable) and not error.maybe_billed
            ):
                actual = Spending(calls=1)
            raise
        finally:
            self._budget.settle(worst, actual)

    @property
    def _counts_tokens(self) -> bool:
        limits = self._budget.limits
        return limits.usd is not None or limits.tokens is not None

    def _settled(self, reply: JudgeReply, worst: tuple[int, int]) -> Spending:
        known = (reply.input_tokens, reply.output_tokens)
        return self._spending(*(w if k is None else k for k, w in zip(known, worst, strict=True)))

    def _spending(self, input_tokens: int, output_tokens: int) -> Spending:
        usd = self._pricing(input_tokens, output_tokens) if self._pricing else 0.0
        return Spending(usd, input_tokens + output_tokens, 1)


FRAME_TOKENS: Final = 64
"""Tokens that a server adds around one user message."""
UNBOUNDED_OUTPUT: Final = 1 << 40
"""Output tokens of a request without a bound."""

_BOUNDS: Final = ("max_tokens", "max_completion_tokens")


def worst_tokens(request: JudgeRequest, bound: int | None = None) -> tuple[int, int]:
    """Return the maximum input and output tokens of a request; `bound` overrides the request's own bound.

    No tokenizer in use produces more tokens than a text has bytes in UTF-8.
    """
    schema = b"" if request.answer_schema is None else orjson.dumps(request.answer_schema)
    prompt = len(request.prompt.encode("utf-8", "surrogatepass"))
    output = request.generation.max_tokens if bound is None else bound
    return prompt + len(schema) + FRAME_TOKENS, UNBOUNDED_OUTPUT if output is None else output


def output_bound(extra_body: Mapping[str, Any]) -> int | None:
    """Return the bound on the answer among the extra fields of a request; None if there is none."""
    bounds = [extra_body[name] for name in _BOUNDS if isinstance(extra_body.get(name), int)]
    return max(bounds, default=None)
