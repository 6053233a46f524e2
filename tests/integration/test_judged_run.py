"""A judged run end to end: the metric's own judge over HTTP, votes in the store, no key anywhere."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from cases import RUBRIC, make_case, make_records, make_turn, write_log
from evaltap.evaluator.cli import main
from judge_server import Answer, judge_server

KEY = "sk-very-secret-0123456789"


def verdict(score: float, reason: str = "because") -> Answer:
    rows = [{"id": "1", "score": score, "reason": reason}]
    return Answer(json.dumps({"rubricScores": rows}))


def by_answer(body: dict[str, Any]) -> Answer:
    """Judge by the agent's words, which are somewhere in the prompt."""
    return verdict(0) if "no idea" in str(body) else verdict(1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("BASE_URL", "MODEL", "API_KEY"):
        monkeypatch.delenv(f"EVALTAP_JUDGE_{name}", raising=False)
    cases = [make_case("good", [make_turn()]), make_case("bad", [make_turn(answer="no idea")])]
    Path("c.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    return tmp_path


def write_metrics(**judge: object) -> None:
    model = {"providerName": "openai", "modelName": "judge-1", "numSamples": 3, **judge}
    metric = json.loads(json.dumps(RUBRIC))
    metric["criterion"]["llmJudge"]["judgeModel"] = model
    Path("m.json").write_text(json.dumps([metric]))


def score(*more: str) -> int:
    return main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb", *more])


def query(statement: str) -> list[tuple[Any, ...]]:
    with duckdb.connect("x.duckdb", read_only=True) as store:
        return store.execute(statement).fetchall()


def test_the_metrics_own_judge_decides_and_every_vote_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_JUDGE_KEY", KEY)
    with judge_server(by_answer) as server:
        monkeypatch.setenv("MY_JUDGE_URL", server.url)
        write_metrics(baseURL="${MY_JUDGE_URL}", apiKey="${MY_JUDGE_KEY}")

        assert score("--result", "out") == 1

    assert all(headers["authorization"] == f"Bearer {KEY}" for headers, _ in server.requests)
    assert query("SELECT eval_id, score, status FROM scores ORDER BY 1") == [
        ("bad", 0, "failed"),
        ("good", 1, "passed"),
    ]
    assert query("SELECT eval_id, count(*) FROM rubric_votes GROUP BY 1 ORDER BY 1") == [
        ("bad", 3),
        ("good", 3),
    ]
    for path in folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


def test_the_environment_overrides_the_metrics_judge(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_metrics(baseURL="http://127.0.0.1:9/v1", apiKey="none")
    with judge_server(by_answer) as server:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", server.url)
        monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", KEY)
        monkeypatch.setenv("EVALTAP_JUDGE_MODEL", "other-model")

        assert score() == 1

    assert {body["model"] for _, body in server.requests} == {"other-model"}


def test_a_judge_that_cannot_be_reached_leaves_no_score_and_exit_code_3(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_TIMEOUT", "2")
    write_metrics(baseURL="http://127.0.0.1:9/v1", apiKey="none")

    assert score() == 3

    rows = query("SELECT score, status, reason FROM scores")
    assert [row[:2] for row in rows] == [(None, "error")] * 2
    assert all(row[2] for row in rows)


def test_garbage_from_a_judge_is_no_score(folder: Path) -> None:
    with judge_server(lambda _: Answer("I would rather not say.")) as server:
        write_metrics(baseURL=server.url, apiKey="k")

        assert score() == 3

    assert query("SELECT DISTINCT score, status FROM scores") == [(None, "error")]


def test_a_session_that_goes_on_is_judged_only_for_its_new_turn(folder: Path) -> None:
    def consume() -> None:
        main(
            [
                "consume",
                "--log",
                "log.db",
                "--db",
                "x.duckdb",
                "--metrics",
                "m.json",
                "--until-idle",
            ]
        )

    first, second = (make_case("s", [make_turn(f"t-{number}")]) for number in (1, 2))
    with judge_server(lambda _: verdict(1)) as server:
        write_metrics(baseURL=server.url, apiKey="k", numSamples=1)
        write_log(Path("log.db"), make_records([first]))
        consume()
        asked = len(server.requests)
        write_log(Path("log.db"), make_records([second], first_seq=2))
        consume()

        assert (asked, len(server.requests)) == (1, 2)
    assert query("SELECT revision, score, turn_count FROM scores ORDER BY 1") == [
        (1, 1, 1),
        (2, 1, 2),
    ]
    assert query("SELECT invocation_id, count(*) FROM turn_scores GROUP BY 1 ORDER BY 1") == [
        ("t-1", 1),
        ("t-2", 1),
    ]
