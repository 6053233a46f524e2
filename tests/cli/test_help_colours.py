"""Help is coloured on a terminal that supports it, and nowhere else."""

import io

import pytest

from evaltap.cli.main import build_parser
from evaltap.evaluator.reports.console import visible_console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _a_usual_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def printed(out: io.StringIO) -> str:
    build_parser("").print_help(out)
    return out.getvalue()


def test_headings_are_bold_and_names_are_coloured_on_a_terminal() -> None:
    text = printed(Terminal())

    assert "\033[1moptions:\033[0m\n  \033[36m-h, --help\033[0m " in text
    assert "\033[1mrun:\033[0m\n  \033[36mrun\033[0m " in text


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_can_refuse_colours(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    table = Terminal()

    visible_console(table).print("[bold]heading[/bold] [red]failed[/red]")

    assert "\033" not in printed(Terminal())
    assert table.getvalue() == "heading failed\n"


def test_a_pipe_gets_plain_text_unless_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = printed(io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert "\033" not in plain
    assert "\033[1moptions:" in printed(io.StringIO())
