"""`evaltap review`: let people review landed turns, on the terminal or one decision at a time."""

import argparse
import getpass
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaltap.cli.options.common import add_json, open_store, open_stores, print_outcome
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.parsing import positive
from evaltap.cli.settings import STORE, of_settings
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known
from evaltap.schemas.text import counted, did_you_mean

if TYPE_CHECKING:
    from evaltap.evaluator.curation.review.queue import Item
    from evaltap.evaluator.store.database import Store
    from evaltap.evaluator.store.queries import StoreReader

LABELS = 100
"""Turns that are drawn for labels unless told otherwise."""
ACTIONS = ("add", "next", "approve", "edit", "reject", "skip", "undo", "list", "export", "import")


@dataclass(frozen=True, slots=True)
class ReviewOptions:
    """What to do, in which queue, as whom."""

    words: tuple[str, ...]
    reviewer: str
    queue: str
    like: str | None
    recipe: Path | None
    draw: str | None
    limit: int | None
    needed: int
    answer: str | None
    tools: str | None
    comment: str
    out: Path | None
    file: Path | None
    labels: bool
    json: bool
    chosen: FilterOptions

    @property
    def who(self) -> str:
        """The reviewer: as given, by EVALTAP_REVIEWER, or who is logged in."""
        return self.reviewer or os.environ.get("EVALTAP_REVIEWER", "").strip() or getpass.getuser()


_EPILOG: Final = (
    "examples:\n"
    "  evaltap review cases.duckdb                        # review on the terminal\n"
    "  evaltap review add cases.duckdb --like failures\n"
    "  evaltap review add cases.duckdb feedback:down --needed 2\n"
    "  evaltap review add cases.duckdb --draw helpful     # to label for `calibrate`\n"
    "  evaltap review next cases.duckdb --as ann --json\n"
    "  evaltap review approve cases.duckdb 3f2a9c1d5e6b7a80 --as ann\n"
    "  evaltap review edit cases.duckdb 3f2a9c1d5e6b7a80 --answer 'Yes.' --as ann\n"
    "  evaltap review undo cases.duckdb --as ann\n"
    "  evaltap review list cases.duckdb\n"
    "  evaltap review export cases.duckdb --labels --out labels.jsonl\n"
    "  evaltap review import cases.duckdb --from reviews.jsonl\n\n"
    "Without an ACTION you work through the queue on the terminal. An empty queue is filled"
    " first, as by `add`.\n\n"
    "Every decision, and every undo, is stored with its author. Reviewers see neither the"
    " judges' verdicts nor each other's. Then:\n"
    "  `evaltap curate --as expected` makes cases of what was approved\n"
    "  `evaltap calibrate X.duckdb --db X.duckdb` compares judges with the reviews\n\n"
    "exit code: 0 done, 2 bad input, 3 nothing to review"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = "evaltap review [ACTION] X.duckdb [ITEM or FILTER] [options]"
    parser.epilog = _EPILOG
    add = parser.add_argument
    words = add(
        "words", nargs="+", metavar="[ACTION] X.duckdb [ITEM or FILTER]",
        help=f"ACTION: {', '.join(ACTIONS)}; ITEM: the id of the item to decide on; FILTER: for add, as"
        " --filter (X.duckdb by default: the store of evaltap.toml, or ./cases.duckdb)",
    )  # fmt: skip
    of_settings(words, STORE)
    add("--as", dest="reviewer", default="", metavar="NAME",
        help="the reviewer's name (default: EVALTAP_REVIEWER, or the user name)")  # fmt: skip
    add(
        "--queue",
        default="",
        metavar="NAME",
        help="only this queue (default: all; for add: the queue named default)",
    )
    add(
        "--like",
        metavar="RECIPE",
        help="add: a recipe of `evaltap curate` (default: representative)",
    )
    add("--recipe", type=Path, metavar="R.json", help="add: or a recipe file")
    add("--draw", metavar="METRIC",
        help="add: sample turns to label for this metric's judge, half of them fails, a fifth for two"
        " reviewers")  # fmt: skip
    add("--limit", type=positive, metavar="N", help="add: queue at most N turns")
    add(
        "--needed",
        type=positive,
        default=1,
        metavar="N",
        help="add: how many reviewers each turn needs, 1 to 3",
    )
    add("--answer", metavar="TEXT", help="edit: the correct answer")
    add("--tools", metavar="JSON", help="edit: the correct tool calls")
    add("--comment", default="", metavar="TEXT", help="the reason for a decision")
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="export: the JSON Lines file to write (default: print)",
    )
    add(
        "--from",
        dest="file",
        type=Path,
        metavar="FILE",
        help="import: JSON Lines as `export` writes them, with an `action` added to each row: approve,"
        " edit, reject or skip",
    )
    add("--labels", action="store_true", help="export: labels for `evaltap calibrate`")
    add_filter(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=ReviewOptions)


def run(options: ReviewOptions) -> int:
    """Do what was asked for."""
    action, path, rest = _words(options.words)
    _refuse_unheard(options, action, rest)
    item_id = "".join(rest)
    if not 1 <= options.needed <= 3:
        raise InputError("--needed: expected 1, 2 or 3 reviewers")
    if options.json and not action:
        raise InputError("--json: only works with an ACTION; reviewing on the terminal prints text")
    if action == "add":
        chosen = FilterOptions((*options.chosen.filter, *rest), options.chosen.where)
        return _add(replace(options, chosen=chosen), path)
    if action in ("list", "export"):
        with open_stores([path]) as reader:
            _check_queue(reader, options.queue)
            return (_list if action == "list" else _export)(options, reader)
    with open_store(path, create=False) as store:
        if action in _DECISIONS:
            return _decide(options, store, action, item_id)
        if action == "undo":
            return _undo(options, store, item_id)
        if action == "next":
            _check_queue(store, options.queue)
            return _next(options, store)
        if action == "import":
            return _import(options, store)
        empty = not store.rows("SELECT 1 FROM review_items LIMIT 1")
    if empty:
        _add(options, path)
    from evaltap.cli.reviewing import review_queue

    with open_store(path, create=False) as store:
        _check_queue(store, options.queue)
        decided = review_queue(store, options.who, options.queue)
    print(f"{counted(decided, 'decision')} as {options.who}")
    return 0


def _check_queue(store: "StoreReader", queue: str) -> None:
    known = store.column("SELECT DISTINCT queue FROM review_items ORDER BY 1")
    if queue and known:
        check_known(queue, known, f"--queue {queue}: no such queue")


def _words(words: Sequence[str]) -> tuple[str, Path, Sequence[str]]:
    if len(words) > 1 and words[1] in ACTIONS:  # the store of the settings stands before it
        words = [words[1], words[0], *words[2:]]
    action = words[0] if words[0] in ACTIONS else ""
    rest = words[1:] if action else words
    if not rest or (not action and not Path(words[0]).exists()):
        hint = did_you_mean(words[0], ACTIONS)
        raise InputError(
            f"{words[0]}: neither a file nor an action; {hint or 'actions: ' + ', '.join(ACTIONS)}"
        )
    return action, Path(rest[0]), rest[1:]


_ADDING: Final = ("add", "")
_DECISIONS: Final = ("approve", "edit", "reject", "skip")
_OF_ACTIONS: Final[Mapping[str, Sequence[str]]] = {
    "like": _ADDING, "recipe": _ADDING, "draw": _ADDING, "limit": _ADDING, "answer": ("edit",),
    "tools": ("edit",), "comment": _DECISIONS, "out": ("export",), "labels": ("export",),
    "file": ("import",), "chosen": _ADDING,
}  # fmt: skip
"""Options that only some actions heed; an empty queue is filled without an action."""
_FLAGS: Final = {"file": "--from", "chosen": "--filter and --where"}


def _refuse_unheard(options: ReviewOptions, action: str, rest: Sequence[str]) -> None:
    """Refuse what was given and this action would not look at; raise InputError."""
    expected = {"add": None, "undo": 1} | dict.fromkeys(_DECISIONS, 1)
    most = expected.get(action, 0)
    if most is not None and len(rest) > most:
        hint = "" if action else "; to queue cases by a filter: evaltap review add X.duckdb FILTER"
        raise InputError(f"{rest[most]}: unexpected argument{hint}")
    nothing = (None, "", False, FilterOptions((), ""))
    for name, actions in _OF_ACTIONS.items():
        if getattr(options, name) not in nothing and action not in actions:
            heeding = "|".join(filter(None, actions))
            raise InputError(
                f"{_FLAGS.get(name, '--' + name)}: only for `evaltap review {heeding}`"
            )


def _add(options: ReviewOptions, path: Path) -> int:
    from evaltap.evaluator.curation.choosing import choose
    from evaltap.evaluator.curation.recipe import built_in, read_recipe
    from evaltap.evaluator.curation.review.queue import DEFAULT_QUEUE, Wanted, add_items

    if options.draw:
        return _draw(options, path, options.draw)
    recipe = (
        read_recipe(options.recipe)
        if options.recipe
        else built_in(options.like or "representative")
    ).changed(limit=options.limit)
    with options.chosen.and_filter(recipe.filter).open([path]) as shown:
        chosen = choose(shown, recipe).chosen
    wanted: list[Wanted] = [
        Wanted(*one.turn.key, ", ".join(one.labels), one.weight, options.needed) for one in chosen
    ]
    count = 0
    if wanted:
        with open_store(path, create=False) as store:
            count = add_items(store, wanted, options.queue or DEFAULT_QUEUE)
    return _queued(options, count, len(wanted) - count)


def _draw(options: ReviewOptions, path: Path, metric: str) -> int:
    from evaltap.evaluator.curation.review.queue import DEFAULT_QUEUE, add_items, draw_for_labels

    if options.like or options.recipe or options.chosen.choice():
        raise InputError("--draw: samples by itself; leave out --like, --recipe and filters")
    with open_store(path, create=False) as store:
        wanted = draw_for_labels(store, metric, options.limit or LABELS)
        count = add_items(store, wanted, options.queue or DEFAULT_QUEUE)
    return _queued(options, count, len(wanted) - count)


def _queued(options: ReviewOptions, added: int, already: int) -> int:
    """Print how many turns were queued; return the exit code, 3 if no turn matches."""
    matched = added + already
    if options.json:
        print(json.dumps({"queued": added, "already_queued": already}))
    elif matched:
        said = f"{counted(added, 'turn')} queued, {already:,} already in the queue"
        print(said, file=sys.stderr)
    if not matched:
        print("evaltap review: no turn matches; nothing was queued", file=sys.stderr)
    return 0 if matched else 3


def _decide(options: ReviewOptions, store: "Store", action: str, item_id: str) -> int:
    from evaltap.evaluator.curation.review.queue import decide, edited, item

    if not item_id:
        raise InputError(f"review {action}: name the ITEM (`evaltap review list` shows ids)")
    if action == "edit" and options.answer is None and options.tools is None:
        raise InputError("review edit: give --answer TEXT, --tools JSON, or both")
    one = item(store, item_id)
    after = None
    if action == "edit":
        try:
            tools = None if options.tools is None else json.loads(options.tools)
        except (ValueError, RecursionError) as error:
            raise InputError(f"--tools: not JSON ({error})") from None
        after = edited(one, answer=options.answer, tools=tools)
    decide(store, one, options.who, action, after=after, comment=options.comment)
    return _show(options, item(store, item_id))


def _undo(options: ReviewOptions, store: "Store", item_id: str) -> int:
    from evaltap.evaluator.curation.review.queue import undo

    return _show(options, undo(store, options.who, item_id))


def _next(options: ReviewOptions, store: "Store") -> int:
    from evaltap.cli.reviewing import show
    from evaltap.evaluator.curation.review.queue import next_item

    found = next_item(store, options.who, options.queue)
    if found is None:
        print(f"evaltap review: nothing left to review for {options.who}", file=sys.stderr)
        if options.json:
            print("null")
        return 3
    found = found.seen_by(options.who)
    if options.json:
        print(json.dumps(found.data(), ensure_ascii=False))
    else:
        print(found.item_id)
        show(found)
    return 0


def _show(options: ReviewOptions, one: "Item") -> int:
    if options.json:
        print(json.dumps(one.data(), ensure_ascii=False))
    else:
        print(f"{one.item_id}  {one.eval_id}  {one.state}")
    return 0


def _list(options: ReviewOptions, store: "StoreReader") -> int:
    from evaltap.evaluator.cases.text import one_line
    from evaltap.evaluator.curation.review.queue import agreement_of, items
    from evaltap.evaluator.reports.safe_text import visible

    found = items(store, options.queue)
    _, figures = agreement_of(store)
    if options.json:
        data = {"items": [one.data() for one in found], "agreement": figures}
        print(json.dumps(data, ensure_ascii=False))
        return 0
    for one in found:
        text = (one.turn.get("userContent") or {}).get("content") or ""
        print(
            visible(f"{one.item_id}  {one.state:<9}  {one.eval_id[:16]:<16}  {one_line(text, 32)}")
        )
    print(counted(len(found), "turn"))
    if figures["kappa"] is not None:
        low, high = figures["kappa_interval"] or (float("nan"),) * 2
        names = " and ".join(figures["reviewers"])
        print(f"{names} agree with kappa {figures['kappa']:.2f} ({low:.2f} to {high:.2f})")
    return 0


def _export(options: ReviewOptions, store: "StoreReader") -> int:
    from evaltap.evaluator.cases.datasets.exports.rows import json_lines
    from evaltap.evaluator.curation.review.queue import exported, exported_labels
    from evaltap.schemas.files.documents import write_bytes

    rows = (exported_labels if options.labels else exported)(store, options.queue)
    if options.out is None:
        sys.stdout.write(json_lines(rows).decode())
    else:
        write_bytes(options.out, json_lines(rows))
        data = {"rows": len(rows), "out": str(options.out)}
        text = f"{counted(len(rows), 'row')} written to {options.out}"
        print_outcome(data, text, as_json=options.json)
    return 0


def _import(options: ReviewOptions, store: "Store") -> int:
    from evaltap.evaluator.curation.review.queue import import_decisions

    if options.file is None:
        raise InputError("review import: give --from FILE")
    decided = import_decisions(store, options.file, options.who)
    text = f"{counted(decided, 'decision')} imported"
    print_outcome({"imported": decided}, text, as_json=options.json)
    return 0
