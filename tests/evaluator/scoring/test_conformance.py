"""Conformance with tRPC-Agent-Go: the rows of its own tests for criteria, evaluators and layouts."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator import evaluate_case
from evaltap.evaluator.analysis.stats.rate import pass_at_k, pass_hat_k
from evaltap.evaluator.cases.json_path import extract
from evaltap.evaluator.cases.pairing import UnscorableCaseError, pair_turns, with_case_rubrics
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.aggregation import average, majority, summarize
from evaltap.evaluator.scoring.contract.context import Status, TurnScore, Vote
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.evaluator.scoring.criteria.calls.matching import match_left
from evaltap.evaluator.scoring.criteria.content.json_value import RawJson, compile_json
from evaltap.evaluator.scoring.criteria.content.rouge import (
    compile_rouge,
    rouge_scorer,
    split_sentences,
)
from evaltap.evaluator.scoring.criteria.content.text import compile_length, compile_text
from evaltap.evaluator.scoring.criteria.content.tokenizers import ascii_words, stem
from evaltap.evaluator.scoring.evaluators.final_response import FinalResponseMatcher, compile_xml
from evaltap.evaluator.scoring.evaluators.judged.answers import (
    Verdict,
    mean_score,
    read_boolean,
    read_category,
    read_rubric_answer,
    read_rubrics,
    read_sentence_labels,
    read_single_score,
    read_validity,
)
from evaltap.evaluator.scoring.evaluators.tool_trajectory import ToolTrajectoryMatcher
from evaltap.evaluator.scoring.judges.endpoint import judge_settings
from evaltap.schemas.formats.metric import (
    EvalMetric,
    FinalResponseCriterion,
    JsonCriterion,
    JudgeModel,
    LengthCriterion,
    RougeCriterion,
    TextCriterion,
    ToolTrajectoryCriterion,
    XmlCriterion,
)

Row = dict[str, Any]
DATA = Path(__file__).parents[2] / "data" / "trpc"
USER = {"role": "user", "content": "q"}


def rows(name: str, keep: Callable[[Row], bool] = lambda _: True) -> pytest.MarkDecorator:
    vectors = json.loads((DATA / f"{name}.json").read_text())["vectors"]
    kept = [pytest.param(row, id=row["name"]) for row in vectors if keep(row)]
    return pytest.mark.parametrize("row", kept)


def has_criterion(row: Row) -> bool:
    return row["criterion"] is not None


def check(row: Row, reason: str | None) -> None:
    assert (reason is None) == row["want_match"], reason
    for part in row.get("error_contains") or []:
        assert part in (reason or "")


@rows("text", has_criterion)
def test_text(row: Row) -> None:
    matches = compile_text(TextCriterion.model_validate(row["criterion"]))

    check(row, matches(row["actual"], row["expected"]))


@rows("length", has_criterion)
def test_length(row: Row) -> None:
    check(row, compile_length(LengthCriterion.model_validate(row["criterion"]))(row["actual"]))


@rows("xml", has_criterion)
def test_xml(row: Row) -> None:
    check(row, compile_xml(XmlCriterion.model_validate(row["criterion"]))(row["actual"]))


@rows("json", has_criterion)
def test_json(row: Row) -> None:
    matches = compile_json(JsonCriterion.model_validate(row["criterion"]))
    actual, expected = (
        RawJson(row[side]) if row[f"{side}_kind"] == "raw_json" else row[side]
        for side in ("actual", "expected")
    )

    check(row, matches(actual, expected))


@rows("tooltrajectory", has_criterion)
def test_tool_trajectory(row: Row) -> None:
    matcher = ToolTrajectoryMatcher(ToolTrajectoryCriterion.model_validate(row["criterion"]))

    check(row, matcher.mismatch(Turn(row["actual"]), Turn(row["expected"])))


@rows("finalresponse", has_criterion)
def test_final_response(row: Row) -> None:
    matcher = FinalResponseMatcher(FinalResponseCriterion.model_validate(row["criterion"]))

    check(row, matcher.mismatch(Turn(row["actual"]), Turn(row["expected"])))


@rows("kuhn")
def test_matching(row: Row) -> None:
    edges = {tuple(edge) for edge in row["edges"]}

    def neighbours(one: int) -> list[int]:
        return [other for other in range(row["right"]) if (one, other) in edges]

    matching = match_left(row["left"], row["right"], neighbours)

    assert matching.uncovered_left == (row["want_unmatched"] or [])


@rows("rouge")
def test_rouge(row: Row) -> None:
    criterion = RougeCriterion.model_validate(row["criterion"])
    reason = compile_rouge(criterion)(row["actual"], row["expected"])

    if row["want_error"]:
        assert all(part in (reason or "") for part in row.get("error_contains") or [])
        assert reason is not None
        return
    score = rouge_scorer(
        criterion.rouge_type,
        use_stemmer=criterion.use_stemmer,
        split_summaries=criterion.split_summaries,
    )(row["actual"], row["expected"])
    for part, want in (row.get("want_score") or {}).items():
        assert getattr(score, part) == pytest.approx(want, abs=max(row["delta"], 1e-9))
    if "want_value" in row:
        value = getattr(score, criterion.measure or "f1")
        assert value == pytest.approx(row["want_value"], abs=1e-9)
    if "want_passed" in row:
        assert (reason is None) == row["want_passed"]


@rows("rouge_tokenize")
def test_words_stems_and_sentences(row: Row) -> None:
    found: object
    if row["kind"] == "tokenize":
        found = ascii_words(row["input"], use_stemmer=row.get("useStemmer", False))
    else:
        found = stem(row["input"]) if row["kind"] == "stem" else split_sentences(row["input"])

    assert found == row["want"]


@rows("judge_response_parsing", lambda row: row["scorer"].startswith("rubric"))
def test_rubric_answers(row: Row) -> None:
    ids = row.get("configured_rubric_ids") or []

    if row["want_error"]:
        with pytest.raises(JudgeInvalid) as caught:
            read_rubric_answer(row["content"], ids)
        assert all(part in str(caught.value) for part in row.get("error_contains") or [])
        return
    verdicts = read_rubric_answer(row["content"], ids)
    assert mean_score(verdicts) == pytest.approx(row["want_score"])
    for verdict, want in zip(verdicts, row.get("want_rubric_scores") or verdicts, strict=True):
        if isinstance(want, dict):
            assert [verdict.id, verdict.score, verdict.reason] == [
                want["id"], want["score"], want["reason"]
            ]  # fmt: skip


@rows("judge_response_parsing")
def test_judge_answers(row: Row) -> None:
    categories = {
        one["label"]: one["score"] for one in row.get("options", {}).get("categories", ())
    }
    readers: dict[str, Callable[[str], Verdict]] = {
        "final_response": read_validity,
        "single_score": read_single_score,
        "boolean": read_boolean,
        "categorical": lambda text: read_category(text, categories),
        "hallucination": read_sentence_labels,
    }
    ids = row.get("configured_rubric_ids") or []
    readers["rubric_scores"] = readers["rubric_blocks_legacy"] = lambda text: read_rubrics(
        text, ids
    )
    read = readers[row["scorer"]]

    if row["want_error"]:
        with pytest.raises(JudgeInvalid) as caught:
            read(row["content"])
        assert all(part in str(caught.value) for part in row.get("error_contains") or [])
        return
    verdict = read(row["content"])
    assert verdict.score == pytest.approx(row["want_score"])
    assert verdict.reason == row.get("want_reason", verdict.reason)
    if want := row.get("want_value"):
        assert verdict.value == want[want["kind"]]
        assert isinstance(verdict.value, bool) == (want["kind"] == "boolean")


@rows("jsonpath")
def test_json_paths(row: Row) -> None:
    if row["want_error"]:
        with pytest.raises(ValueError, match=re.escape(row["error_contains"][0])):
            extract(row["raw"], row["path"])
        return

    assert extract(row["raw"], row["path"]) == row["want"]


@rows("passk", lambda row: row["fn"] != "parse_pass_nc")
def test_pass_at_k(row: Row) -> None:
    estimate: Callable[[int, int, int], float]
    estimate = pass_at_k if row["fn"] == "pass_at_k" else pass_hat_k
    if row.get("want_error"):
        with pytest.raises(ValueError, match="expected"):
            estimate(row["n"], row["c"], row["k"])
        return

    assert estimate(row["n"], row["c"], row["k"]) == pytest.approx(
        row["want"], rel=1e-12, abs=1e-12
    )


# The peer expands the variables of a file everywhere; here a user has to trust the file.
ALLOWED = {"EVALTAP_ALLOW_VARIABLES": "1"}


@rows("judge_model_json", lambda row: "want" in row)
def test_judge_model_references(row: Row) -> None:
    settings = judge_settings(JudgeModel.model_validate(row["input"]), ALLOWED | row["env"])

    want = row["want"]
    assert settings.model == want["modelName"]
    assert settings.base_url == want["baseURL"]
    assert settings.api_key == want["apiKey"]


@rows("evaluators")
def test_evaluators(row: Row) -> None:
    def turns(side: str, letter: str) -> list[Row]:
        return [
            {"invocationId": f"{letter}{i}", "userContent": USER} | turn
            for i, turn in enumerate(row[side])
        ]

    case = {
        "evalId": "c",
        "evalMode": "trace",
        "actualConversation": turns("actuals", "a"),
        "conversation": turns("expecteds", "e"),
        "sessionInput": {"appName": "t", "userId": "u"},
    }
    metric = EvalMetric.model_validate(row["metric"])
    if not row["actuals"]:
        from evaltap.evaluator.scoring.contract.context import (
            EvaluationContext,
            MetricScore,
            Services,
        )
        from evaltap.evaluator.scoring.contract.evaluator import Registry

        context = EvaluationContext(case, (), (), metric, Services())
        outcome = Registry().build(metric).evaluate(context)
        assert isinstance(outcome, MetricScore)
        assert (outcome.status, outcome.score or 0.0) == (row["want_status"], row["want_score"])
        return

    result = evaluate_case(case, [metric])

    overall = result.overall_eval_metric_results[0]
    assert (overall.eval_status, overall.score or 0.0) == (row["want_status"], row["want_score"])
    for turn, want in zip(
        result.eval_metric_result_per_invocation, row["want_per_invocation"], strict=True
    ):
        one = turn.eval_metric_results[0]
        assert one.details is not None
        assert [one.score or 0.0, one.eval_status, one.details.reason] == [
            want["score"], want["status"], want["reason"]
        ]  # fmt: skip


@rows("trace_mode")
def test_trace_mode_layouts(row: Row) -> None:
    if row["want_inference_status"] == "failed":
        with pytest.raises(UnscorableCaseError) as caught:
            pair_turns(row["evalCase"])
        assert all(part in str(caught.value) for part in row["error_contains"])
        return

    conversation = pair_turns(row["evalCase"])

    assert [turn.data for turn in conversation.actual] == row["want_actuals"]
    assert [turn.data for turn in conversation.expected] == row["want_expecteds"]


@rows("case_rubrics")
def test_case_rubrics(row: Row) -> None:
    metrics = [EvalMetric.model_validate(metric or {}) for metric in row["metrics"]]

    with pytest.raises(UnscorableCaseError) as caught:
        with_case_rubrics(metrics, row["case_rubrics"])

    assert row["want_error"]
    assert all(part in str(caught.value) for part in row["error_contains"])


def score_of(data: Row) -> float | None:
    return None if data["status"] == "not_evaluated" else data["score"]


@rows("aggregation")
def test_aggregation(row: Row) -> None:
    if row["fn"] == "majority_vote":
        votes = [
            Vote(place, Status(sample["status"]), score_of(sample), sample["id"])
            for place, sample in enumerate(row["samples"])
        ]
        assert majority(votes, row["threshold"]).reason == row["want_id"]
    elif row["fn"] == "average":
        turns = tuple(
            TurnScore(Status(result["status"]), score_of(result)) for result in row["results"]
        )
        outcome = average(turns, row["threshold"])
        assert (outcome.status, outcome.score or 0.0) == (row["want_status"], row["want_score"])
    else:
        assert summarize(Status(status) for status in row["statuses"]) == row["want"]
