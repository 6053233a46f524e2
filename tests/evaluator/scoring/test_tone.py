"""Tone by a lexicon, and forbidden words."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer, MetricOutcome
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.evaluators.tone import _afinn, tone_of
from evaltap.schemas import EvalMetric
from support.builders.cases import make_case, make_turn

GLAD = "Great news! Your refund was approved, and we are happy to help."
SOUR = "This is a terrible problem and I hate it."


def outcome(name: str, criterion: dict[str, Any], *answers: str | None) -> MetricOutcome:
    part = {"sentiment_score": "sentiment", "toxic_words": "toxicWords"}[name]
    metric = EvalMetric.model_validate(
        {"metricName": name, "threshold": 0.5, "criterion": {part: criterion}}
    )
    turns = [make_turn(answer=answer) for answer in answers]
    return CaseScorer([metric]).score(make_case(turns=turns)).metrics[0]


# -- sentiment -------------------------------------------------------------------------------------


def test_the_tone_is_that_of_the_words() -> None:
    glad, plain, sour = (
        outcome("sentiment_score", {}, text).score or 0 for text in (GLAD, "It ships.", SOUR)
    )

    assert (sour < 0.3, plain, glad > 0.8) == (True, 0.5, True)
    assert tone_of("not good").raw < 0 < tone_of("good").raw


def test_known_values_of_the_published_lexicon() -> None:
    # The example of VADER's own page.
    assert tone_of("VADER is smart, handsome, and funny.").compound == 0.8316
    assert tone_of("The book was good.").raw == pytest.approx(1.9)
    assert tone_of("The book was good.").comparative == pytest.approx(1.9 / 4)
    assert tone_of("I saw a good book :)").comparative == pytest.approx(tone_of("good :)").raw / 6)
    assert tone_of("") == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "compound"),
    [
        ("It is terrible.", -0.4767),
        ("It is **terrible**.", -0.4767),
        ("It is (terrible).", -0.4767),
        ('It is "terrible"!', -0.5255),
        ("The answer (great!) is", 0.6588),
        ("GREAT!!!!", 0.7405),
        ("It isn't good :)", -0.5975),
    ],
)
def test_marks_around_a_word_do_not_hide_it(text: str, compound: float) -> None:
    # The values are those of the package vaderSentiment.
    assert tone_of(text).compound == compound


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("It isn\u2019t good", "It isn't good"),
        ("\u201cTerrible\u201d", "Terrible"),
        ("Great\u2026 thanks", "Great... thanks"),
        ("terrible\u2014really", "terrible really"),
    ],
)
def test_printed_marks_count_as_typed_ones(text: str, plain: str) -> None:
    assert tone_of(text)[::2] == tone_of(plain)[::2] != (0, 0)


@pytest.mark.parametrize(
    ("criterion", "text", "score", "value"),
    [
        ({"mode": "category", "categories": ["positive", "neutral"]}, GLAD, 1, "positive"),
        ({"mode": "category", "categories": ["positive", "neutral"]}, "It ships.", 1, "neutral"),
        ({"mode": "category", "categories": ["positive", "neutral"]}, SOUR, 0, "negative"),
        (
            {"mode": "category", "categories": ["neutral"], "positiveFrom": 0.9},
            "good",
            1,
            "neutral",
        ),
        (
            {
                "mode": "category",
                "categories": ["negative"],
                "negativeFrom": 0.45,
                "positiveFrom": 0.5,
            },
            "good",
            1,
            "negative",
        ),
        ({"mode": "raw", "min": 0.0}, "good", 1, 1.9),
        ({"mode": "raw", "min": 2.0}, "good", 0, 1.9),
        ({"mode": "comparative", "min": -0.1, "max": 1.0}, "good stuff", 1, 0.95),
    ],
)
def test_each_mode(criterion: dict[str, Any], text: str, score: float, value: float | str) -> None:
    found = outcome("sentiment_score", criterion, text)

    assert found.score == score
    assert found.turns[0].value == (value if isinstance(value, str) else pytest.approx(value))


@pytest.fixture
def afinn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package afinn with a few words; only its list is read, not its code."""
    data = tmp_path / "afinn" / "data"
    data.mkdir(parents=True)
    (data / "AFINN-en-165.txt").write_text("good\t3\nbad\t-3\nnot good\t-2\nsuperb\t5\nwon\t3\n")
    about = tmp_path / "afinn-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: afinn\nVersion: 0.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    _afinn.cache_clear()
    yield
    _afinn.cache_clear()


@pytest.mark.usefixtures("afinn")
@pytest.mark.parametrize(
    ("mode", "text", "score", "value"),
    [
        ({"mode": "raw", "min": 0.0}, "Good, superb,  BAD.", 1, 5),
        ({"mode": "raw", "max": 0.0}, "It is not good.", 1, -2),
        ({"mode": "comparative", "min": 1.0}, "a good day", 1, 1),
        ({"mode": "raw", "max": 0.0}, "It isn't good", 1, -3),
        ({"mode": "raw", "max": 0.0}, "It isn\u2019t **good**", 1, -3),
        ({"mode": "raw", "min": 0.0}, "not bad; dont: superb", 1, 8),
        ({"mode": "raw", "max": 0.0}, "I won't, won\u2019t.", 1, 0),
        ({"mode": "raw", "min": 0.0}, "We won a bad-free _superb_ 'good' day", 1, 11),
        ({}, "superb", 1, 1),
        ({}, "goodness", 0.5, 0),
        ({"mode": "category", "categories": ["negative"]}, "so bad", 1, "negative"),
    ],
)
def test_afinn_counts_the_words_of_its_list(
    mode: dict[str, Any], text: str, score: float, value: float | str
) -> None:
    found = outcome("sentiment_score", {"lexicon": "afinn", **mode}, text)

    assert (found.score, found.turns[0].value) == (score, value)


def test_the_lexicon_and_its_licence_travel_with_the_package() -> None:
    from importlib.resources import files

    folder = files("evaltap.evaluator.scoring.criteria.content").joinpath("lexicon")
    assert "C.J. Hutto" in folder.joinpath("LICENSE.txt").read_text("utf-8")
    assert len(folder.joinpath("vader_lexicon.tsv").read_text("utf-8").splitlines()) > 7000


# -- words that must not be said -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "text", "found"),
    [
        ({"values": ["idiot"]}, "You Idiot!", "found idiot"),
        ({"values": ["ass"]}, "The assistant will assess it.", ""),
        ({"values": ["ass"], "partial": True}, "The assistant", "found ass"),
        ({"values": ["shut up", "up"]}, "shut up now", "found shut up"),
        ({"values": ["shut up"]}, "now shut\n  up", "found shut up"),
        ({"values": ["l\u00f6cher"]}, "lo\u0308cher", "found l\u00f6cher"),
        ({"values": ["c++"]}, "I know c++.", "found c++"),
        ({"values": ["stra\u00dfe"]}, "STRASSE", "found strasse"),
        ({"values": ["हराम"]}, "हरामी", ""),
        ({"values": ["笨蛋", "idiot"]}, "你们idiots是笨蛋吗", "found 笨蛋"),
        ({"values": ["笨蛋", "idiot"]}, "你是idiot吗", "found idiot"),
        ({"values": ["US"], "caseSensitive": True}, "It helps us.", ""),
        ({"values": ["US"], "caseSensitive": True}, "Made in the US.", "found US"),
        ({"languages": ["english"]}, "well, shit happens", "found shit"),
        ({"languages": ["english"], "allowed": ["shit"]}, "well, shit happens", ""),
        ({"languages": ["english"]}, "The assassin in Scunthorpe had a cocktail.", ""),
        ({"languages": ["english"], "values": ["idiot"]}, "idiot", "found idiot"),
    ],
)
def test_listed_words_are_found(criterion: dict[str, Any], text: str, found: str) -> None:
    result = outcome("toxic_words", criterion, text)

    assert (result.reason, result.score) == (found, 0.0 if found else 1.0)


def test_hate_without_a_listed_word_is_not_found_which_the_page_warns_of() -> None:
    threat = "People like you should not be allowed to live here."

    assert outcome("toxic_words", {"languages": ["english"]}, threat).score == 1


@pytest.mark.parametrize("name", ["sentiment_score", "toxic_words"])
def test_a_text_that_was_not_recorded_has_no_score(name: str) -> None:
    criterion = {"values": ["x"]} if name == "toxic_words" else {}

    found = outcome(name, criterion, None, "fine")
    assert found.turns[0].reason == "evidence missing: finalResponse is absent"
    assert found.turns[0].status is Status.NOT_EVALUATED
    assert found.turns[1].score is not None


def test_the_rules_of_vader_are_those_of_nltk() -> None:
    from nltk.sentiment.vader import SentimentIntensityAnalyzer

    # What the analyzer takes from its base; a release that moves one of these must be looked at.
    assert {"make_lex_dict", "polarity_scores", "score_valence"} <= {
        name for name, _ in inspect.getmembers(SentimentIntensityAnalyzer)
    }
