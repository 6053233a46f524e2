"""`evaluate`: one whole evaluation, in memory."""

import re
from typing import Any

import pytest

from evaltap.evaluator.scoring.contract.errors import UnknownEvaluatorError
from evaltap.experiments.service import (
    AgentCall,
    AgentEvaluator,
    CallbackCall,
    CallbackResult,
    Callbacks,
    EvaluationResult,
    UserSimulator,
)
from evaltap.experiments.stores import memory_stores
from evaltap.schemas.errors import ConfigurationError, EvaltapError
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalSet
from evaltap.schemas.formats.result import EvalSetResult
from live_rows.agents import ScriptedAgent, ScriptedUser
from live_rows.comparing import Row, same

OPTIONS = {
    "numRuns": "num_runs",
    "evalCaseIds": "eval_case_ids",
    "parallelInference": "parallel_inference",
    "parallelEvaluation": "parallel_evaluation",
    "evalCaseParallelism": "parallelism",
    "parallelRuns": "parallel_runs",
    "numRunsParallel": "parallel_runs",
}
UNORDERED = ("agentCalls", "expectedAgentCalls", "callbackLog")


class Evaluated:
    """What one row's evaluation did."""

    def __init__(self, row: Row, **more: Any) -> None:
        given = row["input"]
        options = given.get("options") or {}
        self.parallel = any(value is True for value in options.values())
        self.log: list[dict[str, str]] = []
        self.agent = ScriptedAgent(given.get("agent") or {})
        reference = given.get("expectedAgent")
        self.expected = None if reference is None else ScriptedAgent(reference, "ref-inv")
        self.stores = memory_stores()
        eval_set = parse(EvalSet, given["evalSet"])
        self.stores.sets.put("app", eval_set)
        for metric in given.get("metrics") or ():
            self.stores.metrics.add("app", eval_set.eval_set_id, metric)
        replies = given.get("simulatorReplies")
        evaluator = AgentEvaluator(
            "app",
            self.agent,
            stores=self.stores,
            expected_runner=self.expected,
            simulator=None if replies is None else UserSimulator(ScriptedUser(replies)),
            callbacks=self._callbacks(options.get("callbacks") or ()),
            **{OPTIONS[name]: value for name, value in options.items() if name in OPTIONS},
            **more,
        )
        self.error: EvaltapError | None = None
        self.result: EvaluationResult | None = None
        try:
            self.result = evaluator.evaluate(options.get("evaluateSetId", eval_set.eval_set_id))
        except EvaltapError as error:
            self.error = error

    def _callbacks(self, given: Any) -> Callbacks:
        made = Callbacks()
        for one in given:
            point = re.sub(r"(?<=.)(?=[A-Z])", "_", one["Point"]).lower()
            made.add(one["Name"], **{point: self._callback(one)})
        return made

    def _callback(self, given: Row) -> Any:
        action = given.get("Action") or ""

        def run(call: CallbackCall) -> CallbackResult | None:
            self.log.append(_seen(given, call))
            if action == "error":
                raise RuntimeError("callback says no")
            if action == "panic":
                raise ZeroDivisionError("callback panics")
            if action == "context":
                return CallbackResult(context=given["Name"])
            if action.startswith("filter:"):
                call.request.eval_case_ids = [action.removeprefix("filter:")]
            return None

        return run

    @property
    def saved(self) -> list[EvalSetResult]:
        return [self.stores.results.get("app", one) for one in self.stores.results.list("app")]

    def calls(self, agent: ScriptedAgent | None) -> list[Row]:
        sessions = list(dict.fromkeys(one.session_id for one in self.agent.calls))
        if self.expected is not None:
            bare = (one.session_id.removesuffix("-expected") for one in self.expected.calls)
            sessions = list(dict.fromkeys([*sessions, *bare]))
        return [_call(one, sessions) for one in (agent.calls if agent else ())]

    def data(self) -> Row:
        """Return what the row says about an evaluation that has ended."""
        found: Row = {"error": self.error is not None, "savedResults": len(self.saved)}
        if self.result is not None:
            result, stored = self.result, self.saved[-1]
            summary = result.eval_set_result.summary
            assert summary is not None
            counts = summary.run_status_counts
            found |= {
                "overallStatus": result.overall_status,
                "evalCases": [_case(one.data()) for one in result.eval_cases],
                "n": summary.num_runs,
                "c": counts.passed if counts else 0,
                "summary": summary.model_dump(by_alias=True),
                "file": stored.model_dump(by_alias=True),
                "resultIdOk": bool(
                    re.fullmatch(
                        r"app_set_[0-9a-f-]{36}", result.eval_set_result.eval_set_result_id
                    )
                ),
                "returnedHasTimestamp": result.eval_set_result.creation_timestamp is not None,
                "storedHasTimestamp": stored.creation_timestamp is not None,
            }
        found["agentCalls"] = self.calls(self.agent)
        found["expectedAgentCalls"] = self.calls(self.expected)
        return found


def check(row: Row) -> None:
    wanted = {key: one for key, one in row["want"].items() if key not in ("peer_error", "stage")}
    if row["want"].get("stage") == "configure":
        with pytest.raises(ConfigurationError):
            Evaluated(row)
        return
    evaluated = Evaluated(row)
    log = wanted.pop("callbackLog", None)
    if log is not None:
        _same_log(evaluated.log, [_entry(one) for one in log], in_order=not evaluated.parallel)
    found = evaluated.data()
    agreed = {"error": False, **wanted}
    same({key: found.get(key) for key in agreed}, agreed)


def _same_log(found: list[Row], wanted: list[Row], *, in_order: bool) -> None:
    names = [one["at"] for one in wanted]
    assert (
        [one["at"] for one in found] == names
        if in_order
        else sorted(one["at"] for one in found) == sorted(names)
    )
    if not in_order:
        return
    for one, other in zip(found, wanted, strict=True):
        assert {key: one.get(key) for key in other} == other
        assert one.get("ctx", "") == other.get("ctx", "")


def _entry(text: str) -> Row:
    at, *facts = text.split(" ")
    entry = {"at": at}
    for fact in facts:
        name, _, value = fact.partition("=")
        entry[name] = value
    return entry


def _seen(given: Row, call: CallbackCall) -> dict[str, str]:
    seen = {"at": f"{given['Point']}:{given['Name']}", "error": _text(call.error is not None)}
    if call.context is not None:
        seen["ctx"] = str(call.context)
    if call.eval_case_id:
        seen["case"] = call.eval_case_id
    if call.point.endswith("_set"):
        seen["result"] = _text(call.result is not None)
        seen["results"] = str(len(call.results or ()))
        seen["inferences"] = str(len(getattr(call.request, "inference_results", ())))
        seen["cases"] = str(len(getattr(call.request, "eval_case_ids", ())))
    elif call.result is not None:
        result = call.result
        seen["status"] = getattr(result, "status", "") or getattr(result, "final_eval_status", "")
    return seen


def _text(value: bool) -> str:
    return "true" if value else "false"


def _call(call: AgentCall, sessions: list[str]) -> Row:
    bare = call.session_id.removesuffix("-expected")
    ending = call.session_id.removeprefix(bare)
    return {
        "userId": call.user_id,
        "session": f"S{sessions.index(bare) + 1}{ending}",
        "input": call.text,
        "state": call.state,
        "context": [f"{one['role']}: {one.get('content') or ''}" for one in call.context_messages],
    }


def _case(case: Row) -> Row:
    return {
        "evalId": case["evalId"],
        "overallStatus": case["overallStatus"],
        "metricResults": sorted(case["metricResults"], key=lambda one: one["metricName"]),
        "runs": [
            {
                "runId": one.get("runId"),
                "finalEvalStatus": one.get("finalEvalStatus"),
                "score": one.get("score"),
                "hasError": bool(one.get("errorMessage")),
                "turns": len(one.get("evalMetricResultPerInvocation") or ()),
                "metrics": len(one.get("overallEvalMetricResults") or ()),
            }
            for one in case["evalCaseResults"]
        ],
    }


def _fails_only_the_case(row: Row) -> None:
    found = Evaluated(row)

    assert found.result is not None
    cases = [_case(one.data()) for one in found.result.eval_cases]
    assert all(one["runs"][0]["hasError"] for one in cases)
    assert [one["runs"][0]["metrics"] for one in cases] == [1, 1]
    assert [one["overallStatus"] for one in cases] == ["failed", "failed"]
    assert len(found.saved) == 1


def _unknown_metrics_are_told_first(row: Row) -> None:
    found = Evaluated(row)
    skipping = Evaluated(row, unknown_metrics="skip").data()

    assert isinstance(found.error, UnknownEvaluatorError)
    assert not found.agent.calls
    same({key: skipping[key] for key in row["want"]}, row["want"])


DEVIATIONS = {
    "evaluate/callbacks_after_evaluate_case_error_aborts": _fails_only_the_case,
    "evaluate/expected_runner_missing": check,  # it may be refused before; it is not
    "evaluate/unknown_evaluator_skipped": _unknown_metrics_are_told_first,
}
