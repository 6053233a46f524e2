"""Judges that return garbage, fail, throttle, hang and lie: no crash, no invented score."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer, Services
from evaltap.evaluator.pipeline.batch.files import FileScorer
from evaltap.evaluator.pipeline.batch.run import score_files
from evaltap.evaluator.pipeline.batch.scorer import no_progress
from evaltap.evaluator.reports.summary import summarise
from evaltap.evaluator.scoring.contract.judge import Judge
from evaltap.evaluator.scoring.judges.budget import Budget, BudgetedJudge, BudgetLimits
from evaltap.evaluator.scoring.judges.cache import CachedJudge, JudgeCache
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.evaluator.scoring.judges.limits import LimitedJudge, Limiter
from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges
from evaltap.evaluator.scoring.judges.retries import RetryingJudge
from evaltap.evaluator.scoring.judges.settings import JudgeLimits
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.metric import EvalMetric
from support.servers.garbage_judge import IDS, GarbageJudge, expected, rows
from support.servers.judge_server import Answer, judge_server

SAMPLES, RETRIES, THRESHOLD = 2, 1, 0.6
METRIC = EvalMetric.model_validate(
    {
        "metricName": "llm_rubric_response",
        "threshold": THRESHOLD,
        "criterion": {
            "llmJudge": {
                "rubrics": [{"id": name, "content": {"text": "?"}} for name in IDS],
                "judgeModel": {"numSamples": SAMPLES, "generationConfig": {"max_tokens": 200}},
            }
        },
    }
)


class Clock:
    """A clock that jumps over what a judge asks to wait."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def wait(self, changed: threading.Condition, seconds: float | None) -> None:
        self._now += seconds or 0.0
        changed.wait(0.001)


def write_cases(path: Path, count: int) -> None:
    lines = []
    for number in range(count):
        turn = {
            "invocationId": "t",
            "userContent": {"role": "user", "content": f"case number {number} ."},
            "finalResponse": {"role": "assistant", "content": "done"},
        }
        session = {"appName": "a", "userId": "u"}
        case = {"evalId": str(number), "evalMode": "trace", "sessionInput": session}
        lines.append(json.dumps({**case, "actualConversation": [turn]}) + "\n")
    path.write_text("".join(lines))


def verdict(seed: int, case: int) -> tuple[str, float | None]:
    """Return the status and score a case must have, by the rules of the documentation alone."""
    given = [expected(seed, case, sample, RETRIES).verdict for sample in range(SAMPLES)]
    scores = [one for one in given if one is not None]
    if len(scores) < SAMPLES:
        return "error", None
    passing = [one for one in scores if one >= THRESHOLD]
    if len(passing) > SAMPLES - len(passing):
        return "passed", passing[0]
    return "failed", next(one for one in scores if one < THRESHOLD)


def check(folder: Path, seed: int, cases: int, *, budget_share: float) -> None:
    """Score that many cases through the whole chain into a store, and compare with the truth."""
    write_cases(folder / "c.jsonl", cases)
    client = GarbageJudge(seed)
    # Some cases are left without money.
    budget = Budget(BudgetLimits(tokens=int(cases * SAMPLES * 2000 * budget_share)))
    settings = JudgeSettings("m", "http://judge", "k")
    line: Judge = BudgetedJudge(client, budget, settings)
    clock = Clock()
    limiter = Limiter(JudgeLimits(concurrency=3), clock=clock, wait=clock.wait)
    line = LimitedJudge(line, limiter)
    line = RetryingJudge(line, RETRIES, sleep=lambda _: None)
    cache = JudgeCache(folder / "cache.db")
    judge = CachedJudge(line, cache, settings)
    scorer = CaseScorer([METRIC], services=Services(judge=lambda _: judge))

    with Store(":memory:") as store:
        files = FileScorer(scorer, [folder / "c.jsonl"], concurrency=4)
        run = score_files(store, files, scorer, "c.jsonl", no_progress).run
        scores = store.rows("SELECT eval_id::INT, status, score, reason FROM scores")
        calls = store.rows(
            "SELECT eval_id::INT, sample_index, status, score, reason FROM judge_calls"
        )
        summary = summarise(store, run_id=run.run_id).metrics[0]
    cache.close()

    assert sorted(row[0] for row in scores) == list(range(cases))
    outcomes = Counter(status for _, status, _, _ in scores)
    for case, status, score, reason in scores:
        if status == "not_evaluated":
            assert "budget spent" in reason
        else:
            assert (status, score) == verdict(seed, case), (case, reason)
        assert reason or score is not None
    for case, sample, _, score, reason in calls:
        truth = expected(seed, case, sample, RETRIES)
        assert score in (None, truth.verdict), (case, sample, truth.kind)
        assert score is not None or reason
    assert client.billed_tokens <= budget.spent.tokens <= (budget.limits.tokens or 0)
    assert budget.spent.calls == client.calls
    assert (budget.refused > 0) == (outcomes["not_evaluated"] > 0)
    assert outcomes == Counter(
        passed=summary.passed,
        failed=summary.failed,
        not_evaluated=summary.not_evaluated,
        error=summary.errors,
    )
    assert min(outcomes["passed"], outcomes["failed"], outcomes["error"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_no_answer_of_a_judge_crashes_a_run_or_invents_a_score(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed, 250, budget_share=(0.4 if seed % 2 else 9.0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_twenty_thousand_answers_crash_nothing_and_invent_no_score(
    tmp_path: Path, seed: int
) -> None:
    check(tmp_path, seed, 1000, budget_share=(0.4 if seed % 2 else 9.0))


# -- over HTTP -------------------------------------------------------------------------------------


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Say nothing until the other side has gone."""
    handler.connection.recv(1)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Promise a long answer and send it byte by byte, always in time for the next read."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    trickle(handler)


def drip_headers(handler: BaseHTTPRequestHandler) -> None:
    """Send headers without end, byte by byte."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Endless: ")
    trickle(handler)


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, until the other side has gone."""
    handler.connection.settimeout(0.02)
    with suppress(OSError):
        while True:
            handler.wfile.write(b" ")
            handler.wfile.flush()
            with suppress(TimeoutError):
                if not handler.connection.recv(1):
                    return


def stop_short(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection in the middle of the answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')


def wrong_encoding(handler: BaseHTTPRequestHandler) -> None:
    """Send text that says it is compressed."""
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.send_header("Content-Length", "5")
    handler.end_headers()
    handler.wfile.write(b"plain")


def redirect(handler: BaseHTTPRequestHandler) -> None:
    """Send the client in a circle."""
    handler.send_response(307)
    handler.send_header("Location", handler.path)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def no_http(handler: BaseHTTPRequestHandler) -> None:
    """Speak another protocol."""
    handler.wfile.write(b"220 mail.example.com ESMTP\r\n")


def usage(prompt: Any, completion: Any) -> Answer:
    """Answer with an honest verdict and dishonest counts."""
    whole = json.loads(Answer(rows(1, 1)).encoded())
    whole["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
    return Answer(body=json.dumps(whole).encode())


WIRE: dict[str, tuple[Callable[[], Answer], float | None]] = {
    "passes": (lambda: Answer(rows(1, 1)), 1.0),
    "fails": (lambda: Answer(rows(0, 0)), 0.0),
    "negative usage": (lambda: usage(-5, -5), 1.0),
    "usage without end": (lambda: usage(10**30, 10**400), 1.0),
    "usage of another type": (lambda: usage("11", {"a": 1}), 1.0),
    "usage that is no number": (lambda: usage(float("inf"), float("nan")), 1.0),
    "half a character": (lambda: Answer(rows(1, 1, reason="\ud800")), 1.0),
    "half a character in a garbled answer": (lambda: Answer("\ud800 all is well"), None),
    "unknown ids": (lambda: Answer(rows(1, 1, ids=("1", "9"))), None),
    "nothing": (lambda: Answer(""), None),
    "status 400": (lambda: Answer("no", status=400), None),
    "status 401": (lambda: Answer("no", status=401), None),
    "status 418": (lambda: Answer("no", status=418), None),
    "status 429": (lambda: Answer("no", status=429), None),
    "status 500": (lambda: Answer("no", status=500), None),
    "no JSON": (lambda: Answer(body=b"<html>busy</html>"), None),
    "deep JSON": (lambda: Answer(body=b"[" * 100_000), None),
    "bytes": (lambda: Answer(body=bytes(range(256))), None),
    "choices of another type": (lambda: Answer(body=b'{"choices": {"a": 1}}'), None),
    "hangs": (lambda: Answer(act=hang), None),
    "drips": (lambda: Answer(act=drip), None),
    "drips headers": (lambda: Answer(act=drip_headers), None),
    "stops short": (lambda: Answer(act=stop_short), None),
    "closes at once": (lambda: Answer(act=lambda _: None), None),
    "wrong encoding": (lambda: Answer(act=wrong_encoding), None),
    "goes in circles": (lambda: Answer(act=redirect), None),
    "speaks no HTTP": (lambda: Answer(act=no_http), None),
}


@pytest.mark.slow
def test_nothing_that_a_server_does_over_http_crashes_a_run_or_invents_a_score(
    tmp_path: Path,
) -> None:
    kinds = [*WIRE]

    def case_of(body: dict[str, Any]) -> int:
        return int(str(body["messages"][0]["content"]).partition("case number ")[2].split()[0])

    def script(body: dict[str, Any]) -> Answer:
        return WIRE[kinds[case_of(body)]][0]()

    write_cases(tmp_path / "c.jsonl", len(kinds))
    budget = Budget(BudgetLimits(calls=10_000))
    with judge_server(script) as server:
        judges = EnvironmentJudges(
            {
                "EVALTAP_JUDGE_BASE_URL": server.url,
                "EVALTAP_JUDGE_MODEL": "m",
                "EVALTAP_JUDGE_TIMEOUT": "3",
                "EVALTAP_JUDGE_RETRIES": "0",
            },
            budget=budget,
        )
        scorer = CaseScorer([METRIC], services=Services(judge=judges))
        with Store(":memory:") as store:
            files = FileScorer(scorer, [tmp_path / "c.jsonl"], concurrency=8)
            score_files(store, files, scorer, "c.jsonl", no_progress)
            scores = store.rows("SELECT eval_id::INT, status, score, reason FROM scores")
            told = store.rows("SELECT input_tokens, output_tokens FROM judge_calls")
        judges.close()

    for case, status, score, reason in scores:
        truth = WIRE[kinds[case]][1]
        assert score == truth, (kinds[case], reason)
        assert (status == "error") is (truth is None), kinds[case]
        assert reason or truth is not None
    assert len(scores) == len(kinds)
    assert all(one is None or 0 <= one <= 10**9 for pair in told for one in pair)
    # What was sent on a connection that the server had closed counts, too: nobody knows that it was not seen.
    assert 0 <= budget.spent.calls - len(server.requests) <= len(kinds)
