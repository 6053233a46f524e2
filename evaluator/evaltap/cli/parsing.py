"""Turn the command line into typed values: argparse types, and a command's options as a dataclass."""

import argparse
import math
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar, get_type_hints

from evaltap.cli.settings import fill_in
from evaltap.evaluator.reports.exit_status import FailOn
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.text import did_you_mean, did_you_mean_one_of

HELP_WIDTH = 80
"""Width of the help in columns; a narrower terminal reduces it."""
_EXAMPLE = re.compile(r" +(?:[A-Z_]+=\S+ )?(?:evaltap|duckdb|eval|export|git) ")
"""Examples are never wrapped: a command broken over two lines cannot be copied."""
_HEADING = re.compile(r"^(usage:|example:|[A-Za-z][^\n.]*:$)", re.MULTILINE)
_OPTION = re.compile(r"(?<=^  )-\S.*?(?=  |$)", re.MULTILINE)
_COMMAND = re.compile(r"(?<=^  )[a-z]+(?= +[a-z])", re.MULTILINE)

_MEANT = {
    "--log": re.compile(r"\.db$"), "--db": re.compile(r"\.duckdb$"), "--filter": re.compile(r"^-?[a-z]+:"),
}  # fmt: skip
"""Options that users often omit before the value, with a pattern that recognises the value."""

Value = TypeVar("Value")
Options = TypeVar("Options")


class Writes(Protocol):
    """The stream to which help is printed."""

    def write(self, text: str, /) -> object:
        """Write some text."""
        ...


class CommandParser(argparse.ArgumentParser):
    """A parser that reports an error on one line and suggests the nearest known word."""

    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]  # one signature for argparse's three
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as argparse does, and store the arguments for error messages."""
        self._given = args or ()
        return super().parse_known_args(args, namespace or argparse.Namespace())

    def parse_command(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the command line; the command reports an unknown option.

        An option that is not given takes its value from the settings, if they contain one.
        """
        namespace, unknown = self.parse_known_args(self._with_settings(arguments))
        if unknown:
            parser = self._command(namespace.command)
            parser.error(f"unknown argument {unknown[0]}{_hint(parser, unknown[0])}")
        if str(getattr(namespace, "out", None)) == "-":
            self._command(namespace.command).error(
                "argument --out: found '-'; expected a file, because nothing is written to standard output"
            )
        return namespace

    def _with_settings(self, arguments: Sequence[str]) -> list[str]:
        """Insert the arguments from the settings after the command and its action."""
        parser, behind = self._command(next(iter(arguments), None)), 1
        if parser is self or {"-h", "--help"} & set(arguments):
            return list(arguments)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and arguments[1:]:
                parser, behind = action.choices.get(arguments[1], parser), 2
        return [*arguments[:behind], *fill_in(parser, arguments[behind:])]

    def format_help(self) -> str:
        """Return the help: description, examples, then the options."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage or self._short_usage(), self._actions, [])
        width = min(HELP_WIDTH, shutil.get_terminal_size().columns)
        formatter.add_text(self.description and wrapped(self.description, width))
        formatter.add_text(self.epilog and wrapped(self.epilog, width))
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        return formatter.format_help()

    def print_help(self, file: Writes | None = None) -> None:
        """Print the help, in colour if the terminal supports it."""
        out = file or sys.stdout
        self.color = False  # argparse of Python 3.14 colours only parts of the help
        text = self.format_help()
        if takes_colour(out):
            text = _HEADING.sub("\033[1m\\g<0>\033[0m", text)
            for pattern in (_OPTION, *([_COMMAND] if self._subparsers else [])):
                text = pattern.sub("\033[36m\\g<0>\033[0m", text)
            out = getattr(out, "raw", out)  # bypass the filter of control codes
        out.write(text)

    def _short_usage(self) -> str:
        """Return the usage with only the required arguments."""
        groups = [group for group in self._mutually_exclusive_groups if group.required]
        either = {id(action) for group in groups for action in group._group_actions}
        needed = [
            action
            for action in self._actions
            if action.required or not action.option_strings or id(action) in either
        ]
        formatter = self._get_formatter()
        formatter.add_usage(None, needed, groups, prefix="")
        usage = formatter.format_help().strip().replace("%", "%%")
        usage = re.sub(r"(\S+) \[\1 \.\.\.\]", r"\1 ...", usage)
        return usage + (" [options]" if len(needed) < len(self._actions) else "")

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        found = re.match(r"argument (.+?): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if found:
            known = re.findall(r"[\w-]+", found[3])
            hint = did_you_mean_one_of(found[2], known)
            message = f"{found[1]}: unknown {found[2]!r}; {hint}"
            message = message.replace("COMMAND: unknown", "unknown command")
        missing = "the following arguments are required: "
        if message.startswith(missing):
            message = f"missing {message.removeprefix(missing)}"
            for word in self._given:
                if word.startswith("--") and (hint := _hint(self, word)):
                    message = f"unknown argument {word}{hint}"
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _command(self, name: str | None) -> argparse.ArgumentParser:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and name in action.choices:
                parser: argparse.ArgumentParser = action.choices[name]
                return parser
        return self


def _hint(parser: argparse.ArgumentParser, word: str) -> str:
    """Suggest the option that was probably meant; return "" for a known option or its beginning."""
    options = [name for action in parser._actions for name in action.option_strings]
    if not word.startswith("-"):
        meant = (
            option for option, form in _MEANT.items() if option in options and form.search(word)
        )
        return next((f"; did you mean '{option} {word}'?" for option in meant), "")
    name = word.partition("=")[0]
    if any(option.startswith(name) for option in options):
        return ""
    hint = did_you_mean(name, options)
    return f"; {hint}" if hint else ""


def wrapped(text: str, width: int = HELP_WIDTH) -> str:
    """Wrap the text to `width` columns; continuation lines align with the second column of a list."""
    lines: list[str] = []
    for line in text.splitlines():
        if _EXAMPLE.match(line):
            lines.append(line)
            continue
        column = re.match(r" *(?:\S+(?: \S+)* {2,})?", line)
        under = " " * (column.end() if column else 0)
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=under,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


def takes_colour(stream: object) -> bool:
    """Check whether the stream may be coloured: it is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    is_terminal = getattr(stream, "isatty", bool)()
    return is_terminal and os.environ.get("TERM") != "dumb"


def options_of(kind: type[Options], namespace: argparse.Namespace) -> Options:
    """Return parsed arguments as a frozen dataclass, so that no command needs a `Namespace`.

    A field takes the argument of the same name. A field whose type is a dataclass is a group of options.
    """
    values: dict[str, Any] = {}  # the parsed value of each argument
    types = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]  # TypeVars cannot be bound to dataclasses
        group = types[field.name]
        if is_dataclass(group):
            values[field.name] = options_of(group, namespace)  # type: ignore[arg-type]
            continue
        value = getattr(namespace, field.name)
        values[field.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def fail_on(text: str) -> FailOn:
    """Parse the verdicts that make a command fail."""
    try:
        return FailOn(text)
    except ValueError:
        hint = did_you_mean_one_of(text, [one.value for one in FailOn])
        raise argparse.ArgumentTypeError(f"found {text!r}; {hint}") from None


def partitions(text: str) -> tuple[int, ...]:
    """Parse partition numbers: `0-3`, or `0,2,5-7`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(one.isascii() and one.isdigit() and len(one) < 7 for one in ends):
            raise argparse.ArgumentTypeError(
                f"found {text!r}; expected numbers, e.g. 0-3 or 0,2,5-7"
            )
        numbers = range(int(ends[0]), int(ends[1]) + 1)
        if not numbers:
            raise argparse.ArgumentTypeError(
                f"found {part.strip()!r}; expected the lower number first"
            )
        found.update(numbers)
    return tuple(sorted(found))


def milliseconds(text: str) -> float:
    """Parse a positive number of milliseconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected milliseconds, more than 0")
    return number


def threshold(text: str) -> tuple[str, float]:
    """Parse `metric=0.8`."""
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not name or number != number or abs(number) == float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected METRIC=NUMBER")
    return name, number


def report_file(text: str) -> Path:
    """Parse the file name of a report; its suffix determines the format."""
    from evaltap.evaluator.reports.formats import format_of

    try:
        format_of(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def of_environment(name: str, parse: Callable[[str], Value], text: str) -> Value:
    """Parse an environment variable like its argument; raise a ConfigurationError that names it."""
    try:
        return parse(text)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def cost_classes(text: str) -> list[str]:
    """Parse comma-separated cost classes."""
    from evaltap.evaluator.scoring.contract.evaluator import CostClass

    found = [part.strip() for part in text.split(",")]
    known = [one.value for one in CostClass]
    for part in found:
        if part not in known:
            raise argparse.ArgumentTypeError(f"found {part!r}; {did_you_mean_one_of(part, known)}")
    return found


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number, 1 or more")
    return number


def duration(text: str) -> timedelta:
    """Parse a length of time in hours or days (`24h`, `7d`), or 0."""
    found = timedelta(0) if text == "0" else _duration(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected hours or days, e.g. 24h or 7d")
    return found


def _duration(text: str) -> timedelta | None:
    found = re.fullmatch(r"(\d{1,5})([hd])", text)
    return timedelta(hours=int(found[1]) * (24 if found[2] == "d" else 1)) if found else None


def moment(text: str) -> datetime:
    """Parse a time: RFC 3339, or an age in hours or days (`24h`, `7d`)."""
    if (ago := _duration(text)) is not None:
        return datetime.now(UTC) - ago
    try:
        found = datetime.fromisoformat(text) if "T" in text.upper() else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; expected a time with a time zone (2026-11-21T12:00:00Z), or an age such as"
            " 24h or 7d"
        )
    return found.astimezone(UTC)


def names(text: str) -> list[str]:
    """Parse comma-separated names."""
    found = [part.strip() for part in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected names separated by commas")
    return found


def counts(text: str) -> list[int]:
    """Parse comma-separated whole numbers, each 1 or more."""
    return [positive(part.strip()) for part in text.split(",")]


def amount(text: str) -> float:
    """Parse an amount of 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected an amount, 0 or more")
    return number


def seconds(text: str) -> float:
    """Parse a time in seconds, above 0 and at most a day."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 86400:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected seconds above 0, up to a day")
    return number


def yes_or_no(text: str) -> bool:
    """Parse a switch: 1, true or yes; 0, false or no."""
    found = text.lower()
    if found not in ("1", "true", "yes", "0", "false", "no"):
        raise argparse.ArgumentTypeError(f"found {text!r}; expected 1 or 0")
    return found in ("1", "true", "yes")
