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

SESSIONS = f"{HOMES['recorder']}/sources/sessions"

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

EXPERIMENTS = "evaluator/evaltap/experiments"
NAMES = [
    ("Where is a unit of an experiment resumed?", f"{EXPERIMENTS}/loop.py", "Experiment._take_up"),
    ("What answers a tool call from a recording?", f"{EXPERIMENTS}/mocks/tape.py", "Tape.answer"),
    ("Where does a rate get its interval?", "analysis/stats/rate.py", "Rate"),
    ("And a rate of weighted turns?", "analysis/stats/estimate.py", "estimate"),
    ("Where is a sampling weight added?", "store/sql/views.sql", "latest_weighted_turn_scores"),
    ("Where is a page view added?", "page/routes.py", "PageRoute"),
    ("Where is an alert receiver added?", "monitoring/alerting/receivers.py", "make_receiver"),
    ("Where is its type declared?", f"{HOMES['schemas']}/formats/monitor.py", "AlertReceiver"),
    ("Where is a reader of an export added?", f"{SESSIONS}/__init__.py", "FORMATS"),
    ("Where is an agent adapter added?", f"{EXPERIMENTS}/agents/base.py", "FRAMEWORKS"),
    ("Where is a new archive backend added?", "store/place.py", "Place"),
    ("And its addresses?", "store/place.py", "place_of"),
]
"""More questions: the file that the page names, in the evaluator unless it says so, and a name in it."""


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


@pytest.mark.parametrize(("question", "path", "name"), NAMES)
def test_each_question_leads_from_the_page_to_a_name_in_a_file(
    question: str, path: str, name: str
) -> None:
    file = (
        path if path.startswith(("evaluator/", *HOMES.values())) else f"{HOMES['evaluator']}/{path}"
    )
    (row,) = [
        line
        for line in PAGE.read_text().splitlines()
        if line.startswith("|") and f"`{file}`" in line and f"`{name}`" in line
    ]

    assert row.count("|") == 4, question
    assert defines((ROOT / file).read_text(), name), question


def defines(text: str, name: str) -> bool:
    """Tell whether a file defines a class, function, constant or view; a method comes after its class."""
    owner, _, method = name.rpartition(".")
    start = text.find(f"\nclass {owner}") if owner else 0
    pattern = rf"^ *(?:class|def|CREATE OR REPLACE VIEW) {method}\b|^{method}\b.* = "
    return start >= 0 and re.search(pattern, text[start:], re.MULTILINE) is not None


def test_the_formats_of_secrets_are_rows() -> None:
    table = "recorder/evaltap/recorder/privacy/lexicon/formats.tsv"

    assert f"| the format of a secret | a row in `{table}` |" in PAGE.read_text()
    assert (ROOT / table).read_text().startswith("place\tsigns\tpattern\t")


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
