"""`evaltap.toml` for the commands: it applies if neither an argument nor a variable is given."""

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from evaltap.cli.declared import STORE, Declared
from evaltap.evaluator.store.file_type import is_log, is_store
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.files.refused import log_instead
from evaltap.schemas.files.settings import (
    DISCOVERED,
    FILE_NAME,
    FILE_VARIABLE,
    Settings,
    find_settings,
    read_settings,
)


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
        if store := added.get(STORE):  # as hints and messages print it
            added[STORE] = _from_here(store)
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


def is_discovered(variable: str) -> bool:
    """Tell whether a variable comes from a settings file that was found, and no argument replaces it."""
    return variable in os.environ.get(DISCOVERED, "").split()


def named_in_hints(store: Path) -> str:
    """Return the words that name a store in a hint; empty if the settings file names it already."""
    known = is_discovered(STORE) and str(store) == os.environ.get(STORE)
    return "" if known else f"{shlex.quote(str(store))} "


def _from_here(path: str) -> str:
    """Return the path of a file in this folder or below as relative, any other as it is."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


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
    from evaltap.recorder.config import RecorderConfig, check_variables  # compiles all patterns

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


def refuse_strange_brokers(log: str) -> None:
    """Refuse to send conversations to brokers named only in a file that the user did not choose."""
    if "://" in log and is_discovered("EVALTAP_LOG"):
        raise ConfigurationError(
            f"{FILE_NAME}: log: the conversations would be sent to the brokers named in this file; to allow"
            f" that, pass --log, or set EVALTAP_LOG or {FILE_VARIABLE}"
        )


def fill_in(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> list[str]:
    """Let variables take the place of required options, and insert the store to read.

    If the first argument of a command is a store and none is among the arguments, the store of the
    settings, or `cases.duckdb` in this folder, is inserted before the arguments.  Raises InputError if the
    first argument is a log instead.
    """
    front: list[str] = []
    for action in parser._actions:
        declared: Declared | None = vars(action).get("declared")
        if declared is None:
            continue
        if declared.variable and _is_given(action, arguments):
            discovered = os.environ.get(DISCOVERED, "").split()
            kept = [name for name in discovered if name != declared.variable]
            os.environ[DISCOVERED] = " ".join(kept)
            continue
        text = declared.text()
        if text and action.option_strings:
            action.required = False
        elif text and action.nargs not in ("*", "?") and not _has_store(parser, arguments):
            if arguments and os.path.isfile(arguments[0]) and is_log(Path(arguments[0])):
                raise InputError(log_instead(Path(arguments[0])))
            front.append(text)
    return [*front, *arguments]


def _is_given(action: argparse.Action, arguments: Sequence[str]) -> bool:
    """Check whether an option, or an abbreviation of it, is among the arguments."""
    words = [word.partition("=")[0] for word in arguments if word.startswith("--") and word != "--"]
    return any(option.startswith(word) for option in action.option_strings for word in words)


def _has_store(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> bool:
    """Check for the name `X.duckdb`, or runs of it (`X.duckdb#RUN`), and for a store of any other name."""
    taking = {name for name, action in parser._option_string_actions.items() if action.nargs != 0}
    return any(
        word.partition("#")[0].endswith(".duckdb")
        or (before not in taking and _is_path(word) and is_store(Path(word)))
        for before, word in zip(["", *arguments], arguments, strict=False)
    )


def _is_path(word: str) -> bool:
    return word.startswith("s3://") or os.path.exists(word)
