"""A judged run end to end: the metric's own judge over HTTP, votes in the store, and no key anywhere."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.cli.main import main
from support.builders.cases import RUBRIC, make_case, make_records, make_turn, write_log
from support.servers.judge_server import Answer, judge_server

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
    for name in ("BASE_URL", "MODEL", "API_KEY", "PRICE_INPUT", "BUDGET_USD"):
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
    monkeypatch.setenv("MY_JUDGE_API_KEY", KEY)
    with judge_server(by_answer) as server:
        monkeypatch.setenv("MY_JUDGE_URL", server.url)
        write_metrics(baseURL="${MY_JUDGE_URL}", apiKey="${MY_JUDGE_API_KEY}")

        assert score("--result", "out", "--allow-variables") == 1

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


def test_a_judge_that_breaks_off_leaves_no_score_and_exit_code_3(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_RETRIES", "0")
    with judge_server(lambda _: Answer(act=lambda handler: handler.connection.close())) as server:
        write_metrics(baseURL=server.url, apiKey="none")

        assert score() == 3

    rows = query("SELECT score, status, reason FROM scores")
    assert [row[:2] for row in rows] == [(None, "error")] * 2
    assert all(row[2] for row in rows)


@pytest.mark.slow
def test_samples_that_were_not_asked_for_are_no_calls_and_invalid_answers_are_errors(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_RETRIES", "0")
    with judge_server(
        lambda body: Answer("garbage", status=500 if "no idea" in str(body) else 200)
    ) as server:
        write_metrics(baseURL=server.url, apiKey="k")
        metric = json.loads(Path("m.json").read_text())
        metric[0]["criterion"]["llmJudge"]["earlyStop"] = True
        Path("m.json").write_text(json.dumps(metric))
        score("--report", "r.json")

    assert len(server.requests) == 5
    assert query("SELECT sum(calls), sum(errors), sum(not_asked) FROM v_judge_cost") == [(5, 5, 1)]
    assert json.loads(Path("r.json").read_text())["judge"]["count"] == 5


def test_every_answer_is_accounted_for_and_one_from_the_cache_costs_nothing(folder: Path) -> None:
    prices = {"inputPerMillion": 1000, "outputPerMillion": 2000}
    with judge_server(by_answer) as server:
        write_metrics(baseURL=server.url, apiKey="k", prices=prices)
        score("--judge-cache", "answers.db")
        asked = len(server.requests)
        score("--judge-cache", "answers.db")

        assert (asked, len(server.requests)) == (6, 6)
    assert query(
        "SELECT cached, count(*), sum(input_tokens), sum(cost_usd), sum(saved_usd), any_value(model)"
        " FROM judge_calls GROUP BY 1 ORDER BY 1"
    ) == [
        (False, 6, 66, pytest.approx(0.15), None, "served-model"),
        (True, 6, 0, 0, pytest.approx(0.15), "served-model"),
    ]
    assert query("SELECT calls, cached, errors, cost_usd, saved_usd FROM v_judge_cost") == [
        (12, 6, 0, pytest.approx(0.15), pytest.approx(0.15))
    ]
    assert query("SELECT turns, unanimous, mean_share_of_majority FROM v_judge_agreement") == [
        (2, 2, 1)
    ]  # of two runs, the last one counts
    assert query("SELECT DISTINCT score FROM scores ORDER BY 1") == [(0,), (1,)]


def test_a_spent_budget_leaves_the_rest_for_another_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with judge_server(lambda _: verdict(1)) as server:
        write_metrics(baseURL=server.url, apiKey="k")
        options = ("--judge-cache", "answers.db", "--concurrency", "1")

        assert score(*options, "--budget-calls", "4") == 3
        assert len(server.requests) == 4
        assert "the judge budget is spent" in capsys.readouterr().err
        assert query("SELECT status, reason FROM scores ORDER BY eval_id DESC") == [
            ("passed", "because"),
            ("not_evaluated", "budget spent: 4 of 4 calls"),
        ]

        assert score(*options, "--budget-calls", "2") == 0
        assert len(server.requests) == 6


@pytest.mark.slow
def test_an_agent_of_which_some_runs_were_not_judged_has_not_passed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bot.py").write_text("def answer(messages):\n    return 'It is shipped.'\n")
    command = ["run", "c.jsonl", "--agent", "bot:answer", "--metrics", "m.json", "--db", "x.duckdb"]
    with judge_server(lambda _: verdict(1)) as server:
        write_metrics(baseURL=server.url, apiKey="k")
        codes = [
            main([*command, "--mocks", "off", "--budget-calls", "3", "--judge-cache", "off", *more])
            for more in (["--concurrency", "1"], ["--resume"])
        ]

    first, second = capsys.readouterr().out.split("runs scored")[:2]
    assert codes == [3, 0]
    assert "(1 of 1 run, " in first
    assert "1 run not evaluated" in first
    assert "0/0 passed, 1 not evaluated: llm_rubric_response: budget spent" in first
    assert "(2 of 2 runs, " in second


@pytest.mark.slow
def test_landed_turns_that_were_paid_for_are_not_paid_for_again(folder: Path) -> None:
    cases = [make_case("s", [make_turn(f"t-{place}")]) for place in (1, 2)]
    write_log(Path("log.db"), make_records(cases))
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"])
    command = ["score", "x.duckdb", "--metrics", "m.json", "--budget-calls"]
    with judge_server(lambda _: verdict(1)) as server:
        write_metrics(baseURL=server.url, apiKey="k", numSamples=1)

        assert main([*command, "1"]) == 3
        assert main([*command, "1", "--retry"]) == 0

        assert len(server.requests) == 2
    assert query("SELECT status FROM scores ORDER BY scored_at") == [
        ("not_evaluated",),
        ("passed",),
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--budget-usd", "1"), "a budget in USD needs prices, and those of judge-1 at"),
        (("--judge-cache", "m.json"), "judge cache m.json cannot be opened"),
    ],
)
def test_what_cannot_be_kept_is_said_before_anything_is_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, str], says: str
) -> None:
    write_metrics(baseURL="http://127.0.0.1:9/v1", apiKey="k")

    assert score(*options) == 2

    assert says in capsys.readouterr().err


def test_a_file_of_the_layout_before_judge_calls_is_brought_up_to_date(folder: Path) -> None:
    from evaltap.evaluator.store.database import STORE, Store, sql

    Store("x.duckdb").close()
    with duckdb.connect("x.duckdb") as store:
        store.execute("DROP VIEW v_judge_cost; DROP VIEW v_judge_agreement; DROP TABLE judge_calls")
        for column in ("evidence", "evidence_found", "confidence"):
            store.execute(f"ALTER TABLE rubric_votes DROP COLUMN {column}")
        store.execute("DELETE FROM meta; INSERT INTO meta VALUES ('schema_version', '1')")
    with judge_server(by_answer) as server:
        write_metrics(baseURL=server.url, apiKey="k")

        assert score() == 1

    assert query("SELECT count(*) FROM judge_calls") == [(6,)]
    assert query("SELECT count(*), count(evidence) FROM rubric_votes") == [(6, 0)]
    assert "ADD COLUMN IF NOT EXISTS" in sql(STORE, "migrations")


def test_garbage_from_a_judge_is_no_score(folder: Path) -> None:
    with judge_server(lambda _: Answer("I would rather not say.")) as server:
        write_metrics(baseURL=server.url, apiKey="k")

        assert score() == 3

    assert query("SELECT DISTINCT score, status FROM scores") == [(None, "error")]


@pytest.mark.slow
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
