"""The docs are accurate: links have targets, generated pages are fresh, named commands exist."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from evaltap.cli.main import build_parser, every_command, named
from support.programs import reference

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)#]*)#?([^)]*)\)")


def test_the_generated_reference_is_fresh() -> None:
    made = reference.pages()
    pages = {*made, *(f"cli/{page.name}" for page in reference.FOLDER.glob("cli/*.md"))}

    assert {name: (reference.FOLDER / name).read_text() for name in pages} == made


def test_every_link_leads_somewhere() -> None:
    astray = []
    for page in PAGES:
        for target, heading in LINK.findall(page.read_text()):
            path = page.parent / target if target else page
            if "://" in target or (path.exists() and (not heading or heading in headings(path))):
                continue
            astray.append((page.name, target, heading))

    assert astray == []


@cache
def headings(page: Path) -> set[str]:
    """Return the anchors of a page as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_every_page_is_listed_in_the_index() -> None:
    index = (ROOT / "docs/README.md").read_text()
    pages = [*ROOT.glob("docs/how-to/*.md"), *ROOT.glob("docs/explanation/*.md")]

    lacking = [page.name for page in pages if f"{page.parent.name}/{page.name}" not in index]

    assert lacking == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    docs = ROOT / "docs"
    listed = re.findall(r'"([\w/.-]+\.md)"', (ROOT / "zensical.toml").read_text())

    assert sorted(listed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


@pytest.mark.parametrize("group", ["Record", "Score", "Inspect", "Operate"])
def test_index_and_navigation_agree_on_the_group_of_a_page(group: str) -> None:
    index = (ROOT / "docs/README.md").read_text()
    navigation = (ROOT / "zensical.toml").read_text()

    of_index = index.partition(f"## {group}\n")[2].partition("\n## ")[0]
    of_site = navigation.partition(f'{{ "{group}" = [')[2].partition("] }")[0]

    shown = re.findall(r"how-to/[\w-]+\.md", of_index)
    assert shown
    assert sorted(shown) == sorted(re.findall(r"how-to/[\w-]+\.md", of_site))


def test_every_command_that_is_shown_exists() -> None:
    known, shown = set(every_command()), 0
    for page in PAGES:
        for block in re.findall(r"^```.*?^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for words in re.findall(r"^(?:\$ )?evaltap ([a-z]+(?: [a-z]+)?)", block, re.MULTILINE):
                assert named(words.split()) in known, f"{page}: {words}"
                shown += 1

    assert shown > 100


def test_the_readme_names_the_two_commands_that_work_anywhere() -> None:
    text = (ROOT / "README.md").read_text()

    assert "./run demo" in text
    assert "./run test" in text


def test_every_table_of_the_store_is_described_column_by_column() -> None:
    sql = (ROOT / "evaluator/evaltap/evaluator/store/sql/tables.sql").read_text()
    columns = re.findall(r"^  (\w+) +[A-Z]+", sql, re.MULTILINE)
    page = reference.tables_page()

    assert len(columns) > 100
    assert page.count("| `") == len(columns)


def test_help_needs_no_terminal() -> None:
    assert "COMMAND" in build_parser("").format_help()


def commands_of_the_page() -> list[str]:
    templates = ROOT / "evaluator/evaltap/evaluator/page/templates"
    text = "\n".join(path.read_text() for path in sorted(templates.glob("*.j2")))
    found = re.findall(r"(?:<code>|^)(evaltap [a-z]+ [^<\n]+)", text, re.MULTILINE)
    found = [one.replace("{{ data.period }}", "7d") for one in found]
    return sorted({re.sub(r"\{\{.*?\}\}|\bX\.duckdb\b", "cases.duckdb", one) for one in found})


@pytest.mark.parametrize("command", commands_of_the_page())
def test_every_command_that_the_web_page_shows_is_one(command: str) -> None:
    arguments = shlex.split(command.replace("NUMBER", "1"))[1:]
    build_parser(named(arguments)).parse_command(arguments)
