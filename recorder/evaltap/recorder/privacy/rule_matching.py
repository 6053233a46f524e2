"""A custom rule: a pattern that is tried in time linear in the length of a text."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.privacy.findings import Finding, Place

WINDOW = 128
"""Length of the stretch whose positions are searched in one step."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A kind of sensitive value: a pattern, and a check that selects the sensitive part of a match.

    `head` matches wherever the pattern may start and is at most `WINDOW` long. `longest` is how far a
    match is tried: matches up to that length are found whole, and so is one that only goes on in the
    same way. `run` matches the repeat the pattern starts with, if it starts with one without an upper
    bound.
    """

    kind: str
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], Place | None]
    head: re.Pattern[str]
    longest: int
    run: re.Pattern[str] | None = None

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the rule's findings in a text, in time linear in its length."""
        at = 0
        while at < len(text):
            end = at + 2 * WINDOW
            start = self.head.search(text, at, end)
            yield_to_agent()
            if start is None or (start.start() >= at + WINDOW and end < len(text)):
                at += WINDOW
                continue
            match = self._match(text, start.start())
            if match is None:
                at = self._next_start(text, start.start())
                continue
            place = self.check(match)
            if place is not None and place[1] > place[0]:
                yield Finding(self.kind, *place)
            at = max(match.end(), match.start() + 1)

    def _match(self, text: str, start: int) -> re.Match[str] | None:
        """Return the match at an offset; one that reaches the limit is tried with a higher one."""
        limit = self.longest
        match = self.pattern.match(text, start, start + limit)
        while match is not None and match.end() == start + limit < len(text):
            limit *= 2
            match = self.pattern.match(text, start, start + limit)
        return match

    def _next_start(self, text: str, failed: int) -> int:
        """Return where to go on: what follows a run decides for all starts in it."""
        run = self.run.match(text, failed, failed + self.longest) if self.run else None
        if run is None:
            return failed + 1
        if run.end() - failed == self.longest:
            return failed + self.longest // 2
        return max(run.end(), failed + 1)
