"""Checks of names."""

import pytest

from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known


@pytest.mark.parametrize(
    ("name", "remedy", "message"),
    [
        ("polit", "`list` lists them", "no metric 'polit'; did you mean 'polite'?"),
        ("zzz", "`list` lists them", "no metric 'zzz'; `list` lists them"),
        ("zzz", "", "no metric 'zzz'; expected one of polite, correct"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_or_a_remedy(
    name: str, remedy: str, message: str
) -> None:
    with pytest.raises(InputError) as raised:
        check_known(name, ["polite", "correct"], f"no metric {name!r}", remedy)

    assert str(raised.value) == message


def test_a_known_name_is_no_error() -> None:
    check_known("polite", ["polite"], "unknown")
