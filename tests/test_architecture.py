"""The architecture page leads a newcomer to the right file, and matches the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/explanation/architecture.md"
HOMES = {
    "schemas": "schemas/evaltap/schemas",
    "recorder": "recorder/evaltap/recorder",
    "evaluator": "evaluator/evaltap/evaluator",
    "cli": "evaluator/evaltap/cli",
}

QUESTIONS = [
    ("Where does a late span make a new revision?", "recorder", "assembly", "assembler.py"),
    ("Which module writes a score row?", "evaluator", "scoring", "results/writer.py"),
    ("Where is a reader for a new convention added?", "recorder", "conventions", "genai.py"),
    ("Where are personal data found in text?", "recorder", "privacy", "detectors.py"),
    ("Where is the SQL of the views?", "evaluator", "store", "sql/views.sql"),
    ("Who asks an OpenAI-compatible judge?", "evaluator", "scoring", "judges/openai.py"),
    ("Where do records become rows?", "evaluator", "ingest", "landing/lander.py"),
    ("What forwards the spool to Kafka?", "recorder", "delivery", "spool/forwarder.py"),
    ("How is a record laid out on a topic?", "schemas", "wire", "record.py"),
    ("Where are the options of `evaltap score`?", "cli", "options", "score.py"),
]
"""Ten questions of a stranger: the part, the package that the page names, the file in it."""


def section(part: str) -> str:
    """Return what the page says of a part."""
    text = PAGE.read_text()
    start = text.index(f"## `evaltap.{part}`")
    return text[start : text.find("\n## ", start + 1)]


@pytest.mark.parametrize(("question", "part", "package", "file"), QUESTIONS)
def test_each_question_leads_from_readme_to_page_to_package_to_file(
    question: str, part: str, package: str, file: str
) -> None:
    assert "docs/explanation/architecture.md" in (ROOT / "README.md").read_text(), question
    assert f"`{package}/`" in section(part), question
    assert (ROOT / HOMES[part] / package / file).is_file(), question


@pytest.mark.parametrize("part", ["schemas", "recorder", "evaluator"])
def test_the_page_names_every_package_and_module_on_the_top_floor_and_nothing_else(
    part: str,
) -> None:
    folder = ROOT / HOMES[part]
    there = {f"{path.name}/" for path in folder.iterdir() if (path / "__init__.py").is_file()}
    there |= {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    rows = re.findall(r"^\| (.*?) \|", section(part), re.MULTILINE)

    named = {name for row in rows for name in re.findall(r"`([\w/]+)`", row)}

    assert named == there


def test_every_path_on_the_page_exists() -> None:
    paths = re.findall(r"`((?:schemas|recorder|evaluator|tests|docs)/[\w/.]+)`", PAGE.read_text())

    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
