"""A task of the consumer: reload its files on request, if they are valid."""

from collections.abc import Callable

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.schemas.errors import EvaltapError


class Reload:
    """Ends the consumer so that it starts again with new files; with bad ones it continues with the old.

    `check` raises EvaltapError for files that are not in order.  `ask` may be called from a signal handler.
    """

    def __init__(self, check: Callable[[], None], tell: Callable[[str], None]) -> None:
        self.stop: Callable[[], None] = lambda: None
        """Ends the consumer; set by whoever has it."""
        self.accepted = False
        self._check = check
        self._tell = tell
        self._asked = False

    def ask(self) -> None:
        """Ask for a reload, at the next step."""
        self._asked = True

    def begin(self) -> None:
        """Nothing: the files were just read."""

    def step(self, changed: ChangedCases | None) -> bool:
        """Look at the files when asked; end the consumer when they are in order."""
        if self._asked:
            self._asked = False
            try:
                self._check()
            except EvaltapError as error:
                self._tell(
                    f"cannot load the changed files, so the old ones stay in effect: {error}"
                )
            else:
                self._tell("reloaded the changed files")
                self.accepted = True
                self.stop()
        return False

    @property
    def idle(self) -> bool:
        """Nothing waits."""
        return True

    def close(self) -> None:
        """Nothing: there is no connection."""
