"""Data sets of other tools as eval cases, and OpenAI eval configurations as metrics."""

import json
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow
import pyarrow.parquet
import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, ScriptedJudge, Services, Status
from evaltap.evaluator.cases.datasets.cases import dataset_cases
from evaltap.evaluator.cases.datasets.columns import Columns, parse_columns, row_case
from evaltap.evaluator.cases.datasets.openai_evals import EvalConfig, read_eval_config
from evaltap.evaluator.cases.datasets.tables import read_rows
from evaltap.schemas import EvalMetric, iter_cases, read_metrics
from evaltap.schemas.errors import EvaltapError, FormatError, InputError
from support.builders.cases import RESPONSE, TRAJECTORY, make_case

DATA = Path(__file__).parents[2] / "data/datasets"
HF_COLUMNS = {"id", "question", "answer", "prediction", "level"}


def converted(row: dict[str, Any], **columns: str) -> dict[str, Any]:
    return row_case(row, Columns(columns), number=1, app_name="app", path="f", place="line 1")


def turns(case: dict[str, Any], key: str = "actualConversation") -> list[dict[str, Any]]:
    return [turn for turn in case.get(key) or [] if turn]


# -- tables ----------------------------------------------------------------------------------------


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path, **options)]


@pytest.mark.parametrize(
    ("folder", "ids"),
    [
        ("hf-splits", ["q1", "q2"]),
        ("hf-shards", ["q1", "q2"] * 3),
        ("hf-parquet", ["q1", "q2"]),
    ],
)
def test_folders_of_hugging_face_datasets_are_read(folder: str, ids: list[str]) -> None:
    found = rows(DATA / folder)

    assert [row["id"] for row in found] == ids
    assert set(found[0]) == HF_COLUMNS


def test_one_split_may_be_chosen_and_places_name_it() -> None:
    assert [place for place, _ in read_rows(DATA / "hf-splits")] == [
        "row 0 of train",
        "row 0 of test",
    ]
    assert [row["id"] for row in rows(DATA / "hf-splits", split="test")] == ["q2"]
    with pytest.raises(InputError, match="has the splits train, test"):
        rows(DATA / "hf-splits", split="dev")
    with pytest.raises(InputError, match="has the splits none"):
        rows(DATA / "hf-shards", split="dev")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"", "unknown format; expected a file .jsonl"),
        ("a.csv", b"a,b\n1\n", "line 2: another number of cells"),
        ("a.csv", b"a\n\xff\n", "not CSV in UTF-8"),
        ("a.json", b'{"a": 1, "b": 2}', "found an object; expected an array of rows"),
        (
            "a.json",
            b'{"eval_set_id": "s", "eval_cases": []}',
            "is an eval set, which every command",
        ),
        ("a.json", b"[1]", "[0]: found the number 1; expected an object with columns"),
        ("a.jsonl", b"[]\n", "line 1: found a list of 0"),
        ("a.parquet", b"no", "not a Parquet file"),
        ("a.arrow", b"no", "not an Arrow file"),
        ("b/none", b"", "contains no data set"),
        ("b/state.json", b"{}", "expected `_data_files` with file names"),
        ("b/state.json", b'{"_data_files": [{"filename": "../x.arrow"}]}', "with file names"),
        ("b/dataset_dict.json", b"[]", "expected an object with columns"),
        ("b/dataset_dict.json", b"{}", "expected `splits`"),
    ],
)
def test_what_is_no_table_is_told(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)

    with pytest.raises(EvaltapError) as caught:
        rows(path if path.parent == tmp_path else path.parent)
    assert told in str(caught.value)


def test_an_array_may_be_the_only_value_of_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"data": [{"input": "x"}]}')

    assert rows(path) == [{"input": "x"}]


# -- rows ------------------------------------------------------------------------------------------


def test_a_row_with_an_output_is_a_recorded_case_with_what_was_expected() -> None:
    case = converted(
        {"id": 7, "question": "Where?", "answer": "Bern", "output": "In Bern", "level": 2}
    )

    assert (case["evalId"], case["evalMode"]) == ("7", "trace")
    assert turns(case)[0]["userContent"] == {"role": "user", "content": "Where?"}
    assert turns(case)[0]["finalResponse"]["content"] == "In Bern"
    assert turns(case)[0]["capture"] == {"tools": "missing"}
    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Bern"
    assert case["sessionInput"] == {"appName": "app", "userId": "dataset", "state": {"level": 2}}


def test_a_row_with_an_output_but_no_expectation_has_no_reference() -> None:
    scorer = CaseScorer([EvalMetric.model_validate(RESPONSE)])

    (found,) = scorer.score(
        converted({"question": "Hello", "answer": None, "output": "Hi"})
    ).metrics

    assert (found.status.value, found.reason) == (
        "not_evaluated",
        "no reference: no expected turn was given for this one",
    )


def test_a_row_without_an_output_is_a_case_still_to_be_run() -> None:
    case = converted({"prompt": "Where?", "ideal": ["Bern", "In Bern"]})

    assert (case["evalId"], case.get("evalMode", "")) == ("row-1", "")
    assert "actualConversation" not in case
    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Bern"


def test_columns_may_be_mapped_and_a_mapped_one_is_nothing_else() -> None:
    row = {"text": "Where?", "input": "a system prompt", "gold": "Bern", "answer": "In Bern"}
    case = converted(row, input="text", expected="gold", output="answer")

    assert turns(case)[0]["userContent"]["content"] == "Where?"
    assert turns(case)[0]["finalResponse"]["content"] == "In Bern"
    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Bern"
    assert case["sessionInput"]["state"] == {"input": "a system prompt"}


ATIF = {
    "schema_version": "ATIF-v1.4", "session_id": "fix-1", "agent": {"name": "coder"}, "steps": [
        {"step_id": 1, "source": "user", "message": "Fix it."},
        {"step_id": 2, "source": "agent", "message": "I look.", "tool_calls": [
            {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "ls"}}],
         "observation": {"results": [{"source_call_id": "c", "content": "a.py"}]}},
        {"step_id": 3, "source": "agent", "message": "Done."},
    ],
}  # fmt: skip
CALLED = {
    "id": "c",
    "type": "function",
    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
}
SAID = [
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c", "content": "a.py"},
    {"role": "assistant", "content": "Done."},
]
MINI = [
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": "I look.\n```bash\nls\n```"},
    {"role": "user", "content": "a.py"},
    {"role": "assistant", "content": "Done."},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", ATIF),
        ("t.json", {"messages": SAID}),
        ("t.json", {"messages": SAID, "info": {"cost": 1}}),
        ("t.traj", {"trajectory": [], "history": SAID, "environment": "e"}),
        ("t.json", {"trajectory_format": "mini-swe-agent-1", "messages": MINI}),
    ],
    ids=["atif", "messages", "messages-with-more", "swe-agent", "mini-swe-agent"],
)
def test_a_trajectory_may_be_one_object_in_its_file(
    tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(json.dumps(content))

    ((_, row),) = read_rows(tmp_path / name)

    (turn,) = turns(converted(row))
    assert turn["userContent"]["content"] == "Fix it."
    assert turn["finalResponse"]["content"] == "Done."
    (call,) = turn["tools"]
    assert (call["name"], call["arguments"], call["result"]) == ("bash", {"command": "ls"}, "a.py")


def test_a_list_of_messages_is_a_conversation() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "track", "arguments": '{"id": "A"}'}}]},
        {"role": "tool", "content": "Bern"},
        {"role": "assistant", "content": "Bern."},
        {"from": "human", "value": "When?"},
        {"from": "gpt", "value": "Monday."},
    ]  # fmt: skip
    case = converted({"messages": messages})

    one, two = turns(case)
    assert one["contextMessages"] == [{"role": "system", "content": "Be brief."}]
    assert one["finalResponse"]["content"] == "Bern."
    assert one["tools"] == [
        {"id": "c", "name": "track", "arguments": {"id": "A"}, "result": "Bern"}
    ]
    assert (two["userContent"]["content"], two["finalResponse"]["content"]) == ("When?", "Monday.")


def test_an_input_of_messages_ends_with_the_users() -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    case = converted({"input": asked, "ideal": "Bern"})

    assert turns(case, "conversation")[0]["userContent"]["content"] == "Where?"
    with pytest.raises(FormatError, match="the user's last"):
        converted({"input": asked[:1]})


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"text": "Where?"},
            "no column for the input; found the columns text; expected one of input",
        ),
        (
            {"evalId": "c-1", "conversation": [{"userContent": {"content": "x"}}]},
            "is an eval case, which every command reads unchanged",
        ),
        ({"input": {"a": 1}}, "input: found an object; expected a text"),
        ({"input": "x", "output": True}, "the answer: found true; expected a text"),
        ({"input": "x", "tools_called": "none"}, "expected a list of tool calls"),
        ({"input": "x", "tools_called": [{}]}, "expected tool calls with a `name`"),
        ({"input": "x", "image": b"..."}, "column image: found bytes"),
        ({"messages": []}, "expected a list of messages"),
        ({"messages": [{"text": "hi"}]}, "an object with `role` and `content`"),
        ({"messages": [{"role": "system", "content": "x"}]}, "at least one message of the user"),
    ],
)
def test_a_row_that_makes_no_case_is_told_with_its_place(row: dict[str, Any], told: str) -> None:
    with pytest.raises(FormatError) as caught:
        converted(row)

    assert told in str(caught.value)
    assert "line 1" in str(caught.value)


@pytest.mark.parametrize("pair", ["input", "=x", "input=", "colour=x"])
def test_a_mapping_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(InputError, match="expected FIELD=COLUMN"):
        parse_columns([pair])


def test_any_of_several_right_answers_counts_and_tools_are_left_open(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"question": "Where?", "output": "At home.", "answer": ["In Bern", "At home"],
                    "tools_called": ["locate"]})
    )  # fmt: skip
    case = converted(json.loads((tmp_path / "c.jsonl").read_text()))
    text = {"text": {"matchStrategy": "contains"}}
    metrics = [
        {"metricName": "final_response_avg_score", "threshold": 1,
         "criterion": {"finalResponse": text}},
        TRAJECTORY,
    ]  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps(metrics))

    answer, tools = CaseScorer(read_metrics(tmp_path / "m.json")).score(case).metrics

    assert answer.status is Status.PASSED
    assert tools.status is Status.NOT_EVALUATED
    assert "expected tools is missing" in tools.reason


# -- Inspect ---------------------------------------------------------------------------------------


def test_samples_of_inspect_are_cases_and_epochs_their_repeats(tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"

    assert main(["convert", str(DATA / "inspect.json"), "--out", str(out)]) == 0

    cases = {(case["evalId"], case["source"]["run"]): case for case in iter_cases(out)}
    assert {run for name, run in cases if name == "found"} == {"epoch-1", "epoch-2"}
    (found,) = turns(cases["found", "epoch-1"])
    (tool,) = found["tools"]
    assert (tool["name"], tool["arguments"]) == ("get_order", {"order_id": "A-7"})
    assert tool["result"] == '{"status": "shipped"}'
    assert found["finalResponse"]["content"] == "It was shipped."
    assert found["telemetry"]["models"] == ["mockllm/model"]
    (lost,) = turns(cases["lost", "epoch-1"])
    assert lost["tools"][0]["error"] == {"type": "unknown", "message": "no such order"}
    (expected,) = turns(cases["lost", "epoch-1"], "conversation")
    assert expected["references"][0]["finalResponse"]["content"] == "cannot find"


def test_samples_of_inspect_that_failed_or_were_cut_off_have_no_answer(tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"
    main(["convert", str(DATA / "inspect.json"), "--out", str(out)])
    ended = {case["evalId"]: turns(case)[-1] for case in iter_cases(out)}

    error = {"message": "RuntimeError('overloaded')"}
    assert (ended["crash"]["telemetry"]["status"], ended["crash"]["telemetry"]["error"]) == (
        "error", error)  # fmt: skip
    assert ended["limit"]["telemetry"]["status"] == "incomplete"
    assert ended["limit"]["telemetry"]["error"]["message"].startswith("Message limit reached")
    assert not {"finalResponse"} & (ended["limit"].keys() | ended["crash"].keys())


def test_a_sample_of_inspect_may_use_several_models_and_be_broken() -> None:
    sample = {
        "id": 1, "epoch": 1, "input": "Hi", "output": {}, "target": "",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
        "model_usage": {
            "a": {"input_tokens": 3, "input_tokens_cache_read": 4, "output_tokens": 1},
            "b": {"input_tokens": 5, "output_tokens": None},
            "c": None,
        },
    }  # fmt: skip

    (turn,) = turns(converted(sample))

    assert turn["telemetry"]["usage"] == [
        {"model": "a", "inputTokens": 7, "outputTokens": 1},
        {"model": "b", "inputTokens": 5, "outputTokens": 0},
    ]
    assert turn["telemetry"]["inputTokens"] == 12
    for broken in (
        3,
        None,
        [3],
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [3]}],
    ):
        with pytest.raises(FormatError, match=r"messages|a message|tool calls"):
            converted({**sample, "messages": broken})


def compacted(**more: Any) -> dict[str, Any]:
    """Return a sample of Inspect whose messages no longer hold the call that its events show."""
    return {
        "id": 1, "epoch": 1, "input": "Order two lamps", "output": {}, "model": "m",
        "messages": [
            {"role": "user", "content": "Order two lamps"},
            {"role": "assistant", "content": "Ordered."},
        ],
        "events": [
            {"event": "tool", "id": "k1", "function": "order", "arguments": {"n": 2}, "result": "ok"},
            {"event": "compaction"},
        ],
        **more,
    }  # fmt: skip


def test_calls_that_inspect_compacted_away_are_read_from_its_events() -> None:
    (turn,) = turns(converted(compacted()))

    assert [(one["name"], one["arguments"], one["result"]) for one in turn["tools"]] == [
        ("order", {"n": 2}, "ok")
    ]
    assert turn["finalResponse"]["content"] == "Ordered."


def test_a_sample_of_inspect_without_a_message_of_the_user_has_its_input() -> None:
    messages = [{"role": "assistant", "content": "Ordered."}]

    (turn,) = turns(converted(compacted(messages=messages, events=None)))

    assert turn["userContent"]["content"] == "Order two lamps"


def test_the_copied_steps_of_a_trajectory_are_history() -> None:
    call = {"tool_call_id": "c", "function_name": "bash"}
    first, second = ({**call, "arguments": {"cmd": cmd}} for cmd in ("make", "make -B"))
    steps = [
        {"source": "user", "message": "Make it pass."},
        {
            "source": "agent",
            "message": "I run it.",
            "tool_calls": [first],
            "is_copied_context": True,
        },
        {"source": "agent", "message": "Again.", "tool_calls": [second]},
        {"source": "agent", "message": "It passes."},
    ]

    (turn,) = turns(converted({"schema_version": "ATIF-v1.6", "session_id": "s", "steps": steps}))

    assert [one["arguments"] for one in turn["tools"]] == [{"cmd": "make -B"}]
    assert [one["content"] for one in turn["contextMessages"]] == ["I run it."]
    assert turn["finalResponse"]["content"] == "It passes."


def test_messages_in_bedrocks_form_have_calls_and_results() -> None:
    asked = [
        {"toolUse": {"toolUseId": str(n), "name": "weather", "input": {"n": n}}} for n in (1, 2)
    ]
    results = [
        {
            "toolResult": {
                "toolUseId": "1",
                "status": "success",
                "content": [{"json": {"celsius": 4}}],
            }
        },
        {"toolResult": {"toolUseId": "2", "status": "error", "content": [{"text": "no station"}]}},
    ]
    messages = [
        {"role": "user", "content": [{"text": "Oslo and Rome?"}]},
        {"role": "assistant", "content": asked},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"text": "Oslo 4 C; Rome unknown."}]},
    ]

    (turn,) = turns(converted({"messages": messages}))

    first, second = turn["tools"]
    assert (first["name"], first["arguments"]) == ("weather", {"n": 1})
    assert first["result"] in ('{"celsius":4}', {"celsius": 4})
    assert second["error"] == {"message": "no station"}
    assert turn["finalResponse"]["content"] == "Oslo 4 C; Rome unknown."
    assert "capture" not in turn


def test_a_file_may_be_one_list_of_chat_messages(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Paid?"}, {"role": "assistant", "content": "Yes."}]
    (tmp_path / "c.json").write_text(json.dumps(messages))

    (row,) = rows(tmp_path / "c.json")

    (turn,) = turns(converted(row))
    assert turn["finalResponse"]["content"] == "Yes."


def test_a_binary_log_of_inspect_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "x.eval").write_bytes(b"PK")

    with pytest.raises(InputError, match="inspect log convert --to json"):
        list(read_rows(tmp_path / "x.eval"))


# -- DeepEval --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_goldens_of_deepeval_are_the_same_cases_in_each_form(form: str) -> None:
    run, still_to_run = map(converted, rows(DATA / f"goldens.{form}"))

    assert turns(run)[0]["tools"] == [
        {"name": "track", "arguments": {"id": "A-100"}, "result": {"city": "Bern"}}
    ]
    assert turns(run, "conversation")[0]["tools"] == [
        {"name": "track", "arguments": {"id": "A-100"}}
    ]
    assert turns(run)[0]["finalResponse"]["content"] == "In Bern; on Monday."
    state = run["sessionInput"]["state"]
    assert state["retrieval_context"] == ["A-100: Bern"]
    assert "".join(state["context"]).startswith("Orders ship from Bern.")
    assert "actualConversation" not in still_to_run
    assert turns(still_to_run, "conversation")[0]["finalResponse"]["content"] == "Something"


def test_results_in_chat_messages_find_their_calls_and_failures_are_marked() -> None:
    def called(call_id: str, name: str) -> dict[str, Any]:
        return {"id": call_id, "function": {"name": name, "arguments": "{}"}}

    messages = [
        {"role": "user", "content": "Cancel it."},
        {"role": "assistant", "content": "One moment.",
         "tool_calls": [called("a", "find"), called("b", "cancel")]},
        {"role": "tool", "tool_call_id": "b", "name": "cancel", "content": "Error: not allowed"},
        {"role": "tool", "tool_call_id": "a", "name": "find", "content": '{"id": 7}'},
        {"role": "assistant", "content": "I may not."},
        {"role": "user", "content": "A human, please."},
        {"role": "assistant", "content": "I hand over.", "tool_calls": [called("c", "hand_over")]},
    ]  # fmt: skip
    one, two = turns(converted({"messages": messages}))

    assert [(tool["id"], tool["result"]) for tool in one["tools"]] == [
        ("a", '{"id": 7}'), ("b", "Error: not allowed")]  # fmt: skip
    assert [tool.get("error") for tool in one["tools"]] == [None, {"message": "Error: not allowed"}]
    assert [message["content"] for message in one["intermediateResponses"]] == ["One moment."]
    assert one["finalResponse"]["content"] == "I may not."
    assert two["finalResponse"]["content"] == "I hand over."
    assert "result" not in two["tools"][0]


def test_what_is_expected_of_a_dialogue_is_kept() -> None:
    said = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Bern."}]
    case = converted({"messages": said, "answer": "Basel"})

    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Basel"
    case = converted({"messages": said * 2, "answer": "Basel"})
    assert case["conversation"] == []
    assert case["sessionInput"]["state"] == {"answer": "Basel"}


def test_messages_that_nobody_answered_are_a_case_to_run() -> None:
    case = converted({"messages": [{"role": "user", "content": "Where?"}], "ideal": "Bern"})

    assert "actualConversation" not in case
    (turn,) = case["conversation"]
    assert (turn["userContent"]["content"], turn["finalResponse"]["content"]) == ("Where?", "Bern")


def test_a_dialogue_that_ends_before_the_answer_lacks_it() -> None:
    said = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "Bern."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Sure?"},
    ]

    _, last = turns(converted({"messages": said}))

    assert last["capture"] == {"finalResponse": "missing"}
    assert last["contextMessages"] == [{"role": "system", "content": "Be kind."}]


def test_images_in_chat_messages_are_marked_as_left_out() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "Whose?"}, picture]},
        {"role": "assistant", "content": [{"type": "text", "text": "Mine."}]},
    ]

    (turn,) = turns(converted({"messages": said}))

    assert turn["userContent"]["content"] == "Whose?"
    assert turn["capture"] == {"userContent.contentParts": "truncated"}


def test_messages_of_anthropic_are_read() -> None:
    def result(call_id: str, text: str, **more: Any) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}

    calls = [
        {"type": "tool_use", "id": name, "name": name, "input": {"id": 7}}
        for name in ("find", "buy")
    ]
    said = [
        {"role": "user", "content": "Buy it."},
        {"role": "assistant", "content": [{"type": "text", "text": "One moment."}, *calls]},
        {"role": "user", "content": [result("find", "found"), result("buy", "sold out", is_error=True)]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sold out."}]},
    ]  # fmt: skip

    (turn,) = turns(converted({"messages": said}))

    find, buy = turn["tools"]
    assert find == {"id": "find", "name": "find", "arguments": {"id": 7}, "result": "found"}
    assert buy["error"] == {"message": "sold out"}
    assert turn["finalResponse"]["content"] == "It is sold out."


def test_function_calls_of_old_chat_messages_are_read() -> None:
    said = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None,
         "function_call": {"name": "track", "arguments": '{"id": 7}'}},
        {"role": "function", "name": "track", "content": "Bern"},
        {"role": "assistant", "content": "Bern."},
    ]  # fmt: skip

    (turn,) = turns(converted({"messages": said}))

    assert turn["tools"] == [{"name": "track", "arguments": {"id": 7}, "result": "Bern"}]
    assert "capture" not in turn


def test_messages_of_other_forms_are_refused() -> None:
    for message in (
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "ipython", "content": "1"},
    ):
        with pytest.raises(FormatError, match="message"):
            converted({"messages": [{"role": "user", "content": "Hi"}, message]})


def test_a_result_without_its_call_is_marked() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "tool", "tool_call_id": "x", "content": "1"},
        {"role": "assistant", "content": "Hello."},
    ]

    assert turns(converted({"messages": messages}))[0]["capture"]["tools"] == "ambiguous"


def test_trials_of_a_task_are_its_repeats(tmp_path: Path) -> None:
    rows = [
        {"task": task, "n": n, "question": "Hi", "output": "Ho"} for n in (0, 1) for task in "ab"
    ]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    out = tmp_path / "c.jsonl"

    main(
        [
            "convert",
            str(tmp_path / "t.json"),
            "--out",
            str(out),
            "--map",
            "id=task",
            "--map",
            "run=n",
        ]
    )

    found = [(case["evalId"], case["source"]["run"]) for case in iter_cases(out)]
    assert found == [("a", "0"), ("b", "0"), ("a", "1"), ("b", "1")]


def test_a_field_may_be_mapped_to_a_path_into_a_column() -> None:
    row = {"q": "Hi", "info": {"task": {"answer": "Hello."}, "n": 1}}
    case = converted(row, input="q", expected="info.task.answer")

    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Hello."
    assert case["sessionInput"]["state"]["info"]["n"] == 1


def test_a_column_that_no_row_has_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "t.jsonl", tmp_path / "x.evalset.json"
    data.write_text('{"question": "Hi", "answer": "Hello."}\n')

    for field in ("output", "input"):
        code = main(["convert", str(data), "--out", str(out), "--map", f"{field}=anwser"])

        assert code == 2
        error = capsys.readouterr().err
        assert (
            f"--map {field}=anwser: no row has a value there; found the columns question" in error
        )
        assert "did you mean 'answer'?" in error
    assert not out.exists()


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_conversations_of_deepeval_have_a_turn_for_each_message_of_the_user(form: str) -> None:
    (row,) = rows(DATA / f"conversations.{form}")
    case = converted(row)

    assert [turn["finalResponse"]["content"] for turn in turns(case)] == ["In Bern.", "Monday."]
    assert turns(case)[0]["tools"] == [{"name": "track", "arguments": {"id": "A-100"}}]
    assert case["sessionInput"]["state"]["scenario"] == "A customer asks twice"


# -- OpenAI ----------------------------------------------------------------------------------------


def openai_eval(*graders: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"ticket": {}, "label": {}}}
    source = {"type": "custom", "item_schema": schema, "include_sample_schema": True}
    return {"name": "it", "data_source_config": source, "testing_criteria": [*graders]}


def check(operation: str, reference: str = "{{item.label}}", **more: Any) -> dict[str, Any]:
    return {
        "type": "string_check",
        "name": f"{operation} {reference}",
        "input": "{{sample.output_text}}",
        "reference": reference,
        "operation": operation,
        **more,
    }


def similar(measure: str, bound: float | None = 0.5) -> dict[str, Any]:
    made = check("eq") | {"type": "text_similarity", "name": measure, "evaluation_metric": measure}
    return made if bound is None else made | {"pass_threshold": bound}


ASKED = "{{item.ticket}} {{ sample.output_text }}"
LABEL = {
    "type": "label_model",
    "name": "tone",
    "model": "judge-1",
    "input": [
        {"role": "developer", "content": "Is the reply polite?"},
        {"role": "user", "content": {"type": "input_text", "text": ASKED}},
    ],
    "labels": ["polite", "rude"],
    "passing_labels": ["polite"],
}  # fmt: skip
SCORE = {
    "type": "score_model",
    "name": "score",
    "model": "judge-1",
    "input": [{"role": "user", "content": "Grade {{sample.output_text}} by {{item.label}}"}],
    "pass_threshold": 0.6,
}


def config(path: Path, *graders: dict[str, Any], **given: str) -> EvalConfig:
    (path / "eval.json").write_text(json.dumps(openai_eval(*graders)))
    return read_eval_config(path / "eval.json", given)


@pytest.mark.parametrize(
    ("grader", "output", "score"),
    [
        (check("eq"), "Hardware", 1),
        (check("eq"), "hardware", 0),
        (check("like"), "It is Hardware.", 1),
        (check("ilike"), "it is hardware.", 1),
        (check("like"), "it is hardware.", 0),
        (check("eq", "yes"), "yes", 1),
        (check("ne", "yes"), "yes", 0),
        (check("ne", "yes"), "no", 1),
        (check("ilike", "SORRY"), "so sorry", 1),
        (similar("rouge_1"), "Hardware fault", 1),
        (similar("rouge_l", 0.9), "Hardware fault", 0),
        (similar("fuzzy_match", 0.5), "Hardwood", 1),
    ],
)
def test_criteria_without_a_judge_score_as_they_would_there(
    tmp_path: Path, grader: dict[str, Any], output: str, score: float
) -> None:
    found = config(tmp_path, grader, input="ticket")
    row = {
        "item": {"ticket": "It is broken", "label": "Hardware"},
        "sample": {"output_text": output},
    }
    case = converted(row, **found.columns)

    outcome = CaseScorer(found.metrics).score(case).metrics[0]
    assert found.columns["input"] == "ticket"
    assert (outcome.status is Status.PASSED) == bool(score), outcome


def test_a_grade_on_a_scale_of_its_own_passes_where_it_would_there(tmp_path: Path) -> None:
    grader = SCORE | {"range": [1, 5], "pass_threshold": 4}
    found = config(tmp_path, check("eq"), grader, input="ticket")
    row = {"item": {"ticket": "TICKET", "label": "LABEL"}, "sample": {"output_text": "OUTPUT"}}
    judge = ScriptedJudge(['{"score": 4, "reason": ""}', '{"score": 3.9, "reason": ""}'])
    scorer = CaseScorer(found.metrics, services=Services(judge=lambda _: judge))

    outcomes = [scorer.score(converted(row, **found.columns)).metrics[1] for _ in range(2)]

    assert [one.status for one in outcomes] == [Status.PASSED, Status.FAILED]
    assert outcomes[0].score == found.metrics[1].threshold == 0.75
    assert "from 1 to 5" in judge.requests[0].prompt


def test_criteria_with_a_judge_become_templates(tmp_path: Path) -> None:
    found = config(tmp_path, check("eq"), LABEL, SCORE)
    row = {"item": {"ticket": "TICKET", "label": "LABEL"}, "sample": {"output_text": "OUTPUT"}}
    judge = ScriptedJudge(['{"category": "polite", "reason": ""}', '{"score": 0.7, "reason": ""}'])
    scorer = CaseScorer(found.metrics, services=Services(judge=lambda _: judge))

    outcomes = scorer.score(converted(row, **found.columns)).metrics

    assert [(one.name, one.score) for one in outcomes[1:]] == [("tone", 1), ("score", 0.7)]
    tone, grade = (request.prompt for request in judge.requests)
    assert all(
        text in tone for text in ("Is the reply polite?", "TICKET", "OUTPUT", "polite, rude")
    )
    assert all(text in grade for text in ("Grade", "OUTPUT", "LABEL"))
    criterion = found.metrics[1].criterion
    judge_model = criterion.llm_judge.judge_model if criterion and criterion.llm_judge else None
    assert judge_model is not None
    assert judge_model.model_name == "judge-1"


def test_columns_that_the_criteria_do_not_tell_may_be_given(tmp_path: Path) -> None:
    assert config(tmp_path, check("eq", "yes")).columns == {}
    told = config(tmp_path, check("eq"), expected="ticket")
    assert "which is the column 'ticket'" in told.unsupported[0]


@pytest.mark.parametrize(
    ("grader", "told"),
    [
        (check("ne"), "ne with a column as reference"),
        (check("eq", "{{item.label}} or {{item.other}}"), "a case has one expected answer"),
        (check("like", input="{{item.ticket}}"), "only {{sample.output_text}}"),
        (check("starts"), "operation 'starts'; expected eq, ne, like or ilike"),
        (similar("bleu"), "evaluation_metric bleu has no counterpart"),
        (similar("rouge_1", None), "pass_threshold is missing"),
        (LABEL | {"passing_labels": ["kind"]}, "the second part of the first"),
        (SCORE | {"range": [1, 5]}, "pass_threshold 0.6 is not in the range [1, 5]"),
        (SCORE | {"range": "wide"}, "expected two numbers"),
        (SCORE | {"input": [{"role": "user", "content": "{{item.other}}"}]}, "map a column"),
        (
            SCORE | {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "is not text",
        ),
        ({"type": "python", "name": "code", "source": "..."}, "unsupported type"),
    ],
)
def test_a_criterion_without_a_counterpart_is_named_and_not_guessed(
    tmp_path: Path, grader: dict[str, Any], told: str
) -> None:
    found = config(tmp_path, check("eq", "yes"), check("eq"), grader)

    assert len(found.metrics) == 2
    assert len(found.unsupported) == 1
    assert told in found.unsupported[0]


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_of_hugging_face_is_converted_and_scored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_text(
        '[{"metricName": "final_response_avg_score", "threshold": 1,'
        ' "criterion": {"finalResponse": {"text": {}}}}]'
    )

    assert main(["convert", str(DATA / "hf-splits"), "--out", "c.jsonl", "--app-name", "shop"]) == 0
    assert "2 cases -> c.jsonl" in capsys.readouterr().err
    assert main(["score", "c.jsonl", "--metrics", "m.json", "--json"]) == 1
    metric = json.loads(capsys.readouterr().out)["metrics"][0]
    assert (metric["passed"], metric["failed"]) == (1, 1)


def test_a_data_set_may_be_scored_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_text(
        '[{"metricName": "final_response_avg_score", "threshold": 1,'
        ' "criterion": {"finalResponse": {"text": {}}}}]'
    )
    Path("rows.csv").write_text("Ticket,output,expected\nWhere?,Bern,Bern\nWhen?,now,then\n")
    command = ["score", "rows.csv", "--metrics", "m.json", "--db", "x.duckdb"]

    assert main(command) == 2
    assert (
        "no column for the input; found the columns Ticket, output, expected"
        in capsys.readouterr().err
    )
    assert main([*command, "--map", "input=Ticket"]) == 1
    assert main(["score", str(DATA / "hf-parquet"), "--metrics", "m.json", "--db", "x.duckdb"]) == 1
    with duckdb.connect("x.duckdb", read_only=True) as store:
        found = store.execute("SELECT eval_set_id, eval_id, score FROM scores ORDER BY ALL")
        assert found.fetchall() == [
            ("hf-parquet", "q1", 1), ("hf-parquet", "q2", 0), ("rows", "row-1", 1), ("rows", "row-2", 0)
        ]  # fmt: skip
        sources = store.execute("SELECT source FROM runs ORDER BY started_at").fetchall()
    assert sources == [("rows.csv",), ("rows.csv",), (str(DATA / "hf-parquet"),)]


def test_rows_that_are_no_cases_are_dead_letters_and_the_others_are_scored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_bytes(orjson.dumps([TRAJECTORY]))
    good = [orjson.dumps(make_case(f"s-{number}")).decode() for number in range(3)]
    cells = [good[0], None, good[1], '{"broken', good[2], ""]
    pyarrow.parquet.write_table(pyarrow.table({"eval_case": cells}), "p.parquet")
    Path("rows.csv").write_text("id,colour\n7,red\n")

    assert main(["score", "p.parquet", "rows.csv", "--metrics", "m.json", "--db", "x.duckdb"]) == 2

    said = capsys.readouterr().err
    assert "not scored because they are not eval cases: 4 lines" in said
    with duckdb.connect("x.duckdb", read_only=True) as store:
        scored = store.execute("SELECT eval_set_id, eval_id FROM scores ORDER BY ALL").fetchall()
        letters = store.execute(
            "SELECT topic, record_offset, reason, detail, record_value FROM dead_letters"
            " ORDER BY topic, record_offset"
        ).fetchall()
    assert scored == [("p", "s-0"), ("p", "s-1"), ("p", "s-2")]
    assert [(topic, offset, reason, value) for topic, offset, reason, _, value in letters] == [
        ("file:p.parquet", 1, "invalid_case", b'{"eval_case":null}'),
        ("file:p.parquet", 3, "invalid_case", b'{"eval_case":"{\\"broken"}'),
        ("file:p.parquet", 5, "invalid_case", b'{"eval_case":""}'),
        ("file:rows.csv", 0, "invalid_case", b'{"id":"7","colour":"red"}'),
    ]
    for place, (_, _, _, detail, _) in zip(
        ("p.parquet: row 1", "p.parquet: row 3", "p.parquet: row 5", "rows.csv: line 2"),
        letters,
        strict=True,
    ):
        assert detail.startswith(f"{place}: ")
        assert detail in said


def test_a_table_without_a_row_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.json").write_bytes(orjson.dumps([TRAJECTORY]))
    Path("rows.csv").write_text("id,input\n")

    assert main(["score", "rows.csv", "--metrics", "m.json", "--db", "x.duckdb"]) == 2
    assert "no rows found; expected at least one" in capsys.readouterr().err
    assert not Path("x.duckdb").exists()


def test_goldens_become_an_eval_set(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goldens = str(DATA / "goldens.json")

    assert main(["convert", goldens, goldens, "--out", "g.evalset.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"] == 4
    assert [case["evalId"] for case in iter_cases(Path("g.evalset.json"))] == [
        "order", "row-2", "order-2", "row-4"
    ]  # fmt: skip


def test_an_openai_eval_becomes_metrics_that_score_its_rows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"item": {"ticket": "broken", "label": "Hardware"}, "sample": {"output_text": "Hardware"}}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    Path("eval.json").write_text(json.dumps(openai_eval(check("eq"), similar("meteor"))))
    command = ["convert", "rows.jsonl", "--out", "c.jsonl", "--openai-eval", "eval.json"]

    assert main([*command, "--metrics-out", "m.json"]) == 2
    assert (
        "meteor has no counterpart here; skip them with --skip-unsupported"
        in capsys.readouterr().err
    )
    assert main([*command, "--metrics-out", "m.json", "--skip-unsupported"]) == 0
    assert "left out: meteor (text_similarity)" in capsys.readouterr().err
    assert len(read_metrics(Path("m.json"))) == 1
    assert main(["score", "c.jsonl", "--metrics", "m.json"]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to convert"),
        (["a.csv"], "data files and --out FILE: one is missing; give both"),
        (["a.csv", "--out", "c.jsonl"], "a.csv: no such file"),
        (["--openai-eval", "e.json"], "--openai-eval and --metrics-out: one is missing; give both"),
        (["empty.jsonl", "--out", "c.jsonl"], "no rows found; expected at least one"),
        (["empty.jsonl", "--out", "c.evalset.json"], "no rows found; expected at least one"),
        (["empty.jsonl", "--out", "c.jsonl", "--split", "test"], "splits are folders"),
    ],
)
def test_a_command_that_cannot_be_done_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    Path("empty.jsonl").touch()

    assert main(["convert", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["empty.jsonl"]


PARTS = [{"role": "assistant", "content": [{"type": "text", "text": "here"}]}]
MESSAGES = [{"role": "user", "content": "Where?"}]


@pytest.mark.parametrize(
    ("row", "columns", "answer"),
    [
        (
            {"datasetName": "d", "input": {"messages": MESSAGES}, "expectedOutput": "here"},
            {},
            "here",
        ),
        (
            {"datasetName": "d", "input": {"messages": MESSAGES}, "expectedOutput": {"is": "here"}},
            {"expected": "expectedOutput.is"},
            "here",
        ),
        (
            {"datasetName": "d", "input": {"q": "Where?"}, "expectedOutput": {"is": "here"}},
            {"input": "input.q", "expected": "expectedOutput.is"},
            "here",
        ),
        ({"inputs": {"messages": MESSAGES}, "outputs": {"is": "here"}}, {}, "here"),
        (
            {"inputs": {"messages": MESSAGES}, "outputs": {"is": "here", "why": "so"}},
            {"expected": "outputs.is"},
            "here",
        ),
        ({"inputs": {"messages": MESSAGES}, "outputs": None}, {}, None),
        ({"inputs": {"messages": MESSAGES}, "outputs": {"messages": PARTS}}, {}, "here"),
    ],
)
def test_what_langfuse_and_langsmith_expect_in_other_shapes_is_kept(
    tmp_path: Path, row: dict[str, Any], columns: dict[str, str], answer: str | None
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([row]))

    (case,) = dataset_cases([path], Columns(columns))

    (turn,) = case["conversation"]
    assert turn["userContent"]["content"] == "Where?"
    assert (turn.get("finalResponse") or {}).get("content") == answer


def test_a_row_of_objects_names_the_path_to_a_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"id": 1, "inputs": {"q": "Where?"}, "outputs": {"a": "here"}}]))

    with pytest.raises(EvaltapError, match=r"or --map input=inputs\.q$"):
        list(dataset_cases([path], Columns()))


def test_a_page_of_an_api_holds_rows(tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"data": [{"input": "Where?"}], "meta": {"page": 1}}))

    assert [row for _, row in read_rows(path)] == [{"input": "Where?"}]
