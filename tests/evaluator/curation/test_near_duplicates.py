"""Near-duplicates: planted groups are found, without chains, regardless of the order."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.curation import near
from evaltap.evaluator.curation.grouping import Block, ComparedTurn, Likeness, health, turn_groups
from evaltap.evaluator.curation.near import SimilarTexts, near_groups, normal, shingles
from evaltap.evaluator.curation.picks import TurnKey

FILLERS = ("please", "hello", "thank you", "hi there", "asap", "it is urgent")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where is  order A-100?", " where is order 0 "),
        ("WHERE is order b7!", " where is order 0 "),
        ("ﬁne \u2013 OK", " fine ok "),
        ("", "  "),
        ("请取消订单A-200。", " 请取消订单0 "),
        ("2月の請求書を3通", " 0月の請求書を0通 "),
        ("ยกเลิก100", " ยกเล ก0 "),
        ("주문 100을 취소", " 주문 0 취소 "),
    ],
)
def test_a_normal_text_has_no_numbers_cases_or_marks(text: str, expected: str) -> None:
    assert normal(text) == expected


def plainly(texts: Sequence[str], one: str) -> list[float]:
    """Return Jaccard similarities as they are defined."""
    parts = shingles(one)
    return [len(parts & shingles(text)) / len(parts | shingles(text)) for text in texts]


@given(st.lists(st.text("abc ", max_size=12).map(normal), min_size=1, max_size=8))
def test_similarities_are_those_of_the_definition(texts: list[str]) -> None:
    index = SimilarTexts(texts)

    for place, text in enumerate(texts):
        assert index.to(place).tolist() == pytest.approx(plainly(texts, text))
        assert index.to_text(text).tolist() == pytest.approx(plainly(texts, text))
    assert index.to_text(" zzzz zzzz ").tolist() == pytest.approx(plainly(texts, " zzzz zzzz "))


def traffic(rng: random.Random, intents: int, turns: int) -> list[tuple[int, str]]:
    """Return texts with the intent that each was made of: fillers, typing errors, numbers, boilerplate."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(600)]
    kernels = [rng.choices(words, k=rng.randint(7, 12)) for _ in range(intents)]
    made = []
    for _ in range(turns):
        intent = rng.randrange(intents)
        said = list(kernels[intent])
        if rng.random() < 0.4:
            said.insert(0, rng.choice(FILLERS))
        if rng.random() < 0.5:
            at = rng.randrange(len(said))
            said[at] = said[at][::-1] if len(said[at]) < 4 else said[at][1:]
        said.append(f"A-{rng.randrange(9999)}")
        made.append((intent, " ".join(said)))
    return made


def pairs(names: Sequence[object]) -> int:
    return sum(count * (count - 1) // 2 for count in Counter(names).values())


def quality(truth: Sequence[int], found: Sequence[int]) -> tuple[float, float]:
    """Return precision and recall of pairs."""
    both = pairs(list(zip(truth, found, strict=True)))
    return both / max(1, pairs(found)), both / max(1, pairs(truth))


@pytest.mark.parametrize("counted_among_some", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_planted_groups_are_found_again(
    monkeypatch: pytest.MonkeyPatch, counted_among_some: bool, seed: int
) -> None:
    if counted_among_some:  # as with very many texts
        monkeypatch.setattr(near, "MOST_WORK", 0)
        monkeypatch.setattr(near, "COUNTED_AMONG", 100)
    made = traffic(random.Random(seed), intents=30, turns=600)
    texts = sorted({normal(text) for _, text in made})

    groups = near_groups(texts, [1.0] * len(texts))

    place = {texts[one]: number for number, group in enumerate(groups) for one in group.members}
    precision, recall = quality(
        [intent for intent, _ in made], [place[normal(text)] for _, text in made]
    )
    assert precision >= 0.93
    assert recall >= 0.85
    assert sorted(one for group in groups for one in group.members) == list(range(len(texts)))


def test_a_chain_of_likenesses_makes_no_group() -> None:
    words = [f"word{chr(97 + i)}{chr(97 + i)}" for i in range(12)]
    texts = [normal(" ".join(words[at : at + 6])) for at in range(0, 7, 2)]
    index = SimilarTexts(texts)
    assert index.to(0)[1] >= 0.4
    assert index.to(0)[3] < 0.2

    groups = near_groups(texts, [1.0] * 4, radius=0.4)

    for group in groups:
        assert min(index.to(group.medoid)[list(group.members)]) >= 0.4


@settings(max_examples=40)
@given(st.lists(st.sampled_from(["ab", "bc", "cd", "de", "ef", "fg"]), min_size=2, max_size=30))
def test_the_medoid_is_the_one_with_most_neighbours(parts: list[str]) -> None:
    texts = sorted({normal(" ".join(parts[at : at + 4])) for at in range(len(parts))})
    index = SimilarTexts(texts)
    alive = set(range(len(texts)))

    for group in near_groups(texts, [1.0] * len(texts)):
        counts = {one: sum(1 for other in alive if index.to(one)[other] >= 0.5) for one in alive}
        assert counts[group.medoid] == max(counts.values())
        alive -= set(group.members)
    assert not alive


def said(
    number: int, text: str, path: str = "a", outcome: str = "passed", weight: float = 1
) -> ComparedTurn:
    return ComparedTurn(
        TurnKey("app", "set", f"s-{number}", "t"), Block("app", path, outcome), text, weight
    )


def test_a_failure_never_hides_behind_a_success_nor_one_tool_behind_another() -> None:
    text = "Cancel my order A-1 please"
    turns = [said(0, text), said(1, text, outcome="failed"), said(2, text, path="b"), said(3, text)]

    groups = turn_groups(turns)

    assert [len(group.members) for group in groups] == [2, 1, 1]


def test_the_weight_of_a_group_is_the_traffic_that_its_turns_stand_for() -> None:
    turns = [
        said(0, "Where is it A-1", weight=20),
        said(1, "where is it A-2!"),
        said(2, "Other one"),
    ]

    groups = turn_groups(turns)

    assert [group.weight for group in groups] == [21, 1]
    assert health(groups)["largest"] == 2
    assert health(groups)["share_in_groups"] == pytest.approx(2 / 3)


def test_questions_with_numbers_differ_in_scripts_without_spaces() -> None:
    questions = ("订单{}在哪里", "请取消订单{}", "我想退货, 订单号{}", "注文{}を取り消して")
    turns = [said(number, questions[number % 4].format(100 + number)) for number in range(8)]

    groups = turn_groups(turns)

    assert [len(group.members) for group in groups] == [2, 2, 2, 2]


def test_the_order_of_turns_does_not_matter() -> None:
    turns = [said(n, text) for n, (_, text) in enumerate(traffic(random.Random(5), 6, 60))]
    shuffled = random.Random(6).sample(turns, len(turns))

    one, other = turn_groups(turns), turn_groups(shuffled)

    assert one == other


def test_a_group_that_swallows_its_block_is_warned_of() -> None:
    turns = [said(n, f"the same text A-{n}") for n in range(30)]
    turns += [said(100 + n, "something quite else " + chr(97 + n) * 9) for n in range(3)]

    (warning,) = health(turn_groups(turns))["warnings"]

    assert "91% of the 33 turns" in warning


def test_word_vectors_join_what_letters_do_not() -> None:
    turns = [said(0, "How do I return my purchase?"), said(1, "How do I send back my purchase?"),
             said(2, "What is the weather in Bern tomorrow?")]  # fmt: skip

    by_letters = turn_groups(turns, Likeness(radius=0.7))
    by_meaning = turn_groups(turns, Likeness(radius=0.7, semantic=0.7))

    assert len(by_letters) == 3
    assert len(by_meaning) == 2
