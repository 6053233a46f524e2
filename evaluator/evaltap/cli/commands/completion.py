"""`evaltap completion`: print a script with which a shell completes commands, options and files."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CompletionOptions:
    """The shell that the script is for."""

    shell: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        '  eval "$(evaltap completion bash)"                  # in ~/.bashrc\n'
        '  evaltap completion zsh > "${fpath[1]}/_evaltap"\n'
        "  evaltap completion fish > ~/.config/fish/completions/evaltap.fish"
    )
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish", "tcsh"), help="the shell to complete for"
    )
    parser.set_defaults(run=run, options=CompletionOptions)


def run(options: CompletionOptions) -> int:
    """Print the script."""
    import shtab

    from evaltap.cli.main import build_parser

    parser = build_parser()
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):
            action.help = "command"  # the help lists commands by group instead
        if action.type is Path or action.metavar in ("FILE", "LOG"):
            vars(action)["complete"] = shtab.FILE
    print(shtab.complete(parser, options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the actions of a parser and of the commands in it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
