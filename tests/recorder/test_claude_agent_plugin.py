"""The Claude Agent SDK's client, talking to a scripted CLI, has its hooks called and recorded."""

import asyncio
from typing import Any

from evaltap.recorder.plugins.claude_agent import EvaltapHooks
from inline_recorder import InlineRecorder
from scripted_claude import Event, ScriptedCli, called, hook, result, said, stopped, talk
from witness import facts_of

READ = called("Read", "c1", {"file_path": "a.py"}, {"content": "x = 1"})


def turns_of(*turns: list[Event], session: str = "s1") -> list[dict[str, Any]]:
    recorder = InlineRecorder()
    recording = EvaltapHooks(recorder=recorder)

    async def play() -> None:
        cli = ScriptedCli(session, *turns)
        await talk(recording, cli, *(f"Prompt {number}" for number in range(len(turns))))
        assert all(answer["response"] == {} for answer in cli.answers)

    asyncio.run(play())
    assert recorder.faults == []
    return facts_of(latest(recorder.cases))


def latest(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last revision of each turn."""
    return list({case["actualConversation"][0]["invocationId"]: case for case in cases}.values())


def test_one_tool() -> None:
    (turn,) = turns_of([said("Let me see.", "m1"), *READ, said("Done."), *stopped("Done.")])

    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Prompt 0", "Done.")
    assert turn["tools"] == [("c1", "Read", {"file_path": "a.py"}, {"content": "x = 1"})]
    assert (turn["intermediate"], turn["status"]) == (["Let me see."], "ok")
    assert turn["agents"] == ["claude-code"]


def test_names_are_those_of_eval_sets() -> None:
    (turn,) = turns_of(
        [
            *called("Skill", "c1", {"skill": "pdf"}, "ok"),
            *called("mcp__shop__get_order", "c2", {"id": "A"}, "ok"),
            *called("Agent", "c3", {"prompt": "find"}, "ok"),
            *stopped("Done."),
        ]
    )

    assert [tool[1] for tool in turn["tools"]] == ["skill_run", "mcp__shop__get_order", "Task"]


def test_parallel_tools_that_interleave_keep_their_results() -> None:
    first, second = called("Read", "c1", {"f": 1}, "one"), called("Read", "c2", {"f": 2}, "two")

    (turn,) = turns_of([first[0], second[0], second[1], first[1], *stopped("Done.")])

    assert [(tool[0], tool[3]) for tool in turn["tools"]] == [("c1", "one"), ("c2", "two")]


def test_a_tool_that_fails_is_a_failed_call() -> None:
    failed = called("Bash", "c1", {"command": "false"}, RuntimeError("exit code 1"))

    (turn,) = turns_of([*failed, *stopped("Sorry.")])

    assert turn["errors"] == [{"message": "exit code 1"}]
    assert (turn["final"], turn["status"]) == ("Sorry.", "ok")


def test_three_turns_of_a_session() -> None:
    turns = turns_of(stopped("One."), [*READ, *stopped("Two.")], stopped("Three."))

    assert [turn["user"] for turn in turns] == ["Prompt 0", "Prompt 1", "Prompt 2"]
    assert [turn["final"] for turn in turns] == ["One.", "Two.", "Three."]
    assert [len(turn["tools"]) for turn in turns] == [0, 1, 0]


def test_the_calls_of_a_sub_agent_belong_to_the_call_that_made_it() -> None:
    begin, end = called("Task", "t1", {"prompt": "find", "subagent_type": "scout"}, "found")
    about = {"agent_id": "a1", "agent_type": "scout"}
    inner = called("Grep", "n1", {"pattern": "x"}, "1", **about)

    (turn,) = turns_of([begin, hook("SubagentStart", **about), *inner, end, *stopped("Good.")])

    assert [tool[0] for tool in turn["tools"]] == ["t1", "n1"]
    assert (turn["agents"], turn["parents"]) == (["claude-code", "scout"], [None, "t1"])


def test_which_of_two_like_sub_agents_made_a_call_is_not_guessed() -> None:
    recorder = InlineRecorder()
    recording = EvaltapHooks(recorder=recorder)
    one, two = ({"prompt": text, "subagent_type": "scout"} for text in ("a", "b"))
    first, second = called("Task", "t1", one, "1"), called("Task", "t2", two, "2")
    about = {"agent_id": "a1", "agent_type": "scout"}
    inner = called("Grep", "n1", {"pattern": "x"}, "1", **about)
    events = [first[0], second[0], hook("SubagentStart", **about), *inner, *stopped("Good.")]

    asyncio.run(talk(recording, ScriptedCli("s1", events), "Go"))

    tools = latest(recorder.cases)[0]["actualConversation"][0]["tools"]
    assert ("parentId" in tools[2], tools[2]["agent"]) == (False, "scout")
    assert tools[2]["capture"] == {"parentId": "ambiguous"}


def test_a_turn_that_another_hook_does_not_let_stop_goes_on() -> None:
    early = hook("Stop", stop_hook_active=False, last_assistant_message="Done?")

    (turn,) = turns_of([early, *READ, *stopped("Done.")])

    assert (turn["final"], len(turn["tools"])) == ("Done.", 1)


def test_a_result_that_is_an_error_fails_the_turn() -> None:
    failed = result("Credit balance is too low", is_error=True)

    (turn,) = turns_of([*READ, failed])

    assert (turn["status"], turn["final"]) == ("error", None)
    assert turn["error"] == {"type": "success", "message": "Credit balance is too low"}


def test_an_interrupted_turn_is_incomplete() -> None:
    aborted = result("", is_error=True, terminal_reason="aborted_tools")

    (turn,) = turns_of([READ[0], aborted])

    assert (turn["status"], turn["tools"][0][3]) == ("incomplete", None)


def test_a_turn_of_which_nobody_reads_the_messages_is_closed_by_the_next_prompt() -> None:
    recorder = InlineRecorder()
    recording = EvaltapHooks(recorder=recorder)
    inputs: list[Any] = [
        hook("UserPromptSubmit", session_id="s1", prompt_id="p1", prompt="Hang"),
        {**READ[0], "session_id": "s1", "prompt_id": "p1"},
        hook("UserPromptSubmit", session_id="s1", prompt_id="p2", prompt="Are you there?"),
        hook("Stop", session_id="s1", stop_hook_active=False, last_assistant_message="Yes."),
    ]

    async def feed() -> None:
        for given in inputs:
            (matcher,) = recording.hooks()[given["hook_event_name"]]
            (callback,) = matcher.hooks
            assert await callback(given, None, {"signal": None}) == {}

    asyncio.run(feed())

    first, second = facts_of(recorder.cases)
    assert (first["status"], first["final"]) == ("incomplete", None)
    assert recorder.cases[0]["source"]["closeReason"] == "next_message"
    assert second["final"] == "Yes."


def test_concurrent_sessions_do_not_mix() -> None:
    recorder = InlineRecorder()
    recording = EvaltapHooks(recorder=recorder)

    async def play() -> None:
        clis = [
            ScriptedCli(
                f"s{number}",
                [*called("Read", f"c{number}", {}, number), *stopped(f"Answer {number}")],
            )
            for number in range(4)
        ]
        await asyncio.gather(
            *(talk(recording, cli, f"Question {number}") for number, cli in enumerate(clis))
        )

    asyncio.run(play())

    # Their prompt ids are the same, as a script has it; the sessions are not.
    turns = {turn["session"]: turn for turn in facts_of(recorder.cases)}
    assert sorted(turns) == ["s0", "s1", "s2", "s3"]
    for number in range(4):
        turn = turns[f"s{number}"]
        assert (turn["user"], turn["final"]) == (f"Question {number}", f"Answer {number}")
        assert turn["tools"][0][0] == f"c{number}"


def test_closing_ends_what_is_open() -> None:
    recorder = InlineRecorder()
    recording = EvaltapHooks(recorder=recorder)
    given: Any = hook("UserPromptSubmit", session_id="s1", prompt="Hang")

    asyncio.run(recording.hook(given, None, {"signal": None}))
    recording.close()

    assert recorder.cases[0]["source"]["closeReason"] == "shutdown"


class Broken(InlineRecorder):
    """A recorder that cannot take anything."""

    def observe(self, observation: object) -> None:
        raise OSError("no")


def test_a_broken_recorder_does_not_disturb_claude() -> None:
    recorder = Broken()
    cli_turn = [*READ, *stopped("Done.")]

    asyncio.run(talk(EvaltapHooks(recorder=recorder), ScriptedCli("s1", cli_turn), "Go"))

    assert recorder.faults
