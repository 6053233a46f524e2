"""The pytest plugin's second half: eval cases as tests that run an agent.

With `--evaltap-agent MODULE:NAME`, or a fixture `evaltap_agent` of your own, each case of the marker
`evaltap(cases=…, metrics=…)` is run by the agent before it is scored.
"""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from evaltap.schemas.data import CaseData


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the agent and its time limit."""
    group = parser.getgroup("evaltap")
    group.addoption(
        "--evaltap-agent",
        metavar="MODULE:NAME",
        help="run this agent on the eval cases of the marker evaltap, then score what it did",
    )
    group.addoption(
        "--evaltap-turn-seconds",
        type=float,
        default=300.0,
        help="time limit for one turn of the agent",
    )
    group.addoption(
        "--evaltap-user",
        metavar="USER",
        help="who plays the users of cases with a conversationScenario: an agent, or a FILE.json with a"
        " judgeModel (default: the model of EVALTAP_JUDGE_MODEL)",
    )
    group.addoption(
        "--evaltap-expected-agent",
        metavar="AGENT",
        help="the agent that gives the expected turns of cases with expectedRunnerEnabled",
    )
    group.addoption(
        "--evaltap-read-only",
        metavar="TOOL,...",
        default="",
        help="tools that may run where nothing was recorded, in cases from production",
    )
    group.addoption(
        "--evaltap-allow-real-tools",
        action="store_true",
        help="let all tools run where nothing was recorded, in cases from production",
    )


@pytest.fixture
def evaltap_agent(request: pytest.FixtureRequest) -> object:
    """The agent that runs the cases; override it to return a function, a factory or an agent object."""
    return request.config.getoption("--evaltap-agent")


@pytest.hookimpl
def pytest_evaltap_case(item: pytest.Item, case: "CaseData") -> "CaseData | None":
    """Run the agent on a case; without an agent, the case is scored as it is."""
    request: pytest.FixtureRequest = item._request  # type: ignore[attr-defined]  # no public name
    if (agent := request.getfixturevalue("evaltap_agent")) is None:
        return None
    # Only now: pytest loads this plugin wherever evaltap is installed.
    from evaltap.experiments.in_process import run_case
    from evaltap.experiments.tool_calls import MockChoice

    option: Any = item.config.getoption
    tools = MockChoice(
        read_only=[name for name in option("--evaltap-read-only").split(",") if name],
        allow_real=option("--evaltap-allow-real-tools"),
    )
    return run_case(
        agent,
        case,
        turn_seconds=option("--evaltap-turn-seconds"),
        tools=tools,
        user=option("--evaltap-user"),
        expected_agent=option("--evaltap-expected-agent"),
    )
