"""One span with what was read from it, and its place in the tree of its trace."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from evaltap.recorder.conventions.reading import Reading, failure_of
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import Span


@dataclass(slots=True, eq=False)
class Node:
    """One span with what was read from it and its place in the tree."""

    span: Span
    reading: Reading
    parent: "Node | None" = None
    children: "list[Node]" = field(default_factory=list)

    @property
    def kind(self) -> str | None:
        """What the span stands for (see `reading.Kind`)."""
        return self.reading.kind

    @property
    def failure(self) -> Failure | None:
        """Why the span failed, None when it did not."""
        return failure_of(self.span, self.reading.failure)

    def ancestors(self) -> "Iterator[Node]":
        """Yield the parent, its parent, and so on."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def descendants(self) -> "Iterator[Node]":
        """Yield everything below, shallow first, in order of start."""
        level = self.children
        while level:
            yield from level
            level = [child for node in level for child in node.children]
