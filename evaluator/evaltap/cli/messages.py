"""What commands print for people on standard error, and for scripts on standard output."""

import json
import sys
from collections.abc import Mapping


def say(command: str, text: object) -> None:
    """Print a message of a command on standard error."""
    print(f"evaltap {command}: {text}", file=sys.stderr)


def print_json(data: object) -> None:
    """Print JSON data in one line."""
    print(json.dumps(data, ensure_ascii=False))


def print_outcome(data: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Print the outcome of a command: as JSON on stdout for scripts, or as text on stderr."""
    if as_json:
        print_json(data)
    else:
        print(text, file=sys.stderr)
