"""Run commands of evaltap in the test's own process."""

from collections.abc import Callable

import pytest

from evaltap.cli.main import main

Evaltap = Callable[..., tuple[int, str, str]]
"""Runs a command; returns its exit code, its output and its errors."""


def runner(capsys: pytest.CaptureFixture[str]) -> Evaltap:
    """Return what runs commands in the current folder."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        said = capsys.readouterr()
        return code, said.out, said.err

    return run
