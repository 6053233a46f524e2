"""Eval sets for git: content hashes, stable bytes, differences and merges."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.cases.evalsets.content import content_hash
from evaltap.evaluator.cases.evalsets.difference import difference, merge
from evaltap.evaluator.cases.evalsets.files import set_bytes
from support.builders.cases import make_turn


def one_case(name: str, answer: str = "done", **given: Any) -> dict[str, Any]:
    user = {"role": "user", "content": f"Question of {name}?"}
    turn = make_turn("1", answer=answer, userContent=user)
    return {"evalId": name, "conversation": [turn], **given}


def test_neither_provenance_nor_recording_is_in_the_content_hash() -> None:
    case = one_case("a")
    other = one_case("b", source={"curation": {"weight": 3}}, actualConversation=[make_turn("x")])
    other["conversation"] = case["conversation"]

    assert content_hash(case) == content_hash(other)
    assert content_hash(case) != content_hash(one_case("a", "other"))


def test_a_difference_names_what_came_went_changed_and_was_renamed() -> None:
    before = [one_case("a"), one_case("b"), one_case("c"), one_case("d")]
    after = [one_case("a"), one_case("b", "new"), one_case("e"), {**one_case("d"), "evalId": "f"}]

    found = difference(before, after)

    assert [case["evalId"] for case in found.added] == ["e"]
    assert [case["evalId"] for case in found.removed] == ["c"]
    assert found.renamed == (("d", "f"),)
    (change,) = found.changed
    assert (change.eval_id, change.content) == ("b", True)
    assert change.fields[0].data() == {
        "field": "conversation[0].finalResponse.content", "before": "done", "after": "new",
    }  # fmt: skip
    assert found.same == 1


def test_the_order_of_cases_changes_neither_bytes_nor_difference() -> None:
    cases = [one_case(name) for name in "abc"]

    assert set_bytes("s", cases) == set_bytes("s", cases[::-1])
    assert not difference(cases, cases[::-1])


def test_diff_ends_with_1_where_sets_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.evalset.json").write_bytes(set_bytes("s", [one_case("a")]))
    changed = one_case("a", source={"curation": {"weight": 2}})
    (tmp_path / "b.evalset.json").write_bytes(set_bytes("s", [changed]))
    paths = [str(tmp_path / name) for name in ("a.evalset.json", "b.evalset.json")]

    assert main(["set", "diff", paths[0], paths[0]]) == 0
    assert main(["set", "diff", *paths, "--content"]) == 0
    capsys.readouterr()
    assert main(["set", "diff", *paths, "--json"]) == 1

    (change,) = json.loads(capsys.readouterr().out)["changed"]
    assert change["fields"] == [
        {"field": "source", "before": None, "after": {"curation": {"weight": 2}}}
    ]


def test_a_difference_in_content_lists_no_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        one_case("a", answer, actualConversation=[make_turn("1", answer=f"recorded {answer}")])
        for answer in ("old", "new")
    ]
    paths = [str(tmp_path / f"{name}.evalset.json") for name in "ab"]
    for path, case in zip(paths, cases, strict=True):
        Path(path).write_bytes(set_bytes("s", [case]))

    assert main(["set", "diff", *paths, "--content", "--json"]) == 1

    (change,) = json.loads(capsys.readouterr().out)["changed"]
    assert [field["field"] for field in change["fields"]] == [
        "conversation[0].finalResponse.content"
    ]


def test_a_merge_takes_each_sides_edits_and_names_conflicts() -> None:
    base = [one_case(name) for name in "abcd"]
    ours = [one_case("a", "ours"), one_case("b", "ours"), one_case("d"), one_case("n")]
    theirs = [one_case("a"), one_case("b", "theirs"), one_case("c"), one_case("d", "theirs")]

    merged = merge(ours, theirs, base)

    found = {
        case["evalId"]: case["conversation"][0]["finalResponse"]["content"] for case in merged.cases
    }
    assert found == {"a": "ours", "b": "ours", "d": "theirs", "n": "done"}
    assert merged.conflicts == ["b"]


def test_a_case_that_one_side_renamed_is_merged_under_its_new_name() -> None:
    base, renamed = [one_case("a")], [{**one_case("a"), "evalId": "b"}]

    merges = merge(base, renamed, base), merge(renamed, base, base), merge(renamed, renamed, base)

    assert [[case["evalId"] for case in merged.cases] for merged in merges] == [["b"]] * 3
    assert [merged.same for merged in merges] == [[]] * 3


def test_a_new_case_of_known_content_is_merged_once() -> None:
    merged = merge([one_case("a")], [{**one_case("a"), "evalId": "b"}])

    assert ([case["evalId"] for case in merged.cases], merged.same) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("before", "after"),
    [({"x": None}, {}), ({"x": True}, {"x": 1}), ([1, None], [1]), ([0], [False])],
)
def test_null_is_not_missing_and_true_is_not_one(before: Any, after: Any) -> None:
    old, new = (
        [{"evalId": "a", "conversation": [make_turn(tools=[{"name": "f", "arguments": given}])]}]
        for given in (before, after)
    )

    assert difference(old, new)
    assert difference(new, old)
    assert merge(old, new).conflicts == ["a"]
    assert merge(old, new, old).cases == new


def test_a_merge_keeps_what_ours_says_of_the_set_and_says_whose_case_it_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = {"base": [one_case("a")], "ours": [], "theirs": [one_case("a", "new")]}
    said = {"evalSetId": "s", "name": "Golden cases", "description": "For releases", "owner": "ann"}
    for name, cases in sides.items():
        (tmp_path / name).write_text(json.dumps({**said, "evalCases": cases}))
    ours, theirs, base, out = (
        str(tmp_path / name) for name in ("ours", "theirs", "base", "o.json")
    )

    assert main(["set", "merge", ours, theirs, "--base", base, "--out", out]) == 1

    assert "a: ours removed it and theirs changed it; theirs was kept" in capsys.readouterr().err
    merged = json.loads(Path(out).read_text())
    assert [case["evalId"] for case in merged.pop("evalCases")] == ["a"]
    assert merged == said


def test_a_merge_driver_gets_files_without_an_ending(folder: Path) -> None:
    sides = {
        "base": [one_case("a")],
        "ours": [one_case("a"), one_case("b")],
        "theirs": [one_case("a", "new")],
    }
    for name, cases in sides.items():
        Path(f".merge_file_{name}").write_bytes(set_bytes("s", cases))
    ours, theirs, base = (f".merge_file_{name}" for name in ("ours", "theirs", "base"))

    assert main(["set", "merge", ours, theirs, "--base", base, "--out", ours]) == 0

    assert Path(ours).read_bytes() == set_bytes("s", [one_case("a", "new"), one_case("b")])
    Path(base).write_bytes(b"")
    Path(ours).write_bytes(set_bytes("s", [one_case("c")]))
    assert main(["set", "merge", ours, theirs, "--base", base, "--out", ours]) == 0
    assert Path(ours).read_bytes() == set_bytes("s", [one_case("a", "new"), one_case("c")])


def test_a_merge_of_a_set_with_itself_is_that_set(tmp_path: Path) -> None:
    path = tmp_path / "s.evalset.json"
    path.write_bytes(set_bytes("s", [one_case("b"), one_case("a")]))
    shutil.copy(path, tmp_path / "t.evalset.json")

    assert (
        main(["set", "merge", str(path), str(tmp_path / "t.evalset.json"), "--out", str(path)]) == 0
    )

    assert path.read_bytes() == (tmp_path / "t.evalset.json").read_bytes()
