"""ROUGE: overlap of words, of word sequences and of longest common subsequences.

Scores equal those of Google's `rouge-score` 0.1.2, and N may be any positive number.  Words are
runs of ASCII letters and digits.  Unlike there, text in other scripts than Latin has words, too:
if either text has any, those of both are found by `cjk`.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from evaltap.evaluator.scoring.contract.comparisons import Names, Tokenizer
from evaltap.evaluator.scoring.criteria.content.bit_parallel import common_length
from evaltap.evaluator.scoring.criteria.content.tokenizers import (
    TOKENIZERS,
    ascii_words,
    cjk,
    has_other_script,
)
from evaltap.schemas.formats.metric import RougeCriterion

_NGRAM_TYPE = re.compile(r"rouge([0-9]+)")


class RougeScore(NamedTuple):
    """Precision, recall and their harmonic mean, each in [0, 1]."""

    precision: float
    recall: float
    f1: float


ZERO = RougeScore(0.0, 0.0, 0.0)

RougeScorer = Callable[[str, str], RougeScore]
"""Scores (prediction, reference)."""


def compile_rouge(
    criterion: RougeCriterion, names: Names | None = None
) -> Callable[[str, str], str | None]:
    """Return the check of (actual, expected), which passes if all three thresholds are reached.

    Raises MetricError for a tokenizer that `names` does not know.
    """
    if criterion.ignore:
        return lambda _actual, _expected: None
    kind, measure = criterion.rouge_type, criterion.measure or "f1"
    tokenizer = None
    if criterion.tokenizer_name:
        tokenizer = (names or Names()).tokenizer(criterion.tokenizer_name, TOKENIZERS)
    try:
        scorer = rouge_scorer(
            kind,
            use_stemmer=criterion.use_stemmer,
            split_summaries=criterion.split_summaries,
            tokenizer=tokenizer,
        )
        if measure not in RougeScore._fields:
            raise ValueError(f"unknown measure {measure}; expected precision, recall or f1")
    except ValueError as error:
        reason = str(error)
        return lambda _actual, _expected: reason
    bounds = criterion.threshold

    def check(actual: str, expected: str) -> str | None:
        score = scorer(actual, expected)
        if (
            score.precision >= bounds.precision
            and score.recall >= bounds.recall
            and score.f1 >= bounds.f1
        ):
            return None
        return describe(kind, measure, score)

    return check


def describe(rouge_type: str, measure: str, score: RougeScore) -> str:
    """Return the score as a reason: the requested measure first, then all three."""
    return (
        f"{rouge_type} {measure}={getattr(score, measure):.6f} precision={score.precision:.6f} "
        f"recall={score.recall:.6f} f1={score.f1:.6f}"
    )


def rouge_scorer(
    rouge_type: str,
    *,
    use_stemmer: bool = False,
    split_summaries: bool = False,
    tokenizer: Tokenizer | None = None,
) -> RougeScorer:
    """Return the scorer of a type: rouge1, rouge2, ..., rougeL, rougeLsum.

    `split_summaries` finds the sentences of rougeLsum by punctuation instead of by line.  A `tokenizer`
    finds the words instead of evaltap, and stems none.  Raises ValueError for any other type.
    """

    def finder(actual: str, expected: str) -> Tokenizer:
        if tokenizer is not None:
            return tokenizer
        other = has_other_script(actual) or has_other_script(expected)
        return partial(cjk if other else ascii_words, use_stemmer=use_stemmer)

    if rouge_type == "rougeL":

        def sequence(actual: str, expected: str) -> RougeScore:
            words = finder(actual, expected)
            return _longest(words(actual), words(expected))

        return sequence
    if rouge_type == "rougeLsum":
        split = split_sentences if split_summaries else _lines

        def summary(actual: str, expected: str) -> RougeScore:
            words = finder(actual, expected)
            predicted = [words(sentence) for sentence in split(actual)]
            return _summary_level(predicted, [words(sentence) for sentence in split(expected)])

        return summary
    match = _NGRAM_TYPE.fullmatch(rouge_type)
    size = int(match[1]) if match else 0
    if size < 1:
        found = f"'{rouge_type}'" if rouge_type else "none"
        raise ValueError(
            f"invalid rougeType: found {found}, expected rouge1, rouge2, ..., rougeL or rougeLsum"
        )

    def overlap(actual: str, expected: str) -> RougeScore:
        words = finder(actual, expected)
        return _ngrams(words(actual), words(expected), size)

    return overlap


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]


def _score(hits: int, predicted: int, wanted: int) -> RougeScore:
    precision, recall = hits / max(predicted, 1), hits / max(wanted, 1)
    total = precision + recall
    return RougeScore(precision, recall, 2 * precision * recall / total if total > 0 else 0.0)


def _ngrams(predicted: Sequence[str], wanted: Sequence[str], size: int) -> RougeScore:
    ours, theirs = _count(predicted, size), _count(wanted, size)
    return _score((ours & theirs).total(), ours.total(), theirs.total())


def _count(words: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    starts = range(len(words) - size + 1)
    return Counter(tuple(words[start : start + size]) for start in starts)


def _longest(predicted: Sequence[str], wanted: Sequence[str]) -> RougeScore:
    if not predicted or not wanted:
        return ZERO
    return _score(common_length(predicted, wanted), len(predicted), len(wanted))


def _summary_level(
    predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]
) -> RougeScore:
    """Combine, for each reference sentence, its common subsequences with all predicted sentences.

    A word counts at most as often as it occurs on each side.
    """
    ours = Counter(word for sentence in predicted for word in sentence)
    theirs = Counter(word for sentence in wanted for word in sentence)
    sizes = ours.total(), theirs.total()
    if not all(sizes):
        return ZERO
    hits = 0
    for sentence in wanted:
        united: set[int] = set()
        for other in predicted:
            united.update(_common_places(sentence, other))
        for place in sorted(united):
            word = sentence[place]
            if ours[word] > 0 and theirs[word] > 0:
                ours[word] -= 1
                theirs[word] -= 1
                hits += 1
    return _score(hits, *sizes)


def _common_places(wanted: Sequence[str], predicted: Sequence[str]) -> list[int]:
    """Return the indexes in `wanted` of one longest common subsequence.

    If several exist, backtracking prefers to drop a word of `wanted`; the choice affects the score.
    """
    table = [[0] * (len(predicted) + 1)]
    for word in wanted:
        above, row = table[-1], [0]
        for column, other in enumerate(predicted):
            row.append(above[column] + 1 if word == other else max(above[column + 1], row[column]))
        table.append(row)
    places = []
    one, other_index = len(wanted), len(predicted)
    while one and other_index:
        if wanted[one - 1] == predicted[other_index - 1]:
            one, other_index = one - 1, other_index - 1
            places.append(one)
        elif table[one][other_index - 1] > table[one - 1][other_index]:
            other_index -= 1
        else:
            one -= 1
    return places


# Written without the final full stop, lower-cased.
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\S+",
        """
        a.m adm al apr aug ave bros capt cf cmdr co col corp dec dept dr e.g est etc feb fig ft gen
        gov hon i.e inc jan jr lt ltd m.d maj messrs mr mrs ms mt nov oct p.m ph.d prof rep rev sen
        sep sept sgt sr st u.k u.n u.s vs
        """,
    )
)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of `text` without the white space between them."""
    sentences: list[str] = _splitter().tokenize(text)
    return [sentence for sentence in sentences if sentence]


@lru_cache(maxsize=1)
def _splitter() -> Any:  # nltk has no types
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    parameters = PunktParameters()
    parameters.abbrev_types = set(_ABBREVIATIONS)
    return PunktSentenceTokenizer(parameters)
