"""Inference: run the agent, and the one that gives references, on the cases of a set."""

import asyncio
from collections.abc import Sequence
from typing import Any

from evaltap.evaluator.cases.pairing import placeholder
from evaltap.experiments.service.callbacks import CallbackCall
from evaltap.experiments.service.concurrency import in_order
from evaltap.experiments.service.conversation import CaseFailed, Conversation, Turns
from evaltap.experiments.service.options import Options
from evaltap.experiments.service.requests import InferenceRequest, InferenceResult
from evaltap.experiments.service.runners import AgentCall, Runner, generator_of
from evaltap.experiments.service.simulation import SimulationStart
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import EvalCase

TRACE = "trace"


async def infer_set(
    runner: Runner, request: InferenceRequest, options: Options
) -> list[InferenceResult]:
    """Run the requested cases; return a result for each, in the order of the set.

    A case that fails is a result.  Raises ServiceError if a callback of the set fails, and NotFoundError for
    a set that is not there.
    """
    if not request.app_name or not request.eval_set_id:
        raise InputError("the request has no app name or no eval set id")

    async def infer(context: object) -> list[InferenceResult]:
        stored = options.stores.sets
        eval_set = await asyncio.to_thread(stored.get, request.app_name, request.eval_set_id)
        wanted = set(request.eval_case_ids)
        cases = [one for one in eval_set.eval_cases if not wanted or one.eval_id in wanted]
        inference = _Inference(runner, request, options, context)
        parallel = options.parallelism if options.parallel_inference else 1
        return await in_order(inference.case, cases, parallel)

    return await options.callbacks.around("inference", request, infer)


class _Inference:
    """Runs single cases of a request."""

    def __init__(
        self, runner: Runner, request: InferenceRequest, options: Options, context: object
    ) -> None:
        self._runner, self._request, self._options = runner, request, options
        self._context = context
        mocking = options.tool_mock_runner
        self._generator = None if mocking is None else generator_of(mocking, options.session_id)

    async def case(self, case: EvalCase) -> InferenceResult:
        """Run a case with its callbacks; never raises."""
        result = InferenceResult(
            self._request.app_name,
            self._request.eval_set_id,
            case.eval_id,
            case.eval_mode,
            self._options.session_id(),
            case.session_input.user_id if case.session_input else "",
            eval_case=case,
        )

        async def infer() -> InferenceResult:
            try:
                await self._run(case, result)
                result.status = "passed"
            except CaseFailed as why:
                place = f"evalCaseID={case.eval_id}, sessionID={result.session_id}"
                result.failed(f"inference eval case ({place}): {why}")
            return result

        def failed(known: InferenceResult | None, why: str) -> InferenceResult:
            if known is None:
                result.user_id, result.eval_mode = "", ""
            return result.failed(why)

        session_id = result.session_id
        call = CallbackCall("inference", self._request, self._context, case.eval_id, session_id)
        return await self._options.callbacks.around_case(call, infer, failed)

    async def _run(self, case: EvalCase, result: InferenceResult) -> None:
        data: CaseData = case.model_dump(by_alias=True)
        if data.get("sessionInput") is None:
            raise CaseFailed("sessionInput is missing")
        recorded, written = data.get("actualConversation") or [], data.get("conversation") or []
        if case.eval_mode == TRACE:
            inputs = _recorded_inputs(data, recorded, written)
            result.inferences = [*(recorded or written)]
            result.execution_traces = [
                (one or {}).get("executionTrace") for one in result.inferences
            ]
            if case.expected_runner_enabled:
                result.expected_inferences = await self._expected(case, result, inputs)
            return
        if recorded:
            raise CaseFailed("actualConversation is only supported in trace mode")
        if case.conversation_scenario is not None:
            if written:
                raise CaseFailed("conversation and conversationScenario cannot both be given")
            await self._scenario(case, result)
            return
        if not written:
            raise CaseFailed("there are no turns in conversation, and no conversationScenario")
        conversation = self._conversation(self._runner, case, result.session_id)
        try:
            await conversation.run(written, "actual")
        finally:
            self._keep(conversation, result)
        if case.expected_runner_enabled:
            result.expected_inferences = await self._expected(case, result, written)

    async def _scenario(self, case: EvalCase, result: InferenceResult) -> None:
        scenario, simulator = case.conversation_scenario, self._options.simulator
        assert scenario is not None
        if simulator is None:
            raise CaseFailed("the case needs a simulated user; none is configured")
        driver = scenario.driver or "actual"
        if driver not in ("actual", "expected"):
            raise CaseFailed(f"unknown driver {driver!r}; expected actual or expected")
        actual = self._conversation(self._runner, case, result.session_id)
        start = SimulationStart(case.eval_id, scenario, result.session_id, _state(case))
        if driver == "actual":
            try:
                await actual.simulate(simulator, start, "actual")
            finally:
                self._keep(actual, result)
            if case.expected_runner_enabled:
                result.expected_inferences = await self._expected(case, result, actual.turns)
            return
        expected = self._expected_conversation(case, result)
        try:
            await expected.simulate(simulator, start, "expected")
        finally:
            result.ended_by = expected.ended_by
        said = [dict(placeholder(one) or {}) for one in expected.turns]
        try:
            await actual.run(said, "actual")
        finally:
            result.inferences, result.execution_traces = actual.turns, actual.traces
            if case.expected_runner_enabled:
                result.expected_inferences = expected.turns

    @staticmethod
    def _keep(conversation: Conversation, result: InferenceResult) -> None:
        result.inferences, result.execution_traces = conversation.turns, conversation.traces
        result.ended_by = conversation.ended_by

    def _expected_conversation(self, case: EvalCase, result: InferenceResult) -> Conversation:
        if (runner := self._options.expected_runner) is None:
            raise CaseFailed("the case needs an expected runner; none is configured")
        return self._conversation(runner, case, f"{result.session_id}-expected")

    async def _expected(
        self, case: EvalCase, result: InferenceResult, inputs: Turns
    ) -> list[CaseData | None]:
        expected = self._expected_conversation(case, result)
        try:
            await expected.run(inputs, "expected")
        except CaseFailed as why:
            raise CaseFailed(f"run expected runner: {why}") from why
        return expected.turns

    def _conversation(self, runner: Runner, case: EvalCase, session_id: str) -> Conversation:
        mocks = None if case.tool_mock is None else case.tool_mock.model_dump(by_alias=True)
        return Conversation(
            runner,
            self._call(case, session_id),
            self._options.turn_seconds,
            self._options.on_turn if runner is self._runner else None,
            mocks or {},
            self._generator,
        )

    def _call(self, case: EvalCase, session_id: str) -> AgentCall:
        context = [
            None if one is None else one.model_dump(by_alias=True) for one in case.context_messages
        ]
        given = [one for one in context if one is not None]
        if len(given) < len(context):
            raise CaseFailed(f"contextMessages[{context.index(None)}] is null")
        options, state = self._options, _state(case)
        return AgentCall(
            case.session_input.user_id if case.session_input else "",
            session_id,
            {},
            state=options.state if state is None else state,
            context_messages=(*options.context_messages, *given),
            options=options.run_options,
        )


def _state(case: EvalCase) -> dict[str, Any] | None:
    """Return the state of a case; None if it says nothing, which is not an empty state."""
    session = case.session_input
    return session.state if session and "state" in session.model_fields_set else None


def _recorded_inputs(data: CaseData, recorded: Turns, written: Turns) -> Sequence[CaseData | None]:
    """Check a case in trace mode; return what an expected runner is asked."""
    if data.get("conversationScenario") is not None:
        raise CaseFailed("conversationScenario is not supported in trace mode")
    if not recorded and not written:
        raise CaseFailed("there are no turns in actualConversation or conversation")
    if not recorded:
        return written
    if written and len(recorded) != len(written):
        raise CaseFailed(
            f"actualConversation has {len(recorded)} turns, and conversation {len(written)}"
        )
    for index, turn in enumerate(recorded):
        if turn is None or turn.get("userContent") is None:
            raise CaseFailed(f"actualConversation[{index}] has no user message")
    if not written:
        return recorded
    mocks = [(one or {}).get("toolMock") for one in written]
    return [
        {**(placeholder(turn) or {}), "toolMock": mock}
        for turn, mock in zip(recorded, mocks, strict=True)
    ]
