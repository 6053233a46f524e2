"""Find settings of a metric that have no effect, because its evaluator does not read them.

Several metrics may share a criterion, so such settings are not errors, but users are told about them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from evaltap.evaluator.scoring.judges.settings import judge_models
from evaltap.schemas.formats.metric import EvalMetric

_SHARES: Final = ("trajectory_precision", "trajectory_recall", "trajectory_f1")
_READERS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "trajectory": {
        "ordered": (*_SHARES, "trajectory_result_match"),
        "results": ("trajectory_result_match",),
        "state": ("state_match",),
        "costs": ("trajectory_edit_similarity",),
        "forbidden": ("trajectory_forbidden",),
        "required_tools": ("trajectory_single_tool_use",),
        "max_calls": ("trajectory_max_calls",),
        "max_calls_per_tool": ("trajectory_max_calls",),
        "optimal_steps": ("trajectory_step_efficiency",),
        "repeats": ("trajectory_no_loop",),
        "max_period": ("trajectory_no_loop",),
        "unchanged_retries": ("trajectory_error_recovery",),
        "max_states": ("trajectory_partial_order",),
    },
    "operations": {
        "max_cost_usd": ("cost_within",),
        "max_seconds": ("completed_within",),
        "max_tokens": ("tokens_within",),
        "max_input_tokens": ("tokens_within",),
        "max_output_tokens": ("tokens_within",),
    },
}
"""The evaluators that read a setting, for settings that only some evaluators of the part read."""

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool_trajectory_avg_score": ("tool_trajectory",),
    "final_response_avg_score": ("final_response",),
    "rule_avg_score": ("rules",),
    "lexical_similarity": ("lexical",),
    "keyword_coverage": ("keywords",),
    "sentiment_score": ("sentiment",),
    "toxic_words": ("toxic_words",),
    "tool_use": ("tool_use",),
    "run_succeeded": (),
    "metric_suite": ("suite",),
    "llm_criteria": ("llm_judge", "grading"),
    **dict.fromkeys((one for of in _READERS["operations"].values() for one in of), ("operations",)),
    **dict.fromkeys((one for of in _READERS["trajectory"].values() for one in of), ("trajectory",)),
}
"""The parts of a criterion that an evaluator reads, for evaluators that are often given other parts."""


def unread(metric: EvalMetric) -> Iterator[str]:
    """Yield a description of each setting that the metric's evaluator does not read."""
    if metric.criterion is None:
        return
    evaluator = metric.evaluator_name or metric.metric_name
    judge = metric.criterion.llm_judge
    for model in judge_models(judge) if judge else ():
        # tRPC-Agent-Go's client supports several dialects, evaltap's only OpenAI's.
        if model is not None and model.variant not in ("", "openai"):
            yield f"judgeModel.variant '{model.variant}' has no effect: requests are those of OpenAI's API"
    for name, part in _given(metric.criterion):
        alias = _alias(metric.criterion, name)
        if evaluator in _PARTS and name not in _PARTS[evaluator]:
            yield f"{evaluator} does not read criterion.{alias}"
            continue
        if not isinstance(part, BaseModel):
            continue
        readers = _READERS.get(name, {})
        for key, _ in _given(part):
            if key in readers and evaluator not in readers[key]:
                yield f"{evaluator} does not read criterion.{alias}.{_alias(part, key)}"


def _given(part: BaseModel) -> Iterator[tuple[str, object]]:
    """Yield the fields that are set to something other than their default."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if name in part.model_fields_set and value != field.get_default(call_default_factory=True):
            yield name, value


def _alias(part: BaseModel, name: str) -> str:
    return type(part).model_fields[name].alias or name
