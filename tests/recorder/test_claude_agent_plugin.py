"""Special features of the Claude Agent SDK's plugin; common behaviour is tested in the plugin contract."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from plugin_drivers.claude_agent import ClaudeAgent
from plugin_drivers.driver import INPUT_TOKENS, OUTPUT_TOKENS, Tap, tapped
from plugin_drivers.scripted_claude import Event, called, hook, result, said, stopped

READ = called("Read", "c1", {"file_path": "a.py"}, {"content": "x = 1"})


@pytest.fixture
def tap() -> Iterator[Tap[ClaudeAgent]]:
    with tapped(ClaudeAgent) as tap:
        yield tap


async def turn_of(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


def test_the_prompts_of_one_client_are_turns_of_one_session(tap: Tap[ClaudeAgent]) -> None:
    prompts = {
        "Hi": turn_of(*stopped("One.")),
        "Read": turn_of(*READ, *stopped("Two.")),
        "Bye": turn_of(*stopped("Three.")),
    }

    asyncio.run(tap.driver.play(prompts))

    turns = tap.turns()
    assert [turn["user"] for turn in turns] == ["Hi", "Read", "Bye"]
    assert [turn["final"] for turn in turns] == ["One.", "Two.", "Three."]
    assert [turn["tools"] for turn in turns] == [
        [],
        [("c1", "Read", {"file_path": "a.py"}, {"content": "x = 1"})],
        [],
    ]


def test_the_usage_of_a_message_is_that_of_its_last_block(tap: Tap[ClaudeAgent]) -> None:
    events = [said("Let me", "m1", output_tokens=1), said("see.", "m1"), *stopped("Done.")]

    asyncio.run(tap.driver.play({"Go": turn_of(*events)}))

    telemetry = tap.recorder.cases[0]["actualConversation"][0]["telemetry"]
    used = telemetry["inputTokens"], telemetry["outputTokens"]
    assert used == (INPUT_TOKENS, OUTPUT_TOKENS)


def test_names_are_those_of_eval_sets(tap: Tap[ClaudeAgent]) -> None:
    events = [
        *called("Skill", "c1", {"skill": "pdf"}, "ok"),
        *called("mcp__shop__get_order", "c2", {"id": "A"}, "ok"),
        *called("Agent", "c3", {"prompt": "find"}, "ok"),
        *stopped("Done."),
    ]

    asyncio.run(tap.driver.play({"Go": turn_of(*events)}))

    tools = tap.turn()["tools"]
    assert [tool[1] for tool in tools] == ["skill_run", "mcp__shop__get_order", "Task"]


def test_which_of_two_like_sub_agents_made_a_call_is_not_guessed(tap: Tap[ClaudeAgent]) -> None:
    one, two = ({"prompt": text, "subagent_type": "scout"} for text in ("a", "b"))
    first, second = called("Task", "t1", one, "1"), called("Task", "t2", two, "2")
    about = {"agent_id": "a1", "agent_type": "scout"}
    inner = called("Grep", "n1", {"pattern": "x"}, "1", **about)
    events = [first[0], second[0], hook("SubagentStart", **about), *inner, *stopped("Good.")]

    asyncio.run(tap.driver.play({"Go": turn_of(*events)}))

    assert tap.turn()["tools"][2][0] == "n1"
    made = tap.recorder.cases[0]["actualConversation"][0]["tools"][2]
    assert ("parentId" in made, made["agent"]) == (False, "scout")
    assert made["capture"] == {"parentId": "ambiguous"}


def test_a_turn_that_another_hook_does_not_let_stop_goes_on(tap: Tap[ClaudeAgent]) -> None:
    early = hook("Stop", stop_hook_active=False, last_assistant_message="Done?")

    asyncio.run(tap.driver.play({"Go": turn_of(early, *READ, *stopped("Done."))}))

    turn = tap.turn()
    assert (turn["final"], len(turn["tools"])) == ("Done.", 1)


def test_an_interrupted_turn_is_incomplete(tap: Tap[ClaudeAgent]) -> None:
    aborted = result("", is_error=True, terminal_reason="aborted_tools")

    asyncio.run(tap.driver.play({"Go": turn_of(READ[0], aborted)}))

    turn = tap.turn()
    assert (turn["status"], turn["tools"][0][3]) == ("incomplete", None)


def test_a_turn_of_which_nobody_reads_the_messages_is_closed_by_the_next_prompt(
    tap: Tap[ClaudeAgent],
) -> None:
    inputs: list[Any] = [
        hook("UserPromptSubmit", session_id="s1", prompt_id="p1", prompt="Hang"),
        {**READ[0], "session_id": "s1", "prompt_id": "p1"},
        hook("UserPromptSubmit", session_id="s1", prompt_id="p2", prompt="Are you there?"),
        hook("Stop", session_id="s1", stop_hook_active=False, last_assistant_message="Yes."),
    ]

    async def feed() -> None:
        for given in inputs:
            (matcher,) = tap.driver.recording.hooks()[given["hook_event_name"]]
            (callback,) = matcher.hooks
            assert await callback(given, None, {"signal": None}) == {}

    asyncio.run(feed())

    first, second = tap.turns()
    assert (first["status"], first["final"]) == ("incomplete", None)
    assert tap.recorder.cases[0]["source"]["closeReason"] == "next_message"
    assert second["final"] == "Yes."


def test_closing_ends_what_is_open(tap: Tap[ClaudeAgent]) -> None:
    given: Any = hook("UserPromptSubmit", session_id="s1", prompt="Hang")

    asyncio.run(tap.driver.recording.hook(given, None, {"signal": None}))
    tap.driver.recording.close()

    assert tap.recorder.cases[0]["source"]["closeReason"] == "shutdown"


@pytest.mark.parametrize(
    ("response", "recorded"),
    [
        ([{"type": "text", "text": '{"r": 2}'}], {"r": 2}),
        ([{"type": "text", "text": "two"}, {"type": "text", "text": "three"}], "two\nthree"),
        ({"content": "x = 1"}, {"content": "x = 1"}),
    ],
    ids=["json", "texts", "an object"],
)
def test_results_of_mcp_servers_are_those_of_transcripts(
    tap: Tap[ClaudeAgent], response: Any, recorded: Any
) -> None:
    events = [*called("mcp__srv__calc", "c1", {"a": 1}, response), *stopped("2.")]

    asyncio.run(tap.driver.play({"Sum?": turn_of(*events)}))

    assert tap.turn()["tools"] == [("c1", "mcp__srv__calc", {"a": 1}, recorded)]
