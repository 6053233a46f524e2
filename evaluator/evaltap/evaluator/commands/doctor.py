"""`evaltap doctor`: is every turn accounted for, and what would keep the recorder from seeing one."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaltap.evaluator.commands.options import add_json

if TYPE_CHECKING:
    from evaltap.evaluator.accounts import Account

_SIGNS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap doctor                                       # what is seen of this environment\n"
        "  evaltap doctor --log agent.log.db --db cases.duckdb  # and where every turn went\n\n"
        "exit code: 0 all is well, 1 a gap or a problem was found"
    )
    add = parser.add_argument
    add("--log", metavar="LOG", help="a local log to account for")
    add("--db", type=Path, metavar="X.duckdb", help="a DuckDB file that consumed it")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look, tell, and return 1 when something is wrong."""
    from evaltap.evaluator.accounts import accounts
    from evaltap.recorder.surroundings import look_around

    sights = look_around() + _log_sight(options.log)
    log = Path(options.log) if options.log and "://" not in options.log else None
    found = accounts(log, options.db)
    gaps = [account for account in found if account.lost]
    if options.json:
        data = {
            "sights": [
                {"about": s.about, "found": s.found, "verdict": s.verdict, "remedy": s.remedy}
                for s in sights
            ],
            "producers": [_data(account) for account in found],
        }
        print(json.dumps(data, ensure_ascii=False))
    else:
        for sight in sights:
            print(f"{_SIGNS[sight.verdict]} {sight.about}: {sight.found}")
            if sight.remedy:
                print(f"        -> {sight.remedy}")
        _print_accounts(found)
    return 1 if gaps or any(sight.verdict == "problem" for sight in sights) else 0


def _log_sight(log: str | None) -> list[Any]:  # Any: the recorder's Sight, loaded when called
    from evaltap.recorder.config import RecorderConfig
    from evaltap.recorder.surroundings import log_sight

    config = RecorderConfig()
    return [] if log is None or log == config.log else [log_sight(log, config.log_max_bytes)]


def _print_accounts(found: "Sequence[Account]") -> None:
    for account in found:
        data = _data(account)
        drops = "".join(f", {reason} {count:,}" for reason, count in data["dropped"].items())
        print(
            f"\nproducer {account.producer_id}"
            f" ({'closed in order' if account.closed else 'no closing manifest'})\n"
            f"  recorded {data['recorded']:,} = delivered {data['delivered']:,}"
            f" + dropped {sum(data['dropped'].values()):,}{drops} + lost {data['lost']:,}\n"
            f"  of the delivered: landed {data['landed']:,}, waiting on the log {data['waiting']:,},"
            f" dead letters {data['dead_letters']:,}, erased {data['erased']:,}"
        )
        for first, last in data["gaps"]:
            print(f"  GAP: records {first} to {last} were numbered and are nowhere")


def _data(account: "Account") -> dict[str, Any]:
    from evaltap.evaluator.seq_ranges import size

    return {
        "producer_id": account.producer_id,
        "closed": account.closed,
        "recorded": account.recorded,
        "delivered": account.delivered,
        "dropped": dict(sorted(account.dropped.items())),
        "lost": size(account.lost),
        "landed": account.landed,
        "waiting": account.waiting,
        "dead_letters": size(account.dead),
        "erased": size(account.erased),
        "gaps": account.lost,
    }
