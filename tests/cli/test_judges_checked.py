"""Judges are checked once at the start: problems that prevent answers are reported first."""

import json
from pathlib import Path

import pytest

from evaltap.recorder import Recorder
from support.builders.cases import make_case, make_turn
from support.builders.commands import Evaltap
from support.servers.judge_server import Answer, judge_server

GRADED = json.dumps({"rubricScores": [{"id": "1", "score": 1, "reason": "so"}]})


@pytest.fixture
def evaltap(evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch) -> Evaltap:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EVALTAP_JUDGE_RETRIES", "0")
    cases = [make_case(f"c-{n}", [make_turn(answer="yes")]) for n in range(3)]
    Path("c.jsonl").write_text("\n".join(map(json.dumps, cases)))
    return evaltap


def judged(**model: str) -> str:
    rubric = {"id": "1", "content": {"text": "It is so."}}
    judge = {"judgeModel": {"modelName": "m", **model}, "rubrics": [rubric]}
    metric = {"metricName": "llm_rubric_response", "threshold": 1, "criterion": {"llmJudge": judge}}
    words = {"toxicWords": {"values": ["idiot"]}}
    free = {"metricName": "toxic_words", "threshold": 1, "criterion": words}
    Path("m.json").write_text(json.dumps([metric, free]))
    return "m.json"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://judge.invalid/v1"])
def test_a_judge_that_nobody_reaches_is_refused_before_the_first_case(
    evaltap: Evaltap, url: str
) -> None:
    code, out, err = evaltap(
        "score", "c.jsonl", "--metrics", judged(baseURL=url), "--db", "x.duckdb"
    )

    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(f"evaltap score: judge m at {url.split('/')[2]} cannot be reached: ")
    assert not Path("x.duckdb").exists()


def test_a_judge_whose_metrics_are_left_out_need_not_be_there(evaltap: Evaltap) -> None:
    metrics = judged(baseURL="http://127.0.0.1:9")

    code, _, err = evaltap("score", "c.jsonl", "--metrics", metrics, "--cost-class", "free")

    assert code == 0
    assert "cannot be reached" not in err


@pytest.mark.slow
def test_answers_that_are_kept_need_no_judge(evaltap: Evaltap) -> None:
    with judge_server(lambda _: Answer(GRADED)) as server:
        metrics = judged(baseURL=server.url)
        command = ("score", "c.jsonl", "--metrics", metrics, "--judge-cache")
        assert evaltap(*command, "kept.db")[0] == 0

    code, _, err = evaltap(*command, "kept.db")

    assert code == 0
    assert "only answers from the cache are used" in err
    other = judged(baseURL="http://127.0.0.1:9")
    assert evaltap("score", "c.jsonl", "--metrics", other, "--judge-cache", "kept.db")[0] == 2
    judged(baseURL=server.url)
    assert evaltap(*command, "empty.db")[0] == 2


@pytest.mark.slow
def test_a_store_without_a_case_to_score_needs_no_judge(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    with recorder.turn(session_id="s", user="Hi") as turn:
        turn.respond("Hello")
    recorder.close()
    with judge_server(lambda _: Answer(GRADED)) as server:
        metrics = judged(baseURL=server.url)
        land = ("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")
        assert evaltap(*land, "--metrics", metrics, "--judge-cache", "off")[0] == 0

    assert evaltap("score", "x.duckdb", "--metrics", metrics, "--judge-cache", "off")[0] == 0

    assert evaltap(*land[:3], "--db", "y.duckdb", "--until-idle")[0] == 0
    code, _, err = evaltap("score", "y.duckdb", "--metrics", metrics, "--judge-cache", "off")
    assert (code, "cannot be reached" in err) == (2, True)


def test_what_lands_is_kept_while_the_judge_is_away(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    with recorder.turn(session_id="s", user="Hi") as turn:
        turn.respond("Hello")
    recorder.close()
    metrics = judged(baseURL="http://127.0.0.1:9")

    code, _, err = evaltap(
        "consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--metrics", metrics
    )

    assert code == 3
    assert err.count("cannot be reached") == 1
    found = json.loads(
        evaltap("sql", "SELECT count(*) AS n FROM turns", "--db", "x.duckdb", "--json")[1]
    )
    assert found == [{"n": 1}]


def test_an_embedder_that_nobody_reaches_is_refused(evaltap: Evaltap) -> None:
    model = {"modelName": "e", "baseURL": "http://127.0.0.1:9"}
    metric = {"metricName": "embedding_similarity", "threshold": 0.5,
              "criterion": {"embedding": {"model": model}}}  # fmt: skip
    Path("e.json").write_text(json.dumps([metric]))

    code, _, err = evaltap("score", "c.jsonl", "--metrics", "e.json")

    assert code == 2
    assert "evaltap score: embeddings e at 127.0.0.1:9 cannot be reached: " in err


@pytest.mark.parametrize("status", [429, 503])
def test_a_judge_that_answers_with_a_refusal_is_reached(evaltap: Evaltap, status: int) -> None:
    with judge_server(lambda _: Answer("", status=status)) as server:
        code, _, err = evaltap("score", "c.jsonl", "--metrics", judged(baseURL=server.url))

    assert code == 3
    assert "cannot be reached" not in err


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
