"""The parser of the command line: help in 80 columns, and errors on one line with the nearest known word."""

import argparse
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from evaltap.cli.settings import fill_in
from evaltap.schemas.text import did_you_mean, did_you_mean_one_of

HELP_WIDTH = 80
"""Width of the help in columns; a narrower terminal reduces it."""
_EXAMPLE = re.compile(r" +(?:[A-Z_]+=\S+ )?(?:evaltap|duckdb|eval|export|git) ")
"""Examples are never wrapped: a command broken over two lines cannot be copied."""
_HEADING = re.compile(r"^(usage:|example:|[A-Za-z][^\n.]*:$)", re.MULTILINE)
_OPTION = re.compile(r"(?<=^  )-\S.*?(?=  |$)", re.MULTILINE)
_COMMAND = re.compile(r"(?<=^  )[a-z]+(?= +[a-z])", re.MULTILINE)

_MEANT = {
    "--log": re.compile(r"\.db$"),
    "--db": re.compile(r"\.duckdb$"),
    "--filter": re.compile(r"^-?[a-z]+:"),
}
"""Options that users often omit before the value, with a pattern that recognises the value."""


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
        called, _ = self._called(arguments)
        actions = _actions_of(called)
        namespace, unknown = self.parse_known_args(self._with_settings(arguments))
        parser, behind = self._called(arguments)
        if unknown[:1] == ["--"] and (several := _several_of(parser)):
            # argparse takes the words of an argument only from one side of the options.
            words = [parser._get_value(several, word) for word in unknown[1:]]
            setattr(namespace, several.dest, [*getattr(namespace, several.dest, ()), *words])
            unknown = []
        if unknown:
            word = arguments[behind]
            if actions is not None and (hint := did_you_mean(word, actions.choices)):
                parser.error(f"unknown action {word!r}; {hint}")
            parser.error(f"unknown argument {unknown[0]}{self._hint(arguments, unknown[0])}")
        if str(getattr(namespace, "out", None)) == "-":
            parser.error(
                "argument --out: found '-'; expected a file, because nothing is written to standard output"
            )
        return namespace

    def _hint(self, arguments: Sequence[str], word: str) -> str:
        """Suggest what was probably meant, or the actions of the command that know the option."""
        parser, behind = self._called(arguments)
        command, _ = self._called(arguments[: behind - 1])
        siblings = _actions_of(command) if command is not self else None
        knowing = "|".join(
            name
            for name, one in (siblings.choices if siblings else {}).items()
            if word.startswith("--") and word.partition("=")[0] in one._option_string_actions
        )
        return f"; only for `{command.prog} {knowing}`" if knowing else _hint(parser, word)

    def _with_settings(self, arguments: Sequence[str]) -> list[str]:
        """Insert the arguments from the settings after the command and its action."""
        parser, behind = self._called(arguments)
        if parser is self or {"-h", "--help"} & set(arguments):
            return list(arguments)
        if (actions := _actions_of(parser)) is not None and not actions.required:
            parser._remove_action(actions)  # the command itself is called
        return [*arguments[:behind], *fill_in(parser, arguments[behind:])]

    def _called(self, arguments: Sequence[str]) -> tuple[argparse.ArgumentParser, int]:
        """Return the parser of the command or action, and the number of words that name it."""
        parser: argparse.ArgumentParser = self
        for behind, word in enumerate(arguments):
            actions = _actions_of(parser)
            if actions is None or word not in actions.choices:
                return parser, behind
            if parser is not self:  # the action is called, and has its own arguments
                for action in parser._get_positional_actions():
                    if action is not actions:
                        parser._remove_action(action)
            parser = actions.choices[word]
        return parser, len(arguments)

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

    def print_help(self, file: Any = None) -> None:  # a stream
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
        groups = [group for group in self._mutually_exclusive_groups if group.required]
        either = {id(action) for group in groups for action in group._group_actions}
        needed = [
            action
            for action in self._actions
            if action.required or not action.option_strings or id(action) in either
        ]
        actions = _actions_of(self)
        if actions is not None and not actions.required:
            needed.remove(actions)
        formatter = self._get_formatter()
        formatter.add_usage(None, needed, groups, prefix="")
        usage = formatter.format_help().strip().replace("%", "%%")
        usage = re.sub(r"(\S+) \[\1 \.\.\.\]", r"\1 ...", usage)
        usage += " [options]" if len(needed) < len(self._actions) else ""
        named = actions is not None and not actions.required
        return f"{usage}\n       {self.prog} {actions.metavar} ..." if actions and named else usage

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        found = re.match(r"argument (.+?): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if found:
            hint = did_you_mean_one_of(found[2], re.findall(r"[\w-]+", found[3]))
            message = f"{found[1]}: unknown {found[2]!r}; {hint}"
            message = message.replace("COMMAND: unknown", "unknown command")
        missing = "the following arguments are required: "
        if message.startswith(missing):
            message = f"missing {message.removeprefix(missing)}"
            for word in self._given:
                if word.startswith("--") and (hint := _hint(self, word)):
                    message = f"unknown argument {word}{hint}"
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _actions_of(
    parser: argparse.ArgumentParser,
) -> "argparse._SubParsersAction[CommandParser] | None":
    found = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    return next(found, None)


def _several_of(parser: argparse.ArgumentParser) -> argparse.Action | None:
    """Return the positional argument that takes several words, if there is one."""
    found = (one for one in parser._get_positional_actions() if one.nargs in ("*", "+"))
    return next(found, None)


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
    """Wrap the text to `width` columns; continuation lines align with the second column of a list.

    Lines that are wrapped to HELP_WIDTH already are wrapped anew in a narrower terminal.
    """
    lines: list[str] = []
    whole = [*_unwrapped(text.splitlines())][1:] if width < HELP_WIDTH else text.splitlines()
    for line in whole:
        if _EXAMPLE.match(line):
            lines.append(line)
            continue
        lines += textwrap.wrap(
            line,
            width,
            subsequent_indent=" " * _second_column(line),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


def _unwrapped(lines: Sequence[str]) -> Iterator[str]:
    """Join the lines that `wrapped` has broken: their first word has no room on the line before."""
    whole = last = ""
    for line in [*lines, ""]:
        word, _, _ = line.strip().partition(" ")
        begins = len(line) - len(line.lstrip()) != _second_column(whole) or _EXAMPLE.match(whole)
        if begins or not (last and word) or len(last) + 1 + len(word) <= HELP_WIDTH:
            yield whole
            whole = line
        else:
            whole += f" {line.strip()}"
        last = line


def _second_column(line: str) -> int:
    found = re.match(r" *(?:\S+(?: \S+)* {2,})?", line)
    return found.end() if found else 0


def takes_colour(stream: object) -> bool:
    """Check whether the stream may be coloured: it is a terminal and NO_COLOR is not set."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    is_terminal = getattr(stream, "isatty", bool)()
    return is_terminal and os.environ.get("TERM") != "dumb"
