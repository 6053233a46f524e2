"""How a recorded case is matched with its expected turns in a file of references."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.cases.references import Join, References
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import iter_cases
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_tool, make_turn


def said(*texts: str) -> list[dict[str, Any]]:
    return [
        make_turn(f"t-{n}", userContent={"role": "user", "content": text})
        for n, text in enumerate(texts)
    ]


def reference(name: str, *texts: str) -> dict[str, Any]:
    return {"evalId": name, "conversation": said(*texts)}


def file_of(folder: Path, *cases: dict[str, Any]) -> Path:
    path = folder / "golden.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases))
    return path


def joined(
    folder: Path, case: dict[str, Any], *references: dict[str, Any], join: Join = "auto"
) -> Any:
    """Return what `attach` says, and the first words that are expected then."""
    found = References.of(iter_cases(file_of(folder, *references)), join).attach(case)
    return found, [turn["userContent"]["content"] for turn in case.get("conversation") or []]


def recorded(name: str, *texts: str) -> dict[str, Any]:
    return {"evalId": name, "evalMode": "trace", "actualConversation": said(*texts)}


def test_the_eval_id_comes_first(tmp_path: Path) -> None:
    case = recorded("a", "Hi")

    assert joined(tmp_path, case, reference("b", "Hi"), reference("a", "Other")) == (
        "eval_id",
        ["Other"],
    )


def test_without_it_the_users_words_decide_whatever_their_case_and_spaces(tmp_path: Path) -> None:
    case = recorded("6e2f", "list  RELEASES\n")

    assert joined(tmp_path, case, reference("g1", "List releases")) == (
        "user_text",
        ["List releases"],
    )


@pytest.mark.parametrize(("join", "found"), [("eval_id", "none"), ("user_text", "user_text")])
def test_one_way_may_be_asked_for(tmp_path: Path, join: Join, found: str) -> None:
    case = recorded("6e2f", "Hi")

    assert joined(tmp_path, case, reference("g1", "Hi"), join=join)[0] == found


@pytest.mark.parametrize("other", [("Hi",), ("Hi", "What else?"), ("Hi", "And then?", "Thanks")])
def test_a_conversation_that_only_begins_alike_is_no_reference(
    tmp_path: Path, other: tuple[str, ...]
) -> None:
    case = recorded("x", "Hi", "And then?")

    assert joined(tmp_path, case, reference("g1", *other)) == ("none", [])


def test_of_several_that_begin_alike_the_one_with_the_same_words_is_taken(tmp_path: Path) -> None:
    case = recorded("x", "Hi", "And then?")

    found = joined(tmp_path, case, reference("g1", "Hi", "No"), reference("g2", "Hi", "And then?"))

    assert found == ("user_text", ["Hi", "And then?"])


def test_several_alike_are_ambiguous_and_none_is_taken(tmp_path: Path) -> None:
    case = recorded("x", "Hi")

    assert joined(tmp_path, case, reference("g1", "Hi"), reference("g2", "Hi")) == ("ambiguous", [])


def test_what_the_user_said_must_have_been_captured(tmp_path: Path) -> None:
    case = {"evalId": "x", "actualConversation": [{"invocationId": "t"}]}

    assert joined(tmp_path, case, {"evalId": "g", "conversation": [{"invocationId": "t"}]}) == (
        "none",
        [],
    )


def test_a_reference_of_an_id_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="'a' occurs a second time; keep one"):
        References.of(iter_cases(file_of(tmp_path, reference("a", "1"), reference("a", "2"))))


def test_files_are_joined_too_and_the_number_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called = [make_turn(tools=[make_tool()])]
    cases = tmp_path / "recorded.jsonl"
    own = [
        make_case("one", turns=called),
        make_case("two", turns=said("?")),
    ]
    cases.write_text("".join(json.dumps(case) + "\n" for case in own) + "nonsense\n")
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps([TRAJECTORY]))
    golden = file_of(tmp_path, {"evalId": "golden", "conversation": called})

    code = main(
        ["score", str(cases), "--metrics", str(metrics), "--references", str(golden), "--json"]
    )

    found = capsys.readouterr()
    assert "references: 1 of 2 cases joined (1 by user text)" in found.err
    assert f"{cases}: line 3" in found.err
    assert code == 2, "a line is no case"
    assert json.loads(found.out)["bad_lines"] == 1


def test_a_case_of_a_file_whose_reference_is_not_found_is_not_compared_with_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tmp_path / "recorded.jsonl"
    cases.write_text(json.dumps(make_case("two", turns=said("?"))))
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps([RESPONSE]))
    golden = file_of(tmp_path, reference("other", "something else"))

    code = main(
        ["score", str(cases), "--metrics", str(metrics), "--references", str(golden), "--json"]
    )

    found = json.loads(capsys.readouterr().out)
    assert [row["not_evaluated"] for row in found["metrics"]] == [1]
    assert code == 3
