"""Select the cases to score: by name, and up to a number."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase


class Selection:
    """Selects cases by glob patterns, up to a number; `takes` is called once for each case, in order.

    A pattern is matched against the eval id, the eval set id and `<eval set id>/<eval id>`, for a repeat also
    without its suffix (`@trial-2`).  A case needs one matching pattern; without patterns, every case matches.
    With `chosen`, pairs of eval set id and eval id, other cases are ignored.
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
        """Cases considered before the number was reached."""
        self.taken = 0
        self.passed_over = ""
        """The first case that matches no pattern."""

    @property
    def full(self) -> bool:
        """Whether the number is reached."""
        return self.items is not None and self.taken >= self.items

    def takes(self, eval_set_id: str, eval_id: str) -> bool:
        """Return whether to score a case."""
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
