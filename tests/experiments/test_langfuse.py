"""A remote experiment of Langfuse, against a server that answers as its public API does."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from evaltap.experiments.langfuse import Langfuse, LangfuseError, item_case, remote_experiment
from evaltap.schemas.errors import ConfigurationError, InputError
from support.builders.cases import EXACT
from support.servers.quiet_http import Handler, serving

KEYS = base64.b64encode(b"pk:sk").decode()


def item(name: str, **more: Any) -> dict[str, Any]:
    given = {"id": name, "datasetName": "colours", "status": "ACTIVE", "metadata": {"k": 1}}
    return given | {"input": name, "expectedOutput": name.upper(), **more}


@contextmanager
def langfuse(*items: dict[str, Any], broken: str = "") -> Iterator[tuple[Langfuse, list[Any]]]:
    """Serve a dataset in pages of two; yield the client and what was posted."""
    posted: list[Any] = []

    class Platform(Handler):
        def answer(self, status: int, body: Any) -> None:
            self.reply(status, json.dumps(body).encode())

        def do_GET(self) -> None:
            assert self.headers["Authorization"] == f"Basic {KEYS}"
            query = parse_qs(urlparse(self.path).query)
            assert query["datasetName"] == ["colours"]
            page = int(query["page"][0])
            pages = {"page": page, "totalPages": -(-len(items) // 2)}
            self.answer(200, {"data": items[2 * page - 2 : 2 * page], "meta": pages})

        def do_POST(self) -> None:
            body = json.loads(self.body())
            place = self.path.removeprefix("/api/public/")
            if place == broken:
                self.answer(503, {"message": "down"})
                return
            posted.append((place, body))
            self.answer(207 if place == "ingestion" else 200, {"datasetRunId": "run-1"})

    with serving(Platform) as url:
        yield Langfuse(url, "pk", "sk"), posted


def shouts(messages: list[dict[str, Any]]) -> str:
    said = str(messages[-1]["content"])
    if said == "crash":
        raise LookupError("no such colour")
    return "BLUE" if said == "green" else said.upper()


def test_each_item_gets_a_trace_in_the_run_with_its_scores_and_the_run_its_means() -> None:
    chat = {"messages": [{"role": "user", "content": "red"}]}
    items = [item("blue"), item("green"), item("crash"),
             item("chat", input=chat, expectedOutput="RED"), item("old", status="ARCHIVED")]  # fmt: skip
    request = {
        "projectId": "p", "datasetId": "d", "datasetName": "colours",
        "payload": {"runName": "nightly", "userId": "u", "traceTags": ["ci"]},
    }  # fmt: skip

    with langfuse(*items) as (client, posted):
        found = remote_experiment(request, agent=shouts, metrics=[EXACT], langfuse=client)

    traces = [body["batch"][0]["body"] for place, body in posted if place == "ingestion"]
    assert [one["output"] for one in traces][:2] == ["BLUE", "BLUE"]
    assert traces[0]["input"] == "blue"
    assert (traces[0]["userId"], traces[0]["tags"]) == ("u", ["ci"])
    assert traces[0]["environment"] == "development"
    linked = [body for place, body in posted if place == "dataset-run-items"]
    assert [one["datasetItemId"] for one in linked] == ["blue", "green", "crash", "chat"]
    assert [one["traceId"] for one in linked] == [one["id"] for one in traces]
    scores = [body for place, body in posted if place == "scores"]
    assert [one["value"] for one in scores if "traceId" in one] == [1, 0, 0, 1]
    assert {one["name"]: one["value"] for one in scores if "datasetRunId" in one} == {
        "pass_rate": 0.5,
        "final_response_avg_score_mean": 0.5,
    }
    assert (found["processedCases"], found["traceCount"], found["scoreCount"]) == (4, 4, 6)
    assert found["runName"] == "nightly"
    assert found["datasetRunId"] == "run-1"
    assert [one["status"] for one in found["cases"]] == ["passed", "failed", "failed", "passed"]
    assert "no such colour" in found["cases"][2]["errorMessage"]
    assert found["aggregateReasons"]["pass_rate"] == "2 of 4 cases passed"


@pytest.mark.parametrize(
    ("payload", "name"),
    [("nightly", "nightly"), ('{"runName": "nightly"}', "nightly"), (None, "colours 20")],
)
def test_the_payload_may_be_the_name_of_the_run(payload: Any, name: str) -> None:
    with langfuse(item("blue")) as (client, _):
        found = remote_experiment(
            {"datasetName": "colours", "payload": payload},
            agent=shouts, metrics=[EXACT], langfuse=client,
        )  # fmt: skip

    assert found["runName"].startswith(name)


@pytest.mark.parametrize(
    ("request_", "items", "why"),
    [
        ({}, [item("a")], "no datasetName"),
        ({"datasetName": "colours"}, [], "no active items"),
        ({"datasetName": "colours", "payload": {"name": "x"}}, [item("a")], "payload: expected"),
        ({"datasetName": "colours", "payload": "{"}, [item("a")], "payload: expected"),
    ],
)
def test_a_wrong_request_is_refused_before_the_agent_runs(
    request_: dict[str, Any], items: list[Any], why: str
) -> None:
    asked: list[Any] = []
    with langfuse(*items) as (client, posted), pytest.raises(InputError, match=why):
        remote_experiment(request_, agent=asked.append, metrics=[EXACT], langfuse=client)

    assert (asked, posted) == ([], [])


@pytest.mark.parametrize("broken", ["ingestion", "dataset-run-items", "scores"])
def test_a_failure_of_langfuse_names_the_call(broken: str) -> None:
    with (
        langfuse(item("a"), broken=broken) as (client, _),
        pytest.raises(LangfuseError, match=f"POST {broken}: status 503"),
    ):
        remote_experiment(
            {"datasetName": "colours"}, agent=shouts, metrics=[EXACT], langfuse=client
        )


def test_a_limit_on_the_rate_of_requests_is_waited_for() -> None:
    refused: set[str] = set()
    posted: list[str] = []

    class Busy(Handler):
        def do_GET(self) -> None:
            self.limited({"data": [item("blue")], "meta": {"totalPages": 1}})

        def do_POST(self) -> None:
            self.body()
            self.limited({"datasetRunId": "run-1"})

        def limited(self, found: Any) -> None:
            place = urlparse(self.path).path.removeprefix("/api/public/")
            if place in refused:
                posted.append(place)
                self.reply(200, json.dumps(found).encode())
            else:
                refused.add(place)
                self.reply(429, b"{}", Retry_After="0")

    with serving(Busy) as url:
        found = remote_experiment(
            {"datasetName": "colours"},
            agent=shouts,
            metrics=[EXACT],
            langfuse=Langfuse(url, "pk", "sk"),
            case_of=lambda one: item_case(one) | {"evalId": "an id of its own"},
        )

    assert posted == ["dataset-items", "ingestion", "dataset-run-items", *["scores"] * 3]
    assert (found["traceCount"], found["scoreCount"]) == (1, 3)


def test_langfuse_comes_from_the_environment_and_shows_no_secret() -> None:
    environ = {
        "LANGFUSE_HOST": "http://x", "LANGFUSE_PUBLIC_KEY": "pk", "LANGFUSE_SECRET_KEY": "hidden",
    }  # fmt: skip

    assert "hidden" not in repr(Langfuse.from_environ(environ))
    with pytest.raises(ConfigurationError, match="LANGFUSE_SECRET_KEY"):
        Langfuse.from_environ({**environ, "LANGFUSE_SECRET_KEY": ""})
    with pytest.raises(LangfuseError, match="GET dataset-items"):
        list(Langfuse("http://127.0.0.1:9", "pk", "sk").items("colours"))
