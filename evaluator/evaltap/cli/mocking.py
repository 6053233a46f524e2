"""What the options of a command say about tool calls."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from evaltap.cli.options.run import AnswerOptions, ToolCallOptions
from evaltap.evaluator.reports.safe_text import visible
from evaltap.experiments.mocks.drift import renamed
from evaltap.experiments.mocks.policy import OnMiss
from evaltap.experiments.mocks.recorded import names
from evaltap.experiments.plan import CaseSet
from evaltap.experiments.tool_calls import MockChoice
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

_ON_MISS = ("fail", "real", "llm", "closest")


def choice_of(options: AnswerOptions) -> MockChoice:
    """Return the choice; raise InputError for what is none."""
    can_run = isinstance(options, ToolCallOptions)  # served tools cannot
    known = [one for one in _ON_MISS if can_run or one != "real"]
    for tool, what in options.on_miss:
        if what not in known:
            raise InputError(f"--on-miss {tool}={what}: expected {', '.join(known)}")
    ignore: dict[str, dict[str, Any]] = {}  # JSON
    for tool, path in options.ignore_argument:
        tree = ignore.setdefault(tool, {})
        for name in path[:-1]:
            tree = tree.setdefault(name, {})
        tree[path[-1]] = True
    choice = MockChoice(
        "recorded",
        match=options.mock_match,
        ignore=ignore,
        on_miss=cast(dict[str, OnMiss], dict(options.on_miss)),
        renamed=dict(options.rename_tool),
        latency=options.mock_latency,
    )
    if not isinstance(options, ToolCallOptions):
        return choice
    return replace(
        choice, mode=options.mocks, read_only=options.read_only, allow_real=options.allow_real_tools
    )


def lines_of_mocks(
    mocks: Mapping[str, Any], cases: CaseSet, *, served: bool
) -> Iterator[str]:  # Any: JSON
    """Say how tool calls were answered, and which tools seem to have another name now.

    `served`: to an agent elsewhere, whose tools cannot run here.
    """
    by_tool = mocks.get("by_tool") or {}
    if not by_tool:
        return
    parts = {
        "hits": f"{counted(mocks['hits'], 'tool call')} answered",
        "misses": f"{mocks['misses']} without a recorded result",
        "real": f"{mocks['real']} run for real",
        "invented": f"{mocks['invented']} invented",
        "closest": f"{mocks['closest']} as the closest recorded call",
        "unused": f"{counted(mocks['unused'], 'recorded call')} not made",
    }
    yield ", ".join(text for name, text in parts.items() if mocks[name] or name == "hits")
    for name, tool in by_tool.items():
        for change in tool["changed_arguments"][:1]:
            yield visible(f"  {name}: {change['difference']} ({change['count']}x)")
    recorded = names(one.recording for one in cases.cases)
    missed = [name for name, tool in by_tool.items() if tool["misses"]]
    asked = [name for name, tool in by_tool.items() if tool["hits"]]
    for line in renamed(missed, recorded, asked):
        yield visible(f"  {line}")
    if missed:
        ways = _ways(missed[0], recorded, served=served)
        yield visible(f"  if the calls are right: {', or '.join(ways)}")


def _ways(name: str, recorded: Container[str], *, served: bool) -> list[str]:
    """Return the options that would answer the calls of a tool."""
    ways = [f"--on-miss {name}=llm"]
    if name in recorded:
        ways = [f"--ignore-argument {name}.ARGUMENT", f"--on-miss {name}=closest"]
    return ways if served else [*ways, f"--read-only {name} to let it run"]
