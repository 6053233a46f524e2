"""A replay of the Claude Agent SDK: the real Claude Code, whose model is scripted, runs no tool."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

from evaltap.experiments.agents.loading import agent_of
from evaltap.recorder.answering import ToolMiss
from evaltap.schemas.errors import InputError
from plugin_drivers.driver import Step, call, says
from support.servers.scripted_anthropic import ScriptedAnthropic, serving
from support.worlds.framework_runs import Runs, unit_of
from support.worlds.replayed_agents import Recording, Shop, calls_of, recorded, replay, replay_now

SELL = "mcp__shop__sell"
BUNDLED = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
pytestmark = pytest.mark.skipif(
    not (BUNDLED.exists() or shutil.which("claude")), reason="Claude Code is not installed"
)


def options(folder: Path, shop: Shop, address: str, **more: Any) -> ClaudeAgentOptions:
    """Return options for Claude Code in an empty home."""
    (live,) = shop.tools()

    @tool("sell", "Sell one.", {"sku": str})
    async def sell(given: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": live(**given)}]}

    environment = {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(folder / "home"),
        "HOME": str(folder / "home"),
    }
    return ClaudeAgentOptions(
        tools=more.pop("tools", ["Bash"]),
        mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[sell])},
        allowed_tools=[SELL],
        setting_sources=[],
        cwd=str(folder),
        env=environment,
        **more,
    )


def played(
    folder: Path,
    shop: Shop,
    runs: Runs,
    recording: Recording | None,
    *steps: Step,
    eval_id: str = "c-1",
) -> tuple[Any, list[dict[str, Any]]]:
    """Run a unit; return how it ended and what the model was given."""
    script = ScriptedAnthropic(steps)  # type: ignore[arg-type]  # no step here raises
    with serving(script) as address:
        ended, _ = replay_now(
            runs, options(folder, shop, address), recording, unit_of("Sell A", eval_id=eval_id)
        )
    return ended, script.given


@pytest.mark.slow
def test_the_recorded_results_of_parallel_calls_reach_the_model_and_the_case(
    tmp_path: Path, shop: Shop, runs: Runs
) -> None:
    recording = Recording(
        recorded(SELL, sku="A", result="first"),
        recorded(SELL, sku="B", error="sold out"),
        recorded("Bash", command="touch effects.txt", result="it's as recorded"),
        recorded("Bash", command="touch effects.txt; false", error="Exit code 3\nno such disk"),
    )

    ended, given = played(
        tmp_path, shop, runs, recording,
        says("", call(SELL, "t1", sku="A"), call(SELL, "t2", sku="B")),
        says("", call("Bash", "t3", command="touch effects.txt"),
             call("Bash", "t4", command="touch effects.txt; false")),
        says("Done."),
    )  # fmt: skip

    assert ended == ["Done."]
    told = str(given[-1]["messages"])
    for text in ("first", "sold out", "it's as recorded", "no such disk"):
        assert text in told or text.replace("'", "\\'") in told
    calls = calls_of(runs.cases())
    assert [(one["name"], one["arguments"]) for one in calls] == [
        (SELL, {"sku": "A"}),
        (SELL, {"sku": "B"}),
        ("Bash", {"command": "touch effects.txt"}),
        ("Bash", {"command": "touch effects.txt; false"}),
    ]
    assert [one.get("result") for one in calls[:2]] == ["first", None]
    assert calls[2]["result"]["stdout"] == "it's as recorded"
    assert "sold out" in calls[1]["error"]["message"]
    assert "no such disk" in calls[3]["error"]["message"]
    assert shop.effects() == []
    assert not (tmp_path / "effects.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "missing",
    [
        call(SELL, "t2", sku="B"),
        call("Bash", "t2", command="touch effects.txt"),
    ],
    ids=lambda call: call.tool,
)
def test_a_miss_ends_the_run(missing: Any, tmp_path: Path, shop: Shop, runs: Runs) -> None:
    recording = Recording(recorded(SELL, sku="A", result="first"))

    ended, given = played(
        tmp_path, shop, runs, recording,
        says("", call(SELL, "t1", sku="A"), missing),
        says("Never said."),
    )  # fmt: skip

    assert isinstance(ended, ToolMiss)
    assert recording.missed == [ended]
    assert len(given) == 1
    assert not (tmp_path / "effects.txt").exists()


@pytest.mark.slow
def test_a_tool_that_may_run_runs(tmp_path: Path, shop: Shop, runs: Runs) -> None:
    ended, _ = played(
        tmp_path, shop, runs, Recording(runs=[SELL]), says("", call(SELL, "t1", sku="A")), says("Done.")
    )  # fmt: skip

    assert ended == ["Done."]
    assert calls_of(runs.cases())[0]["result"] == "sold A"
    assert shop.effects() == ["sell A"]


@pytest.mark.slow
def test_without_a_recording_nothing_changes(tmp_path: Path, shop: Shop, runs: Runs) -> None:
    ended, _ = played(
        tmp_path, shop, runs, None, says("", call(SELL, "t1", sku="A")), says("Done.")
    )

    assert ended == ["Done."]
    assert shop.effects() == ["sell A"]


@pytest.mark.slow
def test_the_calls_of_a_sub_agent_are_answered(tmp_path: Path, shop: Shop, runs: Runs) -> None:
    order = {"description": "Sell", "prompt": "Sell A", "subagent_type": "general-purpose"}
    script = ScriptedAnthropic([
        says("", call("Agent", "t1", **order)),
        says("", call(SELL, "t2", sku="A")),
        says("Sold."),
        says("Fine."),
    ])  # fmt: skip
    recording = Recording(recorded(SELL, sku="A", result="as recorded"))

    with serving(script) as address:
        given = options(tmp_path, shop, address, tools=["Agent", "Bash"])
        ended, _ = replay_now(runs, given, recording, unit_of("Sell A"))

    assert isinstance(ended, list)
    assert recording.asked == [SELL]
    assert "as recorded" in str([one["messages"] for one in script.given])
    assert shop.effects() == []


@pytest.mark.slow
def test_a_built_in_tool_that_was_recorded_cannot_be_answered(
    tmp_path: Path, shop: Shop, runs: Runs
) -> None:
    read = {"file_path": str(tmp_path / "a.txt")}
    recording = Recording(recorded("Read", **read, result="text"))
    script = ScriptedAnthropic([says("", call("Read", "t1", **read)), says("Never said.")])

    with serving(script) as address:
        given = options(tmp_path, shop, address, tools=None)
        ended, _ = replay_now(runs, given, recording, unit_of("Read"))

    assert isinstance(ended, ToolMiss)
    assert str(ended) == (
        "its tool Read is run by Claude Code and cannot be answered from a recording"
    )
    assert len(script.given) == 1


@pytest.mark.slow
def test_clients_that_run_at_once_are_answered_each_from_its_own_recording(
    tmp_path: Path, shop: Shop, runs: Runs
) -> None:
    recordings = [Recording(recorded(SELL, sku="A", result=text)) for text in ("one", "two")]
    steps = says("", call(SELL, "t", sku="A")), says("Done.")
    scripts = [ScriptedAnthropic(steps) for _ in recordings]

    async def at_once(addresses: list[str]) -> list[Any]:
        units = (
            replay(
                runs, options(tmp_path, shop, address), recording, unit_of("Hi", eval_id=address)
            )
            for address, recording in zip(addresses, recordings, strict=True)
        )
        return await asyncio.gather(*map(asyncio.create_task, units))

    with serving(scripts[0]) as first, serving(scripts[1]) as second:
        ended = asyncio.run(at_once([first, second]))

    assert ended == [["Done."]] * 2
    for script, text in zip(scripts, ("one", "two"), strict=True):
        assert f"'{text}'" in str(script.given[-1]["messages"])
    assert shop.effects() == []


@pytest.mark.slow
def test_ten_replays_have_no_effect(tmp_path: Path, shop: Shop, runs: Runs) -> None:
    for number in range(10):
        recording = Recording(recorded(SELL, sku="A", result=f"A {number}"))
        steps = (says("", call(SELL, "t1", sku="A")), says("Done."))
        ended, _ = played(tmp_path, shop, runs, recording, *steps, eval_id=f"c-{number}")
        assert ended == ["Done."]

    assert shop.effects() == []


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (ClaudeAgentOptions(tools=["Bash", "WebSearch"]), "tool WebSearch is run by Claude Code"),
        (
            ClaudeAgentOptions(mcp_servers={"files": {"command": "serve-files"}}),
            "MCP server files is called by Claude Code itself",
        ),
        (ClaudeAgentOptions(mcp_servers="servers.json"), "MCP server servers.json is called"),
    ],
)
def test_what_claude_code_runs_itself_is_refused_by_name(
    given: ClaudeAgentOptions, why: str, runs: Runs
) -> None:
    ended, _ = replay_now(runs, given, Recording(), unit_of("Hi"))

    assert isinstance(ended, InputError)
    assert f"the agent cannot be replayed: its {why}" in str(ended)
    assert agent_of(given, runs.recorder).abilities.mocks
