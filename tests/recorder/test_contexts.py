"""Context messages: written with the first turn of a session that has any, and again if they change."""

import json
from pathlib import Path
from typing import Any

from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.assembly.contexts import ContextMemory
from evaltap.recorder.observation import MAX_CONTEXT, MAX_HISTORY, Origin
from evaltap.recorder.privacy.redacted_values import RedactionReport
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.sources.otlp_files import eval_set_of, read_cases
from support.builders.inline_recorder import InlineRecorder
from support.builders.span_builders import TraceBuilder


def recorded(*turns: tuple[str, list[str]], **settings: Any) -> list[dict[str, Any]]:
    """Return the turns of these sessions, each told these texts."""
    sink = MemorySink()
    recorder = Recorder(sink=sink, **settings)
    for session, texts in turns:
        with recorder.turn(session_id=session, user="Hi") as turn:
            for text in texts:
                turn.context(text)
            turn.respond("Ho.")
        assert recorder.flush()
    assert recorder.close()
    return [case["actualConversation"][0] for case in sink.cases]


def context(turn: dict[str, Any]) -> list[str]:
    return [message["content"] for message in turn.get("contextMessages", ())]


def test_a_context_is_on_the_first_turn_of_a_session_and_again_when_it_differs() -> None:
    told = [
        ("a", []),
        ("a", ["Be kind."]),
        ("a", ["Be kind."]),
        ("b", ["Be kind."]),
        ("a", ["Be brief."]),
        ("a", ["Be brief."]),
        ("a", ["Be kind.", "Be brief."]),
    ]

    turns = recorded(*told)

    assert [context(turn) for turn in turns] == [
        [],
        ["Be kind."],
        [],
        ["Be kind."],
        ["Be brief."],
        [],
        ["Be kind.", "Be brief."],
    ]
    assert turns[1]["contextMessages"] == [{"role": "system", "content": "Be kind."}]
    assert list(turns[1])[:3] == ["invocationId", "contextMessages", "userContent"]


def test_what_was_not_kept_does_not_count_as_written() -> None:
    sink = MemorySink()
    dropped: list[str] = []

    def redactor(case: Any) -> Any:
        if not dropped:
            dropped.append(case["evalId"])
            return None
        return case, RedactionReport()

    recorder = Recorder(sink=sink, redactor=redactor)
    for _ in range(3):
        with recorder.turn(session_id="a", user="Hi") as turn:
            turn.context("Be kind.")
        recorder.flush()
    recorder.close()

    turns = [case["actualConversation"][0] for case in sink.cases]
    assert [context(turn) for turn in turns] == [["Be kind."], []]


def test_each_text_is_told_once_in_a_turn_and_only_some_of_many() -> None:
    many = [f"It is {second} s past." for second in range(MAX_CONTEXT + 3)]

    twice, cut, odd = recorded(
        ("a", ["Be kind.", "Be kind."]), ("b", many), ("c", ["", None, b"x", "So."])  # type: ignore[list-item]
    )  # fmt: skip

    assert context(twice) == ["Be kind."]
    assert context(cut) == many[:MAX_CONTEXT]
    assert cut["capture"] == {"contextMessages": "truncated"}
    assert context(odd) == ["So."]


def test_a_context_is_redacted_cut_to_size_and_withheld_with_the_content() -> None:
    told = ("a", ["Write to ann@example.com. " + "x" * 5_000])

    (seen,) = recorded(told, field_max_bytes=1_000)
    (withheld,) = recorded(told, capture_content=False)
    (dropped,) = recorded(told, redaction_policy="contextMessages=drop")

    assert "ann@example.com" not in context(seen)[0]
    assert len(context(seen)[0]) < 1_200
    assert seen["capture"] == {"contextMessages": "truncated"}
    assert "contextMessages" not in {**withheld, **dropped}
    assert withheld["capture"]["contextMessages"] == "redacted"
    assert dropped["capture"] == {"contextMessages": "redacted"}


def test_a_revision_of_the_turn_that_has_the_context_keeps_it() -> None:
    memory = ContextMemory()
    turn = {"invocationId": "t1", "contextMessages": [{"role": "system", "content": "x"}]}
    case = {"evalId": "a", "actualConversation": [turn]}
    later = {"evalId": "a", "actualConversation": [{**turn, "invocationId": "t2"}]}

    memory.note(case)

    assert memory.trimmed(case) == case
    assert memory.trimmed(later) == {"evalId": "a", "actualConversation": [{"invocationId": "t2"}]}


def test_of_too_many_sessions_the_one_idle_for_longest_is_forgotten() -> None:
    memory = ContextMemory(2)
    turn = {"invocationId": "t", "contextMessages": [{"role": "system", "content": "x"}]}
    cases = [{"evalId": name, "actualConversation": [turn]} for name in "aba"]
    for case in [*cases, {"evalId": "c", "actualConversation": [turn]}]:
        memory.note(case)

    def known(session: str) -> bool:
        case = {"evalId": session, "actualConversation": [{**turn, "invocationId": "u"}]}
        return memory.trimmed(case) != case

    assert [known(session) for session in "abc"] == [True, False, True]


def chat(trace: TraceBuilder, **attributes: Any) -> dict[str, Any]:
    run = trace.span(
        "invoke_agent a",
        None,
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s"},
    )
    trace.span("chat m", run, {"gen_ai.operation.name": "chat", **attributes})
    return trace.turn()


def test_instructions_of_otel_spans_and_system_messages_among_others() -> None:
    asked = [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "Where?"}]},
    ]
    stated = [{"type": "text", "content": "Be kind."}]

    turn = chat(
        TraceBuilder(),
        **{
            "gen_ai.system_instructions": json.dumps(stated),
            "gen_ai.input.messages": json.dumps(asked),
        },
    )

    assert context(turn) == ["Be kind.", "Be brief."]
    assert turn["userContent"]["content"] == "Where?"


def test_a_placeholder_of_instructions_is_marked_and_no_context() -> None:
    stated = json.dumps([{"type": "text", "content": "__REDACTED__"}])

    turn = chat(TraceBuilder(), **{"gen_ai.system_instructions": stated})

    assert "contextMessages" not in turn
    assert turn["capture"]["contextMessages"] == "redacted"


def otlp_chat(number: int, *attributes: tuple[str, str]) -> dict[str, Any]:
    given = [("gen_ai.operation.name", "chat"), ("gen_ai.conversation.id", "s"), *attributes]
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "chat m",
        "startTimeUnixNano": str(number * 10**9),
        "endTimeUnixNano": str(number * 10**9 + 1),
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in given],
    }


def test_a_file_of_spans_has_the_context_once_a_session(tmp_path: Path) -> None:
    told = ("gen_ai.system_instructions", json.dumps([{"type": "text", "content": "Be kind."}]))
    spans = [otlp_chat(number, told) for number in (3, 1, 2)]
    file = tmp_path / "traces.otlp.json"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))

    (session,) = eval_set_of(read_cases([file]), "x")["evalCases"]

    assert [context(turn) for turn in session["actualConversation"]] == [["Be kind."], [], []]


def said(*texts: str) -> list[dict[str, Any]]:
    """Return messages of user and assistant in turn."""
    return [
        {"role": role, "parts": [{"type": "text", "content": text}]}
        for text, role in zip(texts, ("user", "assistant") * 50, strict=False)
    ]


def heard(*texts: str) -> tuple[str, str]:
    system = {"role": "system", "parts": [{"type": "text", "content": "Be kind."}]}
    return "gen_ai.input.messages", json.dumps([system, *said(*texts)])


def answered(text: str) -> tuple[str, str]:
    return "gen_ai.output.messages", json.dumps(said("", text)[1:])


def read(tmp_path: Path, *spans: dict[str, Any]) -> list[dict[str, Any]]:
    file = tmp_path / "traces.otlp.json"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}))
    (session,) = eval_set_of(read_cases([file]), "x")["evalCases"]
    return [*session["actualConversation"]]


def test_what_was_said_before_the_first_recorded_turn_is_its_context(tmp_path: Path) -> None:
    turns = read(
        tmp_path,
        otlp_chat(1, heard("Hi.", "Hello.", "Order A?"), answered("Sent.")),
        otlp_chat(2, heard("Hi.", "Hello.", "Order A?", "Sent.", "And B?"), answered("Lost.")),
    )

    assert turns[0]["contextMessages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": "Hello."},
    ]
    assert [turn["userContent"]["content"] for turn in turns] == ["Order A?", "And B?"]
    assert "contextMessages" not in turns[1]


def test_a_turn_that_was_not_recorded_is_context_of_the_next(tmp_path: Path) -> None:
    turns = read(
        tmp_path,
        otlp_chat(1, heard("Order A?"), answered("Sent.")),
        otlp_chat(2, heard("Order A?", "Sent.", "And B?", "Lost.", "Oh?"), answered("Sorry.")),
    )

    assert context(turns[0]) == ["Be kind."]
    assert context(turns[1]) == ["And B?", "Lost."]


def test_of_a_long_conversation_only_the_latest_is_kept_and_the_turn_says_so(
    tmp_path: Path,
) -> None:
    texts = [f"text {number}" for number in range(40)]

    (turn,) = read(tmp_path, otlp_chat(1, heard(*texts, "So?")))

    assert context(turn) == ["Be kind.", *texts[-MAX_HISTORY:]]
    assert turn["capture"]["contextMessages"] == "truncated"


def test_a_plan_between_question_and_call_is_not_the_conversation_before() -> None:
    trace = TraceBuilder()
    run = trace.span(
        "invoke_agent a",
        None,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": "s",
            "gen_ai.input.messages": json.dumps(said("Order A?")),
        },
    )
    planned = said("Order A?", "First I look it up.", "Do the first step.")
    trace.span(
        "chat m",
        run,
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(planned)},
    )

    turn = trace.turn()

    assert turn["userContent"]["content"] == "Order A?"
    assert "contextMessages" not in turn


def test_a_late_revision_keeps_what_was_said_before_its_turn() -> None:
    memory = ContextMemory()
    before = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
    turn = {
        "invocationId": "t2",
        "contextMessages": before,
        "userContent": {"role": "user", "content": "Order A?"},
    }
    case = {"evalId": "a", "source": {"convention": "genai"}, "actualConversation": [turn]}
    memory.note(case)
    memory.note(case)

    later = {**turn, "invocationId": "t3", "contextMessages": [*before, turn["userContent"]]}

    assert memory.trimmed(case) == case
    (kept,) = memory.trimmed({**case, "actualConversation": [later]})["actualConversation"]
    assert "contextMessages" not in kept


def test_of_a_long_conversation_before_the_turn_the_last_messages_are_kept() -> None:
    recorder = InlineRecorder()
    said = [
        ("tool" if n % 3 == 0 else "user", None if n % 5 == 0 else f"m{n}")
        for n in range(10 * MAX_HISTORY + 1)
    ]
    for messages in (said, said[-6:]):
        run = ObservedRun(recorder, Origin())
        run.history(messages, lambda message: message)
        run.history([("user", "of a later call")], lambda message: message)
        run.end()

    many, few = (case["actualConversation"][0] for case in recorder.cases)
    told = [text for role, text in said if role == "user" and text]
    assert context(many) == told[-MAX_HISTORY:]
    assert many["capture"]["contextMessages"] == "truncated"
    assert context(few) == [text for role, text in said[-6:] if role == "user" and text]
    assert "contextMessages" not in few["capture"]


def test_no_message_is_read_before_the_texts_that_are_long_enough() -> None:
    recorder = InlineRecorder()
    run = ObservedRun(recorder, Origin())
    read: list[str] = []

    def text_of(message: str) -> tuple[str, str]:
        read.append(message)
        return "user", 60_000 * message

    run.history(list("abcdefghi"), text_of)
    run.end()

    (turn,) = recorder.cases[0]["actualConversation"]
    assert "".join(read) == "ihgf"
    assert [text[0] for text in context(turn)] == ["f", "g", "h", "i"]
    assert turn["capture"]["contextMessages"] == "truncated"
