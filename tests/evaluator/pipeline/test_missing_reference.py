"""No reference, no verdict; several references, the best of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, Services
from evaltap.evaluator.cases.pairing import Placeholders
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.scoring.contract.judge import JudgeRequest, ScriptedJudge
from evaltap.evaluator.scoring.scorer import MetricOutcome
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import (
    RESPONSE,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)

LEXICAL = {"metricName": "lexical_similarity", "threshold": 1, "criterion": {"lexical": {}}}
F1 = {"metricName": "trajectory_f1", "threshold": 1, "criterion": {"trajectory": {}}}
STATE = {"metricName": "state_match", "threshold": 1, "criterion": {"trajectory": {}}}
EMBEDDING = {
    "metricName": "embedding_similarity",
    "threshold": 1,
    "criterion": {"embedding": {"model": {"modelName": "letters"}}},
}
XML_ONLY = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"xml": {"matchStrategy": "skip"}}},
}
JUDGED = {"metricName": "llm_final_response", "threshold": 1, "criterion": {"llmJudge": {}}}
RECORDED: dict[str, Any] = {"source": {"service": "shop", "recorderVersion": "1"}}


class Letters:
    """Embeds a text as the counts of two of its letters."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [[float(text.count("d")), float(text.count("x"))] for text in texts]


def outcome(
    metric: dict[str, Any], *, placeholders: Placeholders = "auto", **case: Any
) -> MetricOutcome:
    judge = ScriptedJudge(_valid_if_listed)
    services = Services(judge=lambda _: judge, embeddings=lambda _: Letters())
    scorer = CaseScorer(
        [EvalMetric.model_validate(metric)], services=services, placeholders=placeholders
    )
    return scorer.score(make_case(**case)).metrics[0]


def _valid_if_listed(request: JudgeRequest) -> str:
    listed = "1. nope" in request.prompt and "2. done" in request.prompt
    return f"reasoning: r\nis_the_agent_response_valid: {'valid' if listed else 'invalid'}"


def stated(answer: str, **given: Any) -> dict[str, Any]:
    return make_turn(answer=answer, state={"n": answer}, **given)


COMPARING = [TRAJECTORY, RESPONSE, LEXICAL, F1, STATE, EMBEDDING, JUDGED]
NAMES = [str(metric["metricName"]) for metric in COMPARING]


@pytest.mark.parametrize("metric", COMPARING, ids=NAMES)
def test_what_evaltap_recorded_without_a_reference_gets_no_verdict_by_one(
    metric: dict[str, Any],
) -> None:
    found = outcome(metric, turns=[stated("done")], **RECORDED)

    assert (found.status.value, found.score) == ("not_evaluated", None)
    assert found.reason.startswith("no reference: ")


def test_the_peers_files_are_compared_with_placeholders_and_others_on_request() -> None:
    given: list[tuple[Placeholders, dict[str, Any]]] = [("auto", {}), ("peer", RECORDED)]
    for placeholders, case in given:
        found = outcome(RESPONSE, placeholders=placeholders, **case)
        assert (found.status.value, found.score) == ("passed", 1.0)
        assert outcome(TRAJECTORY, placeholders=placeholders, **case).status.value == "failed"


def test_a_criterion_that_compares_with_nothing_needs_no_reference() -> None:
    found = outcome(XML_ONLY, turns=[make_turn(answer="<a/>")], **RECORDED)

    assert found.status.value == "passed"


@pytest.mark.parametrize("metric", COMPARING, ids=NAMES)
def test_the_best_of_several_references_counts(metric: dict[str, Any]) -> None:
    wrong = stated("nope", tools=[make_tool("other")], references=[stated("done")])

    found = outcome(metric, turns=[stated("done")], conversation=[wrong])

    assert (found.status.value, found.score) == ("passed", 1.0)
    if metric is not JUDGED:  # the judge sees all of them
        assert found.reason.startswith("reference 2 of 2 fits best")


def test_where_no_reference_matches_the_reason_names_the_one_it_is_about() -> None:
    conversation = [make_turn(answer="no", references=[make_turn(answer="never")])]

    found = outcome(RESPONSE, conversation=conversation)

    assert (found.score, found.reason[:27]) == (0.0, "reference 1 of 2 fits best:")


def test_a_recording_scored_against_itself_passes_though_a_call_failed() -> None:
    error = {"type": "E", "message": "m"}
    turn = make_turn(tools=[make_tool(error=error), make_tool(), make_tool("b", error=error)])
    for known in ({"name", "arguments"}, {"name", "arguments", "error"}):
        own = [{key: call[key] for key in known & call.keys()} for call in turn["tools"]]
        found = outcome(F1, turns=[turn], conversation=[make_turn(tools=own)])
        assert (found.status.value, found.score) == ("passed", 1.0)


def test_a_failed_call_does_not_stand_for_one_that_had_a_result() -> None:
    turn = make_turn(tools=[make_tool(error={"type": "E", "message": "m"})])

    found = outcome(F1, turns=[turn], conversation=[make_turn(tools=[make_tool(result=1)])])

    assert (found.score, found.status.value) == (0.0, "failed")


# -- what has landed -------------------------------------------------------------------------------


def test_turns_that_landed_with_a_reference_are_compared_and_the_others_are_not(
    tmp_path: Path,
) -> None:
    first = make_case("s", [make_turn("t-1")], conversation=[make_turn("t-1")])
    cases = [first, make_case("s", [make_turn("t-2")]), make_case("bare")]
    log = write_log(tmp_path / "log.db", make_records(cases))
    metrics = [EvalMetric.model_validate(one) for one in (TRAJECTORY, RESPONSE)]
    for recent in (True, False):  # from what is in memory, and read back from the store
        with Store(":memory:") as store:
            source = LocalLogSource(log)
            pending = PendingScorer(store, CaseScorer(metrics))
            scorer = pending if recent else None
            Consumer(source, store, scorer=scorer).run(until_idle=True, report=lambda _: None)
            source.close()
            if not recent:
                pending.score("landed", "")
            rows = store.rows(
                "SELECT DISTINCT eval_id, invocation_id, status FROM turn_scores ORDER BY ALL"
            )
            assert rows == [
                ("bare", "t-1", "not_evaluated"),
                ("s", "t-1", "passed"),
                ("s", "t-2", "not_evaluated"),
            ]


@pytest.mark.slow
def test_consume_and_score_agree_and_references_may_cover_some_of_the_cases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(Path("log.db"), make_records([make_case("a"), make_case("b")]))
    Path("m.json").write_text(json.dumps([TRAJECTORY, RESPONSE]))
    Path("r.jsonl").write_text(json.dumps(make_case("a", conversation=[make_turn()])) + "\n")
    consume = ("consume", "--log", "log.db", "--metrics", "m.json", "--until-idle", "--json")

    def statuses(*arguments: str) -> tuple[int, list[tuple[int, int, int]]]:
        code = main(arguments)
        data = json.loads(capsys.readouterr().out)
        rows = data.get("summary", data)["metrics"]
        return code, [(row["passed"], row["failed"], row["not_evaluated"]) for row in rows]

    nothing = (3, [(0, 0, 2), (0, 0, 2)])
    assert statuses(*consume, "--db", "x.duckdb") == nothing
    assert statuses("score", "x.duckdb", "--metrics", "m.json", "--json") == nothing
    by_id = ("--references", "r.jsonl", "--join", "eval_id")  # both users say the same
    some = statuses(*consume, "--db", "y.duckdb", *by_id)
    assert some == (3, [(1, 0, 1), (1, 0, 1)])
    peers = statuses("score", "x.duckdb", "--metrics", "m.json", "--placeholders", "peer", "--json")
    assert peers == (1, [(0, 2, 0), (2, 0, 0)])
    # What is exported says where it was seen, if the recorder did.
    cases = [make_case("a", **RECORDED), make_case("b")]
    Path("c.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    assert statuses("score", "c.jsonl", "--metrics", "m.json", "--json") == (
        1,
        [(0, 1, 1), (1, 0, 1)],
    )


@pytest.mark.parametrize("suite", [False, True])
def test_a_gate_says_which_metrics_compared_a_case_with_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suite: bool
) -> None:
    together = {
        "metricName": "both",
        "evaluatorName": "metric_suite",
        "threshold": 1,
        "criterion": {"suite": {"metrics": [RESPONSE]}},
    }
    metric = together if suite else RESPONSE
    gate = {"dimensions": [{"name": "quality", "threshold": 1, "metrics": [metric]}]}
    (tmp_path / "gate.json").write_text(json.dumps(gate))
    (tmp_path / "cases.jsonl").write_text(json.dumps(make_case()))

    main(["gate", str(tmp_path / "cases.jsonl"), "--gate", str(tmp_path / "gate.json")])

    expected = f"{metric['metricName']} compared 1 case with an empty turn"
    assert expected in capsys.readouterr().err
