"""Exports in each tool's format, and their import without loss of inputs, expectations and calls."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import duckdb
import pytest
from langsmith.schemas import ExampleCreate

from evaltap.cli.main import main
from evaltap.evaluator.cases.datasets.exports.tools import FORMS
from evaltap.evaluator.cases.evalsets.files import read_set, set_bytes
from support.builders.cases import TRAJECTORY, make_case, make_turn
from support.builders.exported import CASES, MESSAGE, carried
from support.worlds.shop import Asked, landed

ADK_PARTS = {"role": "user", "content": "What?", "parts": [{"text": "What?"}, {"inline_data": {}}]}
PICTURE = {"role": "user", "content": "What?", "content_parts": [{"type": "image"}]}
FAILED_CALL = {"name": "refund", "error": {"type": "Timeout", "message": "too slow"}}
READ_BACK = ("deepeval", "openai-evals", "langsmith", "langfuse", "huggingface")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "golden.evalset.json"
    path.write_bytes(set_bytes("golden", CASES))
    return path


def exported(source: Path, form: str, name: str, *more: str) -> Path:
    out = source.parent / name
    assert main(["set", "export", str(source), "--format", form, "--out", str(out), *more]) == 0
    return out


@pytest.mark.parametrize("form", READ_BACK)
def test_what_is_asked_expected_and_called_comes_back(source: Path, form: str) -> None:
    out = exported(source, form, "out.json" if form in ("deepeval", "langsmith") else "out.jsonl")
    back = source.parent / "back.evalset.json"

    made = [str(path) for path in (out, Path(f"{out}.conversations.json")) if path.exists()]
    assert main(["convert", *made, "--out", str(back)]) == 0

    found = {case["evalId"]: carried(case) for case in read_set(back).cases}
    wanted = {case["evalId"]: carried(case) for case in CASES}
    if form != "deepeval":  # a row for each turn
        wanted |= {f"c/{n}": [turn] for n, turn in enumerate(wanted.pop("c"), start=1)}
    assert found == wanted
    sessions = {case["evalId"]: case["sessionInput"] for case in read_set(back).cases}
    assert sessions["a/ü 1"] == {"appName": "shop", "userId": "dataset", "state": {"tier": "gold"}}


@pytest.mark.parametrize(
    ("form", "together"), [*((form, False) for form in READ_BACK), ("deepeval", True)]
)
def test_what_is_not_specified_is_not_expected_when_it_comes_back(
    tmp_path: Path, form: str, together: bool
) -> None:
    source, back = tmp_path / "golden.evalset.json", tmp_path / "back.evalset.json"
    only_answer = make_turn(tools=[], capture={"tools": "missing"})
    only_calls = make_turn(answer=None, capture={"finalResponse": "missing"})
    turns = {"answer": only_answer, "calls": only_calls, "no-call": make_turn(tools=[])}
    cases = [{"evalId": name, "conversation": [turn]} for name, turn in turns.items()]
    if together:
        cases = [{"evalId": "all", "conversation": [*turns.values()]}]
    source.write_bytes(set_bytes("golden", cases))
    out = exported(source, form, "out.json" if form in ("deepeval", "langsmith") else "out.jsonl")

    assert main(["convert", str(out), "--out", str(back)]) == 0

    every = [turn for case in read_set(back).cases for turn in case["conversation"]]
    found = dict(zip(turns, every, strict=True))
    assert {name: turn.get("capture") for name, turn in found.items()} == {
        name: turn.get("capture") for name, turn in turns.items()
    }
    assert "finalResponse" not in found["calls"]


def test_the_calls_of_a_langsmith_example_are_those_of_all_its_messages(tmp_path: Path) -> None:
    call = {"id": "1", "function": {"name": "get", "arguments": "{}"}}
    outputs = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "4"},
        {"role": "assistant", "content": "It is 4."},
    ]
    asked_for = {"messages": [{"role": "user", "content": "2 + 2?"}]}
    path, out = tmp_path / "examples.json", tmp_path / "out.evalset.json"
    rows = [{"inputs": asked_for, "outputs": {"messages": said}} for said in (outputs, outputs[2:])]
    path.write_text(json.dumps(rows))

    assert main(["convert", str(path), "--out", str(out)]) == 0

    first, second = (case["conversation"][0] for case in read_set(out).cases)
    assert [tool["name"] for tool in first["tools"]] == ["get"]
    assert first["finalResponse"]["content"] == "It is 4."
    assert second["capture"] == {"tools": "missing"}


def test_turns_before_and_context_are_messages(source: Path) -> None:
    lines = exported(source, "langfuse", "out.jsonl").read_text().splitlines()

    rows = {row["id"]: row for row in map(json.loads, lines)}
    assert [one["content"] for one in rows["golden/c/2"]["input"]["messages"]] == [
        "One?",
        "1",
        "Two?",
    ]
    assert rows["golden/b"]["input"]["messages"][0] == {"role": "system", "content": "Be kind."}
    assert rows["golden/a/ü 1"]["sourceTraceId"] == "t-9"
    assert rows["golden/b"]["metadata"]["evaltap"]["omitted"] == ["rubrics"]


@pytest.mark.parametrize("form", ["langsmith", "langfuse"])
def test_a_turn_never_has_the_id_of_another_case(tmp_path: Path, form: str) -> None:
    source = tmp_path / "golden.evalset.json"
    cases = [CASES[2], {"evalId": "c/1", "conversation": [make_turn()]}]
    source.write_bytes(set_bytes("golden", cases))

    text = exported(source, form, "out.json").read_text()

    rows = json.loads(text) if form == "langsmith" else map(json.loads, text.splitlines())
    assert len({row["id"] for row in rows}) == 3


def test_goldens_have_the_keys_of_deepeval_in_its_order(source: Path) -> None:
    out = exported(source, "deepeval", "out.json", "--with-actual")
    text = out.read_text()

    golden, with_actual = json.loads(text)
    (conversation,) = json.loads(Path(f"{out}.conversations.json").read_text())
    assert [*golden][:3] == ["input", "actual_output", "expected_output"]
    assert golden["expected_tools"] == [
        {"name": "get_order", "inputParameters": CASES[0]["conversation"][0]["tools"][0]["arguments"],
         "output": {"ok": 1}}
    ]  # fmt: skip
    assert with_actual["actual_output"] == "No."
    assert [turn["role"] for turn in conversation["turns"]] == ["user", "assistant"] * 2
    assert text.startswith("[\n    {\n        ")


def test_conversational_goldens_have_a_file_of_their_own_only_among_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "golden.evalset.json"
    source.write_bytes(set_bytes("golden", CASES))
    exported(source, "deepeval", "both.json")
    assert "3 cases written to " in (said := capsys.readouterr().err)
    assert "both.json.conversations.json" in said

    source.write_bytes(set_bytes("golden", CASES[2:]))
    out = exported(source, "deepeval", "one.json")

    assert [golden["name"] for golden in json.loads(out.read_text())] == ["c"]


# The name of the field in files that the client loads; its models call it reference_outputs now.
@pytest.mark.filterwarnings("ignore:'outputs' is deprecated:DeprecationWarning")
def test_examples_are_what_langsmith_creates(source: Path) -> None:
    rows = json.loads(exported(source, "langsmith", "out.json").read_text())

    create: Any = ExampleCreate  # its base class has no types
    examples = [create(**row) for row in rows]

    assert len({example.id for example in examples}) == 4
    assert examples[0].inputs is not None
    assert examples[0].inputs["messages"][-1]["content"] == 'Where is "A-7"? <b>'
    assert rows == json.loads(exported(source, "langsmith", "again.json").read_text())


def test_items_fit_the_schema_that_goes_with_them(source: Path) -> None:
    import jsonschema

    out = exported(source, "openai-evals", "out.jsonl")
    schema = json.loads(Path(f"{out}.schema.json").read_text())

    lines = out.read_text().splitlines()
    assert lines
    for line in lines:
        jsonschema.validate(json.loads(line)["item"], schema)


def test_promptfoo_tests_have_variables_and_assertions(source: Path) -> None:
    tests = json.loads(exported(source, "promptfoo", "tests.json").read_text())

    assert tests[1]["vars"]["input"] == "Hello?"
    assert tests[1]["assert"] == [{"type": "icontains", "value": "Hello!"}]
    assert all(isinstance(value, str) for test in tests for value in test["vars"].values())


@pytest.mark.parametrize(
    "text", ["file:///etc/passwd", "package:a:b", "My key is {{env.KEY}}", "{% if %}", "{# no #}"]
)
def test_a_text_that_promptfoo_would_render_or_load_is_left_out_with_a_word(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "golden.evalset.json"
    asked = make_turn(userContent={"role": "user", "content": text})
    cases = {"asked": [asked], "answered": [make_turn(answer=text)], "before": [asked, make_turn()]}
    made = [{"evalId": name, "conversation": turns} for name, turns in cases.items()]
    source.write_bytes(set_bytes("golden", [*made, CASES[1]]))

    tests = json.loads(exported(source, "promptfoo", "tests.json").read_text())

    assert [test["description"] for test in tests] == ["b"]
    assert "left out 3 cases with a text that promptfoo would not take" in capsys.readouterr().err


def test_the_pytest_module_runs_a_test_for_each_row(source: Path) -> None:
    module = runpy.run_path(str(exported(source, "pytest", "golden_cases.py")))

    names, rows = module["cases"].mark.args
    assert names == "case"
    assert [row["id"] for row in rows] == ["a/ü 1", "b", "c/1", "c/2"]
    assert rows[0]["expected_output"] == "It's in Bern & \u2028 on its way."


def test_a_folder_for_hugging_face_has_texts_only(source: Path) -> None:
    out = exported(source, "huggingface", "folder")

    rows = [json.loads(line) for line in (out / "data/test.jsonl").read_text().splitlines()]
    assert all(isinstance(value, str) for row in rows for value in row.values())
    assert "path: data/test.jsonl" in (out / "README.md").read_text()


@pytest.mark.parametrize("form", [*FORMS, "trpc", "adk", "jsonl"])
def test_check_tells_a_file_that_is_stale(source: Path, form: str) -> None:
    out = exported(source, form, "out")
    check = ["set", "export", str(source), "--format", form, "--out", str(out), "--check"]
    assert main(check) == 0

    target = out / "data/test.jsonl" if form == "huggingface" else out
    target.write_bytes(target.read_bytes() + b" ")

    assert main(check) == 1


def test_what_a_form_has_no_place_for_is_said(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(source, "langsmith", "out.json")

    assert "langsmith does not support rubrics; left out of 1 case" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("turn", "form", "says"),
    [
        (
            make_turn(tools=[], capture={"tools": "missing"}),
            "adk",
            "1 case, such as 'c': not specified which tools a turn should call, which adk reads as none;"
            " specify it, or do not run tool_trajectory_avg_score on it",
        ),
        (
            make_turn(answer=None, capture={"finalResponse": "missing"}),
            "adk",
            "not specified what a turn should answer, which adk reads as an empty answer; specify it, or"
            " do not run response_match_score and final_response_match_v2 on it",
        ),
        (make_turn(answer=None), "trpc", "or do not run final_response_avg_score on it"),
        (make_turn(answer=None, tools=[]), "trpc", "or do not run tool_trajectory_avg_score on it"),
        (make_turn(tools=[], references=[make_turn()]), "adk", "does not support references"),
        (make_turn(state={"paid": True}), "langfuse", "does not support state; left out of 1 case"),
        (make_turn(contextMessages=[MESSAGE]), "adk", "does not support contextMessages"),
        (
            make_turn(tools=[FAILED_CALL]),
            "adk",
            "does not support errors of tools; left out of 1 case",
        ),
        (make_turn(tools=[FAILED_CALL]), "deepeval", "does not support errors of tools"),
        (make_turn(toolMock={"actual": [{"name": "f"}]}), "adk", "does not support toolMock"),
        (make_turn(toolMock={"actual": [{"name": "f"}]}), "langfuse", "does not support toolMock"),
        (make_turn(tools=[{"name": "f", "after": ["1"]}]), "adk", "the order of tools (after)"),
        (
            make_turn(tools=[{"name": "f", "optional": True}]),
            "deepeval",
            "optional tools; left out",
        ),
        (make_turn(tools=[{"name": "f", "result": 0}]), "langsmith", "results of tools; left out"),
        (make_turn(userContent=PICTURE), "deepeval", "does not support images and other content_p"),
        (make_turn(userContent=ADK_PARTS), "langfuse", "does not support images and other content"),
    ],
)
def test_what_a_tool_would_read_otherwise_is_said(
    tmp_path: Path, turn: Any, form: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "golden.evalset.json"
    source.write_bytes(set_bytes("golden", [{"evalId": "c", "conversation": [turn]}]))

    exported(source, form, "out.json")

    assert says in capsys.readouterr().err


def test_what_adk_drops_of_a_case_with_several_turns_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "golden.evalset.json"
    turns = [make_turn(tools=[], state={"paid": True}), make_turn(tools=[])]
    case = {"evalId": "c", "conversation": turns, "actualConversation": turns}
    plan = {"conversationScenario": {"startingPrompt": "Hi", "stopSignal": "bye"}}
    source.write_bytes(set_bytes("golden", [case, {"evalId": "d"} | plan]))

    exported(source, "adk", "out.json")

    said = capsys.readouterr().err
    assert "adk does not support recorded turns beside expected ones; left out of 1 case" in said
    assert "adk does not support the state of turns before the last; left out of 1 case" in said
    assert "adk does not support all of conversationScenario; left out of 1 case" in said


@pytest.mark.parametrize("form", READ_BACK)
def test_a_case_without_turns_is_left_out_with_a_word(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "golden.evalset.json"
    source.write_bytes(
        set_bytes("golden", [{"evalId": "plan", "conversationScenario": {}}, CASES[2]])
    )

    out = exported(source, form, "out.json" if form in ("deepeval", "langsmith") else "out.jsonl")

    said = capsys.readouterr().err
    assert "left out 1 case without turns" in said
    assert "1 case written to" in said
    assert main(["convert", str(out), "--out", str(tmp_path / "back.jsonl")]) == 0


def test_a_recorded_turn_without_an_answer_comes_back_without_one(tmp_path: Path) -> None:
    source, back = tmp_path / "golden.evalset.json", tmp_path / "back.evalset.json"
    turn = make_turn(answer=None, tools=[CASES[0]["conversation"][0]["tools"][0]])
    source.write_bytes(
        set_bytes("s", [{"evalId": "a", "evalMode": "trace", "actualConversation": [turn]}])
    )
    out = exported(source, "openai-evals", "out.jsonl", "--with-actual")

    assert main(["convert", str(out), "--out", str(back)]) == 0

    (found,) = read_set(back).cases[0]["actualConversation"]
    assert found["capture"] == {"finalResponse": "missing"}
    assert [tool["name"] for tool in found["tools"]] == ["get_order"]


def test_an_answer_that_is_missing_is_no_message(tmp_path: Path) -> None:
    source = tmp_path / "golden.evalset.json"
    turns = [make_turn(answer=None), make_turn(answer=None)]
    source.write_bytes(set_bytes("s", [{"evalId": "a", "conversation": turns}]))

    lines = exported(source, "langfuse", "out.jsonl").read_text().splitlines()

    said = json.loads(lines[1])["input"]["messages"]
    assert [one["role"] for one in said] == ["user", "user"]


@pytest.mark.parametrize("arguments", [[], 0, False])
def test_arguments_that_are_no_object_come_back(tmp_path: Path, arguments: Any) -> None:
    source, back = tmp_path / "golden.evalset.json", tmp_path / "back.evalset.json"
    turn = make_turn(tools=[{"name": "f", "arguments": arguments}])
    source.write_bytes(set_bytes("s", [{"evalId": "a", "conversation": [turn]}]))
    out = exported(source, "langsmith", "out.json")

    assert main(["convert", str(out), "--out", str(back)]) == 0

    (call,) = read_set(back).cases[0]["conversation"][0]["tools"]
    assert call["arguments"] == arguments
    assert type(call["arguments"]) is type(arguments)


@pytest.mark.parametrize("form", ["adk", "trpc"])
def test_a_turn_that_is_specified_is_exported_without_a_word(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "golden.evalset.json"
    turns = [make_turn(), make_turn(tools=[])]
    source.write_bytes(set_bytes("golden", [{"evalId": "c", "conversation": turns}]))

    out = exported(source, form, "out.json")

    assert capsys.readouterr().err == f"1 case written to {out}\n"


def test_recorded_turns_that_become_expected_ones_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = landed(tmp_path, [Asked("Where is it?")], metrics=[])

    exported(database, "adk", "out.json")

    assert "only recorded, which adk reads as expected; review them" in capsys.readouterr().err


@pytest.mark.parametrize("form", sorted(FORMS.keys() - {"huggingface"}))
def test_recorded_answers_that_a_format_leaves_out_are_said(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = landed(tmp_path, [Asked("Where is it?")], metrics=[])

    exported(database, form, "out")

    said = capsys.readouterr().err
    assert f"1 case, such as 's-0': only recorded, of which {form} gets no answers or calls" in said
    with_actual = ["set", "export", str(database), "--format", form, "--out", str(tmp_path / "out")]
    taken = form in ("deepeval", "openai-evals")
    assert ("or add --with-actual" in said) == taken
    assert main([*with_actual, "--with-actual"]) == (0 if taken else 2)
    assert "only recorded" not in capsys.readouterr().err


@pytest.mark.parametrize(("more", "turns"), [([], "right"), (["--with-actual"], "wrong")])
def test_the_turns_of_a_conversational_golden_come_back_as_what_they_were(
    tmp_path: Path, more: list[str], turns: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, back = tmp_path / "golden.evalset.json", tmp_path / "back.evalset.json"
    case: dict[str, Any] = {
        "evalId": "c",
        "evalMode": "trace",
        "conversation": [make_turn(answer="right")] * 2,
        "actualConversation": [make_turn(answer="wrong")] * 2,
    }
    source.write_bytes(set_bytes("golden", [case]))

    out = exported(source, "deepeval", "out.json", *more)

    said = (
        "several expected turns, which deepeval reads as what happened" in capsys.readouterr().err
    )
    assert main(["convert", str(out), "--out", str(back)]) == 0
    (found,) = read_set(back).cases
    assert found.keys() & {"conversation", "actualConversation"} == (
        {"conversation"} if said else {"actualConversation"}
    )
    assert said == (not more)
    assert [answer for _, answer, _ in carried(found)] == [turns, turns]


@pytest.mark.parametrize("form", [*FORMS, "adk"])
def test_an_expected_turn_without_a_question_has_that_of_the_recorded_one(
    tmp_path: Path, form: str
) -> None:
    source = tmp_path / "golden.evalset.json"
    asked = {"role": "user", "content": "Where is my order?"}
    wanted = {"finalResponse": {"role": "assistant", "content": "Here."}}
    case = {
        "evalId": "c",
        "evalMode": "trace",
        "conversation": [wanted],
        "actualConversation": [make_turn(userContent=asked)],
    }
    source.write_bytes(set_bytes("golden", [case]))

    out = exported(source, form, "out")

    target = out / "data/test.jsonl" if form == "huggingface" else out
    assert "Where is my order?" in target.read_text()


def test_landed_cases_are_exported_as_they_were_recorded(tmp_path: Path) -> None:
    database = landed(tmp_path, [Asked("Where is it?")], metrics=[])

    rows = json.loads(exported(database, "deepeval", "out.json", "--with-actual").read_text())

    assert rows[0]["input"] == "Where is it?"
    assert rows[0]["actual_output"] == "Here you are, please."
    assert rows[0]["expected_output"] is None


@pytest.mark.parametrize("name", ["out.evalset.json", "out.jsonl"])
def test_an_exported_case_has_the_scores_of_the_landed_one(folder: Path, name: str) -> None:
    turns = [make_turn(), make_turn("t-2")]
    partly = make_case("partly", turns, conversation=[make_turn(), None], source={"service": "s"})
    Path("s.evalset.json").write_text(
        json.dumps({"evalSetId": "s", "evalCases": [partly, make_case("recorded")]})
    )
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    scored = ["--metrics", "m.json", "--json", "--db"]
    main(["record", "cases", "s.evalset.json", "--log", "log.db"])
    main(["consume", "--log", "log.db", "--until-idle", *scored, "landed.duckdb"])

    assert main(["set", "export", "landed.duckdb", "--out", name]) == 0
    main(["score", name, *scored, "exported.duckdb"])

    assert scores("exported.duckdb") == scores("landed.duckdb")
    assert scores("exported.duckdb") == [
        ("partly", 1.0, "passed"),
        ("recorded", None, "not_evaluated"),
    ]


def test_json_lines_of_a_store_are_up_to_date_and_those_of_a_set_name_it(tmp_path: Path) -> None:
    database = landed(tmp_path, [Asked("Line\u2028end?")], metrics=[])
    source = tmp_path / "golden.evalset.json"
    source.write_bytes(set_bytes("of-may", [{"evalId": "a", "conversation": [make_turn()]}]))

    out = exported(database, "jsonl", "out.jsonl")

    assert main(["set", "export", str(database), "--out", str(out), "--check"]) == 0
    assert read_set(exported(source, "jsonl", "set.jsonl")).eval_set_id == "of-may"
    assert read_set(exported(source, "jsonl", "b.jsonl", "--id", "may")).eval_set_id == "may"


@pytest.mark.parametrize("form", ["langsmith", "langfuse", "adk"])
def test_a_session_of_two_applications_has_an_id_for_each(folder: Path, form: str) -> None:
    cases = [make_case("s", sessionInput={"appName": app}) for app in ("desk", "shop")]
    Path("s.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    main(["record", "cases", "s.jsonl", "--log", "log.db"])
    main(["consume", "--log", "log.db", "--until-idle", "--db", "x.duckdb", "--json"])

    assert main(["set", "export", "x.duckdb", "--format", form, "--out", "out"]) == 0

    text = Path("out").read_text()
    assert len(set(re.findall(r'"(?:eval_|)id": ?"([^"]{3,})"', text)) - {"call-1"}) == 2


@pytest.mark.parametrize("form", ["trpc", "adk"])
def test_an_exported_set_keeps_its_name_and_description(tmp_path: Path, form: str) -> None:
    said = {"name": "Golden cases", "description": "For releases", "owner": "ann"}
    source = tmp_path / "golden.evalset.json"
    source.write_text(json.dumps({"evalSetId": "s", **said, "evalCases": []}))

    made = json.loads(exported(source, form, "out.json", "--id", "other").read_text())

    assert {key: made[key] for key in said} == said
    assert made["eval_set_id" if form == "adk" else "evalSetId"] == "other"


def test_what_was_not_recorded_is_not_expected(folder: Path) -> None:
    marks = {"tools": "missing", "finalResponse": "redacted", "sessionId": "synthesized"}
    case = make_case("s", [make_turn(tools=[], capture=marks)])
    Path("s.jsonl").write_text(json.dumps(case))
    main(["record", "cases", "s.jsonl", "--log", "log.db"])
    main(["consume", "--log", "log.db", "--until-idle", "--db", "x.duckdb", "--json"])

    assert main(["set", "export", "x.duckdb", "--as", "expected", "--out", "e.jsonl"]) == 0

    (turn,) = json.loads(Path("e.jsonl").read_text())["conversation"]
    assert turn["capture"] == {"finalResponse": "redacted", "tools": "missing"}


def scores(path: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(path, read_only=True) as store:
        return store.execute(
            "SELECT eval_id, score, status FROM latest_scores ORDER BY eval_id"
        ).fetchall()


def test_a_filter_of_a_file_is_refused(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments: list[Any] = ["set", "export", str(source), "--out", "x.jsonl", "--filter", "tool:a"]

    assert main(arguments) == 2
    assert "only work on a store" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("marks", "form", "ids"),
    [
        (("version", "version"), "trpc", ["s@v1", "s@v2"]),
        (("version", "version"), "jsonl", ["s@v1", "s@v2"]),
        (("run", "run"), "jsonl", ["s", "s"]),
        (("run", "run"), "adk", ["s@v1", "s@v2"]),
    ],
)
def test_a_case_that_landed_in_several_versions_has_an_id_for_each(
    tmp_path: Path, marks: tuple[str, str], form: str, ids: list[str]
) -> None:
    asked = [
        Asked("Where is it?", session="s", source={mark: f"v{number}"})
        for number, mark in enumerate(marks, start=1)
    ]
    database = landed(tmp_path, asked, metrics=[])

    text = exported(database, form, "out").read_text()

    assert re.findall(r'"eval_?[iI]d": ?"([^"]*)"', text) == ids


def test_repeats_of_two_versions_stay_repeats_of_one_case(tmp_path: Path) -> None:
    asked = [
        Asked("Where is it?", session="s", source={"version": version, "run": run})
        for version in "12"
        for run in "ab"
    ]

    text = exported(landed(tmp_path, asked, metrics=[]), "jsonl", "out").read_text()

    assert [json.loads(line)["evalId"] for line in text.splitlines()] == ["s"] * 4


def test_fmt_says_the_same_of_what_adk_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "golden.evalset.json"
    turn = make_turn(tools=[], capture={"tools": "missing"})
    source.write_bytes(set_bytes("golden", [{"evalId": "c", "conversation": [turn]}]))

    main(["set", "fmt", "--to", "adk", "--stdout", str(source)])

    assert "not specified which tools a turn should call" in capsys.readouterr().err
