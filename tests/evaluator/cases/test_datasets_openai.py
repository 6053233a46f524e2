"""Configurations of OpenAI evals as metrics."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, ScriptedJudge, Services, Status
from evaltap.evaluator.cases.datasets.openai_evals import EvalConfig, read_eval_config
from evaltap.schemas import read_metrics
from support.builders.datasets import converted

# -- OpenAI ----------------------------------------------------------------------------------------


def openai_eval(*graders: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"ticket": {}, "label": {}}}
    source = {"type": "custom", "item_schema": schema, "include_sample_schema": True}
    return {"name": "it", "data_source_config": source, "testing_criteria": [*graders]}


def check(operation: str, reference: str = "{{item.label}}", **more: Any) -> dict[str, Any]:
    return {
        "type": "string_check",
        "name": f"{operation} {reference}",
        "input": "{{sample.output_text}}",
        "reference": reference,
        "operation": operation,
        **more,
    }


def similar(measure: str, bound: float | None = 0.5) -> dict[str, Any]:
    made = check("eq") | {"type": "text_similarity", "name": measure, "evaluation_metric": measure}
    return made if bound is None else made | {"pass_threshold": bound}


ASKED = "{{item.ticket}} {{ sample.output_text }}"
LABEL = {
    "type": "label_model",
    "name": "tone",
    "model": "judge-1",
    "input": [
        {"role": "developer", "content": "Is the reply polite?"},
        {"role": "user", "content": {"type": "input_text", "text": ASKED}},
    ],
    "labels": ["polite", "rude"],
    "passing_labels": ["polite"],
}  # fmt: skip
SCORE = {
    "type": "score_model",
    "name": "score",
    "model": "judge-1",
    "input": [{"role": "user", "content": "Grade {{sample.output_text}} by {{item.label}}"}],
    "pass_threshold": 0.6,
}


def config(path: Path, *graders: dict[str, Any], **given: str) -> EvalConfig:
    (path / "eval.json").write_text(json.dumps(openai_eval(*graders)))
    return read_eval_config(path / "eval.json", given)


@pytest.mark.parametrize(
    ("grader", "output", "score"),
    [
        (check("eq"), "Hardware", 1),
        (check("eq"), "hardware", 0),
        (check("like"), "It is Hardware.", 1),
        (check("ilike"), "it is hardware.", 1),
        (check("like"), "it is hardware.", 0),
        (check("eq", "yes"), "yes", 1),
        (check("ne", "yes"), "yes", 0),
        (check("ne", "yes"), "no", 1),
        (check("ilike", "SORRY"), "so sorry", 1),
        (similar("rouge_1"), "Hardware fault", 1),
        (similar("rouge_l", 0.9), "Hardware fault", 0),
        (similar("fuzzy_match", 0.5), "Hardwood", 1),
    ],
)
def test_criteria_without_a_judge_score_as_they_would_there(
    tmp_path: Path, grader: dict[str, Any], output: str, score: float
) -> None:
    found = config(tmp_path, grader, input="ticket")
    row = {
        "item": {"ticket": "It is broken", "label": "Hardware"},
        "sample": {"output_text": output},
    }
    case = converted(row, **found.columns)

    outcome = CaseScorer(found.metrics).score(case).metrics[0]
    assert found.columns["input"] == "ticket"
    assert (outcome.status is Status.PASSED) == bool(score), outcome


def test_a_grade_on_a_scale_of_its_own_passes_where_it_would_there(tmp_path: Path) -> None:
    grader = SCORE | {"range": [1, 5], "pass_threshold": 4}
    found = config(tmp_path, check("eq"), grader, input="ticket")
    row = {"item": {"ticket": "TICKET", "label": "LABEL"}, "sample": {"output_text": "OUTPUT"}}
    judge = ScriptedJudge(['{"score": 4, "reason": ""}', '{"score": 3.9, "reason": ""}'])
    scorer = CaseScorer(found.metrics, services=Services(judge=lambda _: judge))

    outcomes = [scorer.score(converted(row, **found.columns)).metrics[1] for _ in range(2)]

    assert [one.status for one in outcomes] == [Status.PASSED, Status.FAILED]
    assert outcomes[0].score == found.metrics[1].threshold == 0.75
    assert "from 1 to 5" in judge.requests[0].prompt


def test_criteria_with_a_judge_become_templates(tmp_path: Path) -> None:
    found = config(tmp_path, check("eq"), LABEL, SCORE)
    row = {"item": {"ticket": "TICKET", "label": "LABEL"}, "sample": {"output_text": "OUTPUT"}}
    judge = ScriptedJudge(['{"category": "polite", "reason": ""}', '{"score": 0.7, "reason": ""}'])
    scorer = CaseScorer(found.metrics, services=Services(judge=lambda _: judge))

    outcomes = scorer.score(converted(row, **found.columns)).metrics

    assert [(one.name, one.score) for one in outcomes[1:]] == [("tone", 1), ("score", 0.7)]
    tone, grade = (request.prompt for request in judge.requests)
    assert all(
        text in tone for text in ("Is the reply polite?", "TICKET", "OUTPUT", "polite, rude")
    )
    assert all(text in grade for text in ("Grade", "OUTPUT", "LABEL"))
    criterion = found.metrics[1].criterion
    judge_model = criterion.llm_judge.judge_model if criterion and criterion.llm_judge else None
    assert judge_model is not None
    assert judge_model.model_name == "judge-1"


def test_columns_that_the_criteria_do_not_tell_may_be_given(tmp_path: Path) -> None:
    assert config(tmp_path, check("eq", "yes")).columns == {}
    told = config(tmp_path, check("eq"), expected="ticket")
    assert "which is the column 'ticket'" in told.unsupported[0]


@pytest.mark.parametrize(
    ("grader", "told"),
    [
        (check("ne"), "ne with a column as reference"),
        (check("eq", "{{item.label}} or {{item.other}}"), "a case has one expected answer"),
        (check("like", input="{{item.ticket}}"), "only {{sample.output_text}}"),
        (check("starts"), "operation 'starts'; expected eq, ne, like or ilike"),
        (similar("bleu"), "evaluation_metric bleu has no counterpart"),
        (similar("rouge_1", None), "pass_threshold is missing"),
        (LABEL | {"passing_labels": ["kind"]}, "the second part of the first"),
        (SCORE | {"range": [1, 5]}, "pass_threshold 0.6 is not in the range [1, 5]"),
        (SCORE | {"range": "wide"}, "expected two numbers"),
        (SCORE | {"input": [{"role": "user", "content": "{{item.other}}"}]}, "map a column"),
        (
            SCORE | {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "is not text",
        ),
        ({"type": "python", "name": "code", "source": "..."}, "unsupported type"),
    ],
)
def test_a_criterion_without_a_counterpart_is_named_and_not_guessed(
    tmp_path: Path, grader: dict[str, Any], told: str
) -> None:
    found = config(tmp_path, check("eq", "yes"), check("eq"), grader)

    assert len(found.metrics) == 2
    assert len(found.unsupported) == 1
    assert told in found.unsupported[0]


# -- the command -----------------------------------------------------------------------------------


def test_an_openai_eval_becomes_metrics_that_score_its_rows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"item": {"ticket": "broken", "label": "Hardware"}, "sample": {"output_text": "Hardware"}}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    Path("eval.json").write_text(json.dumps(openai_eval(check("eq"), similar("meteor"))))
    command = ["convert", "rows.jsonl", "--out", "c.jsonl", "--openai-eval", "eval.json"]

    assert main([*command, "--metrics-out", "m.json"]) == 2
    assert (
        "meteor has no counterpart here; skip them with --skip-unsupported"
        in capsys.readouterr().err
    )
    assert main([*command, "--metrics-out", "m.json", "--skip-unsupported"]) == 0
    assert "left out: meteor (text_similarity)" in capsys.readouterr().err
    assert len(read_metrics(Path("m.json"))) == 1
    assert main(["score", "c.jsonl", "--metrics", "m.json"]) == 0
