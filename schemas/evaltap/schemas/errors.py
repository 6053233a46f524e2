"""evaltap's errors: one base class, one subclass for each way a caller would react.

EvaltapError                 anything a user can fix; `exit_code` is the command's exit status
├── InputError               a file, record or argument is invalid (exit 2)
│   └── FormatError          ... at a known place in the file
└── ConfigurationError       settings conflict, or something is not installed (exit 2)
"""


class EvaltapError(Exception):
    """Base of every error that evaltap raises deliberately; its text is meant for the user."""

    exit_code = 2


class InputError(EvaltapError):
    """Raised for unusable input: what was found, what was expected, what to do."""


class FormatError(InputError):
    """Raised for a malformed document, with the file and the place in it.

    `place` is a JSON path (`evalCases[3].evalId`), a line (`line 12`) or empty when unknown.
    """

    def __init__(self, message: str, *, path: str = "", place: str = "") -> None:
        self.path = path
        self.place = place
        self.detail = message
        super().__init__(": ".join(part for part in (path, place, message) if part))


class ConfigurationError(EvaltapError):
    """Raised for settings that cannot work together, or an extra that is not installed."""
