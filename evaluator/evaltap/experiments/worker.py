"""Run units of an experiment with an agent, and record them: the side of the agent's process.

`python -m evaltap.experiments.worker` is the process that `evaltap run` starts for the agent.  It reads its
settings, then units, from one pipe, and writes what becomes of them to another; turns travel over the log.
So an agent that dies takes nothing with it, and prints where it likes.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Final, Literal, TypeAlias

from evaltap.evaluator.scoring.judges.retry_after import retry_after
from evaltap.experiments.agents.base import (
    Agent,
    AgentError,
    AgentSession,
    Asked,
    Conversation,
    Unit,
    answer_of,
)
from evaltap.experiments.agents.functions import FactoryAgent
from evaltap.experiments.agents.loading import load_agent
from evaltap.experiments.agents.plain import turn_of
from evaltap.experiments.dialogue import Dialogue, PartnerError
from evaltap.experiments.mocks.invent import inventor
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.tape import Tape, Within
from evaltap.experiments.partners import Partners, User, partners_of
from evaltap.experiments.pseudonyms import Inventions, restoring
from evaltap.recorder import Recorder, RecorderConfig, Sink
from evaltap.recorder.answering import TOOL_ANSWERS, Strays, ToolMiss, refuse_strays
from evaltap.recorder.copying import readable
from evaltap.recorder.delivery.redaction_key import configured_redactor
from evaltap.recorder.observation import (
    Failure,
    ModelCalled,
    Observation,
    Responded,
    RunEnded,
    RunEvent,
    ToolCalled,
    ToolReturned,
)
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import EvaltapError, InputError

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_TOO_MANY: Final = 429
CANCEL_SECONDS: Final = 2.0
"""How long a cancelled agent may take to end before it is abandoned."""
_ENDS: Final = {"crashed": "agent_error", "missed": "tool_miss"}
"""By how the agent's part ended: what that says about a simulated conversation."""
EXPERIMENT: Final = "experiment"
"""The environment of recorded turns that an experiment ran."""
EndState: TypeAlias = Literal["ended", "crashed", "missed", "refused", "invalid"]
"""missed: a tool call had no answer, which ended the run; refused: a provider had too many requests;
invalid: the simulated user, or the agent that gives the expected turns, did not do its part."""


class Pace:
    """The pace of all units of a process: a refusal for too many requests slows all of them down.

    Each refusal doubles the pause, unless the provider says how long to wait; a turn that succeeds ends it.
    """

    def __init__(self, turns_per_minute: float = 0.0) -> None:
        self._between = 60 / turns_per_minute if turns_per_minute else 0.0
        self._next = 0.0
        self._pause = 0.0

    async def turn(self) -> None:
        """Wait until the next turn may begin."""
        while (wait := self._next - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        self._next = max(self._next, time.monotonic() + self._between)

    def refused(self, error: BaseException) -> None:
        """Pause after a provider's refusal."""
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
        asked = next(filter(None, map(_asked_for, _causes(error))), None)
        pause = min(asked.total_seconds() if asked else self._pause, _LONGEST_PAUSE)
        self._next = max(self._next, time.monotonic() + pause)

    def succeeded(self) -> None:
        """Forget the refusals."""
        self._pause = 0.0


def is_refusal(error: BaseException) -> bool:
    """Return whether a provider refused for too many requests: status 429, or an error of that name.

    SDKs have retried by then; the agent is not to blame.
    """
    return any(
        _TOO_MANY in (getattr(one, "status_code", None), getattr(one, "code", None))
        or "RateLimit" in type(one).__name__
        for one in _causes(error)
    )


def _asked_for(error: BaseException) -> timedelta | None:
    """Return the delay that the response in an SDK's error requests; None without one."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    return retry_after(headers) if isinstance(headers, Mapping) else None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        seen.append(found)
        yield found
        found = found.__cause__ or found.__context__


@dataclass(frozen=True, slots=True)
class UnitEnd:
    """How the agent's part of a unit ended."""

    run: str
    eval_id: str
    state: EndState
    reason: str
    turns: int
    """Turns that the agent began."""
    seconds: float | None
    mocks: dict[str, Any] | None = None
    """What tools were asked, turn by turn, as `Tape.data` says it; None without mocks."""
    ended_by: str = ""
    """Why a simulated conversation ended; empty without a simulated user."""
    expected: Sequence[CaseData] = ()
    """The expected turns, if another agent gave them."""
    partners_usd: float = 0.0
    """What that agent, the simulated user and invented results have cost, as far as it is known."""


class Worker:
    """Runs units with an agent, any number of them concurrently in one event loop."""

    def __init__(
        self,
        agent: Agent,
        recorder: Recorder,
        settings: "WorkerSettings",
        inventions: Inventions | None = None,
        *,
        partners: Partners | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._agent = agent
        self._recorder = recorder
        self._policy, self._tools = settings.policy, settings.tools
        self._turn_seconds = settings.turn_seconds
        self._pace = Pace(settings.turns_per_minute)
        self._inventions = inventions or Inventions()
        self._partners = partners or Partners()
        self._redactor = redactor
        """For arguments of calls, and the turns of the agent that gives the expected ones."""
        self.strays: Strays | None = None
        """Refuses calls of which nobody knows whose they are; None lets their tools run."""

    async def run(self, unit: Unit) -> UnitEnd:
        """Run the agent on a case, turn by turn, until one fails; never raises what the agent raises."""
        unit = self._inventions.filled(unit)
        began, conversation = time.monotonic(), Conversation(unit)
        tape, dialogue = self._tape(unit), self._dialogue(unit)
        answers = TOOL_ANSWERS.set(tape)
        with _labelled(self._recorder, unit):
            state, reason = await self._ended(conversation, dialogue, tape)
        TOOL_ANSWERS.reset(answers)
        await dialogue.close()
        if tape is not None and state != "ended" and tape.turns:
            tape.turns[-1].crashed = state == "crashed"
            with suppress(ToolMiss):
                tape.end()
        if unit.scenario is not None and state in _ENDS:
            dialogue.ended_by = _ENDS[state]
        return UnitEnd(
            run=unit.run,
            eval_id=unit.eval_id,
            state=state,
            reason=readable(self._inventions.restore(reason)),
            turns=conversation.turns,
            seconds=time.monotonic() - began,
            mocks=None if tape is None else readable(self._inventions.restore(tape.data())),
            ended_by=dialogue.ended_by,
            expected=dialogue.expected,
            partners_usd=dialogue.cost_usd + (tape.invented_usd if tape is not None else 0.0),
        )

    async def _ended(
        self, conversation: Conversation, dialogue: Dialogue, tape: Tape | None
    ) -> tuple[EndState, str]:
        """Carry on the conversation; return how it ended, and why."""
        try:
            await dialogue.start()
            await self._talk(conversation, dialogue, tape)
            await dialogue.finish()
        except PartnerError as error:
            dialogue.ended_by = error.ended_by
            return "invalid", str(error)
        except ToolMiss as miss:
            return "missed", str(miss)
        except BaseException as error:  # of the agent, whatever it is
            # What the agent or its framework made of a miss is its words for it.
            if tape is not None and tape.missed:
                return "missed", str(tape.missed[0])
            if not is_refusal(error):
                return "crashed", _said(error)
            self._pace.refused(error)
            return "refused", _said(error)
        return "ended", ""

    async def _talk(
        self, conversation: Conversation, dialogue: Dialogue, tape: Tape | None
    ) -> None:
        answer: str | None = ""
        clock = asyncio.get_running_loop().time
        limit = asyncio.timeout(self._turn_seconds)
        try:
            async with limit, self._agent.session(conversation.unit) as session:
                limit.reschedule(None)  # each turn has its own
                try:
                    while (user := await dialogue.next(answer or "")) is not None:
                        asked = conversation.ask(user)
                        if tape is not None:
                            tape.begin()
                        await self._pace.turn()
                        try:
                            with self._told_of_strays(tape):
                                answer = await self._answer(session, asked)
                        except Exception as error:
                            if tape is None or not _crashed_again(conversation, error):
                                raise
                            tape.turns[-1].crashed = True
                        else:
                            conversation.answered(answer)
                        self._pace.succeeded()
                        if tape is not None:
                            tape.end()
                        if tape is not None and tape.has_left:
                            return
                finally:
                    limit.reschedule(clock() + self._turn_seconds)
        except TimeoutError:
            if limit.expired():
                did = "end" if conversation.turns else "start"
                raise AgentError(
                    f"the agent did not {did} within {self._turn_seconds:g} s"
                ) from None
            raise

    def _dialogue(self, unit: Unit) -> Dialogue:
        tape = None
        if unit.expects or (unit.scenario or {}).get("driver") == "expected":
            other = replace(unit, mocks=unit.expected_mocks, every_turn=unit.expected_every_turn)
            tape = self._tape(other)
        return Dialogue(unit, self._partners, self._turn_seconds, tape, self._redactor)

    def _tape(self, unit: Unit) -> Tape | None:
        """Return what answers the unit's tool calls; None lets every tool run."""
        if (policy := self._policy) is None:
            return None
        return Tape(
            unit.recording,
            policy,
            declared=unit.mocks,
            every_turn=unit.every_turn,
            invent=inventor(unit.recording, policy, unit.declared),
            tools=self._tools,
            pool_from=None if unit.scenario is None else len(unit.turns),
            redacted=self._redacted,
        )

    def _told_of_strays(self, tape: Tape | None) -> AbstractContextManager[None]:
        if self.strays is None or tape is None:
            return nullcontext()
        return self.strays.telling(tape.refuse)

    def _redacted(self, arguments: Json) -> Json:
        """Return a tool's arguments as they are recorded: an agent may have addresses of its own."""
        given = self._inventions.restore(arguments)
        if self._redactor is None:
            return given
        case = self._redactor({"actualConversation": [{"tools": [{"arguments": given}]}]})
        return given if case is None else case[0]["actualConversation"][0]["tools"][0]["arguments"]

    async def _answer(self, session: AgentSession, asked: Asked) -> str | None:
        """Run one turn within its time; an agent that hangs is cancelled, then abandoned."""
        task = asyncio.ensure_future(answer_of(session, asked))
        done, _ = await asyncio.wait({task}, timeout=self._turn_seconds)
        if done:
            return task.result()
        # What it raises from now on is no news, which asyncio would print as never retrieved.
        task.add_done_callback(lambda one: one.cancelled() or one.exception())
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=CANCEL_SECONDS)
        abandoned = "" if done else ", also when it was cancelled, and was abandoned"
        raise AgentError(f"the agent did not answer within {self._turn_seconds:g} s{abandoned}")


def _crashed_again(conversation: Conversation, error: Exception) -> bool:
    """Return whether the agent crashed in the turn in which it had when the user went on."""
    is_own = not isinstance(error, AgentError | ToolMiss) and not is_refusal(error)
    return is_own and conversation.turns - 1 in conversation.unit.crashes


def _said(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())[:500]
    except Exception:  # the class is the agent's, too
        text = ""
    if text and isinstance(error, AgentError | EvaltapError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What the process of the agent is told first."""

    agent: str = ""
    log: str = ""
    version: str = ""
    turn_seconds: float = 300.0
    concurrency: int = 8
    request: Any = None  # JSON: the template of what an HTTP endpoint is sent
    result: str = ""
    """The path to an HTTP endpoint's answer."""
    policy: MockPolicy | None = None
    """How tool calls are answered; None lets every tool run."""
    tools: Sequence[dict[str, Any]] = ()
    """The recorded tools, as MCP describes tools."""
    turns_per_minute: float = 0.0
    """0: as many as there is room for."""
    user: User | None = None
    """Who plays the users; None if no case has a scenario."""
    expected_agent: str = ""
    """The agent that gives expected turns; empty if no case wants one."""
    expected_gets: Sequence[str] = ()
    """What it is given beside what is said: context, state."""


def config_for(settings: WorkerSettings) -> RecorderConfig:
    """Return the recorder's settings in an experiment: it samples nothing, and writes promptly."""
    return RecorderConfig(
        log=settings.log,
        version=settings.version or None,
        environment=EXPERIMENT,
        sample_rate=1.0,
        sample_rules="",
        sample_max_per_minute=0.0,
        flush_interval_seconds=0.01,
        close_timeout_seconds=30.0,
        disabled=False,
    )


def record_crash(recorder: Recorder, unit: Unit, reason: str, done: int) -> None:
    """Record a crash that none of the `done` turns tells as a turn that failed: what is read later are turns.

    The agent did not start or end, or its process died.
    """
    said = unit.turns[min(done, len(unit.turns) - 1)] if unit.turns else ""
    asked = Conversation(unit).ask(said)
    with suppress(AgentError), _labelled(recorder, unit), turn_of(recorder, asked):
        raise AgentError(reason)


def _labelled(recorder: Recorder, unit: Unit) -> AbstractContextManager[None]:
    """Label what is recorded in the block as the unit's."""
    return recorder.run_labels(
        run=unit.run,
        trial=unit.trial,
        attempt=unit.attempt,
        eval_set_id=unit.eval_set_id,
        eval_id=unit.eval_id,
        app_name=unit.app_name,
    )


def recorder_of(
    settings: WorkerSettings, inventions: Inventions, sink: Sink | None = None
) -> tuple[Recorder, Redactor]:
    """Return the recorder of an experiment, and its redactor, which knows what was invented."""
    config = config_for(settings)
    redactor = restoring(inventions, configured_redactor(config))
    return _TellingRecorder(config=config, sink=sink, redactor=redactor), redactor


class _TellingRecorder(Recorder):
    """Tells of recorded calls who answers them: a framework refuses some by itself."""

    def observe(self, observation: Observation) -> None:
        """Record an observation, and with a call that was answered those that were made within it then."""
        answers = TOOL_ANSWERS.get()
        tape = answers if isinstance(answers, Tape) else None
        if tape is not None and isinstance(observation, ToolCalled):
            tape.made(observation.name, observation.arguments, observation.call_id)
        if tape is not None and isinstance(observation, ModelCalled | Responded | RunEnded):
            self._observe_within(observation, tape.within())
        super().observe(observation)
        if tape is not None and isinstance(observation, ToolReturned):
            self._observe_within(observation, tape.within(observation.call_id))

    def _observe_within(self, now: RunEvent, calls: Sequence[Within]) -> None:
        for number, one in enumerate(calls):
            call, time_ns = one.call, now.time_ns + number
            called = ToolCalled(
                now.run_id,
                time_ns,
                one.key,
                call.name,
                None if call.lost_arguments else call.arguments,
                agent_name=call.agent or None,
                parent_call_id=one.parent,
                capture={"arguments": "missing"} if call.lost_arguments else {},
            )
            failure = None if call.error is None else Failure(call.error_type or None, call.error)
            lost = {"result": "missing"} if call.problem and failure is None else {}
            result = None if lost else call.result
            super().observe(called)
            super().observe(
                ToolReturned(now.run_id, time_ns, one.key, result, failure, capture=lost)
            )


Tell: TypeAlias = Callable[[list[dict[str, Any]]], None]
"""Sends messages to the experiment."""


async def serve(settings: WorkerSettings, read: Connection, tell: Tell) -> None:
    """Run the units that arrive until the pipe ends; say what becomes of each."""
    inventions, partners = Inventions(), Partners()
    recorder, redactor = recorder_of(settings, inventions)
    try:
        units = _units(read, lambda: _end_orphaned(recorder))  # also while the agent is made
        strays = None
        if (policy := settings.policy) is not None:
            strays = refuse_strays(lambda name: policy.missed(name) == "real")
        agent, partners = await cast_of(settings, recorder)
        tell([{"ready": agent.abilities}])
        worker = Worker(agent, recorder, settings, inventions, partners=partners, redactor=redactor)
        worker.strays = strays
        say = _together(tell)

        async def run() -> None:
            while (unit := await units.get()) is not None:
                say({"begins": [unit.run, unit.eval_id]})
                await asyncio.sleep(0)  # it is written before the agent can end this process
                say({"end": await worker.run(unit)})
            units.put_nowait(None)  # for the others

        longest = settings.turn_seconds + CANCEL_SECONDS
        with _watched(longest, lambda: _end_orphaned(recorder)):
            await asyncio.gather(*(run() for _ in range(settings.concurrency)))
        await asyncio.sleep(0)  # what was said last is written
    finally:
        partners.close()
        recorder.close()


async def cast_of(settings: WorkerSettings, recorder: Recorder) -> tuple[Agent, Partners]:
    """Return the agent under test and its partners; raise InputError that lists what is wrong with them."""
    problems: list[str] = []
    agent, partners = None, None
    try:
        agent = load_agent(
            settings.agent, recorder, request=settings.request, result=settings.result
        )
        if isinstance(agent, FactoryAgent):
            await agent.look()
    except (InputError, ToolMiss) as error:
        problems.append(str(error))
    try:
        partners = await partners_of(
            settings.user, settings.expected_agent, gets=settings.expected_gets
        )
    except (InputError, ToolMiss) as error:
        problems.append(str(error))
    if agent is None or partners is None:
        if partners is not None:
            partners.close()
        raise InputError("\n  ".join(problems))
    return agent, partners


def _together(tell: Tell) -> Callable[[dict[str, Any]], None]:
    """Return what sends the messages of all tasks at once, before any of them goes on from an `await`."""
    loop = asyncio.get_running_loop()
    waiting: list[dict[str, Any]] = []

    def flush() -> None:
        tell(waiting)
        waiting.clear()

    def say(message: dict[str, Any]) -> None:
        if not waiting:
            loop.call_soon(flush)
        waiting.append(message)

    return say


@contextmanager
def _watched(seconds: float, end: Callable[[], None]) -> Iterator[None]:
    """Call `end` when the event loop stands still: an async agent that blocks it holds up all other units,
    and no time limit is looked at.
    """
    loop, is_over = asyncio.get_running_loop(), threading.Event()

    def watch() -> None:
        while not is_over.wait(min(1.0, seconds)):
            runs = threading.Event()
            loop.call_soon_threadsafe(runs.set)
            if not runs.wait(seconds) and not is_over.is_set():
                print(f"the agent blocked the event loop for {seconds:g} s", file=sys.stderr)
                end()

    threading.Thread(target=watch, name="evaltap-watch", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def _end_orphaned(recorder: Recorder) -> None:
    recorder.flush(2.0)
    os._exit(1)


def _units(read: Connection, orphaned: Callable[[], None]) -> asyncio.Queue[Unit | None]:
    """Return a queue of the units that arrive; None is the end."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[Unit | None] = asyncio.Queue()

    def receive() -> None:
        try:
            while (unit := read.recv()) is not None:
                loop.call_soon_threadsafe(arrived.put_nowait, unit)
            loop.call_soon_threadsafe(arrived.put_nowait, None)
        except (EOFError, OSError):
            # The pipe ended before the units did: nobody learns what becomes of those that wait.
            loop.call_soon_threadsafe(_empty, arrived)
            orphaned()

    threading.Thread(target=receive, name="evaltap-units", daemon=True).start()
    return arrived


def _empty(units: asyncio.Queue[Unit | None]) -> None:
    while not units.empty():
        units.get_nowait()


def main(arguments: Sequence[str]) -> int:
    """Read settings and units from one descriptor, write to the other; both are named by number."""
    read = Connection(int(arguments[0]), writable=False)
    told = Connection(int(arguments[1]), readable=False)
    for pipe in (read, told):  # programs that the agent starts do not keep them open
        os.set_inheritable(pipe.fileno(), False)
    process = os.getpid()

    def tell(messages: list[dict[str, Any]]) -> None:
        if os.getpid() == process:  # not from a copy of the process that the agent forked
            told.send(messages)

    settings: WorkerSettings = read.recv()
    try:
        # Not asyncio.run, which waits for agents that were abandoned.
        asyncio.new_event_loop().run_until_complete(serve(settings, read, tell))
    except EvaltapError as error:
        tell([{"failed": str(error)}])
        return error.exit_code
    return 0


if __name__ == "__main__":
    # Messages are of the module's classes; here it has another name.
    from evaltap.experiments import worker

    code = worker.main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # threads of abandoned agents would keep the process
