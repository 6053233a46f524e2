"""`--json`: every command that lists something supports it, and then only prints JSON."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import every_command
from support.builders.commands import Evaltap, runner
from support.worlds.shop import Asked, landed

WITHOUT_JSON = {
    "mcp": "speaks MCP until it is stopped",
    "mocks": "speaks MCP or HTTP until it is stopped",
    "store attach": "prints SQL",
    "collect": "runs until it is stopped",
    "completion": "prints a script",
    "set fmt": "rewrites files",
    "up": "runs until it is stopped",
}
ACTIONS = {
    "store dlq": ("list", "show", "replay"),
    "monitor": ("check", "replay", "alerts", "status", "rebase"),
    "record": ("otlp", "cases", "claude-code"),
    "review": (
        "add", "next", "approve", "edit", "reject", "skip", "undo", "list", "export", "import",
    ),
    "skill": ("install",),
}  # fmt: skip
"""The commands whose actions have help of their own."""
PRINTING = [
    (*command.split(), *action)
    for command in sorted(set(every_command()) - set(WITHOUT_JSON))
    for action in [[one] for one in ACTIONS.get(command, ())] or [[]]
]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture
def evaltap(evaltap: Evaltap, tmp_path: Path) -> Evaltap:
    """Run a command in a folder with a scored store and an eval set of its cases."""
    asked = [Asked("Where is my order?"), Asked("I want a refund", ("refund",), "No.")]
    landed(tmp_path, asked).rename("cases.duckdb")
    assert evaltap("set", "export", "cases.duckdb", "--out", "set.evalset.json")[0] == 0
    return evaltap


@pytest.mark.parametrize("command", PRINTING, ids=" ".join)
def test_every_command_that_prints_results_has_json(
    command: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = runner(capsys)(*command, "--help")

    assert code == 0
    assert re.search(r"^  --json\b", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["review", "add"], 0, {"queued": 2, "already_queued": 0, "without_content": 0}),
        (["review", "export", "--out", "r.jsonl"], 0, {"rows": 0, "out": "r.jsonl"}),
        (["runs", "export", "--out", "base.json"], 0, {"cases": 2, "out": "base.json"}),
        (
            ["set", "export", "--out", "x.jsonl"],
            0,
            {"out": "x.jsonl", "format": "jsonl", "cases": 2, "files": ["x.jsonl"]},
        ),
        (
            ["set", "export", "--out", "set.evalset.json", "--check"],
            0,
            {"out": "set.evalset.json", "stale": []},
        ),
        (["set", "export", "--out", "x.jsonl", "--check"], 1, {"out": "x.jsonl", "stale": ["x.jsonl"]}),
    ],
)  # fmt: skip
def test_what_a_command_wrote_is_json(
    evaltap: Evaltap, arguments: Sequence[str], code: int, expected: dict[str, Any]
) -> None:
    words = 2 if arguments[1] in ("add", "export") else 1
    found, out, err = evaltap(*arguments[:words], "cases.duckdb", *arguments[words:], "--json")

    assert found == code, err
    assert json.loads(out) == expected


def test_a_difference_is_a_part_of_the_json_of_curate(evaltap: Evaltap) -> None:
    _, out, _ = evaltap("curate", "cases.duckdb", "--out", "new.evalset.json", "--diff", "--json")

    report = json.loads(out)
    assert report["cases"] == 2
    assert len(report["diff"]["added"]) == 2


@pytest.mark.slow
def test_decisions_that_are_imported_are_counted(evaltap: Evaltap) -> None:
    evaltap("review", "add", "cases.duckdb")
    _, out, _ = evaltap("review", "list", "cases.duckdb", "--json")
    rows = [{"item_id": item["item_id"], "action": "approve"} for item in json.loads(out)["items"]]
    Path("done.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    _, out, _ = evaltap("review", "import", "cases.duckdb", "--from", "done.jsonl", "--json")

    assert json.loads(out) == {"imported": 2}


def test_review_on_the_terminal_refuses_json(evaltap: Evaltap) -> None:
    code, out, err = evaltap("review", "cases.duckdb", "--json")

    assert (code, out) == (2, "")
    assert "unknown argument --json" in err


def test_a_rebase_is_json_too(evaltap: Evaltap) -> None:
    _, out, _ = evaltap("monitor", "rebase", "cases.duckdb", "polite", "--json")

    found = json.loads(out)
    assert found["watch"] == "polite"
    assert TIME.fullmatch(found["learns_from"])


def test_times_have_one_form(evaltap: Evaltap) -> None:
    _, listed, _ = evaltap("cases", "cases.duckdb", "--json")
    _, runs, _ = evaltap("runs", "cases.duckdb", "--json")
    _, shown, _ = evaltap("show", "cases.duckdb", "s-0", "--json")

    times = [row["started_at"] for row in (*json.loads(listed), *json.loads(runs))]
    times += [turn["started_at"] for turn in json.loads(shown)["turns"]]
    assert len(times) == 4
    assert all(TIME.fullmatch(time) for time in times)
