"""Evaluate question answering over a graph: the right answer, by a way that exists and is short.

The graph answers the agents' tool calls, and it also knows the truth: references are computed from it,
every shortest way as one of several that are as good.  Nothing here is random and no model is needed, so
the example always comes out the same.  Run it: `python graph_qa.py`.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from evaltap.evaluator import CaseScorer, Func, Registry, Turn
from evaltap.schemas import EvalMetric

Call = dict[str, Any]


class Graph:
    """A small graph of who reports to whom; it answers tool calls and records them."""

    def __init__(self, edges: dict[str, list[str]]) -> None:
        self._edges = edges
        self.calls: list[Call] = []

    def neighbours(self, node: str) -> list[str]:
        """Answer a tool call, and keep it."""
        found = self._edges.get(node, [])
        self.calls.append({"name": "neighbours", "arguments": {"node": node}, "result": found})
        return found

    def has(self, one: str, other: str) -> bool:
        """Tell whether there is an edge; this is for evaluators and is not recorded."""
        return other in self._edges.get(one, [])

    def shortest_ways(self, start: str, goal: str) -> list[list[str]]:
        """Return every shortest way, in the order of its nodes."""
        ways = [[start]]
        while ways and not any(way[-1] == goal for way in ways):
            ways = [[*way, node] for way in ways for node in self._edges.get(way[-1], [])
                    if node not in way]  # fmt: skip
        return sorted(way for way in ways if way[-1] == goal)


GRAPH = {
    "Ann": ["Ben", "Cem"],
    "Ben": ["Dora", "Ann"],
    "Cem": ["Dora", "Eli"],
    "Dora": ["Finn"],
    "Eli": ["Eli's cat"],
}
QUESTION = ("Ann", "Finn")


def straight_agent(graph: Graph, start: str, goal: str) -> str:
    """Go through the graph level by level, looking at no node twice."""
    ways, seen = [[start]], {start}
    while ways:
        way = ways.pop(0)
        if way[-1] == goal:
            return " > ".join(way)
        for node in graph.neighbours(way[-1]):
            if node not in seen:
                seen.add(node)
                ways.append([*way, node])
    return "there is no way"


def wandering_agent(graph: Graph, start: str, goal: str) -> str:
    """Look at everything twice, find nothing, and make up a shortcut."""
    for node in ("Ann", "Cem", "Eli", "Cem", "Ann"):
        graph.neighbours(node)
    return f"{start} > Eli > {goal}"


def format_case(name: str, graph: Graph, answer: str) -> dict[str, Any]:
    """Return the eval case of a run: its answer and calls, and what the graph itself says is right."""
    start, goal = QUESTION
    ways = graph.shortest_ways(start, goal)
    asked = {"userContent": {"role": "user", "content": f"How does {start} get to {goal}?"}}
    wanted = [{"tools": [*_calls_along(way)]} for way in ways]
    return {
        "evalId": name,
        "evalMode": "trace",
        "sessionInput": {"appName": "graph", "userId": "reader"},
        "actualConversation": [
            {
                **asked,
                "tools": graph.calls,
                "finalResponse": {"role": "assistant", "content": answer},
            }
        ],
        "conversation": [
            {
                **asked,
                **wanted[0],
                "references": wanted[1:],
                "finalResponse": {"role": "assistant", "content": " > ".join(ways[0])},
            }
        ],
    }


def _calls_along(way: list[str]) -> Iterator[Call]:
    for node in way[:-1]:
        yield {"name": "neighbours", "arguments": {"node": node}}


def way_exists(graph: Graph) -> Callable[[Turn, Turn], tuple[bool, str]]:
    """Return a function that checks every step of the answer against the graph."""

    def check(turn: Turn, expected: Turn) -> tuple[bool, str]:
        nodes = (turn.final_text or "").split(" > ")
        steps = list(pairwise(nodes))
        wrong = [f"{one} > {other}" for one, other in steps if not graph.has(one, other)]
        ends = (nodes[0], nodes[-1]) == QUESTION
        return bool(steps) and ends and not wrong, f"not there: {', '.join(wrong)}" if wrong else ""

    return check


METRICS = [
    EvalMetric(metric_name="way_exists", threshold=1.0),
    *(
        EvalMetric.model_validate(
            {"metricName": name, "threshold": bound, "criterion": {"trajectory": {}}}
        )
        for name, bound in (
            ("trajectory_superset", 1.0),
            ("trajectory_step_efficiency", 0.5),
            ("trajectory_redundancy", 1.0),
        )
    ),
]


def main() -> None:
    """Let both agents answer the question, and print how they did."""
    for agent in (straight_agent, wandering_agent):
        graph = Graph(GRAPH)
        answer = agent(graph, *QUESTION)
        checks = Func(way_exists(graph), name="way_exists")
        scorer = CaseScorer(METRICS, registry=Registry().extended([checks]))
        score = scorer.score(format_case(agent.__name__, graph, answer))
        print(f"{agent.__name__}: {answer}: {score.status}")
        for outcome in score.metrics:
            print(
                f"  {outcome.name}: {outcome.score:.2f} {outcome.status} {outcome.reason}".rstrip()
            )


if __name__ == "__main__":
    main()
