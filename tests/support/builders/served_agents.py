"""A served agent, and clients of it."""

import asyncio
import threading
from typing import Any

from evaltap.evaluator.page.security.site import Site
from evaltap.experiments.server.adk import adk_routes
from evaltap.experiments.server.app import ServerStores, create_app
from evaltap.experiments.server.entrance import Entrance
from evaltap.experiments.service import AgentCall, AgentEvaluator
from evaltap.experiments.stores import Stores, memory_stores
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalSet

TOKEN = "a-token-of-the-test"


TURN = {
    "invocationId": "1",
    "userContent": {"role": "user", "content": "Where is A-100?"},
    "finalResponse": {"role": "assistant", "content": "It is shipped."},
    "tools": [{"id": "t", "name": "get_order", "arguments": {"order_id": "A-100"}, "result": 1}],
}


CASE = {
    "evalId": "ship",
    "sessionInput": {"appName": "app", "userId": "u"},
    "conversation": [TURN],
}


ANSWER_METRIC = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
}


def shop(messages: list[dict[str, str]], turn: Any) -> str:
    found = turn.run_tool("get_order", {"order_id": "A-100"}, lambda order_id: 1)
    assert found == 1
    return "It is shipped."


def filled(stores: Stores) -> Stores:
    stores.sets.put("app", parse(EvalSet, {"evalSetId": "golden", "evalCases": [CASE]}))
    stores.metrics.add("app", "golden", ANSWER_METRIC)
    return stores


class Served:
    """A server with an agent, and what is behind it."""

    def __init__(self, agent: Any, **options: Any) -> None:
        self.stores = filled(memory_stores())
        site = Site("127.0.0.1", 8080, "", frozenset({"evals.example.com"}))
        self.app = create_app(
            AgentEvaluator("app", agent, stores=self.stores),
            ServerStores(
                sets=self.stores.sets, metrics=self.stores.metrics, results=self.stores.results
            ),
            Entrance(site, TOKEN, options.pop("origins", ())),
            more=lambda api: adk_routes(api, self.stores),
            **options,
        )


def conversation(*said: str) -> dict[str, Any]:
    turns = [{"userContent": {"role": "user", "content": one}} for one in said]
    session = {"appName": "app", "userId": "u"}
    return {"evalId": said[0], "sessionInput": session, "conversation": turns}


class Slow:
    """An agent that answers the first turns, and then waits until it is cancelled."""

    def __init__(self, first: int) -> None:
        self.answered, self.first = 0, first
        self.waiting, self.cancelled = threading.Event(), threading.Event()

    async def __call__(self, call: AgentCall) -> str:
        self.answered += 1
        if self.answered > self.first:
            self.waiting.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                self.cancelled.set()
                raise RuntimeError("turned into another error, as some frameworks do") from error
        return "It is shipped."
