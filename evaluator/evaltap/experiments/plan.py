"""What an experiment will do: its cases, its units, and the parts of its configuration that must not
change.
"""

import hashlib
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.cases.scenarios import drafted_scenario
from evaltap.evaluator.scoring.results.runs import RunMetric
from evaltap.experiments.agents.base import ChatMessage, MetCase, Unit
from evaltap.experiments.mocks.declared import DeclaredMock, declared_mocks
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import is_hash, recording_of
from evaltap.experiments.partners import MOST_TURNS
from evaltap.experiments.service.simulation import scenario_problem
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import eval_set_name
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.formats.case import ConversationScenario
from evaltap.schemas.text import counted, did_you_mean, some_of

LONGEST_SHOWN: Final = 20
"""Problems that are listed; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCase(MetCase):
    """A case of the set as the agent meets it, and what is expected of it."""

    eval_id: str
    expected: tuple[CaseData, ...]
    """The turns of `conversation`, or of a recorded case without one, which then is its own reference."""
    has_reference: bool
    """Whether it says what is expected, or, as a drafted case of a loop does, that nothing is."""
    digest: str
    is_recorded: bool = False
    """Whether it comes from production, whose tools must not run by accident."""
    states_context: bool = False
    """Whether the case itself, and no recording, says what was said before."""
    is_bare: bool = False
    """Whether only the user's messages are known of it, and no results of tools."""

    @property
    def declares_mocks(self) -> bool:
        return bool(self.declared) or any((*self.expected_mocks, self.expected_every_turn))

    @property
    def refers(self) -> bool:
        """Whether another agent takes part: for the expected turns, or as the one that the user talks to."""
        return self.expects or (self.scenario or {}).get("driver") == "expected"

    @property
    def most_turns(self) -> int:
        """How many turns a run has, with a simulated user at most."""
        if self.scenario is None:
            return len(self.turns)
        return len(self.turns) + (self.scenario.get("maxAllowedInvocations") or MOST_TURNS)


@dataclass(frozen=True, slots=True)
class CaseSet:
    """The cases of a set in their order."""

    name: str
    cases: tuple[RunCase, ...]
    whole: tuple[RunCase, ...] = ()
    """The set of which `cases` were chosen; empty if these are all.  A metric's version depends on all its
    expected turns, so that a run of some cases can be compared with one of all."""

    def references(self, redactor: Redactor | None = None) -> References:
        """Return the expected turns by eval id, redacted like the turns that they are compared with."""
        expected = {one.eval_id: [*one.expected] for one in self.whole or self.cases}
        if redactor is not None:
            expected = {name: _redacted(turns, redactor) for name, turns in expected.items()}
        return References(expected, "eval_id")

    @property
    def digest(self) -> str:
        """Changes with any case."""
        return _digest([[one.eval_id, one.digest] for one in self.cases])


def _redacted(turns: list[CaseData], redactor: Redactor) -> list[CaseData]:
    redacted = redactor({"conversation": turns})
    kept: list[CaseData] = redacted[0]["conversation"] if redacted is not None else turns
    return kept


def read_set(path: Path, chosen: Sequence[str] = ()) -> CaseSet:
    """Read the cases of a set; with `chosen`, only these eval ids.

    Raises InputError that lists everything that keeps a case from being run.
    """
    problems: list[str] = []
    cases: dict[str, RunCase] = {}
    name = ""
    for number, data in enumerate(iter_cases(path), 1):
        name = name or data.get("evalSetId") or ""
        eval_id = data.get("evalId") or ""
        if not eval_id:
            problems.append(f"case {number} has no evalId")
        elif eval_id in cases:
            problems.append(f"{eval_id}: occurs a second time; keep one")
        else:
            concerns = not chosen or eval_id in chosen
            cases[eval_id] = _case(eval_id, data, problems if concerns else [])
    if not cases:
        problems.append("contains no cases; add at least one")
    problems += [
        f"--case {one}: no such case; {did_you_mean(one, cases) or 'check the id'}"
        for one in chosen
        if one not in cases
    ]
    refuse(str(path), problems)
    found = CaseSet(name or eval_set_name(path), without_examples([*cases.values()]))
    return only(found, chosen) if chosen else found


def without_examples(cases: Sequence[RunCase]) -> tuple[RunCase, ...]:
    """Return cases without the messages that all of them begin with, if they were recorded.

    These are examples in the prompt, which are the agent's own, unless all go on in the same way: then they
    are parts or copies of one conversation.
    """
    if not all(one.is_recorded and not one.states_context for one in cases):
        return tuple(cases)
    together = zip(*(one.context for one in cases), strict=False)
    own = sum(1 for _ in takewhile(lambda some: all(one == some[0] for one in some), together))
    next_said = {
        one.context[own]["content"] if one.context[own:] else one.turns[0]
        for one in cases
        if one.turns
    }
    if len(next_said) < 2:
        return tuple(cases)
    return tuple(replace(one, context=one.context[own:]) for one in cases)


def only(cases: CaseSet, chosen: Collection[str]) -> CaseSet:
    """Return some cases of a set by their eval ids."""
    wanted = set(chosen)
    kept = tuple(one for one in cases.cases if one.eval_id in wanted)
    return replace(cases, cases=kept, whole=cases.whole or cases.cases)


def continued(cases: CaseSet, turn: int) -> CaseSet:
    """Return the cases with a simulated user who goes on after the first `turn` turns.

    A case without further turns stays as it is.  Raises InputError if that are all.
    """
    made, whole = (
        tuple(_continued(one, turn) for one in some) for some in (cases.cases, cases.whole)
    )
    if not any(one.scenario for one in made):
        raise InputError(f"--continue-from {turn}: no case has more than {counted(turn, 'turn')}")
    return replace(cases, cases=made, whole=whole)


def _continued(case: RunCase, turn: int) -> RunCase:
    if case.scenario is not None or len(case.turns) <= turn:
        return case
    return replace(
        case,
        turns=case.turns[:turn],
        scenario=drafted_scenario(case.turns[turn:], case.turns[:turn]),
        expected=case.expected[:turn],
        has_reference=case.has_reference and (case.expects or turn > 0),
        digest=f"{case.digest} continued from {turn}",
    )


def read_case(data: CaseData) -> RunCase:
    """Return a single case; raise InputError that lists what keeps it from being run."""
    problems: list[str] = []
    eval_id = data.get("evalId") or "case"
    case = _case(eval_id, data, problems)
    refuse(eval_id, problems)
    return case


def refuse(place: str, problems: Sequence[str]) -> None:
    """Raise InputError that lists all problems, if there are any."""
    if problems:
        shown = some_of(problems, LONGEST_SHOWN, "\n  ")
        raise InputError(f"{place}: cannot be run:\n  {shown}")


def _case(eval_id: str, data: CaseData, problems: list[str]) -> RunCase:
    turns = data.get("conversation") or []
    recorded = data.get("actualConversation") or []
    given = turns if any(turns) else recorded
    scenario = _scenario(data, given, eval_id, problems)
    expects = bool(data.get("expectedRunnerEnabled"))
    if not given and scenario is None:
        problems.append(f"{eval_id}: has no turns in conversation or actualConversation")
    expected = tuple(filter(None, given))
    describes = any(map(_says_what_is_expected, expected))
    session = data.get("sessionInput") or {}
    return RunCase(
        eval_id=eval_id,
        turns=tuple(_texts(given, eval_id, problems)),
        context=tuple(_context(data, recorded or given, problems, eval_id)),
        state=session.get("state"),
        app_name=session.get("appName") or "",
        user_id=session.get("userId") or "",
        expected=() if expects else expected,
        has_reference=expects or describes or any("capture" in turn for turn in expected),
        digest=_digest(data),
        recording=recording_of(data),
        mocks=_mocks(given, eval_id, problems),
        is_recorded=bool(data.get("source")),
        states_context=bool(data.get("contextMessages")),
        is_bare=not any(recorded) and not describes,
        scenario=scenario,
        expects=expects,
        expected_mocks=_mocks(given, eval_id, problems, "expected"),
        every_turn=tuple(declared_mocks(data, eval_id, problems)),
        expected_every_turn=tuple(declared_mocks(data, eval_id, problems, "expected")),
    )


def _texts(turns: Sequence[CaseData | None], eval_id: str, problems: list[str]) -> Iterator[str]:
    """Yield what the user says in each turn, and add why that is not known."""
    for number, turn in enumerate(turns, 1):
        text, problem = _said(turn)
        problems += [f"{eval_id}: turn {number} {problem}"] if problem else []
        yield text


def _mocks(
    turns: Sequence[CaseData | None], eval_id: str, problems: list[str], *of: Literal["expected"]
) -> tuple[tuple[DeclaredMock, ...], ...]:
    """Return the mocks that each turn declares, for the agent or for the expected runner."""
    return tuple(
        tuple(declared_mocks(turn or {}, f"{eval_id}: turn {number}", problems, *of))
        for number, turn in enumerate(turns, 1)
    )


def _scenario(
    data: CaseData, given: Sequence[CaseData | None], eval_id: str, problems: list[str]
) -> CaseData | None:
    """Return the scenario of a case, if it has one, and add why it cannot be played."""
    found: CaseData | None = data.get("conversationScenario") or None
    if found is None:
        return None
    if given:
        problems.append(f"{eval_id}: has turns and a conversationScenario; keep one")
    try:
        problem = scenario_problem(ConversationScenario.model_validate(found))
    except ValueError as error:  # from files that are read without validation
        problem = f"the conversationScenario is none: {error}"
    if problem:
        problems.append(f"{eval_id}: {problem}")
    return found


def _said(turn: CaseData | None) -> tuple[str, str]:
    """Return what the user says in a turn, and why it cannot be said again."""
    turn = turn or {}
    message = turn.get("userContent")
    if not isinstance(message, dict):
        return "", "has no user message"
    how = turn.get("capture", {}).get("userContent")
    if how in ("missing", "truncated", "redacted"):
        return "", f"has a user message that was recorded as {how}"
    parts = [one for one in message.get("content_parts") or () if isinstance(one, dict)]
    if any(one.get("type") not in (None, "text") for one in parts):
        return "", "has an image, audio or a file that the recorder knows by its digest only"
    content = message.get("content")
    if not isinstance(content, str) or not content:
        content = "\n".join(one["text"] for one in parts if isinstance(one.get("text"), str))
    if is_hash(content):
        return "", "has a user message that was recorded as a hash"
    return content, "" if content else "has an empty user message"


def _context(
    data: CaseData, recorded: Sequence[CaseData | None], problems: list[str], eval_id: str
) -> Iterator[ChatMessage]:
    """Yield the messages before the conversation: the case's, otherwise those of its first turn.

    Of what a recorder has seen before a turn, only what was said counts.
    """
    before = data.get("contextMessages") or ()
    if not before:
        before = next(((one or {}).get("contextMessages") or () for one in recorded), ())
        if data.get("source"):
            before = without_instructions(before)
    for message in before:
        if not isinstance(message, dict):
            problems.append(f"{eval_id}: contextMessages holds a null")
            continue
        yield {"role": message.get("role") or "system", "content": message.get("content") or ""}


def without_instructions(messages: Iterable[Any]) -> list[Any]:
    """Return what user and agent said: instructions are the agent's own, and may have changed with it."""
    return [one for one in messages if one and one.get("role") in ("user", "assistant")]


def _says_what_is_expected(turn: CaseData) -> bool:
    return any(
        turn.get(name) for name in ("finalResponse", "tools", "intermediateResponses", "state")
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """The units of an experiment: each case so many times, cases in set order within a trial."""

    experiment_id: str
    cases: CaseSet
    runs: int
    agent: str
    version: str

    def unit(self, case: RunCase, trial: int, attempt: int) -> Unit:
        """Return a unit; the label of its recording is `x3f81.2`, or `x3f81.2-2` for a second attempt."""
        label = f"{self.experiment_id}.{trial}" + (f"-{attempt}" if attempt > 1 else "")
        met = {one.name: getattr(case, one.name) for one in fields(MetCase)}
        return Unit(self.cases.name, case.eval_id, trial, attempt, label, **met)


def new_id() -> str:
    """Return the id of a new experiment."""
    return f"x{secrets.token_hex(4)}"


def configuration(
    cases: CaseSet,
    agent: str,
    version: str,
    metrics: Sequence[RunMetric],
    policy: MockPolicy | None = None,
    *,
    user: str = "",
    expected_agent: str = "",
) -> dict[str, str]:
    """Return the digests of what must stay the same while an experiment goes on, by the name of the part."""
    return {
        "set": cases.digest,
        "agent": agent,
        "version": version,
        **({} if policy is None else {"mocks": _digest(asdict(policy))}),
        **({"simulated user": user} if user else {}),
        **({"expected agent": expected_agent} if expected_agent else {}),
        **{f"metric {one.metric.metric_name}": one.digest for one in metrics},
    }


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Name what changed between two configurations, for the user."""
    found = []
    other_set = before.get("set") != now.get("set")
    for part in sorted({*before, *now}):
        old, new = before.get(part), now.get(part)
        if old == new:
            continue
        if other_set and old and new and part.startswith("metric "):
            continue  # its digest contains the references, which are the set's
        if old is None or new is None:
            found.append(f"{part} was {'added' if old is None else 'removed'}")
        elif part in ("agent", "version", "simulated user", "expected agent"):
            found.append(f"{part} was {old or 'empty'!r}, is {new or 'empty'!r}")
        else:
            found.append(f"{part} has changed")
    return found


def _digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
