"""`evaltap drift`: test whether the mix of traffic changed between two periods."""

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.commands.coverage import NothingSeenError
from evaltap.cli.options.common import add_databases, add_json, open_stores
from evaltap.cli.parsing import names

if TYPE_CHECKING:
    from evaltap.evaluator.curation.drift import Drift
    from evaltap.evaluator.curation.values import Seen
    from evaltap.evaluator.store.queries import StoreReader

SHOWN = 5


@dataclass(frozen=True, slots=True)
class DriftOptions:
    """The two periods, and the dimensions to compare by."""

    db: tuple[Path, ...]
    before: "PeriodOrSet"
    after: "PeriodOrSet"
    by: tuple[str, ...]
    app: str
    json: bool


PeriodOrSet = tuple[datetime, datetime] | Path
"""Beginning and end, or an eval set."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap drift cases.duckdb --before 2026-11-01/2026-11-08 \\\n"
        "      --after 2026-11-08/2026-11-15\n"
        "  evaltap drift cases.duckdb --before set:golden.evalset.json \\\n"
        "      --after 2026-11-01/2026-12-01\n\n"
        "distance: half the sum of the absolute changes of all shares (total variation)\n"
        "expected: the mean distance if the mix had not changed\n"
        "p_value:  how often the distance would then be at least as large\n"
        "q_value:  the same, adjusted for several dimensions\n"
        "is_new:   the value does not occur in the first period\n\n"
        "exit code: 0 compared, 2 bad input, 3 a period without turns"
    )
    add = parser.add_argument
    add_databases(parser)
    about = (
        "a period A/B from A up to but not including B (days or times in UTC), or an eval set as"
        " set:SET"
    )
    add("--before", required=True, type=period_or_set, metavar="A/B", help=about)
    add(
        "--after",
        required=True,
        type=period_or_set,
        metavar="C/D",
        help="the other period or eval set",
    )
    add(
        "--by", type=names, default=["tools", "model", "language", "intent"], metavar="NAME,...",
        help="dimensions to test: tools, tool, model, language, intent, version (default:"
        " tools,model,language,intent)",
    )  # fmt: skip
    add("--app", default="", metavar="A", help="only this application (default: all)")
    add_json(parser)
    parser.set_defaults(run=run, options=DriftOptions)


def period_or_set(text: str) -> PeriodOrSet:
    """Parse `A/B`, or `set:FILE`."""
    if text.startswith("set:"):
        return Path(text.removeprefix("set:"))
    try:
        first, last = map(datetime.fromisoformat, text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; expected A/B, e.g. 2026-11-01/2026-11-08, or set:FILE"
        ) from None
    begin, end = (one if one.tzinfo else one.replace(tzinfo=UTC) for one in (first, last))
    if begin >= end:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected the earlier time first")
    return begin, end


def run(options: DriftOptions) -> int:
    """Compare the periods and print the result."""
    from evaltap.evaluator.curation.drift import drift
    from evaltap.evaluator.curation.values import check_app, check_dimensions

    with open_stores(options.db) as store:
        check_dimensions(options.by)
        check_app(store, options.app)
        before = _seen(store, options.before, options.app)
        after = _seen(store, options.after, options.app)
    found = drift(options.by, before, after)
    if options.json:
        print(json.dumps([one.data() for one in found], ensure_ascii=False))
    else:
        _print(found)
    return 0


def _seen(store: "StoreReader", period: PeriodOrSet, app: str) -> "list[Seen]":
    from evaltap.evaluator.cases.evalsets.files import read_set
    from evaltap.evaluator.curation.values import Period, seen_in, seen_of_set

    if isinstance(period, Path):
        found = seen_of_set(read_set(period).cases, store)
        name = str(period)
    else:
        found = seen_in(store, Period(*period, app))
        name = f"{period[0]:%Y-%m-%d %H:%M} to {period[1]:%Y-%m-%d %H:%M}"
    if not found:
        raise NothingSeenError(f"{name}: contains no turns; choose another period")
    return found


def _print(found: "list[Drift]") -> None:
    from evaltap.evaluator.reports.safe_text import visible

    for one in found:
        verdict = "changed" if one.q_value <= 0.05 else "no significant change"
        print(
            f"{one.by}: {verdict}; distance {one.distance:.3f}, {one.expected:.3f} expected,"
            f" p {one.p_value:.4f}, q {one.q_value:.4f}"
        )
        for shift in one.shifts[:SHOWN] if one.q_value <= 0.05 else ():
            value = visible(shift.value) or "(none)"
            new = ", new" if not shift.before else ""
            print(
                f"  {value}: {shift.before:.1%} -> {shift.after:.1%}"
                f" (change {shift.low:+.1%} to {shift.high:+.1%}{new})"
            )
