"""What the commands that ask judges share: cache, limits and budget, and what is said of them."""

import argparse
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evaltap.evaluator.errors import JudgeNotConfigured
from evaltap.schemas.errors import ConfigurationError

if TYPE_CHECKING:
    from evaltap.evaluator.context import Services
    from evaltap.evaluator.judges.budget import Budget, BudgetLimits
    from evaltap.schemas.metric import EvalMetric

_LIMITS = {
    "judge_concurrency": "EVALTAP_JUDGE_CONCURRENCY",
    "judge_rpm": "EVALTAP_JUDGE_RPM",
    "judge_tpm": "EVALTAP_JUDGE_TPM",
}


def add_judging(parser: argparse.ArgumentParser) -> None:
    """Add the options about judges."""
    from evaltap.evaluator.commands.options import positive

    add = parser.add_argument_group("judges").add_argument
    add(
        "--judge-cache",
        metavar="PATH",
        default="",
        help="file that keeps answers that were paid for, or 'off' (default: EVALTAP_JUDGE_CACHE,"
        " or evaltap/judge-cache.db in the user's cache folder)",
    )
    add("--budget-usd", type=amount, metavar="USD", help="ask judges for at most this much")
    add("--budget-tokens", type=positive, metavar="N", help="... this many tokens, both ways")
    add("--budget-calls", type=positive, metavar="N", help="... this many requests")
    add("--judge-concurrency", type=positive, metavar="N", help="requests to one judge at a time")
    add("--judge-rpm", type=positive, metavar="N", help="requests to one judge in a minute")
    add("--judge-tpm", type=positive, metavar="N", help="tokens of one judge in a minute")


def judging_services(
    options: argparse.Namespace, metrics: "Sequence[EvalMetric]"
) -> "Services | None":
    """Return the services with the judges that the options describe; None where nobody is judged.

    Raises ConfigurationError for a cache that cannot be used, or a budget that cannot be kept.
    """
    from evaltap.evaluator.judge_models import judge_models_of

    models = [model for metric in metrics for model in judge_models_of(metric)]
    if not models:
        return None
    services = worker_services(options)
    for model in models:
        try:
            options.judges(model).check()
        except JudgeNotConfigured:
            continue  # its metrics are not evaluated, and say so
    return services


def worker_services(options: argparse.Namespace) -> "Services":
    """Return the services with the judges that the options describe, whatever metrics will come.

    Raises ConfigurationError for a cache that cannot be used, or a budget that cannot be kept.
    """
    from evaltap.evaluator.context import Services
    from evaltap.evaluator.embedding import EnvironmentEmbedders
    from evaltap.evaluator.judge import EnvironmentJudges
    from evaltap.evaluator.judges.budget import Budget
    from evaltap.evaluator.judges.cache import cache_from

    given = {name: getattr(options, option) for option, name in _LIMITS.items()}
    environ = {**os.environ, **{name: str(value) for name, value in given.items() if value}}
    limits = _budget_limits(options, environ)
    options.budget = Budget(limits) if limits is not None else None
    options.cache = cache_from(options.judge_cache, environ)
    judges = EnvironmentJudges(environ, cache=options.cache, budget=options.budget)
    options.judges = judges
    return Services(judge=judges, embeddings=EnvironmentEmbedders())


@contextmanager
def judging(options: argparse.Namespace) -> Iterator[None]:
    """Close what judges held when the command is over, and say what went wrong with it."""
    options.judges = options.cache = options.budget = None
    try:
        yield
    finally:
        if options.judges is not None:
            options.judges.close()
        if options.budget is not None:
            _tell_budget(options.command, options.budget)
        if options.cache is not None:
            if options.cache.problem:
                print(
                    f"evaltap {options.command}: judge cache {options.cache.path} was not used to"
                    f" the end: {options.cache.problem}",
                    file=sys.stderr,
                )
            options.cache.close()


def _tell_budget(command: str, budget: "Budget") -> None:
    spent = budget.spent
    if budget.refused:
        usd = f"{spent.usd:.6f} USD, " if budget.limits.usd is not None else ""
        print(
            f"evaltap {command}: the budget for judges is spent ({usd}{spent.tokens:,} tokens,"
            f" {spent.calls:,} calls); what was not judged says so, and is judged when you run it"
            " again with more (landed cases: with --retry)",
            file=sys.stderr,
        )


def _budget_limits(
    options: argparse.Namespace, environ: Mapping[str, str]
) -> "BudgetLimits | None":
    from evaltap.evaluator.judges.budget import BudgetLimits

    found: list[float | None] = []
    for kind in ("usd", "tokens", "calls"):
        value: float | None = getattr(options, f"budget_{kind}")
        name = f"EVALTAP_JUDGE_BUDGET_{kind.upper()}"
        text = environ.get(name, "").strip()
        if value is None and text:
            try:
                value = amount(text)
            except argparse.ArgumentTypeError as error:
                raise ConfigurationError(f"{name}: {error}") from None
        found.append(value)
    usd, tokens, calls = found
    if (usd, tokens, calls) == (None, None, None):
        return None
    return BudgetLimits(
        usd, int(tokens) if tokens is not None else None, int(calls) if calls is not None else None
    )


def amount(text: str) -> float:
    """Parse an amount of 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected an amount, 0 or more")
    return number
