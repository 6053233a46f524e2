"""Tasks: rows of a data set become cases with metrics, and an agent is run on them."""

import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer, MetricError, Registry
from evaltap.experiments.tasks.base import (
    Task,
    TaskOptions,
    find_task,
    installed,
    make_cases,
    rows_of,
)
from evaltap.schemas.errors import ConfigurationError, InputError
from support.builders.commands import Evaltap

AGENT = """
def answer(messages, turn):
    said = messages[-1]["content"]
    if said.startswith("Sum up this conversation"):
        return "Ann in Bern waits for A-100."
    if said.startswith("Sum up this text"):
        return "The bridge is closed for repair."
    node, goal = said.split()[2], said.split()[-1].rstrip("?")
    way, seen = [node], {node}
    while way[-1] != goal:
        found = turn.run_tool("neighbours", {"node": way[-1]}, not_here)
        step = next((one for one in found if one not in seen), None)
        if step is None:
            return "there is no way"
        seen.add(step)
        way.append(step)
    return " > ".join(way)

def not_here(node):
    raise LookupError("the real graph is not here")
"""
TALK = {
    "id": "ann",
    "messages": [
        {"role": "user", "content": "This is Ann, now of Bern. My order A-100 is still not here, sadly."},
        {"role": "assistant", "content": "Thank you Ann, I see the order and the old address in Basel here."},
        {"role": "user", "content": "Please send it before Friday, as I am away on a journey from then on."},
    ],
    "facts": ["A-100", {"text": "Bern", "at": 1}, {"text": "Friday", "at": 3}],
}  # fmt: skip
TEXT = {
    "id": "bridge",
    "text": "The council voted on Tuesday to close the bridge over the mill stream for eight weeks, as"
    " it needs repair after cracks were found in a pillar.",
    "summary": "The mill stream bridge is closed for repair.",
}
GRAPH = {"Ann": ["Ben"], "Ben": ["Ann", "Dora"], "Dora": ["Finn"]}
QUESTION = {
    "id": 7,
    "question": "How does Ann get to Finn?",
    "answer": "Ann > Ben > Dora > Finn",
    "graph": GRAPH,
}
FILES = {"context-compression": TALK, "summary": TEXT, "graph": QUESTION}


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    """A folder with an agent and a file for each task, and no judge."""
    Path("shop.py").write_text(AGENT)
    for name, row in FILES.items():
        Path(f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    return evaltap


def run(evaltap: Evaltap, *arguments: str) -> tuple[int, list[Any], str]:
    code, out, said = evaltap(
        "run", "--agent", "shop:answer", "--db", "x.duckdb", "--json", *arguments
    )
    return code, [json.loads(line) for line in out.splitlines()], said


def rates(found: Mapping[str, Any]) -> dict[str, float]:
    return {one["metric"]: one["pass_rate"] for one in found["metrics"]}


@pytest.mark.slow
def test_the_three_tasks_run_from_the_command_line(evaltap: Evaltap) -> None:
    code, found, said = run(
        evaltap,
        "--tasks", "context-compression,summary,graph", "--checkpoints", "2,3",
        "--file-context-compression", "context-compression.jsonl", "--file-graph", "graph.jsonl",
        "--task-file", "summary=summary.jsonl", "--verbose",
    )  # fmt: skip

    assert code == 1
    assert [one["set"] for one in found] == ["context-compression", "summary", "graph"]
    assert rates(found[0]) == {"facts_survive": 0.0, "compression_ratio": 1.0}
    assert rates(found[1]) == {"overlap": 1.0, "compression_ratio": 1.0}
    assert rates(found[2]) == {"right_answer": 1.0, "asks_nothing_twice": 1.0}
    assert "facts_survive 0.83 failed (turn 2: missing: 'Friday')" in said
    assert "summary: without complete_and_true: judge not configured: no model" in said


COSTS = """
import os, signal

def costs(messages, turn):
    turn.model("m", cost_usd=1.0)
    return "Nothing."

def silent(messages):
    return "Nothing."

def interrupts(messages):
    os.kill(os.getppid(), signal.SIGINT)
    return "Nothing."
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "more", "spent", "told"),
    [
        ("costs", ["--budget-usd", "0.5"], [1.0, None], "agent's tools run for real"),
        ("silent", ["--budget-usd", "0.5"], [None] * 2, "does not count 1 turn of unknown cost"),
        ("interrupts", [], [None], "evaltap run: not run: graph"),
    ],
)
def test_tasks_share_a_budget_and_an_interruption(
    evaltap: Evaltap, agent: str, more: list[str], spent: list[float | None], told: str
) -> None:
    Path("costly.py").write_text(COSTS)
    code, found, said = run(
        evaltap, "--tasks", "summary,graph", "--file-graph", "graph.jsonl",
        "--file-summary", "summary.jsonl", "--agent", f"costly:{agent}", *more,
    )  # fmt: skip

    assert code in (1, 3)
    assert [one["cost_usd"] for one in found] == spent
    assert told in said


@pytest.mark.slow
def test_goldens_of_deepeval_are_rows(evaltap: Evaltap) -> None:
    golden = {
        "input": QUESTION["question"],
        "expected_output": QUESTION["answer"],
        "additional_metadata": {"graph": GRAPH},
    }
    Path("goldens.json").write_text(json.dumps([golden]))

    code, found, said = run(
        evaltap, "--tasks", "graph", "--file-graph", "goldens.json", "--verbose"
    )

    assert code == 0
    assert rates(found[0])["right_answer"] == 1.0
    assert "graph: without grounded: judge not configured: no model" in said
    assert "graph-1 [graph] 'Ann > Ben > Dora > Finn': asks_nothing_twice 1.00 passed" in said


def test_a_checkpoint_measures_the_facts_known_by_then() -> None:
    task = find_task("context-compression")

    case = task.format(TALK, TaskOptions((1, 3)))

    one, three = case["conversation"]
    assert one["state"]["facts"] == ["A-100", "Bern"]
    assert three["state"]["facts"] == ["A-100", "Bern", "Friday"]
    assert "before Friday" not in one["userContent"]["content"]
    assert [turn["invocationId"] for turn in case["conversation"]] == [
        "checkpoint-1", "checkpoint-3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "said", "score"),
    [
        ("no", "No, there is none.", 1),
        ("no", "I do not know.", 0),
        ("3", "It takes 13 steps.", 0),
        ("Ann > Ben", "ann > ben!", 1),
        ("Ann > Ben", "Ben > Ann", 0),
        ("安娜", "是安娜。", 1),
    ],
)
def test_an_answer_about_a_graph_is_right_if_it_says_the_words(
    answer: str, said: str, score: float
) -> None:
    task = find_task("graph")
    case = task.format({**QUESTION, "answer": answer}, TaskOptions(environ={}))
    turn = {**case["conversation"][0], "finalResponse": {"role": "assistant", "content": said}}
    recorded = {"evalMode": "trace", "actualConversation": [turn], "sessionInput": {}}

    found = CaseScorer(task.metrics()[:1]).score({**case, **recorded})

    assert found.metrics[0].score == score


def test_a_row_with_an_empty_id_gets_that_of_its_place(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({**TEXT, "id": ""}))

    made = make_cases(
        "summary",
        find_task("summary"),
        str(tmp_path / "rows.jsonl"),
        TaskOptions(environ={}),
        strict=True,
    )

    assert [case["evalId"] for case in made.cases] == ["summary-1"]


def test_the_graph_of_a_row_answers_unless_the_real_one_shall() -> None:
    task = find_task("graph")

    (mocked,) = task.format(QUESTION, TaskOptions(environ={}))["conversation"]
    (live,) = task.format(QUESTION, TaskOptions(environ={"EVALTAP_GRAPH_BACKEND": "live"}))[
        "conversation"
    ]

    assert [one["result"] for one in mocked["toolMock"]["actual"]] == [*GRAPH.values(), []]
    assert "toolMock" not in live
    with pytest.raises(
        ConfigurationError, match="EVALTAP_GRAPH_BACKEND is 'x'; expected mock or live"
    ):
        task.format(QUESTION, TaskOptions(environ={"EVALTAP_GRAPH_BACKEND": "x"}))


@pytest.mark.parametrize("name", ["context-compression", "graph", "summary"])
def test_the_metrics_of_each_task_can_be_built(name: str) -> None:
    assert name in installed()
    for metric in find_task(name).metrics():
        try:
            Registry().build(metric)
        except MetricError as error:
            pytest.fail(str(error))


@pytest.mark.parametrize(
    ("name", "row", "said"),
    [
        ("summary", {"text": "x"}, "line 2: lacks summary"),
        ("summary", {"text": 7, "summary": "x"}, "text is int; expected a text"),
        ("graph", {**QUESTION, "graph": {"a": 1}}, "the list of neighbours of each node"),
        ("context-compression", {**TALK, "messages": ["hi"]}, "message 1 has no text in content"),
        ("context-compression", {**TALK, "checkpoints": [9]}, "checkpoint 9 is not one of its"),
        ("context-compression", {**TALK, "checkpoints": 2}, "expected a list of different numbers"),
        ("context-compression", {**TALK, "checkpoints": [2, 2]}, "checkpoints is [2, 2]"),
        ("context-compression", {**TALK, "facts": [7]}, "7 is no fact"),
        ("summary", TEXT, "line 2: has the id bridge of a row before it"),
    ],
)
def test_a_row_that_makes_no_case_is_left_out_and_told_or_with_strict_an_error(
    name: str, row: dict[str, Any], said: str, evaltap: Evaltap
) -> None:
    Path("rows.jsonl").write_text(json.dumps(FILES[name]) + "\n" + json.dumps(row) + "\n")
    task, options = find_task(name), TaskOptions(environ={})

    made = make_cases(name, task, "rows.jsonl", options, strict=False)

    assert len(made.cases) == 1
    assert said in made.problems[0]
    with pytest.raises(InputError, match=f"1 row of {name} make no case"):
        make_cases(name, task, "rows.jsonl", options, strict=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tasks", "sumary"), "--tasks sumary: unknown; did you mean 'summary'?"),
        (("--tasks", "summary"), "no rows; name them with --task-file summary=SOURCE"),
        (("--tasks", "summary", "--file-graph", "graph.jsonl"), "a file for graph: add it to --tasks"),
        (("--tasks", "summary", "--file-summary", "no.jsonl"), "no.jsonl"),
        (("set.json", "--tasks", "summary"), "brings its own cases; leave set.json out"),
        (("--tasks", "summary,graph", "--result", "r.json"), "expected a folder"),
        (("set.json", "--metrics", "m.json", "--strict"), "are for --tasks"),
        ((), "missing SET, --metrics"),
        (("--tasks", "summary", "--file-summary", "confident:x"), "install evaltap[deepeval]"),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_the_agent_runs(
    arguments: tuple[str, ...], said: str, evaltap: Evaltap
) -> None:
    code, _, told = run(evaltap, *arguments)

    assert code == 2
    assert said in told


@pytest.mark.slow
def test_a_package_provides_a_task(
    evaltap: Evaltap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "task_of_a_stranger.py").write_text(
        "from evaltap.schemas import EvalMetric\n"
        "class Task:\n"
        "    required = ('said',)\n"
        "    def load(self, source):\n"
        "        yield 'row 1', {'said': source}\n"
        "    def format(self, row, options):\n"
        "        said = {'role': 'user', 'content': 'Sum up this text ' + row['said']}\n"
        "        return {'conversation': [{'userContent': said}]}\n"
        "    def metrics(self):\n"
        "        return [EvalMetric(metric_name='run_succeeded', threshold=1.0)]\n"
    )
    about = tmp_path / "task_of_a_stranger-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: task-of-a-stranger\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[evaltap.tasks]\nmine = task_of_a_stranger:Task\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    code, found, _ = run(evaltap, "--tasks", "mine", "--task-file", "mine=hello")

    assert code == 0
    assert found[0]["cases"][0]["eval_id"] == "mine-1"


@pytest.mark.skipif(find_spec("datasets") is None, reason="the package datasets is not installed")
def test_rows_of_the_hub_are_read_with_its_package(evaltap: Evaltap) -> None:
    Path("hub").mkdir()
    Path("hub/train.jsonl").write_text(json.dumps(TEXT) + "\n")

    assert [row["id"] for _, row in rows_of("hf:hub@train")] == ["bridge"]
    with pytest.raises(InputError, match=r"hf:hub@none: ValueError"):
        list(rows_of("hf:hub@none"))


@pytest.mark.skipif(find_spec("datasets") is not None, reason="the package datasets is installed")
def test_without_the_package_the_hub_names_it() -> None:
    with pytest.raises(InputError, match=r"hf:me/rows: needs the package datasets"):
        list(rows_of("hf:me/rows"))


def test_the_task_of_the_page_makes_cases(evaltap: Evaltap) -> None:
    page = Path(__file__).parents[2] / "docs/how-to/run-tasks.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    known: dict[str, Any] = {}
    exec(code, known)
    Path("rows.jsonl").write_text('{"german": "Guten Tag", "english": "Hello"}\n{"german": "Ja"}\n')

    task: Task = known["Translation"]()
    made = make_cases("translation", task, "rows.jsonl", TaskOptions(), strict=False)

    assert made.problems == ["line 2: lacks english"]
    assert made.cases[0]["conversation"][0]["finalResponse"]["content"] == "Hello"
    assert Registry().build(task.metrics()[0]).name == "lexical_similarity"
