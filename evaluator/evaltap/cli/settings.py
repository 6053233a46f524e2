"""`evaltap.toml` for the commands: it applies if neither an argument nor a variable is given."""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Final

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.files.settings import (
    DISCOVERED,
    FILE_VARIABLE,
    Settings,
    find_settings,
    read_settings,
)

STORE: Final = "EVALTAP_STORE"
STORE_FILE: Final = "cases.duckdb"
"""The store that `init` and `up` create; commands without a store argument read it if it exists."""


@contextmanager
def settings_in_effect() -> Iterator[None]:
    """Set the variables of the project's file that are not in the environment, for one command.

    Raises ConfigurationError if the file is invalid.
    """
    settings = project_settings()
    added = {
        name: value
        for name, value in (settings.variables if settings else {}).items()
        if not os.environ.get(name, "").strip()
    }
    if settings is not None:
        _check_log(settings, added)
        if not os.environ.get(FILE_VARIABLE, "").strip():
            added[DISCOVERED] = " ".join(added)
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def project_settings() -> Settings | None:
    """Return the settings that apply in the current folder, None without a file."""
    try:
        path = find_settings(Path.cwd(), os.environ)
    except OSError as error:
        raise ConfigurationError(
            f"the current folder, or one above it, cannot be searched for a settings file ({error.strerror});"
            " change to another folder"
        ) from None
    if path is None:
        return None
    # Imported late: it compiles all redaction patterns, and most folders have no file.
    from evaltap.recorder.config import RecorderConfig, check_variables

    settings = read_settings(path, [field.name for field in fields(RecorderConfig)])
    try:
        check_variables(settings.variables)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return settings


def _check_log(settings: Settings, added: Mapping[str, str]) -> None:
    """Refuse to send a password to brokers named only in a file that the user did not choose."""
    secrets = [name for name in os.environ if name.startswith("EVALTAP_KAFKA_SASL")]
    if "://" in added.get("EVALTAP_LOG", "") and secrets and not os.environ.get(FILE_VARIABLE):
        raise ConfigurationError(
            f"{settings.path}: log: the password in {secrets[0]} would be sent to the brokers named in this"
            f" file; to allow that, pass --log, or set EVALTAP_LOG or {FILE_VARIABLE}"
        )


def of_settings(action: argparse.Action, variable: str, *, reads: bool = False) -> None:
    """Let a missing argument take the value of a variable; call `fill_in` before parsing.

    `reads` marks an option that names a store to read: its default is `cases.duckdb`, if that exists.
    """
    vars(action).update(variable=variable, reads=reads or not action.option_strings)


def fill_in(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Fill in missing arguments of a command from their variables.

    The store to read is `cases.duckdb` in this folder, unless an argument or variable names another. If
    the first argument of a command is a store and no argument ends with `.duckdb`, the store is inserted
    before the arguments.
    """
    front: list[str] = []
    for action in parser._actions:
        variable = vars(action).get("variable", "")
        if variable and _is_given(action, arguments):
            discovered = os.environ.get(DISCOVERED, "").split()
            os.environ[DISCOVERED] = " ".join(name for name in discovered if name != variable)
            continue
        text = os.environ.get(variable, "").strip()
        if not text and variable == STORE and vars(action)["reads"]:
            text = STORE_FILE if Path(STORE_FILE).is_file() else ""
        if not text:
            continue
        if action.option_strings:
            action.default, action.required = text, False
        elif action.nargs == "*":
            action.default = [Path(text)]
        elif action.nargs == "?":
            action.default = text
        elif not any(_is_store(word) for word in arguments):
            front.append(text)
    return [*front, *arguments]


def _is_given(action: argparse.Action, arguments: Sequence[str]) -> bool:
    """Check whether an option, or an abbreviation of it, is among the arguments."""
    words = [word.partition("=")[0] for word in arguments if word.startswith("--") and word != "--"]
    return any(option.startswith(word) for option in action.option_strings for word in words)


def _is_store(word: str) -> bool:
    """Check whether a word names a store or runs of a store: `X.duckdb#RUN`."""
    return word.partition("#")[0].endswith(".duckdb")
