"""`graph`: whether a question about a graph is answered right, by a short way through it.

A row has `question`, `answer` and `graph`: the neighbours of each node, `{"Ann": ["Ben"]}`.  The agent asks
the tool `neighbours(node)`, which the row's graph answers unless EVALTAP_GRAPH_BACKEND is `live`: then the
agent's own tool runs.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from evaltap.experiments.tasks.base import ColumnTask, TaskOptions, setting, text_of
from evaltap.schemas.data import CaseData, Json

NAME: Final = "graph"
TOOL: Final = "neighbours"
BACKEND: Final = "EVALTAP_GRAPH_BACKEND"


def task() -> ColumnTask:
    golden = {"input": "question", "expected_output": "answer", "expectedOutput": "answer"}
    return ColumnTask(NAME, ("question", "answer", "graph"), format_row, golden)


def format_row(row: Mapping[str, Json], options: TaskOptions) -> CaseData:
    """Return a case with one turn; raise ValueError for a row of another form."""
    graph = row["graph"]
    if not isinstance(graph, dict) or not all(isinstance(one, list) for one in graph.values()):
        raise ValueError("graph is not an object with the list of neighbours of each node")
    turn: dict[str, Any] = {
        "invocationId": "question",
        "userContent": {"role": "user", "content": text_of(row, "question")},
        "finalResponse": {"role": "assistant", "content": text_of(row, "answer")},
    }
    if setting(options.environ, BACKEND, ("mock", "live")) == "mock":
        turn["toolMock"] = {"actual": [*_answers(graph)]}
    return {"conversation": [turn]}


def _answers(graph: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    for node, neighbours in graph.items():
        yield {"name": TOOL, "arguments": {"expected": {"node": node}}, "result": neighbours}
    yield {"name": TOOL, "result": []}
