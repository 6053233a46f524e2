"""Write the reference pages: commands from the parser, tables from their SQL, recorder settings."""

import argparse
import re
from dataclasses import fields
from pathlib import Path

from evaltap.cli.declared import Declared
from evaltap.cli.main import GROUPS, build_parser, every_command
from evaltap.cli.parsing import wrapped
from evaltap.evaluator.store.database import STORE, sql
from evaltap.recorder.config import RecorderConfig

FOLDER = Path(__file__).parents[3] / "docs/reference"
_NOTE = "<!-- Generated from the code; do not edit. -->\n\n"


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    return {
        "cli.md": _NOTE + cli_page(),
        **{_page_of(name): _NOTE + command_page(name) for name in every_command()},
        "recorder-configuration.md": settings_page(),
        "tables.md": _NOTE + tables_page(),
    }


def cli_page() -> str:
    """Return the list of the commands, by group."""
    parts = [
        "# Commands\n\nEvery command uses the same exit codes:\n\n- 0: passed, or done\n- 1: quality"
        " below the bar\n- 2: bad input or configuration\n- 3: incomplete: a judge was unavailable, evidence"
        " is missing, or the result is inconclusive\n"
    ]
    for group, names in GROUPS.items():
        parts += [f"## {group.capitalize()}\n", "| command | what it does |\n|---|---|"]
        parts += [
            f"| [`evaltap {name}`]({_page_of(name)}) | {text} |"
            for first in names
            for name, text in every_command().items()
            if name.split()[0] == first
        ]
        parts.append("")
    return "\n".join(parts)


def command_page(name: str) -> str:
    """Return a command with its arguments, read from the parser.

    argparse's own help text is not used because it differs between Python versions.
    """
    parser: argparse.ArgumentParser = build_parser(name)
    for word in name.split():
        parser = _children(parser)[word]
    return _command(f"evaltap {name}", parser, "#")


def _page_of(name: str) -> str:
    return f"cli/{name.replace(' ', '-')}.md"


def _command(title: str, parser: argparse.ArgumentParser, level: str) -> str:
    rows = [
        f"| `{_names(action)}` | {_meaning(action)} |"
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
    ]
    children = _children(parser)
    parts = [f"{level} {title}\n", f"{parser.description}\n"]
    if rows:
        parts += ["| argument | meaning |\n|---|---|", *rows, ""]
    if parser.epilog:
        parts.append(f"```text\n{wrapped(parser.epilog.strip())}\n```\n")
    parts += [_command(f"{title} {name}", child, level + "#") for name, child in children.items()]
    return "\n".join(parts)


def _children(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _names(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"{metavar} ..." if action.nargs == "+" else metavar
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {metavar}"


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "").replace("%%", "%").replace("|", "\\|")
    if not action.option_strings or not action.required or "(default:" in text:
        return text
    declared: Declared | None = vars(action).get("declared")
    variable = declared.variable if declared else ""
    settings = f", unless {variable} or evaltap.toml sets it" if variable else ""
    return f"{text} (required{settings})"


def tables_page() -> str:
    """Return the tables and views, documented by the comments in their SQL."""
    return (
        "# Tables and views\n\nEverything is in one DuckDB file that you can query. Columns are stable:"
        " later versions may add\ncolumns, but do not rename or drop any. Prefer the `latest_*` and `v_*`"
        " views; the tables keep\nhistory.\n\n## Tables\n\n"
        f"{_table_sections(sql(STORE, 'tables'))}## Views\n\n"
        "```sql\n"
        f"{sql(STORE, 'views').strip()}\n"
        "```\n"
    )


def _table_sections(tables: str) -> str:
    sections = ""
    for match in re.finditer(
        r"((?:^--[^\n]*\n)*)^CREATE TABLE IF NOT EXISTS (\w+) \(\n(.*?)^\);",
        tables,
        re.MULTILINE | re.DOTALL,
    ):
        comment, name, columns = match.groups()
        text = " ".join(line.removeprefix("--").strip() for line in comment.splitlines())
        sections += f"### {name}\n\n{text + chr(10) + chr(10) if text else ''}"
        sections += "| column | type | meaning |\n|---|---|---|\n"
        for column in columns.splitlines():
            found = re.fullmatch(
                r"\s+(\w+)\s+([A-Z]+(?:\[\])?)( NOT NULL)?(?: USING COMPRESSION \w+)?,?\s*(?:-- (.*))?",
                column,
            )
            if found:
                kind = found[2] + ("" if found[3] else ", may be NULL")
                sections += (
                    f"| `{found[1]}` | {kind} | {(found[4] or '').replace('|', chr(92) + '|')} |\n"
                )
        sections += "\n"
    return sections


_HEAD = """\
# Recorder settings

Generated from `RecorderConfig`; do not edit.

Each setting is a keyword argument of `Recorder` and of `RecorderConfig`. An argument overrides the
environment variable, which overrides the default.

- An invalid argument raises `ConfigurationError` when the recorder is created.
- An invalid variable is logged as a warning and the default is used, so that a typing mistake in a
  deployment never stops an agent. For `EVALTAP_DISABLED`, `EVALTAP_SAMPLE_RATE`,
  `EVALTAP_CAPTURE_CONTENT` and the redaction variables, the value that records less is used instead.
- An unknown variable that begins with `EVALTAP_` is reported once in a warning, and by `evaltap doctor`.

Switches take `1`, `true`, `yes`, `on` and `0`, `false`, `no`, `off`. Sizes are bytes.

| setting | variable | default | meaning |
|---|---|---|---|
"""


def settings_page() -> str:
    """Return the recorder's settings with their variables and defaults."""
    rows = []
    for item in fields(RecorderConfig):
        data = item.metadata
        default = "" if data["default"] is None else f"`{data['default']}`"
        rows.append(f"| `{item.name}` | `{data['variable']}` | {default} | {data['meaning']} |\n")
    return _HEAD + "".join(rows)


def main() -> None:
    """Write the pages, and delete those of commands that are gone."""
    made = pages()
    for page in FOLDER.glob("cli/*.md"):
        if f"cli/{page.name}" not in made:
            page.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
