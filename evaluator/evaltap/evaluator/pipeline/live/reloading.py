"""A task of the consumer: reload its files on request, if they are valid."""

from collections.abc import Callable

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.schemas.errors import EvaltapError


class Reload:
    """Stops the consumer so that it restarts with the changed files; if they are invalid, it keeps running.

    `check` raises EvaltapError for invalid files.  `request` may be called from a signal handler.
    """

    def __init__(self, check: Callable[[], None], report: Callable[[str], None]) -> None:
        self.stop: Callable[[], None] = lambda: None
        """Stops the consumer; set by the consumer's creator."""
        self.accepted = False
        self._check = check
        self._report = report
        self._requested = False

    def request(self) -> None:
        """Request a reload at the next step."""
        self._requested = True

    def begin(self) -> None:
        """Do nothing: the files were just read."""

    def step(self, changed: ChangedCases | None) -> bool:
        """Check the files if a reload was requested; stop the consumer if they are valid."""
        if self._requested:
            self._requested = False
            try:
                self._check()
            except EvaltapError as error:
                self._report(
                    f"cannot load the changed files, so the old ones stay in effect: {error}"
                )
            else:
                self._report("reloaded the changed files")
                self.accepted = True
                self.stop()
        return False

    @property
    def idle(self) -> bool:
        """Always true: a reload needs no waiting."""
        return True

    def close(self) -> None:
        """Do nothing: there is no connection."""
