"""Claude Code's transcripts become eval cases."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.recorder.sources.claude_code import TranscriptReport, normal_name, read_transcripts
from evaltap.schemas.errors import InputError
from support.builders.span_builders import words
from support.builders.witness import facts_of

Line = dict[str, Any]


class Transcript:
    """Writes lines as Claude Code does; each is a second after the one before."""

    def __init__(self, session: str = "s1") -> None:
        self.session, self.lines = session, list[Line]()
        self._numbers = itertools.count(1)

    def line(self, kind: str, content: Any, message: Line | None = None, **more: Any) -> Line:
        number = next(self._numbers)
        line = {
            "type": kind,
            "uuid": f"{self.session}-{number}",
            "parentUuid": f"{self.session}-{number - 1}" if number > 1 else None,
            "sessionId": self.session,
            "timestamp": f"2026-04-01T00:{number // 60:02}:{number % 60:02}.000Z",
            "isSidechain": False,
            "message": {"role": kind, "content": content, **(message or {})},
            **more,
        }
        self.lines.append(line)
        return line

    def asked(self, text: Any, **more: Any) -> None:
        self.line("user", text, **more)

    def said(self, text: str, message_id: str = "m", **more: Any) -> None:
        self._answered({"type": "text", "text": text}, message_id, **more)

    def called(
        self, name: str, call_id: str, given: Line, message_id: str = "m", **more: Any
    ) -> None:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": given}
        self._answered(block, message_id, **more)

    def returned(self, call_id: str, content: Any, error: bool = False, **more: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        self.line("user", [{**block, "is_error": True} if error else block], **more)

    def write(self, path: Path, lines: Sequence[Line] | None = None) -> Path:
        chosen = self.lines if lines is None else lines
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in chosen))
        return path

    def _answered(self, block: Line, message_id: str, **more: Any) -> None:
        usage = {"input_tokens": 11, "output_tokens": 5}
        about = {"id": message_id, "model": "claude-x", "usage": usage}
        self.line("assistant", [block], about, **more)


def turns_of(*paths: Path) -> list[dict[str, Any]]:
    return facts_of(list(read_transcripts(paths)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Skill", "skill_run"),
        ("Task", "Task"),
        ("Agent", "Task"),
        ("mcp__shop__get_order", "mcp__shop__get_order"),
        ("Bash", "Bash"),
    ],
)
def test_names_are_those_of_eval_sets(given: str, expected: str) -> None:
    assert normal_name(given) == expected


def test_a_message_written_while_it_streamed_is_read_once_and_whole(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Do the tests pass?")
    said, call = (
        {"type": "text", "text": "I'll check."},
        {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "pytest"}},
    )
    for tokens, blocks in (
        (1, [{"type": "text", "text": "I'll"}]),
        (9, [said]),
        (40, [said, call]),
    ):
        usage = {"input_tokens": 500, "output_tokens": tokens}
        script.line("assistant", blocks, {"id": "m1", "model": "claude-x", "usage": usage})
    script.returned("c1", "3 passed")
    script.said("Yes.", "m2")

    path = script.write(tmp_path / "s1.jsonl")

    (turn,) = turns_of(path)
    assert (turn["final"], turn["intermediate"]) == ("Yes.", ["I'll check."])
    assert turn["tools"] == [("c1", "Bash", {"command": "pytest"}, "3 passed")]
    (case,) = read_transcripts([path])
    telemetry = case["actualConversation"][0]["telemetry"]
    assert (telemetry["inputTokens"], telemetry["outputTokens"]) == (511, 45)


def test_a_session_is_read_turn_by_turn(tmp_path: Path) -> None:
    script = Transcript()
    script.line("system", "started")
    script.asked("Where is the bug?")
    script.said("Let me see.", "m1")
    script.called("Read", "c1", {"file_path": "a.py"}, "m1")
    script.called("Skill", "c2", {"skill": "review"}, "m1")
    script.returned("c1", "x = 1")
    script.returned("c2", [{"type": "text", "text": "fine"}])
    script.said("In a.py.", "m2")
    script.asked([{"type": "text", "text": "Thanks"}])
    script.said("Bye.", "m3")

    path = script.write(tmp_path / "s1.jsonl")

    first, second = turns_of(path)
    assert (first["session"], first["user"]) == ("s1", "Where is the bug?")
    assert (first["final"], first["intermediate"]) == ("In a.py.", ["Let me see."])
    assert first["tools"] == [
        ("c1", "Read", {"file_path": "a.py"}, "x = 1"),
        ("c2", "skill_run", {"skill": "review"}, "fine"),
    ]
    assert (second["user"], second["final"], second["status"]) == ("Thanks", "Bye.", "ok")
    case = next(read_transcripts([path]))
    telemetry = case["actualConversation"][0]["telemetry"]
    assert (telemetry["inputTokens"], telemetry["models"]) == (22, ["claude-x"])
    assert telemetry["latencyMs"] == pytest.approx(6000, abs=1)
    assert case["source"]["convention"] == "claude-code-transcript"


def test_results_that_are_json_are_data_and_others_stay_text(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Sum?")
    for call_id in ("c1", "c2", "c3"):
        script.called("mcp__srv__calc", call_id, {})
    script.returned("c1", [{"type": "text", "text": '{"r":2}'}])
    script.returned("c2", [{"type": "text", "text": "[not json"}])
    script.returned("c3", [{"type": "text", "text": "{}"}], error=True)
    script.said("2.", "m2")

    path = script.write(tmp_path / "s.jsonl")

    (turn,) = turns_of(path)
    assert [result for *_, result in turn["tools"]][:2] == [{"r": 2}, "[not json"]
    failed = next(read_transcripts([path]))["actualConversation"][0]["tools"][2]
    assert failed["error"]["message"] == "{}"


def test_what_claude_code_writes_in_the_users_place_is_no_prompt(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Caveat: the messages below were generated", isMeta=True)
    script.asked("<command-name>/clear</command-name><command-args></command-args>")
    script.asked("<local-command-stdout>done</local-command-stdout>")
    script.asked(
        [
            {"type": "text", "text": "<ide_opened_file>a.py</ide_opened_file>"},
            {"type": "text", "text": "Fix it"},
        ]
    )
    script.said("Fixed.")
    script.asked("This session is continued", isCompactSummary=True)
    script.asked("<command-name>/review</command-name><command-args>a.py</command-args>")
    script.asked("Review the file", isMeta=True)
    script.said("No response requested.", model="x")
    script.lines[-1]["message"]["model"] = "<synthetic>"
    script.said("Good.")

    turns = turns_of(script.write(tmp_path / "s1.jsonl"))

    assert [turn["user"] for turn in turns] == ["Fix it", "/review a.py"]
    assert [turn["final"] for turn in turns] == ["Fixed.", "Good."]
    assert [turn["intermediate"] for turn in turns] == [[], []]


def test_a_failed_call_has_its_error(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Run it")
    script.called("Bash", "c1", {"command": "false"})
    script.returned("c1", "exit code 1", error=True)
    script.said("It fails.")

    (turn,) = turns_of(script.write(tmp_path / "s1.jsonl"))

    assert turn["errors"] == [{"message": "exit code 1"}]
    assert (turn["status"], turn["final"]) == ("ok", "It fails.")


def test_a_turn_that_ends_in_an_api_error_has_failed(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("API Error: 529 Overloaded", isApiErrorMessage=True, error="server_error")

    (turn,) = turns_of(script.write(tmp_path / "s1.jsonl"))

    assert (turn["status"], turn["final"]) == ("error", None)
    assert turn["error"] == {"type": "server_error", "message": "API Error: 529 Overloaded"}


def test_an_api_error_that_a_retry_made_good_is_none(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("API Error: 529", isApiErrorMessage=True)
    script.said("Hello.")

    (turn,) = turns_of(script.write(tmp_path / "s1.jsonl"))

    assert (turn["status"], turn["final"], turn["intermediate"]) == ("ok", "Hello.", [])


def test_an_interrupted_turn_is_incomplete(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Run it")
    script.called("Bash", "c1", {"command": "sleep 9"})
    script.asked([{"type": "text", "text": "[Request interrupted by user for tool use]"}])

    (turn,) = turns_of(script.write(tmp_path / "s1.jsonl"))

    assert (turn["status"], turn["final"]) == ("incomplete", None)


INTERJECTED = "No, the other file"


def queued(script: Transcript, prompt: Any = INTERJECTED, **more: Any) -> None:
    """Write what Claude Code leaves of a message that the turn under way takes in."""
    about = {"sessionId": script.session, "content": prompt}
    script.lines.append({"type": "queue-operation", "operation": "enqueue", **about})
    taken = {"operation": "remove", "reason": "absorbed_mid_turn", **about}
    script.lines.append({"type": "queue-operation", **taken})
    attachment = {"type": "queued_command", "prompt": prompt, "commandMode": "prompt", **more}
    script.line("attachment", None, attachment=attachment)


def interrupted_by(message: Any, tmp_path: Path, **more: Any) -> Any:
    """Return the user's message of a turn that took in another one."""
    script = Transcript()
    script.asked("Open the file")
    script.called("Read", "c1", {"path": "a.py"})
    queued(script, message, **more)
    script.returned("c1", "text")
    script.said("Opened b.py.")
    (case,) = read_transcripts([script.write(tmp_path / "s1.jsonl")])
    return words(case["actualConversation"][0], "userContent")


@pytest.mark.parametrize("message", [INTERJECTED, [{"type": "text", "text": INTERJECTED}]])
def test_a_message_typed_while_claude_works_is_part_of_the_turn(
    message: Any, tmp_path: Path
) -> None:
    assert interrupted_by(message, tmp_path) == f"Open the file\n\n{INTERJECTED}"


def test_a_queued_message_that_waits_for_the_turn_to_end_is_the_next_turn(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    for operation in ("enqueue", "dequeue"):
        script.lines.append(
            {"type": "queue-operation", "operation": operation, "content": INTERJECTED}
        )
    script.said("Hello.")
    script.asked(INTERJECTED)
    script.said("Which one?")

    assert len(turns_of(script.write(tmp_path / "s1.jsonl"))) == 2


OTHERS: list[tuple[str, Line]] = [
    ("<task-notification>done</task-notification>", {}),
    ('<cross-session-message from="b">hi</cross-session-message>', {}),
    ("Take this over", {"origin": {"kind": "peer"}}),
    ("Go on", {"isMeta": True}),
]


@pytest.mark.parametrize(("message", "about"), OTHERS)
def test_notices_and_messages_of_other_agents_are_not_the_users(
    message: str, about: Line, tmp_path: Path
) -> None:
    assert interrupted_by(message, tmp_path, **about) == "Open the file"


def test_a_client_that_attaches_nothing_leaves_the_message_in_its_queue(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Open the file")
    queued(script)
    del script.lines[-1]
    script.said("Opened b.py.")
    (case,) = read_transcripts([script.write(tmp_path / "s1.jsonl")])

    assert words(case["actualConversation"][0], "userContent") == f"Open the file\n\n{INTERJECTED}"


def test_reminders_before_the_users_words_are_left_out(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("<system-reminder>\nA task ended.\n</system-reminder>\n\nWhat came of it?")
    script.said("It passed.")
    (case,) = read_transcripts([script.write(tmp_path / "s1.jsonl")])

    assert words(case["actualConversation"][0], "userContent") == "What came of it?"


def test_turns_that_the_user_went_back_behind_are_tagged(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("Hello.")
    script.asked("Delete it")
    script.said("Deleted.")
    script.asked("Rename it", parentUuid="s1-2")
    script.said("Renamed.")

    cases = list(read_transcripts([script.write(tmp_path / "s1.jsonl")]))

    assert [case["source"].get("tags") for case in cases] == [None, ["rewound"], None]


def test_a_compaction_rewinds_nothing(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("Hello.")
    script.line("system", None, subtype="compact_boundary", parentUuid=None)
    script.asked("Go on")
    script.said("Done.")

    cases = list(read_transcripts([script.write(tmp_path / "s1.jsonl")]))

    assert [case["source"].get("tags") for case in cases] == [None, None]


def delegation(script: Transcript, agent: str | None) -> None:
    """Write a call of a sub-agent, its work and its result."""
    about: Line = {"isSidechain": True, **({"agentId": agent} if agent else {})}
    given = {"prompt": "find it", "subagent_type": "scout"}
    script.asked("Where is it?")
    script.called("Agent", "t1", given, "m1")
    script.asked("find it", **about)
    script.called("Grep", "n1", {"pattern": "it"}, "m2", **about)
    script.returned("n1", "a.py:1", **about)
    script.said("a.py", "m3", **about)
    outcome: Line = {"toolUseResult": {"agentId": agent}} if agent else {}
    script.returned("t1", [{"type": "text", "text": "a.py"}], **outcome)
    script.said("In a.py.", "m4")


@pytest.mark.parametrize("agent", ["a1", None])
def test_the_work_of_a_sub_agent_belongs_to_its_call(tmp_path: Path, agent: str | None) -> None:
    script = Transcript()
    delegation(script, agent)

    (turn,) = turns_of(script.write(tmp_path / "s1.jsonl"))

    assert [tool[:2] for tool in turn["tools"]] == [("t1", "Task"), ("n1", "Grep")]
    assert [tool[3] for tool in turn["tools"]] == ["a.py", "a.py:1"]
    assert (turn["agents"], turn["parents"]) == (["claude-code", "scout"], [None, "t1"])
    assert (turn["final"], turn["intermediate"]) == ("In a.py.", [])


def test_the_files_of_sub_agents_are_found_beside_the_session(tmp_path: Path) -> None:
    script = Transcript()
    delegation(script, "a1")
    side = [line for line in script.lines if line["isSidechain"]]
    script.write(tmp_path / "s1/subagents/agent-a1.jsonl", side)
    main_file = script.write(
        tmp_path / "s1.jsonl", [line for line in script.lines if not line["isSidechain"]]
    )

    assert turns_of(main_file) == turns_of(tmp_path)
    assert turns_of(main_file)[0]["parents"] == [None, "t1"]


def test_a_sub_agents_messages_count_once_with_the_tokens_of_their_last_line(
    tmp_path: Path,
) -> None:
    script, side = Transcript(), Transcript("side")
    script.asked("Find it.")
    script.called("Task", "c1", {"prompt": "Look."}, "m1")
    script.returned("c1", "Here.", toolUseResult={"agentId": "a1"})
    script.said("Found.", "m2")
    of_agent = {"sessionId": "s1", "isSidechain": True, "agentId": "a1"}
    side.asked("Look.", **of_agent)
    side.said("Find it.", "m1", **of_agent)  # a message of the session, repeated
    for tokens, block in ((1, "I look."), (30, "It is here.")):
        usage = {"input_tokens": 7, "output_tokens": tokens}
        about = {"id": "m3", "model": "claude-x", "usage": usage}
        side.line("assistant", [{"type": "text", "text": block}], about, **of_agent)
    script.write(tmp_path / "s1.jsonl")
    side.write(tmp_path / "s1" / "subagents" / "agent-a1.jsonl")

    (case,) = read_transcripts([tmp_path])

    (turn,) = case["actualConversation"]
    assert (turn["telemetry"]["inputTokens"], turn["telemetry"]["outputTokens"]) == (29, 40)


def test_a_sub_agent_that_copies_its_session_does_not_take_its_place(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Why?")
    script.said("So.")
    copies = [{**line, "isSidechain": True, "agentId": "aside"} for line in script.lines]
    script.write(tmp_path / "s1.jsonl")
    script.write(tmp_path / "s1" / "subagents" / "agent-aside.jsonl", copies)

    for paths in ([tmp_path], sorted(tmp_path.rglob("*.jsonl"))):
        (turn,) = turns_of(*paths)
        assert (turn["user"], turn["final"]) == ("Why?", "So.")


def test_lines_that_a_resumed_session_has_copied_count_once(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("Hello.")
    first = script.write(tmp_path / "a.jsonl")
    second = script.write(tmp_path / "b.jsonl")

    assert len(turns_of(first, second)) == 1


def test_a_line_that_is_being_written_is_counted_and_left_out(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("Hello.")
    path = script.write(tmp_path / "s1.jsonl")
    path.write_text(path.read_text() + '{"type": "assis')
    report = TranscriptReport()

    (case,) = read_transcripts([path], report=report)

    assert words(case["actualConversation"][0], "finalResponse") == "Hello."
    assert (report.lines, report.lines_skipped, report.turns) == (3, 1, 1)


def test_a_byte_order_mark_does_not_hide_the_question(tmp_path: Path) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("Hello.")
    path = script.write(tmp_path / "s1.jsonl")
    path.write_text(path.read_text(), "utf-8-sig")

    (case,) = read_transcripts([path])

    assert words(case["actualConversation"][0], "userContent") == "Hi"


@pytest.mark.parametrize("content", ["", '{"a": 1}\n', "hello\n"])
def test_a_file_that_is_no_transcript_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)

    with pytest.raises(InputError, match="is not a transcript"):
        turns_of(path)


def test_the_command_writes_an_eval_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Transcript()
    delegation(script, "a1")
    path = script.write(tmp_path / "s1.jsonl")
    out = tmp_path / "claude.evalset.json"

    code = main(["record", "claude-code", str(path), "--out", str(out), "--json"])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["turns"] == 1
    (case,) = json.loads(out.read_text())["evalCases"]
    assert case["evalId"] == "s1"
    assert len(case["actualConversation"][0]["tools"]) == 2


def test_the_command_appends_to_a_log_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Transcript()
    script.asked("Hi")
    script.said("Hello.")
    path = script.write(tmp_path / "s1.jsonl")

    assert main(["record", "claude-code", str(path), "--log", str(tmp_path / "log.db")]) == 0
    assert main(["record", "claude-code", str(tmp_path / "no"), "--log", "log.db"]) == 2

    said = capsys.readouterr().err
    assert "1 turn in 1 session" in said
    assert "cannot be read" in said
