"""One span with its reading and its position in the trace's tree."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from evaltap.recorder.conventions.reading import Reading, failure_of
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import Span


@dataclass(slots=True, eq=False)
class Node:
    """One span with its reading and its position in the tree."""

    span: Span
    reading: Reading
    parent: "Node | None" = None
    children: "list[Node]" = field(default_factory=list)

    @property
    def kind(self) -> str | None:
        """What the span represents (see `reading.Kind`)."""
        return self.reading.kind

    @property
    def failure(self) -> Failure | None:
        """Why the span failed, or None."""
        return failure_of(self.span, self.reading.failure)

    def ancestors(self) -> "Iterator[Node]":
        """Yield the parent, its parent, and so on."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def descendants(self) -> "Iterator[Node]":
        """Yield all descendants, breadth first, in order of start."""
        level = self.children
        while level:
            yield from level
            level = [child for node in level for child in node.children]
