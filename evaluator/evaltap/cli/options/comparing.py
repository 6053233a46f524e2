"""Rules and output of a comparison, for the commands that compare."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaltap.cli.parsing import names

if TYPE_CHECKING:
    from evaltap.evaluator.reports.compare.model import Comparison, Rules

_STYLES = {"-": "red", "+": "green", "!": "yellow", ">": "yellow"}


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The rules that decide when a difference counts."""

    alpha: float
    margin: float
    max_drop: float | None
    min_pass_rate: float | None
    max_cost_ratio: float | None
    max_latency_ratio: float | None
    fail_on_metrics: tuple[str, ...]
    across_metrics: bool
    by: tuple[str, ...]
    pair_by_id: bool

    def rules(self) -> "Rules":
        """Return the rules of the comparison."""
        from evaltap.evaluator.reports.compare.model import Rules

        return Rules(
            self.alpha,
            self.margin,
            self.max_drop,
            self.min_pass_rate,
            self.max_cost_ratio,
            self.max_latency_ratio,
            self.fail_on_metrics,
            self.across_metrics,
            self.by,
            self.pair_by_id,
        )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide a comparison."""
    add = parser.add_argument_group("what counts as worse").add_argument
    add(
        "--alpha", type=level, default=0.02, metavar="SHARE",
        help="false-alarm rate: how often equal runs may be called worse (default: 0.02)",
    )  # fmt: skip
    add(
        "--margin", type=share, default=0.0, metavar="SHARE",
        help="tolerate a drop of the pass rate up to this; 0.05 is 5 percentage points (default: 0)",
    )  # fmt: skip
    add(
        "--max-drop", type=share, metavar="SHARE",
        help="require evidence that the drop is smaller than this: exit code 0 only when its 95 %%"
        " interval ends below it, otherwise 3",
    )  # fmt: skip
    add(
        "--min-pass-rate", type=share, metavar="SHARE",
        help="exit code 1 when the 95 %% interval of HEAD's pass rate is below this, 3 when the interval"
        " contains it",
    )  # fmt: skip
    add(
        "--max-cost-ratio", type=ratio, metavar="RATIO",
        help="exit with 1 if HEAD costs more than RATIO times as much as BASE, by the 95 %% interval",
    )  # fmt: skip
    add(
        "--max-latency-ratio", type=ratio, metavar="RATIO",
        help="exit with 1 if HEAD takes more than RATIO times as long as BASE, by the 95 %% interval",
    )  # fmt: skip
    add(
        "--fail-on-metrics", type=names, default=[], metavar="NAME,...",
        help="the metrics that decide the exit code (default: all that pass or fail)",
    )  # fmt: skip
    add(
        "--across-metrics", action="store_true",
        help="compare a metric even if its definition or its evaluator's version changed",
    )  # fmt: skip
    add(
        "--by", type=names, default=[], metavar="NAME,...",
        help="also compare within slices, for information only: app, eval_set, tool, tool_path, language;"
        " for live traffic the names of `evaltap estimate --by` except times",
    )  # fmt: skip
    add(
        "--pair-by-id", action="store_true",
        help="pair cases by eval id alone, ignoring app and eval set",
    )  # fmt: skip


def print_comparison(found: "Comparison") -> None:
    """Print a comparison on the console."""
    from rich.text import Text

    from evaltap.evaluator.reports.compare.console import console_lines
    from evaltap.evaluator.reports.console import console

    out = console()
    for number, line in enumerate(console_lines(found)):
        style = _STYLES.get(line.strip()[:1], "") if line.startswith("    ") else ""
        out.print(Text(line, style="bold" if number == 0 else style), soft_wrap=True)


def share(text: str) -> float:
    """Parse a share from 0 to 1."""
    return _number(text, "a share from 0 to 1", 0.0, 1.0)


def level(text: str) -> float:
    """Parse a significance level."""
    return _number(text, "a share from 0.0001 to 0.5", 0.0001, 0.5)


def ratio(text: str) -> float:
    """Parse a ratio of 1 or more."""
    return _number(text, "a number, 1 or more", 1.0, 1e9)


def _number(text: str, expected: str, low: float, high: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected {expected}")
    return number
