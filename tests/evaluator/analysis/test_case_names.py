"""A case is named by its id, by the beginning of it, or by the shortened form in tables."""

from pathlib import Path

import pytest

from evaltap.evaluator.analysis.filters.listing import shortened
from support.builders.commands import Evaltap
from support.worlds.shop import Asked, landed

IDS = ("01a20ae4-bf99-7106-8e77-3a0dd25c88bb", "01a20ae4-bf93-7321-be71-e05b600f4425", "s-1")


@pytest.fixture
def store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.chdir(tmp_path)
    path = landed(tmp_path, [Asked(f"Hello from {one}", session=one) for one in IDS])
    capsys.readouterr()
    return path.name


@pytest.mark.parametrize("command", ["show", "why"])
def test_an_id_may_be_cut(evaltap: Evaltap, store: str, command: str) -> None:
    whole = evaltap(command, store, IDS[0])

    assert whole[0] != 2
    for name in ("01a20ae4-bf99", "01a20ae4…d25c88bb", "01a20ae4...d25c88bb", "…d25c88bb"):
        assert evaltap(command, store, name)[:2] == whole[:2], name


def test_a_piece_of_several_ids_is_refused_with_their_names(evaltap: Evaltap, store: str) -> None:
    code, _, err = evaltap("show", store, "01a20ae4")

    assert code == 2
    assert f"'01a20ae4' is part of several ids; give a longer part: {IDS[1]}, {IDS[0]}\n" in err


def test_a_few_letters_are_no_piece(evaltap: Evaltap, store: str) -> None:
    assert "no case '01a'" in evaltap("show", store, "01a")[2]


def test_what_the_table_prints_names_the_case(evaltap: Evaltap, store: str) -> None:
    lines = evaltap("cases", store)[1].splitlines()
    printed = [line.split()[0] for line in lines if "…" in line]

    assert printed == [shortened(one) for one in sorted(IDS[:2])]
    for name, whole in zip(printed, sorted(IDS[:2]), strict=True):
        assert f"Hello from {whole}" in evaltap("show", store, name)[1]
    assert max(map(len, lines)) <= 80
