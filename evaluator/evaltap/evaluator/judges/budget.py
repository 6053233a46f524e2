"""A budget for judges: each request first reserves its maximum cost, then books its actual cost.

So the budget is never exceeded, however many threads ask at a time.  Only a server that bills more than the
request allows can exceed it; then no more requests are sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import orjson

from evaltap.evaluator.contract.judge import (
    BudgetSpentError,
    Judge,
    JudgeError,
    JudgeInvalid,
    JudgeRejected,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
)
from evaltap.evaluator.judges.endpoint import JudgeSettings
from evaltap.evaluator.judges.prices import pricing_of
from evaltap.evaluator.waiting import Condition
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
    """What may be spent; None for no bound."""

    usd: float | None = None
    tokens: int | None = None
    calls: int | None = None


# Sums of prices are rounded; a difference this small is not money.
_ROUNDING: Final = 1e-9


class BudgetAccount(Protocol):
    """What a judge needs of a budget; used from several threads."""

    @property
    def limits(self) -> BudgetLimits:
        """What may be spent."""
        ...

    def reserve(self, worst: Spending) -> None:
        """Set the worst case of a request aside; raise BudgetSpentError when it does not fit."""

    def settle(self, worst: Spending, actual: Spending) -> None:
        """Replace what was set aside by what was spent."""


class Budget:
    """One budget for all judges of a run; used from several threads."""

    def __init__(self, limits: BudgetLimits) -> None:
        self.limits = limits
        self._changed = Condition()
        self._spent = Spending()
        self._reserved = Spending()
        self._refused = 0

    @property
    def spent(self) -> Spending:
        """What was spent so far, with the worst case for answers that never came."""
        return self._spent

    @property
    def refused(self) -> int:
        """How many requests were not made."""
        return self._refused

    def reserve(self, worst: Spending) -> None:
        """Set the worst case of a request aside; raise BudgetSpentError when it does not fit.

        Waits for requests under way while what they give back could be enough.
        """
        with self._changed:
            while not self.try_reserve(worst):
                self._changed.wait()

    def try_reserve(self, worst: Spending) -> bool:
        """Reserve as `reserve` does; return False instead of waiting."""
        with self._changed:
            if short := self._short(self._spent.plus(self._reserved).plus(worst)):
                if not self._reserved.calls or self._short(self._spent.plus(worst)):
                    self._refused += 1
                    raise BudgetSpentError(f"budget spent: {short}")
                return False
            self._reserved = self._reserved.plus(worst)
            return True

    def settle(self, worst: Spending, actual: Spending) -> None:
        """Replace what was set aside by what was spent."""
        with self._changed:
            self._reserved = self._reserved.plus(worst, -1)
            self._spent = self._spent.plus(actual)
            self._changed.notify_all()

    def record(self, spent: Spending, refused: int) -> None:
        """Add what was spent and refused on other machines."""
        with self._changed:
            self._spent = self._spent.plus(spent)
            self._refused += refused

    def _short(self, wanted: Spending) -> str:
        """Return which bound `wanted` would pass, with what is left; empty when none."""
        limits, spent = self.limits, self._spent
        if limits.usd is not None and wanted.usd > limits.usd + _ROUNDING:
            return f"{spent.usd:.6f} of {limits.usd:g} USD, the next call could pass it"
        if limits.tokens is not None and wanted.tokens > limits.tokens:
            return f"{spent.tokens} of {limits.tokens} tokens, the next call could pass it"
        if limits.calls is not None and wanted.calls > limits.calls:
            return f"{spent.calls} of {limits.calls} calls"
        return ""


class BudgetedJudge:
    """Makes no request whose worst case does not fit into the budget.

    Where nobody knows whether the server billed (it timed out, or broke off), the worst case counts.
    Raises ConfigurationError when made with a budget in USD for a judge without known prices.
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
        """Return the answer; raise BudgetSpentError without asking, or what the judge raises."""
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
        usd = self._pricing.cost_usd(input_tokens, output_tokens) if self._pricing else 0.0
        return Spending(usd, input_tokens + output_tokens, 1)


FRAME_TOKENS: Final = 64
"""Tokens that a server puts around one user message."""
UNBOUNDED_OUTPUT: Final = 1 << 40
"""Output tokens of a request that sets no bound."""

_BOUNDS: Final = ("max_tokens", "max_completion_tokens")


def worst_tokens(request: JudgeRequest, bound: int | None = None) -> tuple[int, int]:
    """Return the most input and output tokens of a request; `bound` is one sent beside it.

    No tokenizer in use makes more tokens of a text than it has bytes in UTF-8.
    """
    schema = b"" if request.answer_schema is None else orjson.dumps(request.answer_schema)
    prompt = len(request.prompt.encode("utf-8", "surrogatepass"))
    output = request.generation.max_tokens if bound is None else bound
    return prompt + len(schema) + FRAME_TOKENS, UNBOUNDED_OUTPUT if output is None else output


def output_bound(extra_body: Mapping[str, Any]) -> int | None:
    """Return the bound on the answer among the extra fields of a request, None without one."""
    bounds = [extra_body[name] for name in _BOUNDS if isinstance(extra_body.get(name), int)]
    return max(bounds, default=None)
