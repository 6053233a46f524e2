"""What happened in one run, read from its tree of spans.

In short: the user message is the last one in the first model call's input unless the run itself
states it. The final answer is the one stated by the run, or the text of the last run-level model
call if that call requested no tool. The texts of other run-level model calls are intermediate.
Model calls and tools below a tool span belong to a sub-agent: their tools count, their texts do
not.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from evaltap.recorder.conventions.messages import (
    closing_text,
    context_of,
    last_user_text,
    since_user,
)
from evaltap.recorder.conventions.reading import Reading, waits
from evaltap.recorder.observation import Failure, ModelCalled, RunEvent
from evaltap.recorder.tokens import tokens
from evaltap.recorder.traces.node import Node
from evaltap.recorder.traces.stated_texts import (
    as_text,
    best,
    differ,
    ends_with,
    is_part,
    output_text,
    requests_tool,
    same_text,
    with_media,
)
from evaltap.recorder.traces.tool_calls import ToolCalls
from evaltap.schemas.chat.evidence import Evidence


class Trajectory:
    """The facts of one run; `root` is the turn's span."""

    def __init__(self, root: Node) -> None:
        self.root = root
        every = [root, *root.descendants()]
        beside = checks_beside(root)
        self._nodes = [node for node in every if node not in beside]
        name_tools(self._nodes)
        self._adopted = flattened_agents(self._nodes) if flattens(self._nodes) else {}
        self._owner = {node: self._find_owner(node) for node in self._nodes} | beside
        self._models = sorted(
            without_repeats(node for node in every if node.kind == "model"),
            key=lambda node: (node.span.start_ns, node.span.end_ns),
        )
        self._level = [node for node in self._models if self._owner[node] is None]
        recover_outputs(self._level)
        self._asides = asides_after(self._level)
        self._level = [node for node in self._level if node not in self._asides]

    @cached_property
    def user(self) -> Evidence | None:
        """The user message; None when not seen."""
        reading = self.root.reading
        candidates = [reading.user, last_user_text(reading.input or ()), self._templated_question()]
        if self._level:
            first = self._level[0].reading
            flaw = first.flaws.get("input")
            candidates.append(last_user_text(first.input or ()))
            candidates.append(Evidence(None, flaw) if flaw else None)
        own = [node for node in self._nodes[1:] if self._owner[node] is None]
        for node in own:
            if node.kind in ("run", "agent"):
                candidates += [node.reading.user, last_user_text(node.reading.input or ())]
        candidates.append(reading.user_fallback)
        candidates += [node.reading.user_fallback for node in own if node.kind == "agent"]
        flaw = reading.flaws.get("input")
        candidates.append(Evidence(None, flaw) if flaw else None)
        return with_media(best(candidates), candidates)

    @property
    def context(self) -> list[Evidence]:
        """The instructions of the run's models, and other context from outside the conversation."""
        instructions: list[Evidence] = []
        for node in self._level or self._nodes[:1]:
            stated = [message.text for message in node.reading.context or ()]
            instructions += [text for text in stated if text is not None]
            instructions += context_of(node.reading.input or ())
        return instructions

    @property
    def history(self) -> list[tuple[str, str]]:
        """Roles and texts of the preceding conversation, from the input of the first model call."""
        messages = self._level[0].reading.input or () if self._level else ()
        said = [(one.role, one.text) for one in messages if one.role in ("user", "assistant")]
        texts = [
            (role, text.value)
            for role, text in said
            if text is not None and isinstance(text.value, str) and text.value
        ]
        asked = self.user.value if self.user is not None else None
        users = [at for at, (role, _) in enumerate(texts) if role == "user"]
        same = [at for at in users if texts[at][1] == asked]
        return texts[: max(same or users, default=0)]

    def _templated_question(self) -> Evidence | None:
        """Return the text that went into the run, if a prompt template names it as the question.

        OpenInference writes a chain's single input without its name, so it may be the user's
        message or just a topic. The template that uses it settles this, if its span shows the
        variables, and so does a retrieval with the same text. What enters an agent is a message. In
        a pipeline that states nothing itself, the question is the input that appears in the model's
        prompt.
        """
        entered = self.root.reading.user_fallback
        named = (node.reading.user for node in self._nodes if node.kind == "other")
        questions = [user for user in named if user is not None]
        asked = last_user_text(self._level[0].reading.input or ()) if self._level else None
        if entered is not None and entered.value is not None:
            if self.root.kind == "agent" and is_part(entered, asked):
                return entered
            return next((user for user in questions if user == entered), None)
        prompt = asked.value if asked is not None else None
        return next((user for user in questions if prompt and user.value in prompt), None)

    @cached_property
    def final(self) -> Evidence | None:
        """The final answer; None when the run failed or none was seen."""
        if self.failure is not None:
            return None
        spoken = self._last_text()
        stated = self._stated_final()
        if stated is None or stated.value is None:
            return spoken or stated or self._missing_final()
        if spoken is not None and same_text(spoken, stated):
            return with_media(spoken, [stated])
        return with_media(Evidence(as_text(stated.value)), [stated, spoken])

    @cached_property
    def failure(self) -> Failure | None:
        """Why the run failed.

        A root may be OK although the run raised (openai-agents). Then the last event at run level
        decides: an agent or model call that failed and was not followed by text.
        """
        if self.root.failure is not None:
            return _most_specific_failure(self.root, self._nodes)
        if self._stated_final() is not None:
            return None
        last = self._level[-1] if self._level else None
        if last is not None and last.failure is None and closing_text(last.reading.output or ()):
            return None
        for node in self._nodes:
            if node.kind == "agent" and self._owner[node] is None and node.failure is not None:
                return _most_specific_failure(node, self._nodes)
        return last.failure if last is not None else None

    @cached_property
    def session_id(self) -> str | None:
        """The session id: the root's, else the shallowest outside sub-agents, else a request's around it."""
        return self._nearest("session_id") or self._around("session_id")

    @property
    def user_id(self) -> str | None:
        """The user id, found like the session id."""
        return self._nearest("user_id") or self._around("user_id")

    @property
    def app_name(self) -> str | None:
        """The application's name, if a runner states it."""
        return self.root.reading.app_name if self.root.kind == "run" else None

    @property
    def invocation_id(self) -> str | None:
        """The framework's own id of the run."""
        return self._nearest("invocation_id")

    @property
    def agent_name(self) -> str | None:
        """The name of the first agent of the run."""
        found = (self.root, *(n for n in self._nodes[1:] if n.kind == "agent"))
        return next((n.reading.agent_name for n in found if n.reading.agent_name), None)

    @property
    def scope(self) -> str:
        """The instrumentation scope of the run."""
        return self.root.span.scope

    @property
    def convention(self) -> str:
        """The convention used to read the run."""
        found = (node.reading.convention for node in self._nodes)
        return next((name for name in found if name), "")

    @property
    def has_paused(self) -> bool:
        """Whether the run ended because a person or another program has to act first."""
        if self.awaited:
            return True
        last = self._level[-1] if self._level else None
        answered = self.final is not None and self.final.value is not None
        if last is not None and not answered and self._tool_calls.wait(last):
            return True
        waiting = [node.span.end_ns for node in self._nodes if waits(node.span)]
        later = (node for node in self._nodes if node.kind in ("model", "tool"))
        return bool(waiting) and all(node.span.start_ns < max(waiting) for node in later)

    @property
    def awaited(self) -> tuple[str, ...]:
        """Ids of the calls whose result is not the last; known once `calls` were observed."""
        return self._tool_calls.awaited

    @property
    def is_resumed(self) -> bool:
        """Whether the run began with calls that it had not requested, or with their results."""
        if self.root.reading.resumed:
            return True
        first = self._level[0] if self._level else None
        given = since_user(first.reading.input or ()) if first is not None else ()
        if any(message.calls or message.answers for message in given):
            return True
        return self._tool_calls.precede(first.span.start_ns if first is not None else None)

    def calls(self, run_id: str) -> Iterator[RunEvent]:
        """Yield the run's model calls, then its tool calls, each in time order."""
        for node in self._models:
            yield self._model_called(run_id, node)
        yield from self._tool_calls.observe(run_id)

    @cached_property
    def _tool_calls(self) -> ToolCalls:
        models = [node for node in self._models if node in self._nodes]
        return ToolCalls(self.root, self._nodes, models, self._owner)

    @property
    def contradictions(self) -> dict[str, str]:
        """The turn's fields for which spans, messages and history disagree."""
        reading, final = self.root.reading, self.final
        found = {
            "tools": self._tool_calls.has_unknown_answers,
            # A prompt around what entered the run: words of the user or of the program.
            "userContent": is_part(reading.user_fallback, self.user),
            # The run returned something else than the model's last words.
            "finalResponse": final is not None and differ(reading.final_fallback, final),
        }
        return {field: "ambiguous" for field, doubtful in found.items() if doubtful}

    @property
    def unseen(self) -> dict[str, str]:
        """`tools`, if calls would show only in models' answers, and those were not recorded."""
        if self.failure is not None or self._tool_calls.were_seen:
            return {}
        if self.root.kind in ("run", "agent"):
            # A framework's tools have spans of their own.
            return {} if self._models or self.final is not None else {"tools": "missing"}
        hidden = [n.reading for n in self._models if n.reading.output is None and not n.failure]
        return {"tools": hidden[0].flaws.get("output", "missing")} if hidden else {}

    def _find_owner(self, node: Node) -> Node | None:
        """Return the enclosing tool call, or None at run level."""
        above: Node | None = node
        while above is not None:
            adopter = self._adopted.get(above)
            if adopter is not None and adopter is not node:
                return adopter
            if above is not node and above.kind == "tool":
                return above
            above = above.parent if above is not self.root else None
        return None

    def _model_called(self, run_id: str, node: Node) -> ModelCalled:
        reading, said = node.reading, self._intermediate(node)
        used = tokens(
            reading.input_tokens,
            reading.output_tokens,
            reading.cache_read_tokens,
            reading.cache_write_tokens,
            total=reading.total_tokens,
        )
        return ModelCalled(
            run_id,
            max(node.span.end_ns, node.span.start_ns),
            model=reading.model,
            text=said.value if said is not None else None,
            parts=said.media if said is not None else (),
            reasoning=None if node is self._closing else self._reasoning(node),
            tokens=used,
            cost_usd=reading.cost_usd,
            span_id=node.span.span_id,
            agent_name=agent_of(node),
            failed=node.failure is not None
            or (self.failure is not None and _says_nothing(reading)),
        )

    def _intermediate(self, node: Node) -> Evidence | None:
        if self._owner[node] is not None or node in self._asides:
            return None
        words = output_text(node.reading)
        if words is None or not isinstance(words.value, str):
            return None
        if not words.value.strip() and not words.media:
            return None
        final = self.final
        is_last = node is self._level[-1] and not requests_tool(node.reading)
        if is_last and final is not None and same_text(words, final):
            return None
        return words

    @property
    def reasoning(self) -> str | None:
        """The model's reasoning before the final answer."""
        return self._reasoning(self._closing) if self._closing is not None else None

    @cached_property
    def _closing(self) -> Node | None:
        """The model call that gave the final answer."""
        if self.final is None or not self._level or requests_tool(self._level[-1].reading):
            return None
        return self._level[-1]

    def _reasoning(self, node: Node) -> str | None:
        if self._owner[node] is not None:
            return None
        thoughts = (message.reasoning for message in node.reading.output or ())
        return "\n".join(thought for thought in thoughts if thought) or None

    def _last_text(self) -> Evidence | None:
        if not self._level:
            return None
        reading = self._level[-1].reading
        if requests_tool(reading):
            return None
        if reading.output is None and "output" in reading.flaws:
            return Evidence(None, reading.flaws["output"])
        return output_text(reading)

    def _stated_final(self) -> Evidence | None:
        reading = self.root.reading
        if reading.final is not None:
            return reading.final
        if (stated := closing_text(reading.output or ())) is not None:
            return stated
        level = [n for n in self._nodes[1:] if n.kind in ("run", "agent") and not self._owner[n]]
        for node in reversed(level):
            if node.parent is self.root and node.reading.final is not None:
                return node.reading.final
            said = closing_text(node.reading.output or ())
            if node.parent is self.root and said is not None and not self._level:
                return said  # no model call shows what the agent said
        return reading.final_fallback if self._needs_fallback() else None

    def _needs_fallback(self) -> bool:
        """Return whether no model text is the answer: the last call has none, or requested a tool.

        Agents that answer through a tool (`finish`, `final_answer`) end like this. Others write the
        answer at the end of a template that their framework parses (`Final Answer: ...` in CrewAI,
        DSPy).
        """
        if not self._level:
            return True
        last = self._level[-1].reading
        words = output_text(last)
        wordless = (words is None or words.value == "") and "output" not in last.flaws
        return wordless or requests_tool(last) or ends_with(words, self.root.reading.final_fallback)

    def _missing_final(self) -> Evidence | None:
        flaw = self.root.reading.flaws.get("output")
        return Evidence(None, flaw) if flaw else None

    def _around(self, name: str) -> str | None:
        found = (getattr(node.reading, name) for node in self.root.ancestors())
        return next((str(one) for one in found if one), None)

    def _nearest(self, name: str) -> str | None:
        for node in self._nodes:
            if self._owner[node] is None and node.kind != "tool":
                found = getattr(node.reading, name)
                if found is not None:
                    return str(found)
        for node in self._nodes:
            if self._owner[node] is None and (found := getattr(node.reading, name)) is not None:
                return str(found)
        return None


def agent_of(node: Node) -> str | None:
    """Return the name of the agent behind a node: its own statement, else the enclosing agent span."""
    if node.reading.agent_name:
        return node.reading.agent_name
    return next((n.reading.agent_name for n in node.ancestors() if n.reading.agent_name), None)


def _most_specific_failure(failed: Node, nodes: list[Node]) -> Failure | None:
    """Return a span's failure, with the type of a failed call below if it has none."""
    failure = failed.failure
    if failure is None or failure.type is not None:
        return failure
    for node in reversed(nodes):
        below = node.failure if node is not failed else None
        if below is not None and below.type is not None and node.kind in ("model", "tool", "agent"):
            message = failure.message
            if message is None or (below.message or "") in message:
                return Failure(below.type, below.message or message)
    return failure


def name_tools(nodes: list[Node]) -> None:
    """Treat a span of unknown kind as a tool's if a model of this run requested a tool of its name."""
    unnamed = [node for node in nodes if node.kind is None and node.reading.tool_name]
    if not unnamed:
        return
    asked = {
        call.name
        for node in nodes
        for message in (*(node.reading.input or ()), *(node.reading.output or ()))
        for call in message.calls
    }
    for node in unnamed:
        if node.reading.tool_name in asked:
            node.reading.kind = "tool"


_CHECK: Final = re.compile(r"(?<!with)[ _.-]?guardrails?(?:[ _.:-].*)?$", re.IGNORECASE)


def checks_beside(root: Node) -> dict[Node, Node | None]:
    """Return the spans within a run's guardrails, each with the guardrail's span.

    Some instrumentations write a guardrail as a chain: then its name tells, unless nothing else answers.
    """
    if not (checks := [node for node in root.descendants() if _is_check(node)]):
        return {}
    stated = [node for node in checks if node.kind == "guardrail"]
    for chosen in (checks, stated):
        beside: dict[Node, Node | None] = {
            below: check for check in chosen for below in (check, *check.descendants())
        }
        if any(node.kind == "model" and node not in beside for node in root.descendants()):
            return beside
    return beside


def _is_check(node: Node) -> bool:
    named = node.kind in ("run", "other", None) and _CHECK.search(node.span.name)
    return node.kind == "guardrail" or bool(named)


def flattens(nodes: list[Node]) -> bool:
    """Return whether a framework writes the spans of sub-agents beside those of their tools."""
    return any(node.reading.flattens_agents for node in nodes)


def flattened_agents(nodes: list[Node]) -> dict[Node, Node]:
    """Map agents to the sibling tool spans that ran them: the tool spans that lasted longer."""
    tools = [node for node in nodes if node.kind == "tool"]
    adopted: dict[Node, Node] = {}
    for agent in (node for node in nodes if node.kind == "agent"):
        around = [tool for tool in tools if _spans(tool, agent) and tool not in agent.descendants()]
        if around and not any(above.kind == "tool" for above in agent.ancestors()):
            adopted[agent] = min(around, key=lambda tool: tool.span.end_ns - tool.span.start_ns)
    return adopted


def _spans(outer: Node, inner: Node) -> bool:
    one, other = outer.span, inner.span
    return one.start_ns <= other.start_ns and other.end_ns <= one.end_ns


def without_repeats(models: Iterator[Node]) -> Iterator[Node]:
    """Skip a model call already seen through another instrumentation: same response id."""
    seen: set[str] = set()
    for node in models:
        response = node.reading.response_id
        if response is not None and response in seen:
            continue
        if response is not None:
            seen.add(response)
        yield node


def asides_after(level: Sequence[Node]) -> set[Node]:
    """Return the calls after the answer of an agent's loop that are not about it, such as for a title.

    They are of the same agent, neither continue its conversation nor quote the answer, and request no tool.
    """
    for at in reversed(range(len(level))):
        given = since_user(level[at].reading.input or ())
        if any(message.answers for message in given):
            break
    else:
        return set()
    answer = output_text(level[at].reading)
    asked = last_user_text(level[at].reading.input or ())
    if answer is None or asked is None or not answer.value or requests_tool(level[at].reading):
        return set()
    later, agent = level[at + 1 :], _span_of_agent(level[at])
    others = (_span_of_agent(node) is not agent or is_about(node, asked, answer) for node in later)
    return set() if any(others) else set(later)


def _span_of_agent(node: Node) -> Node | None:
    return next((above for above in node.ancestors() if above.kind in ("run", "agent")), None)


def is_about(node: Node, asked: Evidence, answer: Evidence) -> bool:
    """Return whether a model call may go on from a question and its answer."""
    reading = node.reading
    if not reading.input or requests_tool(reading):
        return True
    texts = [message.text for message in (*reading.input, *(reading.context or ()))]
    said = [as_text(text.value) for text in texts if text is not None]
    return as_text(asked.value) in said or any(as_text(answer.value) in text for text in said)


def recover_outputs(level: list[Node]) -> None:
    """Recover the missing output of a model call from the input of the next one.

    The last assistant message in a call's input is the answer of the call before.
    """
    for node, later in pairwise(level):
        if node.reading.output is None and node.failure is None:
            instructions = since_user(later.reading.input or ())
            answers = [message for message in instructions if message.role == "assistant"]
            node.reading.output = (answers[-1],) if answers else None


def _says_nothing(reading: Reading) -> bool:
    """Return whether a call has no answer: some streamed calls that fail are not marked, but their run is."""
    words = output_text(reading)
    return not (words is not None and words.value) and not requests_tool(reading)
