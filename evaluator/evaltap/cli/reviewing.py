"""A review queue on a terminal: one turn at a time, one key per decision."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evaltap.evaluator.cases.turn import run_failure
from evaltap.evaluator.curation.review.queue import (
    Item,
    decide,
    edited,
    item,
    left_for,
    next_item,
    undo,
)
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.database import open_store
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import EvaltapError, InputError
from evaltap.schemas.text import counted

if sys.platform == "win32":
    import msvcrt
else:
    import termios
    import tty

KEYS = (
    "a approve   x reject   e edit the answer   t edit the tools\n"
    "c take the user's correction   s skip   u undo   ? keys   q quit"
)


def review_queue(path: Path, reviewer: str, queue: str) -> int:
    """Show items until none is left or the reviewer quits; return the number of decided items.

    The store is only open between a key and the next item, so that others can use it while a person reads.
    """
    decided = 0
    print(KEYS)
    with open_store(path, create=False) as store:
        print(f"{left_for(store, reviewer, queue):,} left for {reviewer}")
        shown = next_item(store, reviewer, queue)
    while shown is not None:
        show(shown)
        outcome = _decide(path, shown, reviewer)
        if outcome == "quit":
            break
        # What is undone first was decided in an earlier session.
        decided = max(0, decided + {"decided": 1, "undone": -1}.get(outcome, 0))
        with open_store(path, create=False) as store:
            shown = next_item(store, reviewer, queue)
    else:
        print("nothing left to review")
    return decided


def _decide(path: Path, shown: Item, reviewer: str) -> str:
    """Read keys until the item is decided; return "decided", "undone", "left" or "quit"."""
    while True:
        key = _key("> ")
        try:
            if key in ("q", "", _INTERRUPT):
                return "quit"
            if key == "u":
                with open_store(path, create=False) as store:
                    print(f"undone: {undo(store, reviewer).eval_id}")
                return "undone"
            if key in _PLAIN:
                return _write(path, shown, reviewer, _PLAIN[key])
            if key == "c" and shown.correction:
                after = edited(shown, answer=shown.correction)
            elif key == "e":
                after = edited(shown, answer=_line("the correct answer: "))
            elif key == "t":
                after = edited(
                    shown, tools=json.loads(_line("the correct tool calls, as JSON: ") or "null")
                )
            else:
                print(KEYS if key == "?" else f"no key {key!r}; ? lists them")
                continue
            return _write(path, shown, reviewer, "edit", after)
        except (ValueError, RecursionError) as error:
            print(f"not JSON: {error}")
        except EvaltapError as error:
            print(error)


def _write(
    path: Path, shown: Item, reviewer: str, action: str, after: CaseData | None = None
) -> str:
    """Write a decision; return "decided", or "left" for a turn that was changed or erased meanwhile."""
    with open_store(path, create=False) as store:
        try:
            decide(store, item(store, shown.item_id), reviewer, action, after=after)
        except InputError as error:
            print(error)
            return "left"
    return "decided"


_INTERRUPT = "\x03"
"""What Ctrl-C is among the keys of a Windows console."""
_PLAIN = {"a": "approve", "x": "reject", "s": "skip"}


def show(one: Item) -> None:
    """Print the item for a reviewer, without the verdicts of judges and other reviewers."""
    print(f"\n{visible(one.eval_id)}  ({visible(one.reason)})")
    if one.before:
        print(f"  before, {counted(len(one.before), 'turn')}:")
    for turn in one.before:
        for label, text in _lines(turn):
            print(visible(f"    {label:<10} {text}"))
    if one.before:
        print("  to review:")
    for label, text in _lines(one.turn):
        print(visible(f"> {label:<10} {text}"))
    if one.correction:
        print(visible(f"  user says  {one.correction}"))


def _lines(turn: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "user", (turn.get("userContent") or {}).get("content") or ""
    for tool in turn.get("tools") or ():
        if tool is not None:
            arguments = json.dumps(tool.get("arguments"), ensure_ascii=False)
            failed = "failed: " if tool.get("error") else ""
            result = json.dumps(tool.get("error") or tool.get("result"), ensure_ascii=False)
            yield "tool", f"{tool.get('name')}({arguments}) -> {failed}{result}"
    answer = turn.get("finalResponse")
    if failure := run_failure(turn):
        yield "crashed", failure
    yield "answer", (answer or {}).get("content") or "(none)"


def _key(prompt: str) -> str:
    """Return the next key: immediately on a terminal, otherwise the next non-blank character."""
    sys.stdout.write(prompt)
    sys.stdout.flush()
    with _keys_at_once() as read:
        while (key := read(1)).isspace():
            pass
    print(key)
    return key


def _line(prompt: str) -> str:
    print(prompt, end="", flush=True)
    return sys.stdin.readline().rstrip("\n")


@contextmanager
def _keys_at_once() -> Iterator[Callable[[int], str]]:
    """Yield the function that reads a character; a terminal delivers each key as soon as it is pressed."""
    if not sys.stdin.isatty():
        yield sys.stdin.read
        return
    if sys.platform == "win32":
        yield lambda _: msvcrt.getwch()
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)
        yield sys.stdin.read
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
