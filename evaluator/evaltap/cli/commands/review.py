"""`evaltap review`: let people review landed turns, on the terminal or one decision at a time."""

import getpass
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from evaltap.cli.messages import print_json, print_outcome, say
from evaltap.cli.options.curate import (
    DrawingOptions,
    ReviewAddOptions,
    ReviewDecisionOptions,
    ReviewEditOptions,
    ReviewExportOptions,
    ReviewImportOptions,
    ReviewListOptions,
    ReviewNextOptions,
    ReviewOptions,
    ReviewUndoOptions,
)
from evaltap.cli.reviewing import review_queue, show
from evaltap.cli.stores import choice_of, open_chosen, open_stores
from evaltap.evaluator.cases.datasets.exports.rows import json_lines
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.curation.choosing import choose
from evaltap.evaluator.curation.recipe import built_in, read_recipe
from evaltap.evaluator.curation.review.queue import (
    DEFAULT_QUEUE,
    Item,
    Wanted,
    add_items,
    agreement_of,
    decide,
    draw_for_labels,
    edited,
    edited_by,
    exported,
    exported_labels,
    import_decisions,
    item,
    items,
    next_item,
    undo,
)
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.database import open_store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import write_bytes
from evaltap.schemas.known import check_known
from evaltap.schemas.text import counted, did_you_mean

LABELS: Final = 100
"""Turns that are drawn for labels unless told otherwise."""


def run(options: Any) -> int:  # of any action
    """Do what was asked for; return the exit code."""
    return _ACTIONS[type(options)](options)


def _review(options: ReviewOptions) -> int:
    """Work through the queue on the terminal; fill it first if it is empty."""
    if not options.db.exists():
        actions = ReviewOptions.ACTIONS.named
        hint = did_you_mean(str(options.db), actions) or f"actions: {', '.join(actions)}"
        raise InputError(f"{options.db}: neither a file nor an action; {hint}")
    with open_store(options.db, create=False) as store:
        empty = not store.rows("SELECT 1 FROM review_items LIMIT 1")
    if empty:
        _fill(options.db, options.drawing, options.queue)
    reviewer = _who(options.reviewer)
    with open_store(options.db, create=False) as store:
        _check_queue(store, options.queue)
    decided = review_queue(options.db, reviewer, options.queue)
    print(f"{counted(decided, 'decision')} as {reviewer}")
    return 0


def _who(reviewer: str) -> str:
    return reviewer or getpass.getuser()


def _check_queue(store: StoreReader, queue: str) -> None:
    known = store.column("SELECT DISTINCT queue FROM review_items ORDER BY 1")
    if queue and known:
        check_known(queue, known, f"--queue {queue}: no such queue")


def _fill(
    path: Path,
    options: DrawingOptions,
    queue: str,
    terms: tuple[str, ...] = (),
    *,
    as_json: bool = False,
) -> int:
    """Queue the chosen turns, and print how many; return the exit code, 3 if no turn matches."""
    wanted = _chosen(path, options, terms)
    new = silent = 0
    if wanted or options.draw:
        with open_store(path, create=False) as store:
            if options.draw:
                wanted = [*draw_for_labels(store, options.draw, options.limit or LABELS)]
            new, silent = add_items(store, wanted, queue or DEFAULT_QUEUE)
    already = len(wanted) - new - silent
    if as_json:
        print_json({"queued": new, "already_queued": already, "without_content": silent})
    elif wanted:
        said = f"{counted(new, 'turn')} queued, {already:,} already in the queue"
        if silent:
            said += f", {silent:,} left out because neither question nor answer was recorded"
        print(said, file=sys.stderr)
    if not wanted:
        say("review", "no turn matches; nothing was queued")
    return 0 if new or already else 3


def _chosen(path: Path, options: DrawingOptions, terms: tuple[str, ...]) -> list[Wanted]:
    """Return the turns that the options choose; none if they are to be drawn."""
    if options.draw:
        if options.like or options.recipe or choice_of(options.chosen, *terms):
            raise InputError("--draw: samples by itself; leave out --like, --recipe and filters")
        return []
    like = options.like or "representative"
    recipe = read_recipe(options.recipe) if options.recipe else built_in(like)
    recipe = recipe.changed(limit=options.limit)
    with open_chosen([path], choice_of(options.chosen, *terms, recipe.filter)) as shown:
        return [
            Wanted(*one.turn.key, ", ".join(one.labels), one.weight, options.needed)
            for one in choose(shown, recipe).chosen
        ]


def _decide(options: ReviewDecisionOptions) -> int:
    with open_store(options.db, create=False) as store:
        one, reviewer = item(store, options.item), _who(options.reviewer)
        decide(store, one, reviewer, options.action, comment=options.comment)
        return _show(item(store, options.item), as_json=options.json)


def _edit(options: ReviewEditOptions) -> int:
    if options.answer is None and options.tools is None:
        raise InputError("review edit: give --answer TEXT, --tools JSON, or both")
    with open_store(options.db, create=False) as store:
        reviewer = _who(options.reviewer)
        one = edited_by(store, item(store, options.item), reviewer)
        try:
            tools = None if options.tools is None else json.loads(options.tools)
        except (ValueError, RecursionError) as error:
            raise InputError(f"--tools: not JSON ({error})") from None
        after = edited(one, answer=options.answer, tools=tools)
        decide(store, one, reviewer, "edit", after=after, comment=options.comment)
        return _show(item(store, options.item), as_json=options.json)


def _undo(options: ReviewUndoOptions) -> int:
    with open_store(options.db, create=False) as store:
        undone = undo(store, _who(options.reviewer), options.item or "")
    return _show(undone, as_json=options.json)


def _next(options: ReviewNextOptions) -> int:
    reviewer = _who(options.reviewer)
    with open_store(options.db, create=False) as store:
        _check_queue(store, options.queue)
        found = next_item(store, reviewer, options.queue)
    if found is None:
        say("review", f"nothing left to review for {reviewer}")
        if options.json:
            print("null")
        return 3
    if options.json:
        print_json(found.data())
    else:
        print(found.item_id)
        show(found)
    return 0


def _show(one: Item, *, as_json: bool) -> int:
    if as_json:
        print_json(one.data())
    else:
        print(f"{one.item_id}  {one.eval_id}  {one.state}")
    return 0


def _list(options: ReviewListOptions) -> int:
    with open_stores([options.db]) as store:
        _check_queue(store, options.queue)
        found = items(store, options.queue)
        _, figures = agreement_of(store, options.queue)
    if options.json:
        print_json({"items": [one.data() for one in found], "agreement": figures})
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


def _export(options: ReviewExportOptions) -> int:
    with open_stores([options.db]) as store:
        _check_queue(store, options.queue)
        rows = (exported_labels if options.labels else exported)(store, options.queue)
    if options.out is None:
        sys.stdout.write(json_lines(rows).decode())
    else:
        write_bytes(options.out, json_lines(rows))
        data = {"rows": len(rows), "out": str(options.out)}
        text = f"{counted(len(rows), 'row')} written to {options.out}"
        print_outcome(data, text, as_json=options.json)
    return 0


def _import(options: ReviewImportOptions) -> int:
    with open_store(options.db, create=False) as store:
        decided = import_decisions(store, options.file, _who(options.reviewer))
    text = f"{counted(decided, 'decision')} imported"
    print_outcome({"imported": decided}, text, as_json=options.json)
    return 0


_ACTIONS: Final[dict[type[Any], Callable[[Any], int]]] = {
    ReviewOptions: _review,
    ReviewAddOptions: lambda one: _fill(
        one.db, one.drawing, one.queue, one.terms, as_json=one.json
    ),
    ReviewNextOptions: _next,
    ReviewDecisionOptions: _decide,
    ReviewEditOptions: _edit,
    ReviewUndoOptions: _undo,
    ReviewListOptions: _list,
    ReviewExportOptions: _export,
    ReviewImportOptions: _import,
}
