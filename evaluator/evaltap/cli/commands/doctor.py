"""`evaltap doctor`: check that every turn is accounted for and that the recorder can see all turns."""

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, NamedTuple

from evaltap.cli.declared import STORE
from evaltap.cli.messages import print_json
from evaltap.cli.options.maintain import DoctorOptions
from evaltap.cli.settings import is_discovered
from evaltap.evaluator.pipeline.maintenance.completeness import (
    Account,
    Total,
    account_data,
    account_lines,
    accounts,
)
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.diagnostics import Diagnostic, diagnose, log_diagnostics
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.settings import FILE_NAME, find_settings
from evaltap.schemas.log.location import OTLP, KafkaLocation, parse_log_location
from evaltap.schemas.text import PIPE_WIDTH, counted

if TYPE_CHECKING:  # they need DuckDB, an optional package
    from evaltap.evaluator.ingest.sources.positions import LogPosition
    from evaltap.evaluator.pipeline.maintenance.lag import Lag

_SIGNS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def _of_environment(log: str | None) -> Iterator[Diagnostic]:
    none = f"no {FILE_NAME} in this folder or above (`evaltap init` writes one)"
    settings = find_settings(Path.cwd(), os.environ)
    yield Diagnostic("settings file", str(settings or none), "ok")
    yield from diagnose()
    config = RecorderConfig()
    if log is not None and log != config.log:
        yield from log_diagnostics(log, config.log_max_bytes)


def run(options: DoctorOptions) -> int:
    """Print the findings; return 1 if something is wrong."""
    log = options.log or options.usual_log
    location = parse_log_location(log) if log else None
    sights = [*_of_environment(log)]
    if options.db is not None and not options.db.exists() and is_discovered(STORE):
        missing = "does not exist yet; `evaltap consume` creates it"
        sights.append(Diagnostic(f"store {options.db}", missing))
        options = replace(options, db=None)
    lag = _lag(options.db)
    sights += _behind(lag)
    found = _accounts(None if isinstance(location, KafkaLocation) else location, options)
    topics = _topics(location, options.db) if isinstance(location, KafkaLocation) else _Topics()
    sights += topics.sights
    # While the topic has unread records, missing records may be among them.
    total = Total.of(found, waits=topics.away or topics.waiting > 0)
    if options.json:
        print_json(_data(sights, topics, found, total.losses, lag))
    else:
        _print_sights(sights)
        topics.print()
        _print_accounts(found, total, options.db)
    wrong = any(one.severity == "problem" for one in sights)
    lost = total.losses or any(account.unaccounted for account in found)
    return int(bool(wrong or lost or topics.has_gap))


def _behind(lag: "Lag | None") -> Iterator[Diagnostic]:
    if lag is not None and lag.cases:
        behind = f"{counted(lag.cases, 'case')} without scores, the oldest for {lag.seconds:,.0f} s"
        yield Diagnostic("scoring", behind, "note")


def _data(
    sights: Sequence[Diagnostic],
    topics: "_Topics",
    found: Sequence[Account],
    losses: Mapping[str, int],
    lag: "Lag | None",
) -> dict[str, Any]:  # Any: JSON
    return {
        "sights": [
            {"about": s.about, "found": s.found, "verdict": s.verdict, "remedy": s.remedy}
            for s in sights
        ],
        "partitions": [position.data() for position in topics.positions],
        "producers": [account_data(account) for account in found],
        "losses": losses,
        "unscored": None if lag is None else lag.data(),
    }


def _print_sights(sights: Iterable[Diagnostic]) -> None:
    for sight in sights:
        _print_line(f"{_SIGNS[sight.severity]} ", f"{sight.about}: {sight.found}")
        if sight.remedy:
            _print_line("        -> ", sight.remedy)


def _print_accounts(found: Sequence[Account], total: Total, db: Path | None) -> None:
    if found:
        print(f"\n{'LOST   ' if total.losses else 'ok     '} {total}")
    for account in found:
        for line in account_lines(account, db):
            print(line)


class _Topics(NamedTuple):
    """The topics of a cluster: the positions in them, and problems."""

    positions: Sequence["LogPosition"] = ()
    sights: Sequence[Diagnostic] = ()
    away: bool = False
    """Whether no broker answered."""
    holds_traces: bool = False
    """Whether the topics hold spans, not cases."""

    @property
    def waiting(self) -> int:
        """The number of unread records."""
        return sum(position.waiting for position in self.positions)

    @property
    def has_gap(self) -> bool:
        """Whether records were deleted unread."""
        return any(position.gap for position in self.positions)

    def print(self) -> None:
        """Print the positions."""
        for position in self.positions:
            print(position.text())
        if self.holds_traces and self.waiting:
            print("  also waiting: traces that were read and may still be revised")


def _topics(cluster: KafkaLocation, db: Path | None) -> _Topics:
    try:
        positions, missing = _positions(cluster, db)
    except InputError as error:
        # Continue: when the broker is down, users need to see what is waiting in the spools.
        remedy = "the rest of the report does not cover them"
        return _Topics((), [Diagnostic("topics", str(error), "problem", remedy)], away=True)
    found = f"the cluster has no topic {', '.join(missing)}"
    sights = [Diagnostic("topics", found, "problem", "check the name in --log")] if missing else []
    return _Topics(positions, sights, holds_traces=cluster.format == OTLP)


def _print_line(head: str, text: str) -> None:
    """Print a text after its head, wrapped to the terminal's width."""
    # Does not use the console of the reports: `doctor` also works with only the recorder installed.
    width = get_terminal_size((PIPE_WIDTH, 0)).columns - len(head)
    lines = textwrap.wrap(text, max(40, width), break_long_words=False, break_on_hyphens=False)
    print(head + f"\n{' ' * len(head)}".join(lines))


def _accounts(log: Path | None, options: DoctorOptions) -> Sequence[Account]:
    """Return the accounts of log and store.

    If the log comes from the settings and cannot be read, return none: the diagnostics report that.
    """
    try:
        return accounts(log, options.db)
    except InputError:
        if options.log not in (None, options.usual_log):
            raise
        return []


def _lag(db: Path | None) -> "Lag | None":
    """Return the cases of a store that wait for scores; None without a store."""
    if db is None or not db.exists():
        return None
    from evaltap.cli.stores import open_stores  # an optional package: DuckDB
    from evaltap.evaluator.pipeline.maintenance.lag import oldest_unscored  # as above

    with open_stores([db]) as store:
        return oldest_unscored(store)


def _positions(
    location: KafkaLocation, db: Path | None
) -> tuple[list["LogPosition"], Sequence[str]]:
    """Return the store's position in the topics (never read, without a store), and missing topics."""
    from evaltap.cli.stores import open_stores
    from evaltap.evaluator.ingest.sources.kafka import KafkaSource  # an optional package: kafka
    from evaltap.evaluator.ingest.sources.positions import (
        log_positions,
        partly_read,
        stored_offsets,
    )

    offsets, partly = {}, set()
    if db is not None:
        with open_stores([db]) as store:
            offsets, partly = stored_offsets(store), partly_read(store)
    source = KafkaSource(location)
    try:
        return log_positions(source.bounds(), offsets, partly), source.missing_topics()
    finally:
        source.close()
