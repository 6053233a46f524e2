"""Eval sets, eval cases, turns and tool calls: what was recorded and what was expected.

Field names, order and defaults are those of tRPC-Agent-Go's eval-set file. The fields under
"evaltap's own" are optional extensions that other readers ignore. Times are Unix seconds, as in the
format: a `datetime` would lose nanoseconds, which a rewrite must preserve.
"""

from math import isfinite
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator

from evaltap.schemas.data import Json
from evaltap.schemas.formats.message import Message
from evaltap.schemas.formats.model import AnyValue, FreeObject, Keep, Map, WireModel

CaptureState: TypeAlias = Literal["missing", "truncated", "redacted", "synthesized", "ambiguous"]
"""Why a field was not recorded unchanged.

missing: the telemetry did not contain it; truncated: it was cut; redacted: it was removed on
purpose; synthesized: evaltap generated it (an id); ambiguous: the telemetry contradicts itself.
"""


def _whole_nanoseconds(seconds: float | None) -> float | None:
    if seconds is None:
        return None
    if not isfinite(seconds * 1e9):
        raise ValueError("beyond every calendar")
    return int(seconds * 1e9) / 1e9


Seconds: TypeAlias = Annotated[float | None, AfterValidator(_whole_nanoseconds), Keep]
"""Unix seconds, truncated to whole nanoseconds as tRPC-Agent-Go's reader does."""


class ErrorInfo(WireModel):
    """What went wrong, as far as it is known."""

    type: str = ""
    message: str = ""


class Tool(WireModel):
    """A tool call: name, arguments, result. A null argument or result was not seen."""

    id: str = ""
    name: str = ""
    arguments: AnyValue = None
    result: AnyValue = None
    # evaltap's own
    error: ErrorInfo | None = None
    """Set when the call failed."""
    start_time: Seconds = None
    duration_ms: Annotated[float | None, Keep] = None
    agent: str = ""
    """The agent that made the call."""
    parent_id: str = ""
    """The id of the enclosing agent-as-tool call, when a sub-agent made this call."""
    after: list[str] = []
    """In a reference for `trajectory_partial_order`: ids of the calls that must come before this one."""
    optional: bool = False
    """In a reference for `trajectory_partial_order`: the call may be left out."""
    alternative: str = ""
    """In a reference for `trajectory_partial_order`: one call of the group with this name is enough."""
    state_delta: AnyValue = None
    """What the call wrote to the session's state; only known of tools of Google ADK and LangGraph."""
    capture: Annotated[dict[str, CaptureState], Map] = {}


class ModelUsage(WireModel):
    """Tokens used by the calls of one model; input includes cached tokens."""

    model: str = ""
    input_tokens: Annotated[int | None, Keep] = None
    output_tokens: Annotated[int | None, Keep] = None
    cached_tokens: Annotated[int | None, Keep] = None
    cache_write_tokens: Annotated[int | None, Keep] = None


class Telemetry(WireModel):
    """A turn's place in the traces, and its cost."""

    trace_id: str = ""
    root_span_id: str = ""
    last_chat_span_id: str = ""
    models: list[str] = []
    agents: list[str] = []
    input_tokens: Annotated[int | None, Keep] = None
    output_tokens: Annotated[int | None, Keep] = None
    cost_usd: Annotated[float | None, Keep] = None
    usage: list[ModelUsage] = []
    """Tokens by model, or by call, where the sums of the turn do not suffice for a price."""
    latency_ms: Annotated[float | None, Keep] = None
    status: str = ""
    """ok | error | incomplete."""
    error: ErrorInfo | None = None


class ToolMockArguments(WireModel):
    """How the arguments of a mocked call are matched."""

    ignore: bool = False
    expected: AnyValue = None
    only_tree: FreeObject = {}
    ignore_tree: FreeObject = {}
    number_tolerance: Annotated[float | None, Keep] = None


class LlmGenerator(WireModel):
    """A prompt that generates a mocked result."""

    prompt: str = ""


class MockedTool(WireModel):
    """One mocked tool call."""

    name: str = ""
    arguments: ToolMockArguments | None = None
    result: AnyValue = None
    llm_generator: LlmGenerator | None = None


class ToolMock(WireModel):
    """Mocked tool calls of a turn, for runs that drive an agent."""

    actual: list[MockedTool] = []
    expected: list[MockedTool] = []


class TurnFeedback(WireModel):
    """What a user said about a turn: thumbs up or down, a score on the scale of `name`, words."""

    name: str = ""
    positive: Annotated[bool | None, Keep] = None
    score: Annotated[float | None, Keep] = None
    comment: str = ""


class Invocation(WireModel):
    """A turn: the user's message, what the agent did, its final answer."""

    invocation_id: str = ""
    context_messages: list[Message] = []
    user_content: Message | None = None
    final_response: Message | None = None
    tools: list[Tool | None] = []
    tool_mock: ToolMock | None = None
    intermediate_responses: list[Message] = []
    creation_timestamp: Seconds = None
    execution_trace: Annotated[Json, Keep] = None
    """Go's record of the run, preserved verbatim (its keys are capitalized and nothing is omitted)."""
    # evaltap's own
    capture: Annotated[dict[str, CaptureState], Map] = {}
    telemetry: Telemetry | None = None
    references: list["Invocation"] = []
    """In an expected turn: alternative turns that are equally good."""
    state: FreeObject = {}
    """The session's state after the turn."""
    feedback: list[TurnFeedback] = []


class SessionInput(WireModel):
    """The session's owner and initial state."""

    app_name: str = ""
    user_id: str = ""
    state: FreeObject = {}


class RubricContent(WireModel):
    """The text of a rubric, as the judge sees it."""

    text: str = ""


class Rubric(WireModel):
    """One criterion that a judge answers with met or not met."""

    id: str = ""
    content: RubricContent | None = None
    description: str = ""
    type: str = ""


class CaseRubric(WireModel):
    """A rubric that one case adds to the metric `metric_name`."""

    metric_name: str = ""
    id: str = ""
    content: RubricContent | None = None
    description: str = ""
    type: str = ""


class ConversationScenario(WireModel):
    """A plan for a simulated user, in place of a fixed conversation."""

    driver: str = ""
    starting_prompt: str = ""
    conversation_plan: str = ""
    stop_signal: str = ""
    max_allowed_invocations: Annotated[int | None, Keep] = None


class CaseSource(WireModel):
    """Where a recorded case was observed and why it was kept (evaltap's own)."""

    service: str = ""
    framework: str = ""
    convention: str = ""
    recorder_version: str = ""
    inclusion_probability: Annotated[float | None, Keep] = None
    """Probability in (0, 1] that this session was kept; 1 when absent."""
    close_reason: str = ""
    agent_name: str = ""
    version: str = ""
    """Of the agent: a release, a commit, a prompt."""
    environment: str = ""
    tags: list[str] = []
    run: str = ""
    """Name of the recording, when cases are recorded several times."""
    trial: Annotated[int | None, Keep] = None
    """Which repeat of its case this is, from 1, when an experiment ran it."""
    attempt: Annotated[int | None, Keep] = None
    """Which attempt at this trial, from 1: an attempt that was interrupted is made again."""
    revision: Annotated[int | None, Keep] = None
    """Numbers the versions of one turn: a late span makes a higher revision, never a second turn."""
    sampling_reason: str = ""
    """Why sampling kept it: `head`, or the rule that decided; empty when it was not sampled."""


class EvalCase(WireModel):
    """A session to score: what happened (`actual_conversation`) and what should have."""

    eval_id: str = ""
    eval_mode: str = ""
    """Empty for the default mode, `trace` for recorded turns."""
    expected_runner_enabled: bool = False
    context_messages: list[Message | None] = []
    conversation: list[Invocation | None] = []
    conversation_scenario: ConversationScenario | None = None
    actual_conversation: list[Invocation | None] = []
    session_input: SessionInput | None = None
    rubrics: list[CaseRubric] = []
    creation_timestamp: Seconds = None
    # evaltap's own
    tool_mock: ToolMock | None = None
    """Mocked tool calls of every turn, after those of the turn itself; a scenario has no other place."""
    eval_set_id: str = ""
    """The set of a case that travels without one: on the log."""
    source: CaseSource | None = None


class EvalSet(WireModel):
    """A named list of eval cases: the content of `<id>.evalset.json`."""

    eval_set_id: str = ""
    name: str = ""
    description: str = ""
    eval_cases: list[EvalCase] = []
    creation_timestamp: Seconds = None
