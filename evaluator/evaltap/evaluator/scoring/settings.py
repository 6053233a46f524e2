"""Check a metric before the first case is scored: unknown keys, invalid choices and values.

tRPC-Agent-Go accepts such a metric, and then fails or passes every case, which looks like the agent's fault.
Here it is a configuration error.  That project's files that rely on its defaults stay valid.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.criteria.content.rouge import RougeScore, rouge_scorer
from evaltap.evaluator.scoring.judges.settings import judge_models
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.formats.metric import (
    Criterion,
    EvalMetric,
    FinalResponseCriterion,
    JsonCriterion,
    LengthCriterion,
    RougeCriterion,
    RougeThreshold,
    SuiteCriterion,
    TextCriterion,
    ToolTrajectoryCriterion,
    ToolTrajectoryStrategy,
    XmlCriterion,
)
from evaltap.schemas.text import did_you_mean, did_you_mean_one_of, nearest

PEER_METRICS: Final = frozenset(
    {
        "tool_trajectory_avg_score",
        "final_response_avg_score",
        "llm_final_response",
        "llm_hallucinations",
        "llm_judge_template",
        "llm_rubric_critic",
        "llm_rubric_knowledge_recall",
        "llm_rubric_reference_critic",
        "llm_rubric_response",
        "llm_verifier_pairwise",
    }
)
"""tRPC-Agent-Go's evaluators, whose metrics may omit the threshold."""

_TEXT_STRATEGIES: Final = ("exact", "contains", "regex", "skip")
_JSON_STRATEGIES: Final = ("exact", "skip")

RUN_CODE: Final = frozenset({"deepeval_metric", "external_command", "python_function"})
"""Evaluators whose criterion names a program, a function or a class."""
FUNCTION_NAMES: Final = frozenset(
    {
        "compare_name",
        "function",
        "invocation_aggregator_name",
        "response_scorer_name",
        "sample_aggregator_name",
        "structured_output_name",
        "tokenizer_name",
    }
)
"""Fields that may name a function of your own; one with a colon is imported."""


class Part(NamedTuple):
    """A part of a metric, its place in the file, and the part that contains it."""

    where: str
    value: BaseModel
    around: BaseModel | None


def checked(metric: EvalMetric) -> EvalMetric:
    """Return the metric, with the documented default criterion if it is tRPC-Agent-Go's and has none.

    Raises MetricError for invalid settings.
    """
    for problem in _problems(metric):
        raise MetricError(problem, metric_name=metric.metric_name)
    return with_default(metric)


def with_default(metric: EvalMetric) -> EvalMetric:
    """Return the metric, with the documented default criterion if it is tRPC-Agent-Go's and has none."""
    evaluator = metric.evaluator_name or metric.metric_name
    default = peer_default(evaluator) if metric.criterion is None else None
    return metric if default is None else metric.model_copy(update={"criterion": default})


@cache
def peer_default(evaluator: str) -> Criterion | None:
    """Return the criterion that tRPC-Agent-Go's guide documents for metrics without one; None for others."""
    if evaluator == "tool_trajectory_avg_score":
        return Criterion(tool_trajectory=ToolTrajectoryCriterion(default_strategy=_peer_strategy()))
    if evaluator == "final_response_avg_score":
        return Criterion(final_response=FinalResponseCriterion(text=TextCriterion()))
    return None


@cache
def _peer_strategy() -> ToolTrajectoryStrategy:
    return ToolTrajectoryStrategy(
        name=TextCriterion(), arguments=JsonCriterion(), result=JsonCriterion()
    )


def require_thresholds(metrics: Sequence[EvalMetric], path: Path) -> None:
    """Raise FormatError for a metric without a threshold.

    tRPC-Agent-Go's metrics may omit it; its default is 0.
    """
    for number, metric in enumerate(metrics):
        peers = (metric.evaluator_name or metric.metric_name) in PEER_METRICS
        if "threshold" in metric.model_fields_set or peers:
            continue
        raise FormatError(
            f"metric {metric.metric_name!r} {_lacks_threshold(metric)}",
            path=str(path),
            place=f"[{number}]",
        )


def _lacks_threshold(metric: EvalMetric) -> str:
    misspelt = nearest("threshold", metric.model_extra or ())
    found = f' ("{misspelt}" is unknown; did you mean "threshold"?)' if misspelt else ""
    return f'has no "threshold"{found}; add the score from which it passes, from 0 to 1'


def surprises(metric: EvalMetric, *, thresholds: bool = True) -> list[str]:
    """Return descriptions of settings that are missing or have no effect, probably unintentionally."""
    given = "threshold" in metric.model_fields_set or not thresholds
    found = [] if given else ["has no threshold, so 0 passes"]
    for where, part, _ in _parts(metric, ""):
        if isinstance(part, EvalMetric):
            found += unread(part)
        elif isinstance(part, RougeCriterion) and part.threshold == RougeThreshold():
            found.append(f"{where} has no threshold, so every answer passes")
        elif isinstance(part, ToolTrajectoryCriterion):
            found += _not_compared(part, where)
    return found


def _not_compared(part: ToolTrajectoryCriterion, where: str) -> list[str]:
    """Describe the parts of calls that the default strategy compares and a tool's own strategy does not."""
    found = []
    for tool, strategy in part.tool_strategy.items():
        default = part.default_strategy or _peer_strategy()
        absent = [
            name
            for name in ("name", "arguments", "result")
            if getattr(default, name) is not None and getattr(strategy, name) is None
        ]
        if absent:
            found.append(f"{where}.toolStrategy.{tool} does not compare {' and '.join(absent)}")
    return found


def _problems(metric: EvalMetric) -> Iterator[str]:
    for where, part, around in _parts(metric, ""):
        yield from _unknown_keys(where, part, around)
        for kind, check in _CHECKS.items():
            if isinstance(part, kind):
                yield from (f"{where}: {problem}" for problem in check(part))
    if metric.weight is not None and not 0 <= metric.weight < float("inf"):
        yield f"weight is {metric.weight:g}; expected 0 or more"
    if not 0 <= metric.threshold <= 1:
        yield f"threshold is {metric.threshold:g}; scores are from 0 to 1, so a threshold is, too"


def _parts(value: BaseModel, where: str, around: BaseModel | None = None) -> Iterator[Part]:
    yield Part(where, value, around)
    for name, field in type(value).model_fields.items():
        inner = getattr(value, name)
        place = f"{where}.{field.alias or name}" if where else field.alias or name
        if isinstance(inner, BaseModel):
            yield from _parts(inner, place, value)
        elif isinstance(inner, list):
            for number, one in enumerate(inner):
                if isinstance(one, BaseModel):
                    yield from _parts(one, f"{place}[{number}]", value)
        elif isinstance(inner, dict):
            for key, one in inner.items():
                if isinstance(one, BaseModel):
                    yield from _parts(one, f"{place}.{key}", value)


def _unknown_keys(where: str, part: BaseModel, around: BaseModel | None) -> Iterator[str]:
    known = _aliases(part)
    for key in part.model_extra or {}:
        place = f"{where} has" if where else "found"
        if around is not None and key in _aliases(around):
            hint = f"it belongs one level up, beside {where.rpartition('.')[2]}"
        elif inner := next((name for name, one in _inner(part) if key in _aliases(one)), None):
            hint = f"it belongs one level down, in {inner}"
        else:
            hint = did_you_mean(key, known) or f"known: {', '.join(known)}"
        yield f"{place} the unknown key '{key}'; {hint}"


def _inner(part: BaseModel) -> Iterator[tuple[str, BaseModel]]:
    for name, field in type(part).model_fields.items():
        if isinstance(one := getattr(part, name), BaseModel):
            yield field.alias or name, one


def _aliases(part: BaseModel) -> list[str]:
    return [field.alias or name for name, field in type(part).model_fields.items()]


def _text(part: TextCriterion) -> Iterator[str]:
    yield from _choice("matchStrategy", part.match_strategy, _TEXT_STRATEGIES)


def _length(part: LengthCriterion) -> Iterator[str]:
    low, high = part.min, part.max
    if part.ignore:
        return
    if low is None and high is None:
        yield "has neither min nor max; give at least one"
    if (low or 0) < 0 or (high or 0) < 0:
        yield f"min is {low} and max is {high}; expected 0 or more"
    if low is not None and high is not None and low > high:
        yield f"min is {low} and max is {high}; expected min <= max"


def _json(part: JsonCriterion) -> Iterator[str]:
    yield from _choice("matchStrategy", part.match_strategy, _JSON_STRATEGIES)
    if part.only_tree and part.ignore_tree and not part.ignore:
        yield "onlyTree and ignoreTree cannot both be set; keep one of them"
    if part.number_tolerance is not None and part.number_tolerance < 0:
        yield f"numberTolerance is {part.number_tolerance:g}; expected 0 or more"


def _rouge(part: RougeCriterion) -> Iterator[str]:
    if part.ignore:
        return
    try:
        rouge_scorer(part.rouge_type)
    except ValueError as error:
        yield str(error)
    yield from _choice("measure", part.measure, RougeScore._fields)


def _xml(part: XmlCriterion) -> Iterator[str]:
    if not part.ignore and part.match_strategy != "skip":
        yield f"matchStrategy is '{part.match_strategy}'; expected skip"


def _final_response(part: FinalResponseCriterion) -> Iterator[str]:
    given = (part.text, part.json_, part.rouge, part.xml)
    if all(one is None for one in given) and not part.compare_name:
        yield "is empty; give text, json, rouge or xml"


def _suite(part: SuiteCriterion) -> Iterator[str]:
    for number, member in enumerate(part.metrics):
        if "threshold" not in member.model_fields_set:
            yield f"metrics[{number}] '{member.metric_name}' {_lacks_threshold(member)}"
        if member.weight is not None:
            yield (
                f"metrics[{number}] '{member.metric_name}' has a weight, but all metrics of a suite"
                " count alike; remove it"
            )


def _choice(key: str, found: str, known: tuple[str, ...]) -> Iterator[str]:
    if found and found not in known:
        hint = did_you_mean_one_of(found, known)
        yield f"{key} is '{found}'; {hint}"


_CHECKS: Final[dict[type[BaseModel], Callable[..., Iterator[str]]]] = {
    TextCriterion: _text,
    LengthCriterion: _length,
    JsonCriterion: _json,
    RougeCriterion: _rouge,
    XmlCriterion: _xml,
    FinalResponseCriterion: _final_response,
    SuiteCriterion: _suite,
}

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
    "user_feedback": ("feedback",),
    "compression_ratio": ("compression",),
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


def check_code(metrics: Iterable[EvalMetric], place: object, *, allowed: bool) -> None:
    """Raise InputError for a metric that runs code, unless that is allowed; import none of the code."""
    for metric in () if allowed else metrics:
        for where, part, _ in _parts(metric, ""):
            for name in _code(part, where):
                raise InputError(
                    f"{place}: metric {metric.metric_name!r} runs code ({name}); check what it names, then"
                    " allow it with --allow-code (EVALTAP_ALLOW_CODE=1)"
                )


def _code(part: BaseModel, where: str) -> Iterator[str]:
    """Yield what names code in a part of a metric."""
    if isinstance(part, EvalMetric):
        evaluator = part.evaluator_name or part.metric_name
        if evaluator in RUN_CODE:
            yield evaluator
    for key in FUNCTION_NAMES & type(part).model_fields.keys():
        name = getattr(part, key)
        if isinstance(name, str) and ":" in name:
            yield f"{where}.{_alias(part, key)}: {name}"
