"""ADK's legacy eval files, and its test configuration.

Before May 2025 an eval file was a list of turns (`query`, `expected_tool_use`, `reference`), one
conversation, or a list of such lists with names (`name`, `data`, `initial_session`). The
configuration lists metrics and thresholds: `{"criteria": {"response_match_score": 0.8}}`.
That of tRPC-Agent-Python may hold `metrics` instead, those of tRPC-Agent-Go under other names.
"""

import re
from collections.abc import Mapping
from typing import Final

from evaltap.schemas.data import Json, JsonObject
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.validation import describe
from evaltap.schemas.text import did_you_mean

_TURN_KEYS: Final = frozenset(
    {"expected_tool_use", "reference", "expected_intermediate_agent_responses"}
)
_CAPITAL: Final = re.compile("[A-Z]")
_INTERMEDIATE: Final = (
    "include_intermediate_responses_in_final",
    "evaluate_intermediate_nl_responses",
)
"""What makes ADK's judges read the messages before the final response, too."""
_MATCH_TYPES: Final = {
    **dict.fromkeys(("0", "EXACT"), "trajectory_exact"),
    **dict.fromkeys(("1", "IN_ORDER"), "trajectory_in_order"),
    **dict.fromkeys(("2", "ANY_ORDER"), "trajectory_any_order"),
}


def is_older_eval_file(data: object) -> bool:
    """Return whether decoded JSON is ADK's legacy list of turns, or of named conversations."""
    if not isinstance(data, list) or not data or not all(isinstance(one, dict) for one in data):
        return False
    if all(isinstance(one.get("data"), list) for one in data):
        return all(_are_turns(one["data"]) for one in data)
    return _are_turns(data)


def _are_turns(data: list[object]) -> bool:
    return bool(data) and all(
        isinstance(one, dict) and "query" in one and not _TURN_KEYS.isdisjoint(one) for one in data
    )


def newer_eval_set(data: list[JsonObject], name: str, *, path: str = "") -> JsonObject:
    """Convert a legacy eval file to ADK's current form; `name` becomes the id of the set."""
    named = data if "data" in data[0] else [{"name": name, "data": data}]
    cases = []
    for index, one in enumerate(named):
        place = f"[{index}]"
        session = one.get("initial_session") or {}
        if not isinstance(session, dict):
            raise FormatError(
                f"found {describe(session)}; expected an object",
                path=path,
                place=f"{place}.initial_session",
            )
        cases.append(
            {
                "eval_id": one.get("name") or f"{name}-{index + 1}",
                "conversation": [
                    _turn(turn, number, f"{place}.data[{number - 1}]", path)
                    for number, turn in enumerate(one["data"], start=1)
                ],
                "session_input": {
                    "app_name": session.get("app_name") or "",
                    "user_id": session.get("user_id") or "",
                    "state": session.get("state") or {},
                },
            }
        )
    return {"eval_set_id": name, "name": name, "eval_cases": cases}


def _turn(turn: JsonObject, number: int, place: str, path: str) -> JsonObject:
    steps = {
        "tool_uses": [
            {"name": call.get("tool_name"), "args": call.get("tool_input") or {}}
            for call in _objects(turn, "expected_tool_use", place, path)
        ],
        "intermediate_responses": [
            [said.get("author") or "", [{"text": said.get("text") or ""}]]
            for said in _objects(turn, "expected_intermediate_agent_responses", place, path)
        ],
    }
    answer = turn.get("reference")
    return {
        "invocation_id": f"turn-{number}",
        "user_content": {"role": "user", "parts": [{"text": str(turn["query"])}]},
        **(
            {"final_response": {"role": "model", "parts": [{"text": str(answer)}]}}
            if answer
            else {}
        ),
        "intermediate_data": steps,
    }


def _objects(
    turn: Mapping[str, object], key: str, place: str, path: str
) -> list[Mapping[str, object]]:
    found = turn.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise FormatError(
            f"found {describe(found)}; expected a list of objects",
            path=path,
            place=f"{place}.{key}",
        )
    return found


# -- test_config.json --------------------------------------------------------------------------------


def is_test_config(data: object) -> bool:
    """Return whether decoded JSON is a test configuration of ADK or tRPC-Agent-Python."""
    if not isinstance(data, dict):
        return False
    return isinstance(data.get("criteria"), dict) or isinstance(data.get("metrics"), list)


def metrics_of_config(data: JsonObject, *, path: str = "") -> list[Json]:
    """Convert the metrics of a test configuration to those of a metrics file."""
    if isinstance(data.get("metrics"), list):  # of tRPC-Agent-Python
        return [_renamed(one) if isinstance(one, dict) else one for one in data["metrics"]]
    metrics: list[Json] = []
    for name, given in data["criteria"].items():
        place = f"criteria.{name}"
        options = _snake_case(given) if isinstance(given, dict) else {"threshold": given}
        threshold = options.get("threshold")
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise FormatError(
                f"found {describe(given)}; expected a threshold, or an object with one",
                path=path,
                place=place,
            )
        if name not in METRICS:
            hint = did_you_mean(name, METRICS)
            raise FormatError(
                f"no evaluator measures it; known: {', '.join(METRICS)}{hint and f'; {hint}'}",
                path=path,
                place=place,
            )
        try:
            metric = METRICS[name](options)
        except FormatError as error:
            where = f"{place}.{error.place}"
            raise FormatError(error.detail, path=path, place=where) from None
        metrics.append({"metricName": name, "threshold": threshold, **metric})
    return metrics


_NAMES: Final = {
    "match": "matchStrategy",
    "default": "defaultStrategy",
    "overrides": "toolStrategy",
    "text_strategy": "text",
    "json_strategy": "json",
    "knowledge_tool_names": "retrievalTools",
}
"""Keys of a criterion of tRPC-Agent-Python; the others are those of tRPC-Agent-Go in snake_case."""
_FREE: Final = {"ignore_tree", "ignoreTree", "rubrics", "judge_model", "judgeModel"}
"""Keys whose contents are the same, or the user's own."""


def _renamed(data: JsonObject) -> JsonObject:
    found: JsonObject = {}
    for key, value in data.items():
        name = _NAMES.get(key, key)
        if isinstance(value, dict) and key not in _FREE:
            by_tool = name == "toolStrategy"
            value = (
                {tool: _renamed(one) for tool, one in value.items()} if by_tool else _renamed(value)
            )
        found[name] = value
    return found


def _snake_case(data: JsonObject) -> JsonObject:
    """Return an object with keys such as `match_type`; ADK also reads `matchType`."""
    return {_CAPITAL.sub(r"_\g<0>", key).lower(): value for key, value in data.items()}


def _trajectory(options: JsonObject) -> JsonObject:
    given = options.get("match_type", 0)
    order = str(given).strip().upper().replace("-", "_").replace(" ", "_")
    if (name := _MATCH_TYPES.get(order)) is None:
        raise FormatError(
            f"found {given!r:.40}; expected EXACT, IN_ORDER or ANY_ORDER", place="match_type"
        )
    # ADK compares names and arguments, also of calls that failed, but not results.
    arguments = {"arguments": {"mode": "ignore"}} if options.get("ignore_args") else {}
    return {"evaluatorName": name, "criterion": {"trajectory": {"attempts": "all", **arguments}}}


def _response_match(options: JsonObject) -> JsonObject:
    criterion = {"lexical": {"algorithm": "rouge1"}}
    return {"evaluatorName": "lexical_similarity", "criterion": criterion}


def _judge(options: JsonObject) -> JsonObject:
    for name in _INTERMEDIATE:
        if options.get(name):
            detail = "found true, but only the final response is judged here; take it out"
            raise FormatError(detail, place=name)
    given = _snake_case(options.get("judge_model_options") or {})
    model = {"modelName": given.get("judge_model"), "numSamples": given.get("num_samples")}
    if str(model["modelName"]).startswith("gemini"):
        model["providerName"] = "gemini"
    return {"judgeModel": {key: value for key, value in model.items() if value}}


def _valid(options: JsonObject) -> JsonObject:
    return {"evaluatorName": "llm_final_response", "criterion": {"llmJudge": _judge(options)}}


def _rubrics(options: JsonObject) -> JsonObject:
    judge = _judge(options) | {"rubrics": [rubric_of(one) for one in options.get("rubrics") or ()]}
    return {"evaluatorName": "llm_rubric_response", "criterion": {"llmJudge": judge}}


def _hallucinations(options: JsonObject) -> JsonObject:
    return {"evaluatorName": "llm_hallucinations", "criterion": {"llmJudge": _judge(options)}}


def rubric_of(rubric: object) -> JsonObject:
    """Convert an ADK rubric to the form of `criterion.llmJudge.rubrics`."""
    given = rubric if isinstance(rubric, dict) else {}
    content = given.get("rubric_content", given.get("rubricContent")) or {}
    text = content.get("text_property", content.get("textProperty"))
    return {
        "id": given.get("rubric_id", given.get("rubricId")) or "",
        "content": {"text": text or ""},
    }


METRICS: Final = {
    "tool_trajectory_avg_score": _trajectory,
    "response_match_score": _response_match,
    "final_response_match_v2": _valid,
    "rubric_based_final_response_quality_v1": _rubrics,
    "hallucinations_v1": _hallucinations,
}
