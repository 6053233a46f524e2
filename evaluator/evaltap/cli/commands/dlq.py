"""`evaltap store dlq`: list, show and replay dead letters."""

from evaltap.cli.messages import print_json
from evaltap.cli.options.store import DlqListOptions, DlqReplayOptions, DlqShowOptions
from evaltap.cli.stores import open_stores
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.ingest.landing.dead_letters import letter_data, letters
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.database import open_store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known
from evaltap.schemas.text import counted
from evaltap.schemas.wire.envelope import Reason

SHOWN_BYTES = 4_000
DETAIL_WIDTH = 160


def run(options: DlqListOptions | DlqShowOptions | DlqReplayOptions) -> int:
    """List, show or replay dead letters; return the exit code."""
    if isinstance(options, DlqListOptions):
        return _list(options)
    return _show(options) if isinstance(options, DlqShowOptions) else _replay(options)


def _list(options: DlqListOptions) -> int:
    with open_stores([options.db]) as store:
        found = letters(store, reason=options.reason, limit=options.limit)
        ((total,),) = store.rows(
            "SELECT count(*) FROM dead_letters WHERE $reason = '' OR reason = $reason",
            {"reason": options.reason},
        )
        _check_reason(store, options.reason)
    if options.json:
        print_json({"total": total, "letters": [letter_data(letter) for letter in found]})
        return 0
    for letter in found:
        parked = "  written by a newer version; replay it after an upgrade" if letter.parked else ""
        place = f"{letter.topic}[{letter.partition}] {letter.offset}"
        print(f"{letter.number:>5}  {letter.reason:<16} {visible(place)}{parked}")
        print(f"       {one_line(visible(letter.detail), DETAIL_WIDTH)}")
    print(f"{len(found):,} shown of {total:,}" if total else "no dead letters")
    return 0


def _check_reason(store: StoreReader, reason: str) -> None:
    if reason:
        found = store.column("SELECT DISTINCT reason FROM dead_letters")
        check_known(reason, sorted({*found, *Reason}), f"--reason {reason}: unknown reason")


def _show(options: DlqShowOptions) -> int:
    with open_stores([options.db]) as store:
        found = letters(store, only=options.number)
    if not found:
        raise InputError(
            f"{options.db}: no dead letter {options.number}; `evaltap store dlq list` shows their numbers"
        )
    (letter,) = found
    if options.json:
        print_json(letter_data(letter))
        return 0
    value = letter.value or b""
    print(f"reason   {letter.reason}: {visible(letter.detail)}")
    print(
        f"place    {visible(letter.topic)}[{letter.partition}] {letter.offset}, landed {letter.landed_at}"
    )
    print(f"key      {visible((letter.key or b'').decode('utf-8', 'replace'))}")
    for name, text in letter.record.headers:
        print(f"header   {visible(name)}: {visible(text.decode('utf-8', 'replace'))}")
    print(f"value    {len(value):,} bytes")
    print(visible(value[:SHOWN_BYTES].decode("utf-8", "replace")))
    if len(value) > SHOWN_BYTES:
        print(f"... and {len(value) - SHOWN_BYTES:,} more bytes; --json prints all")
    return 0


def _replay(options: DlqReplayOptions) -> int:
    from evaltap.evaluator.ingest.landing.replayed_letters import replay  # all that lands

    with open_store(options.db, create=False) as store:
        _check_reason(store, options.reason)
        done = replay(store, reason=options.reason, dry_run=options.dry_run)
    if options.json:
        data = {
            "dry_run": options.dry_run,
            "records": done.landed.records,
            "turns": done.landed.turns,
            "duplicates": done.landed.duplicates,
            "unreadable": dict(done.unreadable),
            "of_files": done.of_files,
        }
        print_json(data)
    else:
        verb = "can be landed" if options.dry_run else "landed"
        print(f"{counted(done.landed.records, 'dead letter')} {verb}")
        if not options.dry_run:
            print(f"  turns {done.landed.turns:,}, already landed {done.landed.duplicates:,}")
        for reason, count in sorted(done.unreadable.items()):
            print(f"still unreadable: {counted(count, 'dead letter')} ({reason})")
        if done.of_files:
            print(
                f"cannot be replayed: {counted(done.of_files, 'line')} of files; correct them and score the"
                " files again"
            )
    return 1 if done.unreadable or done.of_files else 0
