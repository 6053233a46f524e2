"""What several commands share: opening the store, progress on a terminal, `--json`."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.evaluator.commands.guarding import add_thresholds, with_thresholds
from evaltap.evaluator.commands.judging import add_judging, judging_services
from evaltap.schemas.documents import read_metrics
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.jobs import PendingScorer
    from evaltap.evaluator.scoring import CaseScorer
    from evaltap.evaluator.selection import Selection
    from evaltap.evaluator.store import Store


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add `--map`, for data sets."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="data sets: which column holds a part of a case (default: by the names that tools use)",
    )


def add_database(parser: argparse.ArgumentParser) -> None:
    """Add the DuckDB file to read."""
    parser.add_argument("db", type=Path, metavar="X.duckdb", help="a DuckDB file of evaltap")


def add_scoring(parser: argparse.ArgumentParser, *, metrics_help: str, required: bool) -> None:
    """Add what every command that scores takes: metrics, references, concurrency."""
    add = parser.add_argument
    add("--metrics", required=required, type=Path, metavar="M.json", help=metrics_help)
    add(
        "--references",
        type=Path,
        metavar="R.evalset.json",
        help="expected turns for landed cases, joined by eval id",
    )
    add(
        "--unknown-metrics",
        choices=("error", "skip"),
        default="error",
        help="what to do with a metric that no evaluator is installed for (default: error)",
    )
    add(
        "--cost-class",
        type=cost_classes,
        metavar="CLASSES",
        help="run only metrics of these classes, e.g. free,local_model; classes: free, local_model,"
        " paid_judge (default: all)",
    )
    add(
        "--concurrency",
        type=positive,
        default=8,
        metavar="N",
        help="judged cases under way at a time (default: 8)",
    )
    add_thresholds(parser)
    add_judging(parser)


def case_scorer(options: argparse.Namespace) -> "CaseScorer":
    """Build the scorer of the metrics file; raise when it holds none or one that cannot be built."""
    from evaltap.evaluator.scoring import CaseScorer

    metrics = read_metrics(options.metrics)
    if not metrics:
        raise InputError(f"{options.metrics}: holds no metric; add one")
    metrics = with_thresholds(metrics, options.threshold)
    services = judging_services(options, metrics)
    scorer = CaseScorer(metrics, services=services, unknown_metrics=options.unknown_metrics)
    return _of_cost(scorer, options)


def _of_cost(scorer: "CaseScorer", options: argparse.Namespace) -> "CaseScorer":
    """Return the scorer of the metrics that may be run; say which are not, in `options.not_run` too."""
    options.not_run = []
    if options.cost_class is None:
        return scorer
    classes = scorer.cost_classes()
    names = [metric.metric_name for metric in scorer.metrics]
    left_out = [i for i, one in enumerate(classes) if one not in options.cost_class]
    allowed = ",".join(options.cost_class)
    told = ", ".join(f"{names[i]} ({classes[i]})" for i in left_out)
    if len(left_out) == len(names):
        raise InputError(f"--cost-class {allowed}: leaves no metric to run; found {told or 'none'}")
    if left_out:
        print(
            f"evaltap {options.command}: not run, as --cost-class is {allowed}: {told}",
            file=sys.stderr,
        )
    options.not_run = [names[i] for i in left_out]
    return scorer.only([i for i in range(len(names)) if i not in left_out])


def pending_scorer(
    store: "Store",
    scorer: "CaseScorer",
    options: argparse.Namespace,
    selection: "Selection | None" = None,
    *,
    only: Sequence[int] | None = None,
) -> "PendingScorer":
    """Build the scorer of what has landed, under `only` some of the metrics of its run."""
    from evaltap.evaluator.jobs import PendingScorer
    from evaltap.evaluator.pending import References

    return PendingScorer(
        store,
        scorer,
        references=References(options.references) if options.references else None,
        threads=options.concurrency if scorer.waits else 1,
        selection=selection,
        only=only,
    )


def cost_classes(text: str) -> list[str]:
    """Parse cost classes with commas between them."""
    from evaltap.evaluator.cost import CostClass

    found = [part.strip() for part in text.split(",")]
    known = [one.value for one in CostClass]
    for part in found:
        if part not in known:
            raise argparse.ArgumentTypeError(f"found {part!r}; expected of {', '.join(known)}")
    return found


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number, 1 or more")
    return number


def open_store(path: Path | None, *, create: bool = True) -> "Store":
    """Open the DuckDB file, or one that is deleted when it is closed when there is no path."""
    from evaltap.evaluator.store import Store, TemporaryStore

    if path is not None:
        return Store(path, create=create)
    try:
        return TemporaryStore()
    except OSError:  # no place for temporary files
        return Store(":memory:")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """Show a running count on a terminal; stay silent in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"0 {what}") as status:
        yield lambda count: status.update(f"{count:,} {what}")
