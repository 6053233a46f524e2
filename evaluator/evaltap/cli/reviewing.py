"""A review queue on a terminal: one turn at a time, one key per decision."""

import json
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from evaltap.evaluator.cases.turn import run_failure
from evaltap.evaluator.curation.review.queue import Item, decide, edited, left_for, next_item, undo
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

KEYS = (
    "a approve   x reject   e edit the answer   t edit the tools\n"
    "c take the user's correction   s skip   u undo   ? keys   q quit"
)


def review_queue(store: Store, reviewer: str, queue: str) -> int:
    """Show items until none is left or the reviewer quits; return the number of decided items."""
    decided = 0
    print(KEYS)
    print(f"{left_for(store, reviewer, queue):,} left for {reviewer}")
    while (item := next_item(store, reviewer, queue)) is not None:
        show(item)
        outcome = _decide(store, item, reviewer)
        if outcome == "quit":
            break
        decided += 1 if outcome == "decided" else -1
    else:
        print("nothing left to review")
    return decided


def _decide(store: Store, item: Item, reviewer: str) -> str:
    """Read keys until the item is decided; return "decided", "undone" or "quit"."""
    while True:
        key = _key("> ")
        try:
            if key in ("q", ""):
                return "quit"
            if key == "u":
                print(f"undone: {undo(store, reviewer).eval_id}")
                return "undone"
            if key in _PLAIN:
                decide(store, item, reviewer, _PLAIN[key])
                return "decided"
            if key == "c" and item.correction:
                after = edited(item, answer=item.correction)
            elif key == "e":
                after = edited(item, answer=_line("the correct answer: "))
            elif key == "t":
                after = edited(
                    item, tools=json.loads(_line("the correct tool calls, as JSON: ") or "null")
                )
            else:
                print(KEYS if key == "?" else f"no key {key!r}; ? lists them")
                continue
            decide(store, item, reviewer, "edit", after=after)
        except (ValueError, RecursionError) as error:
            print(f"not JSON: {error}")
        except InputError as error:
            print(error)
        else:
            return "decided"


_PLAIN = {"a": "approve", "x": "reject", "s": "skip"}


def show(item: Item) -> None:
    """Print the item for a reviewer, without the verdicts of judges and other reviewers."""
    print(f"\n{visible(item.eval_id)}  ({visible(item.reason)})")
    if item.before:
        print(f"  before, {counted(len(item.before), 'turn')}:")
    for turn in item.before:
        for label, text in _lines(turn):
            print(visible(f"    {label:<10} {text}"))
    if item.before:
        print("  to review:")
    for label, text in _lines(item.turn):
        print(visible(f"> {label:<10} {text}"))
    if item.correction:
        print(visible(f"  user says  {item.correction}"))


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
    with _keys_at_once():
        read: Callable[[int], str] = sys.stdin.read
        while (key := read(1)).isspace():
            pass
    print(key)
    return key


def _line(prompt: str) -> str:
    print(prompt, end="", flush=True)
    return sys.stdin.readline().rstrip("\n")


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Make the terminal deliver each key as soon as it is pressed."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
