"""`--allow-code`: whether metrics may run code that the metrics file names."""

import argparse
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.schemas.formats.metric import EvalMetric

RUN_CODE: Final = frozenset({"deepeval_metric", "external_command", "python_function"})
"""Evaluators whose criterion names a program, a function or a class."""
VARIABLE: Final = "EVALTAP_ALLOW_CODE"


def add_allow_code(parser: argparse.ArgumentParser) -> None:
    """Add `--allow-code`."""
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="run the commands, functions and DeepEval classes that the metrics name; only for files that"
        f" you trust as you would a program (default: {VARIABLE}, or refuse such metrics)",
    )


def code_allowed(*, given: bool) -> bool:
    """Check whether `--allow-code` or the environment lets files name code to run."""
    return given or os.environ.get(VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")


def check_code(metrics: "Iterable[EvalMetric]", place: object, *, allowed: bool) -> None:
    """Raise InputError for a metric that runs code, unless that is allowed; import none of the code."""
    if code_allowed(given=allowed):
        return
    for metric in _with_parts(metrics):
        evaluator = metric.evaluator_name or metric.metric_name
        if evaluator in RUN_CODE:
            raise InputError(
                f"{place}: metric {metric.metric_name!r} runs code ({evaluator}); check what it names, then"
                f" allow it with --allow-code ({VARIABLE}=1)"
            )


def _with_parts(metrics: "Iterable[EvalMetric]") -> "Iterator[EvalMetric]":
    for metric in metrics:
        yield metric
        if metric.criterion is not None and metric.criterion.suite is not None:
            yield from _with_parts(metric.criterion.suite.metrics)
