"""The evaluation server: who may ask, runs in the background, cases, Google ADK's routes, and the command."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from evaltap.evaluator.page.serving import PageServer
from evaltap.experiments.server import entrance, runs
from evaltap.experiments.service import RecordedAgent
from support.builders.served_agents import CASE, TOKEN, TURN, Served, Slow

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


BACKGROUND = {**AUTHORIZED, "Prefer": "respond-async, wait=1"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        ({"Authorization": f"Bearer {TOKEN} "}, 200),
        ({**AUTHORIZED, "Host": "evil.example"}, 421),
        ({**AUTHORIZED, "Host": "127.0.0.1:9"}, 421),
        ({**AUTHORIZED, "Host": "localhost:8080"}, 200),
        ({**AUTHORIZED, "Host": "evals.example.com"}, 200),
        ({**AUTHORIZED, "Origin": "http://evil.example"}, 403),
        ({**AUTHORIZED, "Origin": "null"}, 403),
        ({**AUTHORIZED, "Origin": "http://127.0.0.1:8080"}, 200),
        ({**AUTHORIZED, "Sec-Fetch-Site": "cross-site"}, 403),
        ({**AUTHORIZED, "Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_who_may_ask(client: TestClient, headers: dict[str, str], status: int) -> None:
    found = client.get("/evaluation/sets", headers=headers)

    assert found.status_code == status, found.text
    assert "access-control-allow-origin" not in found.headers
    assert found.headers["cache-control"] == "no-store"
    if status != 200:
        assert set(found.json()) == {"error"}


def test_scripts_of_a_named_page_may_ask(agent: RecordedAgent) -> None:
    page = {"Origin": "https://evals.example.com"}
    with TestClient(
        Served(agent, origins=(page["Origin"],)).app, "http://127.0.0.1:8080"
    ) as client:
        asked = client.options("/evaluation/runs", headers=page)
        found = client.get("/evaluation/sets", headers={**AUTHORIZED, **page})
        other = client.get("/evaluation/sets", headers={**AUTHORIZED, "Origin": "https://x.org"})

    assert asked.status_code == 204
    assert asked.headers["access-control-allow-headers"] == "Authorization, Content-Type"
    assert found.headers["access-control-allow-origin"] == page["Origin"]
    assert found.headers["vary"] == "Origin"
    assert other.status_code == 403


def test_a_body_that_is_too_large_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "MOST_BODY", 100_000)

    def parts() -> Iterator[bytes]:
        for _ in range(11):
            yield b" " * 10_000

    said = client.post("/evaluation/runs", headers=AUTHORIZED, content=b" " * 100_001)
    counted = client.post("/evaluation/runs", headers=AUTHORIZED, content=parts())

    assert (said.status_code, counted.status_code) == (413, 413)


def test_a_run_scores_what_the_agent_did(client: TestClient) -> None:
    found = client.post("/evaluation/runs", headers=AUTHORIZED, json={"setId": "golden"})

    result = found.json()["evaluationResult"]
    [case] = result["evalCases"]
    [turn] = case["evalCaseResults"][0]["evalMetricResultPerInvocation"]
    assert (found.status_code, result["overallStatus"]) == (201, "passed")
    assert turn["actualInvocation"]["tools"][0]["name"] == "get_order"
    stored = client.get("/evaluation/results?setId=golden", headers=AUTHORIZED).json()["results"]
    assert [one["evalSetResultId"] for one in stored] == [
        result["evalSetResult"]["evalSetResultId"]
    ]


def events(text: str) -> list[tuple[int, str, dict[str, Any]]]:
    found = []
    for block in filter(None, text.split("\n\n")):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


def test_a_run_in_the_background_is_followed_by_its_events(client: TestClient) -> None:
    asked = client.post(
        "/evaluation/runs", headers=BACKGROUND, json={"setId": "golden", "numRuns": 2}
    )
    place = asked.headers["location"]
    told = events(client.get(f"{place}/events", headers=AUTHORIZED).text)
    rest = client.get(f"{place}/events", headers={**AUTHORIZED, "Last-Event-ID": "7"})
    run = client.get(place, headers=AUTHORIZED).json()["run"]

    assert asked.status_code == 202
    assert asked.json()["run"]["state"] in ("queued", "running")
    assert [number for number, _, _ in told] == [*range(1, 10)]
    assert [name for _, name, _ in told] == [*["started", "tool", "turn", "scored"] * 2, "summary"]
    assert [data.get("runId") for _, _, data in told] == [1, 1, 1, 1, 2, 2, 2, 2, None]
    assert told[2][2]["answer"] == "It is shipped."
    assert events(rest.text) == told[7:]
    assert (run["state"], run["evaluationResult"]["overallStatus"]) == ("succeeded", "passed")
    assert (
        told[-1][2]["evalSetResultId"] in client.get("/evaluation/results", headers=AUTHORIZED).text
    )


def test_a_run_that_fails_in_the_background_says_why(client: TestClient) -> None:
    place = client.post("/evaluation/runs", headers=BACKGROUND, json={"setId": "none"}).headers[
        "location"
    ]
    client.get(f"{place}/events", headers=AUTHORIZED)

    run = client.get(place, headers=AUTHORIZED).json()["run"]
    assert (run["state"], "no eval set 'none'" in run["error"]) == ("failed", True)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_run_that_is_not_known_is_not_found(client: TestClient, method: str) -> None:
    assert client.request(method, "/evaluation/runs/x", headers=AUTHORIZED).status_code == 404


def test_a_cancelled_run_ends_at_once_and_keeps_the_runs_that_ended() -> None:
    agent = Slow(first=1)
    served = Served(agent)
    with TestClient(served.app, "http://127.0.0.1:8080") as client:
        place = client.post(
            "/evaluation/runs", headers=BACKGROUND, json={"setId": "golden", "numRuns": 3}
        ).headers["location"]
        assert agent.waiting.wait(10)
        cancelled = client.delete(place, headers=AUTHORIZED)
        told = events(client.get(f"{place}/events", headers=AUTHORIZED).text)
        again = client.delete(place, headers=AUTHORIZED)

    assert cancelled.status_code == 202
    assert told[-1][1:] == ("summary", {"state": "canceled"})
    assert (again.status_code, again.json()["run"]["state"]) == (200, "canceled")
    assert agent.answered == 2
    [saved] = served.stores.results.list("app")
    summary = served.stores.results.get("app", saved).summary
    assert summary is not None
    assert (summary.num_runs, summary.overall_status) == (1, "passed")


def test_a_run_that_waits_can_be_cancelled_and_too_many_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "MOST_WAITING", 1)
    agent = Slow(first=0)
    body = {"setId": "golden"}
    with TestClient(Served(agent, at_once=1).app, "http://127.0.0.1:8080") as client:
        first = client.post("/evaluation/runs", headers=BACKGROUND, json=body).headers["location"]
        second = client.post("/evaluation/runs", headers=BACKGROUND, json=body).headers["location"]
        refused = client.post("/evaluation/runs", headers=BACKGROUND, json=body)
        assert agent.waiting.wait(10)
        waiting = client.get(second, headers=AUTHORIZED).json()["run"]["state"]
        client.delete(second, headers=AUTHORIZED)
        client.get(f"{second}/events", headers=AUTHORIZED)
        ended = client.get(second, headers=AUTHORIZED).json()["run"]["state"]
        client.delete(first, headers=AUTHORIZED)

    assert (waiting, ended, refused.status_code) == ("queued", "canceled", 503)
    assert agent.answered == 1


def test_a_run_that_takes_too_long_is_cancelled() -> None:
    agent, body = Slow(first=0), {"setId": "golden"}
    with TestClient(Served(agent, run_seconds=0.05).app, "http://127.0.0.1:8080") as client:
        found = client.post("/evaluation/runs", headers=AUTHORIZED, json=body)
        place = client.post("/evaluation/runs", headers=BACKGROUND, json=body).headers["location"]
        events = client.get(f"{place}/events", headers=AUTHORIZED).text

    assert (found.status_code, found.json()) == (504, {"error": "evaluation timed out"})
    assert '"state":"failed","error":"evaluation timed out"' in events


def test_a_client_that_leaves_takes_its_run_with_it_and_the_end_of_the_server_ends_runs() -> None:
    agent = Slow(first=0)
    served = Served(agent)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = PageServer(served.app, listener, when_ending=served.app.state.cancel)
    server.start()
    body = b'{"setId": "golden"}'
    head = f"POST /evaluation/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode() + body

    with socket.create_connection(("127.0.0.1", port)) as leaving:
        leaving.sendall(request)
        assert agent.waiting.wait(10)
    assert agent.cancelled.wait(10)
    agent.waiting.clear()
    with socket.create_connection(("127.0.0.1", port)) as staying:
        staying.sendall(request)
        assert agent.waiting.wait(10)
        server.stop()
        assert staying.recv(12) == b"HTTP/1.1 408"


def test_metrics_that_run_code_are_refused(client: TestClient, agent: RecordedAgent) -> None:
    metric = {"metricName": "m", "evaluatorName": "external_command", "threshold": 1}
    served = Served(agent)
    served.stores.metrics.add("app", "golden", metric)  # by another program
    body = {"setId": "golden", "metric": metric}

    added = client.post("/evaluation/metrics", headers=AUTHORIZED, json=body)
    with TestClient(served.app, "http://127.0.0.1:8080") as other:
        run = other.post("/evaluation/runs", headers=AUTHORIZED, json={"setId": "golden"})

    for found in (added, run):
        assert (found.status_code, "runs code" in found.json()["error"]) == (400, True)


def test_runs_with_a_metric_without_an_evaluator_are_refused_with_the_reason(
    client: TestClient,
) -> None:
    metric = {"metricName": "m2", "threshold": 1, "criterion": {"finalResponse": {"text": {}}}}
    body = {"setId": "golden", "metric": metric}

    added = client.post("/evaluation/metrics", headers=AUTHORIZED, json=body)
    put = client.put("/evaluation/metrics/m2", headers=AUTHORIZED, json=body)
    run = client.post("/evaluation/runs", headers=AUTHORIZED, json={"setId": "golden"})

    assert [one.status_code for one in (added, put, run)] == [201, 200, 400]
    assert "no evaluator named 'm2'" in run.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/cases", {"case": {"evalId": "new"}}, 201),
        ("POST", "/cases", {"case": {"evalId": "ship"}}, 409),
        ("POST", "/cases", {"case": None}, 400),
        ("POST", "/cases", {"case": {"evalId": ""}}, 400),
        ("POST", "/cases", {"case": {"evalId": "n"}, "colour": 1}, 400),
        ("POST", "/cases", {"case": {"evalId": "n", "of_another_tool": 1}}, 201),
        ("POST", "/cases", {"case": {"evalId": "n", "conversation": 1}}, 400),
        ("POST", "/cases", {"case": {"evalId": "n", "conversation": [None]}}, 400),
        ("GET", "/cases/ship", None, 200),
        ("GET", "/cases/none", None, 404),
        ("PUT", "/cases/ship", {"case": {"evalMode": "trace"}}, 200),
        ("PUT", "/cases/ship", {"case": {"evalId": "other"}}, 400),
        ("PUT", "/cases/none", {"case": {}}, 404),
        ("DELETE", "/cases/ship", None, 204),
        ("DELETE", "/cases/none", None, 404),
        ("PATCH", "/cases/ship", None, 405),
    ],
)
def test_cases_are_edited(
    client: TestClient, method: str, path: str, body: Any, status: int
) -> None:
    found = client.request(method, f"/evaluation/sets/golden{path}", headers=AUTHORIZED, json=body)

    assert found.status_code == status, found.text


def test_a_case_that_has_changed_since_it_was_read_is_not_overwritten(client: TestClient) -> None:
    path = "/evaluation/sets/golden/cases/ship"
    tag = client.get(path, headers=AUTHORIZED).headers["etag"]
    body = {"case": {**CASE, "evalMode": "trace"}}

    first = client.put(path, headers={**AUTHORIZED, "If-Match": tag}, json=body)
    second = client.put(path, headers={**AUTHORIZED, "If-Match": tag}, json={"case": CASE})
    third = client.put(path, headers={**AUTHORIZED, "If-Match": first.headers["etag"]}, json=body)

    assert (first.status_code, second.status_code, third.status_code) == (200, 412, 200)


@pytest.mark.slow
def test_the_web_tab_of_google_adk_reads_every_answer(client: TestClient) -> None:
    dev_server: Any = pytest.importorskip("google.adk.cli.dev_server")
    from google.adk.evaluation.eval_case import EvalCase

    base = "/dev/apps/app"

    def got(path: str, method: str = "GET", body: Any = None) -> Any:
        found = client.request(method, f"{base}{path}", headers=AUTHORIZED, json=body)
        assert found.status_code == 200, found.text
        return found.json()

    sets = dev_server.ListEvalSetsResponse.model_validate(got("/eval-sets"))
    assert sets.eval_set_ids == got("/eval_sets") == ["golden"]
    made = got("/eval-sets", "POST", {"eval_set": {"eval_set_id": "n", "eval_cases": []}})
    assert dev_server.EvalSet.model_validate(made).eval_set_id == "n"
    got("/eval-sets/n", "DELETE")
    assert got("/eval_sets/golden/evals") == ["ship"]

    case = got("/eval_sets/golden/evals/ship")
    read = EvalCase.model_validate(case)
    assert read.conversation is not None
    calls: Any = read.conversation[0].intermediate_data
    assert calls.tool_uses[0].args == {"order_id": "A-100"}
    case["conversation"][0]["finalResponse"]["parts"][0]["text"] = "Lost."
    got("/eval_sets/golden/evals/ship", "PUT", case)
    assert got("/eval-sets/golden/eval-cases/ship") == case

    metrics = [
        {"metricName": "response_match_score", "threshold": 0.8},
        {"metricName": "tool_trajectory_avg_score", "criterion": {"threshold": 1, "matchType": 2}},
    ]
    body = {"eval_case_ids": ["ship"], "eval_metrics": metrics}
    dev_server.RunEvalRequest.model_validate(body)
    ran = dev_server.RunEvalResponse.model_validate(got("/eval-sets/golden/run", "POST", body))
    [result] = ran.run_eval_results
    rows = {one.metric_name: one.eval_status.name for one in result.overall_eval_metric_results}
    assert rows == {"response_match_score": "FAILED", "tool_trajectory_avg_score": "PASSED"}
    assert result.final_eval_status.name == "FAILED"
    [turn] = result.eval_metric_result_per_invocation
    assert turn.actual_invocation.final_response.parts[0].text == "It is shipped."

    results = dev_server.ListEvalResultsResponse.model_validate(got("/eval-results"))
    [saved] = results.eval_result_ids
    dev_server.EvalResult.model_validate(got(f"/eval_results/{saved}"))
    info = dev_server.ListMetricsInfoResponse.model_validate(got("/metrics-info"))
    assert "hallucinations_v1" in [one.metric_name for one in info.metrics_info]
    got("/eval_sets/golden/evals/ship", "DELETE")


MOCK = {"actual": [{"name": "get_order", "result": 1}]}
PLAN = {"startingPrompt": "Hi", "conversationPlan": "Ask.", "maxAllowedInvocations": 3}


@pytest.mark.parametrize(
    ("more", "edit", "edited"),
    [
        (
            {"conversation": [{**TURN, "toolMock": MOCK}, {**TURN, "invocationId": "2"}]},
            lambda case: case["conversation"][0]["finalResponse"]["parts"][0].update(text="Lost."),
            lambda case: case["conversation"][0]["finalResponse"].update(content="Lost."),
        ),
        (
            {"conversation": [], "conversationScenario": PLAN},
            lambda case: case["conversationScenario"].update(conversationPlan="Insist."),
            lambda case: case["conversationScenario"].update(conversationPlan="Insist."),
        ),
    ],
)
def test_an_edit_with_google_adk_keeps_what_its_form_does_not_carry(
    client: TestClient, more: Any, edit: Any, edited: Any
) -> None:
    path, adk = "/evaluation/sets/golden/cases", "/dev/apps/app/eval-sets/golden/eval-cases/full"
    kept = {"toolMock": MOCK, "contextMessages": [{"role": "system", "content": "Be kind."}]}
    given = {**CASE, "evalId": "full", **kept, **more}
    before = client.post(path, headers=AUTHORIZED, json={"case": given}).json()["case"]
    case = client.get(adk, headers=AUTHORIZED).json()

    for change in (lambda _: None, edit):
        change(case)
        assert client.put(adk, headers=AUTHORIZED, json=case).status_code == 200
        found = client.get(f"{path}/full", headers=AUTHORIZED).json()["case"]
        assert (found == before) is (change is not edit)

    edited(before)
    assert found == before


RUN = "/dev/apps/app/eval-sets/golden/run"
ROUGE = {"metricName": "response_match_score", "threshold": 0.5}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/dev/apps/other/eval-sets", None, 404),
        ("GET", "/dev/apps/app/eval_sets/none/evals", None, 404),
        ("GET", "/dev/apps/app/eval-results/none", None, 404),
        ("POST", "/dev/apps/app/eval-sets", {}, 400),
        ("POST", "/dev/apps/app/eval-sets", {"eval_set": {"eval_set_id": "golden"}}, 400),
        ("POST", RUN, [], 400),
        ("POST", RUN, {"eval_metrics": [1]}, 400),
        ("POST", RUN, {"eval_case_ids": ["none"]}, 400),
        ("POST", RUN, {"eval_case_ids": "ship"}, 400),
        ("POST", RUN, {"eval_metrics": [ROUGE, ROUGE]}, 400),
        ("POST", RUN, {"eval_metrics": [{**ROUGE, "criterion": "x"}]}, 400),
        ("PUT", "/dev/apps/app/eval_sets/golden/evals/ship", {"evalId": "other"}, 400),
        ("PUT", "/dev/apps/app/eval_sets/golden/evals/ship", {"conversation": [1]}, 400),
        ("POST", "/dev/apps/app/eval-sets/golden/add-session", {}, 501),
    ],
)
def test_errors_of_adk_s_routes_have_its_form(
    client: TestClient, method: str, path: str, body: Any, status: int
) -> None:
    found = client.request(method, path, headers=AUTHORIZED, json=body)

    assert found.status_code == status, found.text
    assert set(found.json()) == {"detail"}
