"""Judges are looked at once at the start: what will keep them from answering is said before anything else."""

import json
from pathlib import Path

import pytest

from cases import make_case, make_turn
from commands import Evaltap, runner
from judge_server import Answer, judge_server

GRADED = json.dumps({"rubricScores": [{"id": "1", "score": 1, "reason": "so"}]})


@pytest.fixture
def evaltap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Evaltap:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVALTAP_JUDGE_RETRIES", "0")
    cases = [make_case(f"c-{n}", [make_turn(answer="yes")]) for n in range(3)]
    Path("c.jsonl").write_text("\n".join(map(json.dumps, cases)))
    return runner(capsys)


def judged(**model: str) -> str:
    rubric = {"id": "1", "content": {"text": "It is so."}}
    judge = {"judgeModel": {"modelName": "m", **model}, "rubrics": [rubric]}
    metric = {"metricName": "llm_rubric_response", "threshold": 1, "criterion": {"llmJudge": judge}}
    words = {"toxicWords": {"values": ["idiot"]}}
    free = {"metricName": "toxic_words", "threshold": 1, "criterion": words}
    Path("m.json").write_text(json.dumps([metric, free]))
    return "m.json"


def test_a_judge_that_nobody_reaches_is_said_once_and_the_rest_is_scored(evaltap: Evaltap) -> None:
    code, out, err = evaltap(
        "score", "c.jsonl", "--metrics", judged(baseURL="http://127.0.0.1:9"), "--json"
    )

    first, *others = err.splitlines()
    assert first.startswith("evaltap score: judge m at 127.0.0.1:9 cannot be reached: ")
    assert not [line for line in others if "cannot be reached" in line]
    assert code == 3
    assert {m["metric_name"]: m["passed"] for m in json.loads(out)["metrics"]} == {
        "llm_rubric_response": 0,
        "toxic_words": 3,
    }


def test_a_key_that_is_not_set_is_named_before_anything_is_scored(evaltap: Evaltap) -> None:
    metrics = judged(providerName="anthropic", apiKey="${ANTHROPIC_API_KEY}")

    code, _, err = evaltap("score", "c.jsonl", "--metrics", metrics)

    assert code == 3
    assert err.startswith("evaltap score: judge not configured: ANTHROPIC_API_KEY is not set; set ")


def test_a_judge_that_answers_is_asked_without_a_word_of_trouble(evaltap: Evaltap) -> None:
    with judge_server(lambda _: Answer(GRADED)) as server:
        metrics = judged(baseURL=server.url, apiKey="${OPENAI_API_KEY}")
        code, _, err = evaltap("score", "c.jsonl", "--metrics", metrics)

    assert code == 0
    assert "cannot be reached" not in err
    assert "(without a key, as OPENAI_API_KEY is not set)" in err
