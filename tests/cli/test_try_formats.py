"""What `evaltap try` reads from details of ADK, of calls of models, and of exports."""

import json
from pathlib import Path

import pytest

from evaltap.cli.recognising import recognise
from support.builders.tried import Line, at, outline, read, turns

DATA = Path(__file__).parents[1] / "data" / "try"

# -- ADK -------------------------------------------------------------------------------------------


def content(role: str, text: str) -> Line:
    return {"role": role, "parts": [{"text": text}]}


INVOCATION: Line = {
    "invocation_id": "i1",
    "user_content": content("user", "Why?"),
    "final_response": content("model", "So."),
    "intermediate_data": {"tool_uses": [{"name": "look", "args": {}}], "tool_responses": []},
}


@pytest.mark.parametrize(
    ("document", "name", "told"),
    [
        (
            {"eval_set_id": "e", "eval_cases": [{"eval_id": "c", "conversation": [INVOCATION]}]},
            "ADK eval set",
            "1 case, with the turns of their conversations",
        ),
        (
            {
                "eval_set_result_id": "r",
                "eval_set_id": "e",
                "eval_case_results": [
                    {
                        "session_id": "c",
                        "eval_metric_result_per_invocation": [{"actual_invocation": INVOCATION}],
                    }
                ],
            },
            "ADK eval result",
            "1 case",
        ),
        (
            {
                "evalSetId": "e",
                "evalCaseResults": [
                    {
                        "evalId": "c",
                        "runId": 1,
                        "evalMetricResultPerInvocation": [
                            {
                                "actualInvocation": {
                                    "userContent": {"role": "user", "content": "Why?"},
                                    "tools": [{"name": "look", "arguments": {}}],
                                    "finalResponse": {"role": "assistant", "content": "So."},
                                }
                            }
                        ],
                    },
                    {"evalId": "d", "errorMessage": "no inference"},
                ],
            },
            "eval result",
            "2 cases",
        ),
    ],
    ids=["ADK's set", "ADK's result", "result"],
)
def test_eval_sets_and_results(document: Line, name: str, told: str, tmp_path: Path) -> None:
    for given in (document, json.dumps(document)):
        found = read(tmp_path, given)

        assert [outline(turn) for turn in turns(found)] == [
            ("Why?", [("look", False)], "So.", None)
        ]
        assert (found.files[0].format, found.files[0].contents) == (name, told)
        assert found.cases[0]["evalId"] == "c"


def test_an_adk_eval_set_without_cases_is_skipped(tmp_path: Path) -> None:
    (file,) = read(tmp_path, {"eval_set_id": "e", "eval_cases": []}).files

    assert str(file.skipped) == "ADK eval set, but without any turn"


def test_an_error_event_of_adk_ends_its_turn(tmp_path: Path) -> None:
    events = [
        {"author": "user", "content": content("user", "Why?"), "timestamp": 1772359200.0},
        {"author": "a", "actions": {}, "errorCode": "429", "errorMessage": "quota"},
    ]

    (turn,) = turns(read(tmp_path, {"id": "s", "appName": "a", "events": events}))

    assert turn["telemetry"]["error"] == {"type": "429", "message": "quota"}


def test_a_call_of_adk_that_was_confirmed_has_the_result_that_followed(tmp_path: Path) -> None:
    waiting, paid = {"error": "requires confirmation"}, {"status": "paid"}
    parts = [
        ("user", {"text": "Pay"}),
        ("a", {"functionCall": {"id": "c1", "name": "pay", "args": {}}}),
        *(
            ("a", {"functionResponse": {"id": "c1", "name": "pay", "response": response}})
            for response in (waiting, paid)
        ),
        ("a", {"text": "Paid."}),
    ]
    events = [{"author": author, "content": {"parts": [part]}} for author, part in parts]

    (turn,) = turns(read(tmp_path, {"id": "s", "appName": "a", "events": events}))

    (call,) = turn["tools"]
    assert ("error" in call, call["result"], "capture" in turn) == (False, paid, False)


# -- model calls and chats -------------------------------------------------------------------------


def call(messages: list[Line], answer: object, **response: object) -> Line:
    said = {"choices": [{"message": {"role": "assistant", "content": answer}}], **response}
    return {"request": {"model": "m", "messages": messages}, "response": said}


ASK, ANSWER = {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}
NEXT = {"role": "user", "content": "And?"}


@pytest.mark.parametrize(
    ("calls", "answers"),
    [
        ([call([ASK], "So."), call([ASK, ANSWER, NEXT], "Fine.")], [["So.", "Fine."]]),
        ([call([ASK], "So."), call([ASK], "No.")], [["So."], ["No."]]),
        ([call([ASK], "No."), call([ASK, ANSWER, NEXT], "Fine.")], [["So.", "Fine."], ["No."]]),
    ],
    ids=["continued", "asked twice", "another conversation"],
)
def test_a_request_that_another_one_continues_is_no_conversation_of_its_own(
    calls: list[Line], answers: list[list[str]], tmp_path: Path
) -> None:
    found = read(tmp_path, calls)

    by_session: dict[str, list[str]] = {}
    for case in found.cases:
        (turn,) = case["actualConversation"]
        by_session.setdefault(case["evalId"], []).append(turn["finalResponse"]["content"])
    assert [*by_session.values()] == answers


@pytest.mark.parametrize(
    "document",
    [
        {"input": "text", "model": "m", "response": {"data": [{"embedding": [0.1]}]}},
        [{"author": "a", "content": "text"}],
        {"id": 1, "timestamp": "t", "source": "web", "action": "click"},
        [{"type": "message", "message": {"role": "user", "content": "x"}}, {"type": "tool"}],
    ],
    ids=["embedding", "posts", "audit", "another agent"],
)
def test_a_document_of_another_kind_is_not_recognised(document: object, tmp_path: Path) -> None:
    (file,) = read(tmp_path, document).files

    assert str(file.skipped).startswith("not recognised")


def test_spans_of_the_agents_sdk_are_refused_with_the_way_out(tmp_path: Path) -> None:
    data = {"type": "response", "response_id": "resp_1", "usage": None}
    spans = [{"object": "trace", "id": "t"}, {"object": "trace.span", "span_data": data}]

    (file,) = read(tmp_path, spans).files

    assert "record the agent with EvaltapTraceProcessor" in str(file.skipped)


@pytest.mark.parametrize(
    "chat",
    [
        {"messages": [{"role": "user", "content": "A?"}, {"role": "assistant", "content": "B."}]},
        {"contents": [{"role": "user", "parts": [{"text": "A?"}]},
                      {"role": "model", "parts": [{"text": "B."}]}]},
    ],
    ids=["plain", "Gemini"],
)  # fmt: skip
def test_an_empty_chat_leaves_the_others(chat: Line, tmp_path: Path) -> None:
    empty: Line = {key: [] for key in chat}
    path, array = tmp_path / "chats.jsonl", tmp_path / "chats.json"
    path.write_text("\n\n".join(map(json.dumps, [empty, chat, chat, empty])))
    array.write_text(json.dumps([chat, empty]))

    found, listed = recognise([path]), recognise([array])

    assert len(turns(found)) == 2
    assert found.files[0].notes == ["2 chats without messages (line 1, line 7)"]
    assert (len(turns(listed)), listed.files[0].notes) == (1, ["1 chat without messages ([1])"])


def test_a_binary_log_of_inspect_is_told_how_to_convert(tmp_path: Path) -> None:
    (tmp_path / "x.eval").write_bytes(b"PK\3\4")

    (file,) = recognise([tmp_path / "x.eval"]).files

    assert str(file.skipped).startswith("is a log of Inspect in its binary form; expected JSON")


def test_a_record_may_have_model_and_tokens_beside_the_response(tmp_path: Path) -> None:
    """As entries of DSPy's history do."""
    record = {
        "messages": [ASK],
        "response": {"choices": [{"message": ANSWER}]},
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
        "model": "m",
    }

    (turn,) = turns(read(tmp_path, [record]))

    (used,) = turn["telemetry"]["usage"]
    assert used == {"model": "m", "inputTokens": 5, "outputTokens": 9, "cachedTokens": 4}


@pytest.mark.parametrize(
    "document",
    [
        {
            "conversations": [
                {"from": "human", "value": "Why?"},
                {"from": "function_call", "value": '{"name": "look", "arguments": {}}'},
                {"from": "observation", "value": "Error: no"},
                {"from": "gpt", "value": "So."},
            ]
        },
        {
            "task_id": 3,
            "traj": [
                ASK,
                {"role": "assistant", "content": None, "function_call": {"name": "look"}},
                {"role": "tool", "name": "look", "content": "Error: no"},
                ANSWER,
            ],
        },
        [
            {"type": "human", "data": {"content": "Why?"}},
            {"type": "ai", "data": {"content": "", "tool_calls": [{"name": "look", "id": "c"}]}},
            {"type": "tool", "data": {"content": "no", "tool_call_id": "c", "status": "error"}},
            {"type": "ai", "data": {"content": "So."}},
        ],
        {
            "messages": [
                {"role": "user", "parts": [{"type": "text", "text": "Why?"}]},
                {
                    "role": "assistant",
                    "parts": [
                        {
                            "type": "tool-invocation",
                            "toolInvocation": {
                                **{"toolCallId": "c", "toolName": "look", "args": {}},
                                "result": "Error: no",
                            },
                        },
                        {"type": "text", "text": "So."},
                    ],
                },
            ]
        },
        {
            "messages": [
                ASK,
                {
                    "role": "assistant",
                    "content": "So.",
                    "toolInvocations": [
                        {"toolCallId": "c", "toolName": "look", "args": {}, "result": "Error: no"}
                    ],
                },
            ]
        },
        [
            ASK,
            {
                "role": "assistant",
                "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "look"}],
            },
            {
                "role": "tool",
                "content": [
                    {
                        **{"type": "tool-result", "toolCallId": "c", "toolName": "look"},
                        "output": {"type": "error-text", "value": "no"},
                    }
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "So."}]},
        ],
        [
            {"role": "user", "content": {"format": 2, "parts": [{"type": "text", "text": "Why?"}]}},
            {
                "role": "assistant",
                "content": {
                    "format": 2,
                    "parts": [
                        {
                            **{"type": "tool-look", "toolCallId": "c", "input": {}},
                            "errorText": "no",
                        },
                        {"type": "text", "text": "So."},
                    ],
                },
            },
        ],
        [
            {"role": "user", "blocks": [{"block_type": "text", "text": "Why?"}]},
            {
                "role": "assistant",
                "blocks": [
                    {
                        **{"block_type": "tool_call", "tool_call_id": "c"},
                        **{"tool_name": "look", "tool_kwargs": {}},
                    }
                ],
            },
            {
                "role": "tool",
                "additional_kwargs": {"tool_call_id": "c"},
                "blocks": [{"block_type": "text", "text": "Error: no"}],
            },
            {"role": "assistant", "blocks": [{"block_type": "text", "text": "So."}]},
        ],
        [
            {"role": "user", "content": [{"text": "Why?"}]},
            {
                "role": "assistant",
                "content": [{"tool_call": {"tool_name": "look", "arguments": {}, "id": "c"}}],
            },
            {
                "role": "tool",
                "content": [
                    {"tool_call_result": {"result": "no", "origin": {"id": "c"}, "error": True}}
                ],
            },
            {"role": "assistant", "content": [{"text": "So."}]},
        ],
        [
            ASK,
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me see."},
                    {"type": "mcp_tool_use", "id": "c", "name": "look", "input": {}},
                    {
                        **{"type": "mcp_tool_result", "tool_use_id": "c", "is_error": True},
                        "content": [{"type": "text", "text": "no"}],
                    },
                    {"type": "text", "text": "So."},
                ],
            },
        ],
    ],
    ids=[
        *("ShareGPT", "tau-bench", "LangChain"),
        *("AI SDK 4: parts", "AI SDK 4: invocations", "AI SDK 5: model messages"),
        *("Mastra", "LlamaIndex", "Haystack", "Anthropic: MCP"),
    ],
)
def test_chats_of_other_forms(document: object, tmp_path: Path) -> None:
    found = read(tmp_path, document)

    (turn,) = turns(found)
    assert outline(turn)[:3] == ("Why?", [("look", True)], "So.")
    assert found.files[0].format == "chat messages"


def test_the_state_of_a_thread_of_langgraph_that_waits_is_an_unfinished_turn(
    tmp_path: Path,
) -> None:
    call = {"name": "look", "args": {}, "id": "c", "type": "tool_call"}
    said = [
        {"type": "human", "content": "Why?"},
        {"type": "ai", "content": "", "tool_calls": [call]},
    ]
    state = {"values": {"messages": said}, "next": ["tools"], "metadata": {"thread_id": "t-1"}}

    (case,) = read(tmp_path, state).cases

    (turn,) = case["actualConversation"]
    assert (case["evalId"], turn["telemetry"]["status"]) == ("t-1", "incomplete")
    assert [tool["name"] for tool in turn["tools"]] == ["look"]


# -- exports of traces -----------------------------------------------------------------------------


def test_records_of_calls_without_those_of_the_model_are_marked(tmp_path: Path) -> None:
    """A tool's own record has no name, so the turn is not one without calls."""
    data = json.loads((DATA / "cloudwatch-logs.json").read_text())
    asked = json.loads(data["events"][-1]["message"])
    given = {"role": "tool", "content": {"content": '{"id": 12}', "role": "tool", "id": "c1"}}
    tool = {**asked, "spanId": "00000000000000aa", "body": {"input": {"messages": [given]}}}

    (turn,) = turns(read(tmp_path, [asked, tool]))

    assert (turn["finalResponse"]["content"], turn["capture"]) == ("Yes.", {"tools": "ambiguous"})


def test_log_records_in_the_form_of_spans_are_a_turn(tmp_path: Path) -> None:
    """LangChain's instrumentation for AgentCore: JSON texts, and no conversation beyond the question."""

    def row(number: int, asked: str, said: object) -> Line:
        body = {
            "input": {"messages": [{"role": "user", "content": asked}]},
            "output": {"messages": [{"role": "assistant", "content": json.dumps(said)}]},
        }
        event = {"timestamp": 1772359200000000000 + number, "body": body}
        about = {"trace_id": "t", "span_id": f"s{number}", "name": "langchain"}
        return {**about, "attributes": {"event.name": "langchain"}, "span_events": [event]}

    asks = {"text": "", "message": {"tool_calls": [{"name": "look", "args": {"id": 1}, "id": "c"}]}}
    answer = {"messages": [{"type": "ai", "content": "So."}]}
    rows = [
        row(1, "Why?", {"generations": [[asks]]}),
        row(2, "{'id': 1}", {"type": "tool", "tool_call_id": "c", "content": "found"}),
        row(3, "Why?", {"generations": [[{"text": "So."}]]}),
        row(4, json.dumps({"messages": [{"type": "human", "content": "Why?"}]}), answer),
    ]

    (turn,) = turns(read(tmp_path, rows))

    assert outline(turn) == ("Why?", [("look", False)], "So.", "ok")
    assert turn["tools"][0]["result"] == "found"
    assert "intermediateResponses" not in turn


@pytest.mark.parametrize("name", ["opik-spans.json", "datadog-export.json"])
def test_spans_on_lines_of_their_own_are_one_trace(name: str, tmp_path: Path) -> None:
    document = json.loads((DATA / name).read_text())
    spans = next((document[key] for key in ("content", "data") if key in document), document)

    (turn,) = turns(read(tmp_path, spans))

    assert len(turn["tools"]) == 2


@pytest.mark.parametrize("orient", ["columns", "split"])
def test_a_data_frame_of_spans_may_be_written_by_column(orient: str, tmp_path: Path) -> None:
    spans = json.loads((DATA / "phoenix-spans.json").read_text())["data"]
    rows: dict[str, Line] = {}
    for span in spans:
        about = span.pop("context")
        attributes = {f"attributes.{name}": value for name, value in span.pop("attributes").items()}
        rows[about["span_id"]] = {**span, **attributes, "context.trace_id": about["trace_id"]}
    names = sorted({name for row in rows.values() for name in row})
    frame: Line = {name: {key: row.get(name) for key, row in rows.items()} for name in names}
    if orient == "split":
        data = [[key, *(row.get(name) for name in names)] for key, row in rows.items()]
        frame = {"columns": ["context.span_id", *names], "index": [0, 1, 2], "data": data}

    (turn,) = turns(read(tmp_path, frame))

    assert outline(turn) == (
        *("Is order 12 paid?", [("get_order", False), ("refund", True)]),
        *("Yes.", "ok"),
    )


def test_rows_of_a_table_of_langfuse_are_texts(tmp_path: Path) -> None:
    row = {
        **{"id": "o1", "traceId": "t1", "type": "GENERATION", "name": "chat", "level": "DEFAULT"},
        **{"startTime": at(0), "endTime": at(1), "parentObservationId": "", "model": "m"},
        **{"input": json.dumps([ASK]), "output": json.dumps(ANSWER)},
        **{"inputUsage": "5", "outputUsage": "2", "totalCost": "0.25", "costDetails": ""},
    }

    (turn,) = turns(read(tmp_path, [row]))

    telemetry = turn["telemetry"]
    assert (telemetry["inputTokens"], telemetry["outputTokens"], telemetry["costUsd"]) == (
        5,
        2,
        0.25,
    )


def test_rows_of_traces_complete_their_observations(tmp_path: Path) -> None:
    observations = [
        {**json.loads(line), "session_id": ""}
        for line in (DATA / "langfuse-blob.jsonl").read_text().splitlines()
    ]
    trace = {
        **{"id": "t-blob", "timestamp": "2026-03-01 10:00:00.000000", "name": "clerk"},
        **{"session_id": "s-rows", "release": None, "input": "Is it?", "output": "Yes."},
    }

    together = read(tmp_path, observations, [trace])
    (case,) = together.cases
    assert (case["evalId"], len(turns(together)[0]["tools"])) == ("s-rows", 2)

    alone = read(tmp_path, [trace])
    assert [outline(turn) for turn in turns(alone)] == [("Is it?", [], "Yes.", "ok")]
    assert "latencyMs" not in turns(alone)[0]["telemetry"]
    assert "calls" in alone.files[0].notes[0]


def test_a_list_of_traces_of_opik_has_no_calls(tmp_path: Path) -> None:
    trace = {
        **{"id": "t1", "name": "chat", "thread_id": "s1", "feedback_scores": None},
        **{"start_time": at(0), "end_time": at(5)},
        **{"input": {"input": "Why?"}, "output": {"output": "So."}},
    }

    found = read(tmp_path, {"content": [trace], "total": 1})

    assert [outline(turn) for turn in turns(found)] == [("Why?", [], "So.", "ok")]
    assert turns(found)[0]["telemetry"]["latencyMs"] == 5000


def test_a_call_whose_span_wraps_its_arguments_is_counted_once(tmp_path: Path) -> None:
    """LangSmith's tracing of Claude's SDK writes `{"input": {...}}`."""
    asks = {"content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"id": 1}}]}
    runs: list[Line] = [
        {"run_type": "chain", "inputs": {"prompt": "Why?"}, "outputs": {"output": "So."}},
        {
            "run_type": "llm",
            "inputs": {"messages": [ASK]},
            "outputs": {"role": "assistant", **asks},
        },
        {"run_type": "tool", "name": "look", "inputs": {"input": {"id": 1}}, "outputs": {"a": 1}},
    ]
    for number, run in enumerate(runs):
        run |= {"id": f"r{number}", "trace_id": "r0", "dotted_order": ""}
        run |= {"start_time": at(number), "end_time": at(9 if number == 0 else number + 1)}
        run |= {"parent_run_id": "r0"} if number else {}

    (turn,) = turns(read(tmp_path, {"runs": runs}))

    assert [one["arguments"] for one in turn["tools"]] == [{"id": 1}]


def test_times_of_langsmith_for_javascript_are_milliseconds(tmp_path: Path) -> None:
    run = {
        **{"id": "r0", "trace_id": "r0", "dotted_order": "", "name": "x", "run_type": "chain"},
        **{"inputs": {"input": "Why?"}, "outputs": {"output": "So."}},
        **{"start_time": 1772359200000, "end_time": 1772359201500},
    }

    (turn,) = turns(read(tmp_path, {"runs": [run]}))

    assert turn["telemetry"]["latencyMs"] == 1500


def test_results_of_promptfoo_are_turns_with_their_repeats(tmp_path: Path) -> None:
    """As `promptfoo eval -o results.json --repeat 2` writes them, or as `.jsonl`, a line each."""
    results = [
        {
            "prompt": {"raw": "Hi"},
            "promptIdx": 0,
            "provider": {"id": "mine:agent"},
            "success": not failure,
            "testIdx": number,
            "vars": {"q": "Hi"},
            "failureReason": failure,
            "testCase": {"description": "greets", "vars": {"q": "Hi"}},
            "response": {"output": "Hello"},
        }
        for number, failure in enumerate((0, 2))
    ]
    (tmp_path / "results.json").write_text(json.dumps({"results": {"results": results}}))
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, results)))

    for name in ("results.json", "results.jsonl"):
        found = recognise([tmp_path / name])

        assert [(case["evalId"], case["source"]["run"]) for case in found.cases] == [
            ("greets", "repeat-1"), ("greets", "repeat-2"),
        ]  # fmt: skip
        assert [outline(turn) for turn in turns(found)] == [
            ("Hi", [], "Hello", "ok"), ("Hi", [], None, "error"),
        ]  # fmt: skip
        assert (found.files[0].format, found.files[0].contents) == ("promptfoo results", "2 cases")
