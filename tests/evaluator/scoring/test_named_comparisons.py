"""Comparisons and ROUGE tokenizers of your own, which a metric names."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.evaluator import CaseScorer, Comparisons, MetricError, Registry, Turn
from evaltap.evaluator.cases.outline import lazy_case
from evaltap.evaluator.scoring.criteria.content.rouge import rouge_scorer
from evaltap.evaluator.scoring.criteria.content.tokenizers import cjk, unicode_words
from evaltap.evaluator.scoring.scorer import MetricOutcome
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import make_case, make_tool, make_turn

CHINESE = "订单 A-100 已经发货。"


def final(part: dict[str, Any]) -> EvalMetric:
    return _metric("final_response_avg_score", {"finalResponse": part})


def trajectory(part: dict[str, Any]) -> EvalMetric:
    return _metric("tool_trajectory_avg_score", {"toolTrajectory": part})


def rouge(**given: Any) -> EvalMetric:
    return final({"rouge": {"rougeType": "rouge1", "threshold": {"f1": 1}, **given}})


def _metric(name: str, criterion: dict[str, Any]) -> EvalMetric:
    data = {"metricName": name, "threshold": 1, "criterion": criterion}
    return EvalMetric.model_validate(data)


def scored(
    metric: EvalMetric,
    actual: dict[str, Any],
    expected: dict[str, Any],
    given: Comparisons | None = None,
) -> MetricOutcome:
    case = make_case(turns=[actual], conversation=[expected])
    scorer = CaseScorer([metric], registry=Registry(comparisons=given))
    (outcome,) = scorer.score(case).metrics
    outline = lazy_case(orjson.dumps(case))  # as cases of files are read
    assert outline is None or scorer.score(outline).metrics == (outcome,)
    return outcome


def prefix(actual: str, expected: str) -> bool | str:
    return actual.startswith(expected) or f"{actual} does not begin with {expected}"


def names(calls: str) -> dict[str, Any]:
    return make_turn(tools=[make_tool(name) for name in calls])


def same_tools(actual: Turn, expected: Turn) -> bool:
    return {one["name"] for one in actual.tools} == {one["name"] for one in expected.tools}


def near(actual: Any, expected: Any) -> bool:
    return bool(abs(actual["amount"] - expected["amount"]) < 5)


def paid(amount: int, name: str = "pay") -> dict[str, Any]:
    return make_turn(tools=[make_tool(name, arguments={"amount": amount})])


def same_length(actual: Turn, expected: Turn) -> bool:
    return len(actual.final_text or "") == len(expected.final_text or "")


OWN = Comparisons(
    text={"prefix": prefix},
    json={"near": near, "as text": lambda one, other: (one, other) == ("{1", "{1 ")},
    tool_trajectory={"same tools": same_tools},
    final_response={"same length": same_length},
    tokenizers={"letters": list},
)
UNRESOLVED = {"text": {"compareName": "nowhere"}}
ARGUMENTS = {"defaultStrategy": {"name": {}, "arguments": {"compareName": "near"}}}
NAME = {"defaultStrategy": {"name": {"compareName": "prefix"}}}


@pytest.mark.parametrize(
    ("metric", "match", "mismatch", "reason"),
    [
        (final({"text": {"compareName": "prefix"}}), ("abc", "ab"), ("abc", "b"),
         "text mismatch: abc does not begin with b"),
        (final({"json": {"compareName": "as text"}}), ("{1", "{1 "), ("1", "1"),
         "json mismatch: comparison 'as text' found a difference"),
        (final({"json": {"compareName": "as text", "onlyTree": {"a": True}}}), ("{1", "{1 "), ("1", "1"),
         "json mismatch: comparison 'as text' found a difference"),
        (final({"compareName": "same length", **UNRESOLVED}), ("ab", "xy"), ("ab", "x"),
         "comparison 'same length' found a difference"),
        (rouge(tokenizerName="letters"), ("ab", "ba"), ("ab", "ac"),
         "rouge mismatch: rouge1 f1=0.500000 precision=0.500000 recall=0.500000 f1=0.500000"),
        (trajectory({"compareName": "same tools"}), (names("abb"), names("ab")), (names("a"), names("b")),
         "comparison 'same tools' found a difference"),
        (trajectory(ARGUMENTS), (paid(100), paid(104)), (paid(100), paid(105)), None),
        (trajectory({"toolStrategy": {"pay": ARGUMENTS["defaultStrategy"]}}),
         (paid(1), paid(2)), (paid(1), paid(9)), None),
        (trajectory(NAME), (paid(1, "pay_now"), paid(1, "pay")), (paid(1), paid(1, "pay_now")), None),
    ],
)  # fmt: skip
def test_a_named_comparison_takes_the_place_of_the_rules(
    metric: EvalMetric, match: Any, mismatch: Any, reason: str | None
) -> None:
    def score(pair: Any) -> MetricOutcome:
        one, other = (each if isinstance(each, dict) else make_turn(answer=each) for each in pair)
        return scored(metric, one, other, OWN)

    failed = score(mismatch)

    assert score(match).score == 1
    assert failed.score == 0
    assert reason is None or failed.reason == reason


def test_an_unknown_name_is_told_before_scoring_with_the_one_that_was_meant() -> None:
    for metric, said in [
        (final({"text": {"compareName": "prefx"}}), "text.compareName is 'prefx'; did you mean 'prefix'"),
        (final({"json": {"compareName": "x"}}), "json.compareName is 'x'; known: as text, near"),
        (trajectory({"compareName": "same_tools"}), "toolTrajectory.compareName is 'same_tools'; did you"),
        (rouge(tokenizerName="cjkv"), "rouge.tokenizerName is 'cjkv'; did you mean 'cjk'"),
    ]:  # fmt: skip
        with pytest.raises(MetricError) as caught:
            CaseScorer([metric], registry=Registry(comparisons=OWN))
        assert said in str(caught.value)


def test_a_comparison_that_breaks_is_an_error_of_its_turn() -> None:
    broken = Comparisons(text={"a": lambda _one, _other: 1 / 0 > 0, "b": lambda _one, _other: None})  # type: ignore[dict-item, return-value]  # as users write it

    for name, said in [
        ("a", "comparison 'a' failed: ZeroDivisionError: division by zero"),
        ("b", "comparison 'b' returned None; expected True, False or the reason of the mismatch"),
    ]:
        outcome = scored(final({"text": {"compareName": name}}), make_turn(), make_turn(), broken)
        assert (outcome.turns[0].status, outcome.turns[0].reason) == ("error", said)


def test_redacted_evidence_is_not_compared() -> None:
    redacted = make_turn(capture={"finalResponse": "redacted"})

    outcome = scored(final({"compareName": "same length"}), redacted, make_turn(), OWN)

    assert outcome.score is None


def test_a_changed_function_makes_scores_stale() -> None:
    metric = final({"text": {"compareName": "a"}})
    one, other = (
        Registry(comparisons=Comparisons(text={"a": function})).build(metric).version
        for function in (prefix, lambda _one, _other: True)
    )

    assert one != other


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with a comparison and a tokenizer."""
    (tmp_path / "of_a_stranger.py").write_text(
        "def same(actual, expected):\n    return actual.lower() == expected.lower()\n\n"
        "def halves(text):\n    return text.split('-')\n"
    )
    about = tmp_path / "of_a_stranger-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-stranger\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[evaltap.comparisons]\nfolded = of_a_stranger:same\nabsent = of_a_stranger:nothing\n"
        "[evaltap.tokenizers]\nhalves = of_a_stranger:halves\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("package")
def test_packages_provide_them_by_entry_points_and_modules_by_path() -> None:
    for name in ("folded", "of_a_stranger:same"):
        metric = final({"text": {"compareName": name}})
        assert scored(metric, make_turn(answer="Ab"), make_turn(answer="aB")).score == 1
    metric = rouge(tokenizerName="halves")
    assert scored(metric, make_turn(answer="a b-c"), make_turn(answer="c-a b")).score == 1
    with pytest.raises(MetricError, match=r"'absent' .*cannot be imported"):
        scored(final({"text": {"compareName": "absent"}}), make_turn(), make_turn())
    with pytest.raises(MetricError, match="has no attribute 'nothing'"):
        scored(final({"text": {"compareName": "of_a_stranger:nothing"}}), make_turn(), make_turn())


@pytest.mark.parametrize(
    ("text", "letters", "words"),
    [
        ("你好, World!", ["你", "好", "world"], ["你好", "world"]),
        ("한국어 2024", ["한", "국", "어", "2024"], ["한국어", "2024"]),
        ("привет мир", ["привет", "мир"], ["привет", "мир"]),
        ("\uff21\uff22 café", ["ab", "café"], ["ab", "café"]),
        ("มี", ["มี"], ["มี"]),
        ("…", [], []),
    ],
)
def test_the_words_of_any_script(text: str, letters: list[str], words: list[str]) -> None:
    assert (cjk(text), unicode_words(text)) == (letters, words)


@pytest.mark.parametrize("kind", ["rouge1", "rouge2", "rougeL", "rougeLsum"])
@pytest.mark.parametrize("tokenizer", ["", "cjk", "unicode_words"])
def test_identical_chinese_texts_match_wherever_rouge_is_used(kind: str, tokenizer: str) -> None:
    metric = rouge(rougeType=kind, tokenizerName=tokenizer)
    turn = make_turn(answer=CHINESE)

    assert scored(metric, turn, turn).score == 1
    assert scored(metric, turn, make_turn(answer="今天 天气 很好")).score == 0


def test_texts_in_latin_letters_score_as_with_rouge_score() -> None:
    assert rouge_scorer("rouge1")("café", "caf").f1 == 1
    assert rouge_scorer("rouge1")("你好 A-100", "再见 A-100").f1 == 0.5
