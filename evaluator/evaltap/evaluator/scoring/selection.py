"""Select the cases to score: by name, and up to a number."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase


class Selection:
    """Takes cases by glob patterns until there are enough; asked once for each case, in their order.

    A pattern is held against the eval id, the eval set id and `<eval set id>/<eval id>`, of a repeat also
    without its name (`@trial-2`); one that fits is enough, and no patterns take all.  Of `chosen`, eval
    sets and ids, others are not even seen.
    """

    def __init__(
        self,
        tasks: Sequence[str] = (),
        items: int | None = None,
        chosen: Collection[tuple[str, str]] | None = None,
    ) -> None:
        self.chosen = chosen
        self.tasks = tuple(tasks)
        self.items = items
        self.seen = 0
        """Cases that were asked about before there were enough."""
        self.taken = 0
        self.passed_over = ""
        """The first case that no pattern fits."""

    @property
    def full(self) -> bool:
        """Whether there are enough."""
        return self.items is not None and self.taken >= self.items

    def takes(self, eval_set_id: str, eval_id: str) -> bool:
        """Tell whether a case is to be scored."""
        if self.full or (self.chosen is not None and (eval_set_id, eval_id) not in self.chosen):
            return False
        self.seen += 1
        names = [eval_id, eval_set_id, f"{eval_set_id}/{eval_id}"]
        if without_repeat := eval_set_id.rpartition("@")[0]:
            names += [without_repeat, f"{without_repeat}/{eval_id}"]
        if self.tasks and not any(fnmatchcase(name, task) for name in names for task in self.tasks):
            self.passed_over = self.passed_over or names[2]
            return False
        self.taken += 1
        return True
