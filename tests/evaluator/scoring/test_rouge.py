"""ROUGE compared with Google's package on random text, and extensions beyond that package."""

from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.scoring.criteria.content.rouge import (
    compile_rouge,
    rouge_scorer,
    split_sentences,
)
from evaltap.evaluator.scoring.criteria.content.tokenizers import cjk
from evaltap.schemas.formats.metric import RougeCriterion

WORDS = st.sampled_from(
    ["the", "cat", "cats", "sat", "running", "runs", "on", "mat", "skies", "1st", "über"]
)
TEXTS = st.lists(WORDS | st.sampled_from([".", "\n", "-", "!"]), max_size=25).map(" ".join)


@pytest.mark.parametrize("use_stemmer", [False, True])
@pytest.mark.parametrize("kind", ["rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum"])
@settings(max_examples=25)
@given(prediction=TEXTS, reference=TEXTS)
def test_scores_equal_those_of_the_reference_package(
    kind: str, use_stemmer: bool, prediction: str, reference: str
) -> None:
    package = import_module("rouge_score.rouge_scorer")
    oracle = package.RougeScorer([kind], use_stemmer=use_stemmer).score(reference, prediction)[kind]

    score = rouge_scorer(kind, use_stemmer=use_stemmer)(prediction, reference)

    assert score == pytest.approx((oracle.precision, oracle.recall, oracle.fmeasure), abs=1e-12)


@given(TEXTS, st.integers(1, 30))
def test_a_text_has_full_overlap_with_itself(text: str, size: int) -> None:
    text += " 你好"
    words = len(cjk(text))

    score = rouge_scorer(f"rouge{size}")(text, text)

    assert score.f1 == (1.0 if words >= size else 0.0)


@given(TEXTS, TEXTS)
def test_precision_and_recall_change_places_with_the_texts(one: str, other: str) -> None:
    score, turned = (rouge_scorer("rougeL")(*texts) for texts in ((one, other), (other, one)))

    assert (score.precision, score.recall) == (turned.recall, turned.precision)


def test_sentences_may_be_found_by_punctuation() -> None:
    one, other = "First sentence. Second Sentence.", "Second sentence. First Sentence."

    assert rouge_scorer("rougeLsum", split_summaries=True)(one, other).f1 == 1
    assert rouge_scorer("rougeLsum")(one, other).f1 == 0.5


def test_abbreviations_do_not_end_a_sentence() -> None:
    assert split_sentences("Dr. Smith came. He left at 5 p.m. on foot.") == [
        "Dr. Smith came.",
        "He left at 5 p.m. on foot.",
    ]


def test_all_three_thresholds_must_be_reached_whatever_the_measure() -> None:
    def passes(**threshold: float) -> bool:
        criterion = RougeCriterion.model_validate(
            {"rougeType": "rouge1", "measure": "precision", "threshold": threshold}
        )
        return compile_rouge(criterion)("testing", "testing one two") is None

    assert passes()
    assert passes(precision=1.0)
    assert not passes(recall=0.5)
    assert not passes(f1=0.6)


@pytest.mark.parametrize(
    "given_criterion",
    [
        {"rougeType": ""},
        {"rougeType": "rouge0"},
        {"rougeType": "rougeX"},
        {"rougeType": "Rouge1"},
        {"rougeType": "rouge1", "measure": "f2"},
    ],
)
def test_an_unknown_type_or_measure_is_a_mismatch_with_a_reason(
    given_criterion: dict[str, str],
) -> None:
    check = compile_rouge(RougeCriterion.model_validate(given_criterion))

    assert check("a", "a")
