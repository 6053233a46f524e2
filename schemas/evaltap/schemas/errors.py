"""The errors of evaltap: one base, one subclass for each way a caller would react.

EvaltapError                 anything a user can mend; `exit_code` is what the command returns
├── InputError               a file, a record or an argument is not what it should be (exit 2)
│   └── FormatError          ... and the place inside the file is known
└── ConfigurationError       settings contradict each other, or something is not installed (exit 2)
"""


class EvaltapError(Exception):
    """Base of every error that evaltap raises on purpose; its text is meant for the user."""

    exit_code = 2


class InputError(EvaltapError):
    """Report input that cannot be used: what was found, what was expected, what to do."""


class FormatError(InputError):
    """Report a malformed document, with the file and the place in it.

    `place` is a JSON path (`evalCases[3].evalId`), a line (`line 12`) or empty when unknown.
    """

    def __init__(self, message: str, *, path: str = "", place: str = "") -> None:
        self.path = path
        self.place = place
        self.detail = message
        super().__init__(": ".join(part for part in (path, place, message) if part))


class ConfigurationError(EvaltapError):
    """Report settings that cannot work together, or an extra that is not installed."""
