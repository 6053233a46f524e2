"""The help of every command fits 80 columns."""

import argparse
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from evaltap.cli.main import build_parser, every_command
from evaltap.cli.parsing import wrapped


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its sub-commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def test_every_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    helps = {one.prog: one.format_help() for one in parsers(build_parser())}

    wide = [f"{name}: {line}" for name, text in helps.items()
            for line in text.splitlines() if len(line) > 80]  # fmt: skip
    assert wide == []
    texts = [(one.epilog or "").splitlines() for one in parsers(build_parser())]
    broken = [line for lines in texts for line, after in pairwise(lines)
              if after.strip() and line[:1].isalnum() and len(line) > 80]  # fmt: skip
    assert broken == [], "a word of it would stand alone"
    examples = [line for one in parsers(build_parser()) for line in (one.epilog or "").splitlines()
                if line.startswith("  evaltap ")]  # fmt: skip
    assert len(examples) > 100
    assert [line for line in examples if len(line) > 80] == [], "an example must not wrap"
    assert set(helps) > {f"evaltap {name}" for name in every_command()}


def test_a_long_line_of_a_list_goes_on_below_its_second_column() -> None:
    lines = wrapped(f"Fields:\n  status:  {'failed, ' * 12}end\n\nDone.").splitlines()

    assert lines[1].startswith("  status:  failed, ")
    assert lines[2].startswith("           failed, ")
    assert max(map(len, lines)) <= 80
    assert lines[-2:] == ["", "Done."]


def test_a_help_is_wrapped_anew_in_a_narrower_terminal() -> None:
    for text in (wrapped(one.epilog or "") for one in parsers(build_parser())):
        narrow = wrapped(text, 60)

        assert narrow.split() == text.split()
        wide = [one for one in narrow.splitlines() if len(one) > 60]
        assert [
            one for one in wide if not re.match(" +([A-Z_]+=|evaltap|export|git|eval)", one)
        ] == []
        assert wrapped(text) == text, "in 80 columns it stays as it is"
    flowing = wrapped("word " * 40)
    assert wrapped(flowing, 60) == wrapped("word " * 40, 60)
