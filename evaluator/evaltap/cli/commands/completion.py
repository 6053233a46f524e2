"""`evaltap completion`: print a script with which a shell completes commands, options and files."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import shtab

from evaltap.cli.main import build_parser
from evaltap.cli.options.maintain import CompletionOptions


def run(options: CompletionOptions) -> int:
    """Print the script."""
    parser = build_parser()
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):
            action.help = "command"  # the help lists commands by group instead
        if action.type is Path or action.metavar in ("FILE", "LOG"):
            vars(action)["complete"] = shtab.FILE
    print(shtab.complete(parser, options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
