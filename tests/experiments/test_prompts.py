"""Prompts are improved by advice on failed cases, and only what helps on other cases is kept."""

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import (
    JudgeNotConfigured,
    JudgeRequest,
    JudgeUnavailable,
    ScriptedJudge,
)
from evaltap.experiments.prompts import Improved, Limits, Round, improve
from evaltap.schemas.errors import InputError
from support.builders.cases import EXACT

PROMPTS = {"tone": "Answer {name}.", "format": "Use words."}
ANSWERS = {
    "metricName": "answers",
    "evaluatorName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "any", "type": "regex", "value": "."}]}},
}
KIND = {
    "metricName": "kind",
    "evaluatorName": "llm_criteria",
    "threshold": 1,
    "criterion": {
        "llmJudge": {},
        "grading": {"criteria": [{"id": "kind", "text": "It is kind.", "scale": "binary"}]},
    },
}


def write_set(folder: Path, name: str, *questions: str) -> Path:
    cases = [
        {
            "evalId": text,
            "conversation": [
                {
                    "userContent": {"role": "user", "content": text},
                    "finalResponse": {"role": "assistant", "content": f"DEAR {text.upper()}"},
                }
            ],
            "sessionInput": {},
        }
        for text in questions
    ]
    path = folder / f"{name}.evalset.json"
    path.write_text(json.dumps({"evalSetId": name, "evalCases": cases}))
    return path


def agent_of(prompts: Mapping[str, str]) -> Callable[[list[dict[str, Any]]], str]:
    """An agent that does what its prompts say."""

    def agent(messages: list[dict[str, Any]]) -> str:
        if "crash" in prompts["tone"]:
            raise RuntimeError("broken prompt")
        said = str(messages[-1]["content"])
        said = f"dear {said}" if "polite" in prompts["tone"] else said
        return said.upper() if "capitals" in prompts["format"] else said

    return agent


def writer(*rewrites: Mapping[str, str], advises: tuple[str, ...] = ("tone", "format")) -> Any:
    """Return a judge that advises on some prompts, and rewrites them as told, round by round."""
    left = [*rewrites]

    def says(request: JudgeRequest) -> str:
        if request.answer_name == "advice":
            return json.dumps({"advice": [{"prompt": one, "advice": "be it"} for one in advises]})
        name = request.prompt.split("begin prompt ")[1].split(">>>")[0]
        text = left[0][name]
        if name == advises[-1]:
            left.pop(0)
        return json.dumps({"prompt": text})

    return ScriptedJudge(says)


@pytest.fixture
def sets(tmp_path: Path) -> tuple[Path, Path]:
    return write_set(tmp_path, "train", "ann", "bob"), write_set(
        tmp_path, "validation", "zoe", "kim"
    )


def run(sets: tuple[Path, Path], judge: Any, **more: Any) -> Improved:
    return improve(*sets, [EXACT], prompts=PROMPTS, agent=agent_of, writer=judge, **more)


@pytest.mark.slow
def test_what_helps_is_kept_until_nothing_fails(sets: tuple[Path, Path]) -> None:
    seen: list[Round] = []
    better = {"tone": "Be polite to {name}.", "format": "Use capitals."}
    judge = writer({"tone": "Answer {name} fast.", "format": "Use words!"}, better)

    found = run(sets, judge, report=seen.append)

    assert (found.stopped_by, found.prompts) == ("nothing_failed", better)
    assert (found.baseline.score, found.best.score) == (0.0, 1.0)
    assert [one.accepted for one in found.rounds] == [False, True]
    assert [*found.rounds] == seen
    assert {one.eval_id for one in seen[0].losses} == {"ann", "bob"}
    assert "final_response_avg_score" in seen[0].losses[0].reasons[0]
    assert seen[0].losses[0].conversation == "user: ann\nagent: ann"
    assert len(seen[0].advice) == 4


@pytest.mark.slow
def test_the_writer_sees_training_cases_only(sets: tuple[Path, Path]) -> None:
    judge = writer({"tone": "{name}", "format": "Use words!"})

    run(sets, judge, limits=Limits(rounds=1))

    asked = "\n".join(one.prompt for one in judge.requests)
    assert "ann" in asked
    assert "zoe" not in asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rewrite", "rejected"),
    [
        ({"tone": "Be polite.", "format": "Use words."}, "its placeholders differ: {name}"),
        ({"tone": " ", "format": "Use words."}, "it is blank"),
    ],
)
def test_a_prompt_without_its_placeholders_is_not_taken(
    sets: tuple[Path, Path], rewrite: dict[str, str], rejected: str
) -> None:
    found = run(sets, writer(rewrite), limits=Limits(rounds=1))

    assert found.prompts == PROMPTS
    assert found.rounds[0].rejected == {"tone": rejected}
    assert found.rounds[0].validation is None


@pytest.mark.slow
def test_breaking_the_agent_does_not_raise_the_score(tmp_path: Path) -> None:
    easy = write_set(tmp_path, "easy", "ann"), write_set(tmp_path, "validation", "zoe")
    prompts = {"tone": "polite {name}", "format": "words"}
    judge = writer({"tone": "crash {name}", "format": "words"})

    found = improve(*easy, [EXACT], prompts=prompts, agent=agent_of, writer=judge,
                    limits=Limits(rounds=1))  # fmt: skip

    (only,) = found.rounds
    assert only.validation is not None
    assert (only.validation.score, only.accepted) == (0.0, False)


def judged_by(fails: Callable[[str], bool]) -> Services:
    """A judge that finds no answer kind, and is not to be had for some questions."""

    def says(request: JudgeRequest) -> str:
        if fails(request.prompt):
            raise JudgeUnavailable("overloaded")
        return json.dumps({"grades": {"kind": {"reason": "curt", "value": 0}}})

    return Services(judge=lambda _: ScriptedJudge(says))


@pytest.mark.slow
def test_a_metric_that_lost_its_judge_does_not_raise_the_score(sets: tuple[Path, Path]) -> None:
    judge = writer({"tone": "polite {name}", "format": "words"})
    services = judged_by(lambda prompt: "dear" in prompt)

    found = improve(*sets, [ANSWERS, KIND], prompts=PROMPTS, agent=agent_of, writer=judge,
                    services=services, limits=Limits(rounds=1))  # fmt: skip

    (only,) = found.rounds
    assert only.validation is not None
    assert (found.baseline.score, only.validation.score, only.validation.invalid) == (0.5, 1.0, 2)
    assert (only.accepted, found.prompts) == (False, PROMPTS)


def test_a_set_without_verdicts_is_no_baseline(sets: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="2 runs without a verdict, such as zoe: kind: Judge"):
        improve(*sets, [ANSWERS, KIND], prompts=PROMPTS, agent=agent_of, writer=writer(),
                services=judged_by(lambda _: True))  # fmt: skip


@pytest.mark.slow
def test_that_nothing_failed_is_not_said_of_runs_without_a_verdict(
    sets: tuple[Path, Path],
) -> None:
    found = improve(*sets, [ANSWERS, KIND], prompts=PROMPTS, agent=agent_of, writer=writer(),
                    services=judged_by(lambda prompt: "ann" in prompt or "bob" in prompt))  # fmt: skip

    assert found.stopped_by == "nothing_failed"
    assert "2 runs without a verdict, such as ann: kind: JudgeUnavailable" in found.problem


@pytest.mark.slow
def test_a_case_in_both_sets_is_warned_of(tmp_path: Path) -> None:
    both = write_set(tmp_path, "train", "ann", "zoe"), write_set(tmp_path, "all", "zoe", "kim")

    with pytest.warns(UserWarning, match=r"1 case also in .*train.*, such as zoe"):
        found = run(both, writer(advises=()), limits=Limits(rounds=1))

    assert found.baseline.score == 0


@pytest.mark.slow
def test_variables_of_any_template_stay(sets: tuple[Path, Path]) -> None:
    variables = ["{app:name?}", "{total:.2f}", "{user.name}", "{{ name | upper }}", "{{ name }}"]
    prompts = {"tone": " ".join([*variables, "{}, {'a': 1}, {{\"b\": 2}}"]), "format": "Use words."}
    judge = writer({"tone": "Answer {'b': 2}.", "format": "Use words."})

    found = improve(*sets, [EXACT], prompts=prompts, agent=agent_of, writer=judge,
                    limits=Limits(rounds=1))  # fmt: skip

    assert found.rounds[0].rejected == {"tone": f"its placeholders differ: {', '.join(variables)}"}


def test_prompts_whose_runs_were_interrupted_are_not_judged(sets: tuple[Path, Path]) -> None:
    def interrupting(_: Mapping[str, str]) -> Callable[[object], str]:
        def agent(messages: object) -> str:
            signal.raise_signal(signal.SIGINT)
            return "DEAR ZOE"

        return agent

    with pytest.raises(KeyboardInterrupt):
        improve(*sets, [EXACT], prompts=PROMPTS, agent=interrupting, writer=writer(), concurrency=1)


@pytest.mark.slow
def test_a_tie_is_no_gain_and_patience_ends(sets: tuple[Path, Path]) -> None:
    same = {"tone": "Answer {name} well.", "format": "Use words."}

    found = run(sets, writer(same, same, same), limits=Limits(rounds=9, patience=2))

    assert (found.stopped_by, len(found.rounds)) == ("patience", 2)
    assert found.prompts == PROMPTS


def test_a_target_is_enough(sets: tuple[Path, Path]) -> None:
    found = run(sets, writer(), limits=Limits(target=0.0))

    assert (found.stopped_by, found.rounds) == ("target", ())


@pytest.mark.slow
@pytest.mark.parametrize(
    "says", [JudgeUnavailable("down"), "no JSON", '{"advice": [{"prompt": "x"}]}']
)
def test_a_writer_that_fails_ends_it_with_what_was_found(
    sets: tuple[Path, Path], says: Any
) -> None:
    found = run(sets, ScriptedJudge([says]))

    assert (found.stopped_by, found.prompts) == ("writer", PROMPTS)
    assert found.problem


def test_the_writer_is_the_judge_of_the_environment(
    sets: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EVALTAP_JUDGE_MODEL", "EVALTAP_JUDGE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(JudgeNotConfigured):
        run(sets, None)


def test_without_prompts_there_is_nothing_to_improve(sets: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="no prompts"):
        improve(*sets, [EXACT], prompts={}, agent=agent_of, writer=writer())
    with pytest.raises(InputError, match="prompts: found 'x'; expected a mapping"):
        improve(*sets, [EXACT], prompts=cast("Any", "x"), agent=agent_of, writer=writer())
