"""The filter of names: it may report false positives, but never false negatives."""

from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.ingest.landing.lander import BloomFilter

NAMES = st.tuples(st.text(), st.text(), st.text())


@given(st.sets(NAMES))
def test_what_was_added_is_there(names: set[tuple[str, str, str]]) -> None:
    seen = BloomFilter()
    for name in names:
        seen.add(name)

    assert all(name in seen for name in names)


def test_what_was_not_added_is_hardly_ever_there() -> None:
    seen = BloomFilter()
    for number in range(50_000):
        seen.add(("app", f"s-{number}", f"s-{number}"))

    wrong = sum(("app", f"new-{number}", f"new-{number}") in seen for number in range(50_000))

    assert wrong < 50
