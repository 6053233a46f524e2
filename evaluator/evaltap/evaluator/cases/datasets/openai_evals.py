"""Configurations of OpenAI's evals: their testing criteria as metrics.

The fields are those of the API's create call: `data_source_config` with an `item_schema`, and
`testing_criteria`.  A criterion without a counterpart is reported with the reason, not approximated.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeGuard

from evaltap.evaluator.cases.datasets.columns import FIELDS
from evaltap.schemas.data import Json
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import read_bytes
from evaltap.schemas.files.validation import describe, parse
from evaltap.schemas.formats.metric import EvalMetric

_VARIABLE: Final = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
_OUTPUT: Final = frozenset({"sample.output_text", "item.output_text"})
_ROUGE: Final = {f"rouge_{n}": f"rouge{n}" for n in range(1, 6)} | {"rouge_l": "rougeL"}


@dataclass(frozen=True, slots=True)
class EvalConfig:
    """A configuration as metrics, the columns that they use, and the unsupported criteria."""

    name: str
    metrics: list[EvalMetric]
    columns: dict[str, str]
    """Columns by field, as far as the criteria reveal them."""
    unsupported: list[str]
    """The criteria without a counterpart, with the reasons."""


class _UnsupportedError(ValueError):
    """The reason why a criterion cannot be a metric."""


def is_eval_config(data: Json) -> bool:
    """Return whether decoded JSON is a configuration of OpenAI's evals."""
    return isinstance(data, dict) and "data_source_config" in data and "testing_criteria" in data


def read_eval_config(path: Path, given: Mapping[str, str] | None = None) -> EvalConfig:
    """Read a configuration; raise FormatError with the invalid position.

    `given` are already known columns by field.
    """
    data = canonical.loads(read_bytes(path), path=str(path))
    if not is_eval_config(data):
        raise FormatError(
            f"found {describe(data)}; expected `data_source_config` and `testing_criteria`",
            path=str(path),
        )
    graders = data["testing_criteria"]
    if not isinstance(graders, list) or not all(isinstance(one, dict) for one in graders):
        raise FormatError("testing_criteria: expected a list of objects", path=str(path))
    source = data["data_source_config"]
    schema = source.get("item_schema") or {} if isinstance(source, dict) else {}
    columns = _columns(graders, list(schema.get("properties") or {}), given or {})
    metrics, unsupported, names = [], [], set()
    for place, grader in enumerate(graders):
        name = str(grader.get("name") or f"criterion {place + 1}")
        try:
            if name in names:
                raise _UnsupportedError("another criterion has the same name")
            made = _metric(name, grader, columns)
        except _UnsupportedError as error:
            unsupported.append(f"{name} ({grader.get('type')}): {error}")
            continue
        names.add(name)
        metrics.append(parse(EvalMetric, made, path=str(path), place=f"testing_criteria[{place}]"))
    return EvalConfig(str(data.get("name") or ""), metrics, columns, unsupported)


def _columns(
    graders: Sequence[Mapping[str, Json]], properties: Sequence[str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the columns of input and expected: as given, from the criteria, or by name."""
    columns = dict(given)
    for grader in graders:
        reference = _VARIABLE.fullmatch(str(grader.get("reference") or "").strip())
        if reference and reference[1].startswith("item."):
            columns.setdefault("expected", reference[1].removeprefix("item."))
    for name in ("expected", "input"):
        left = [one for one in FIELDS[name] if one in properties and one not in columns.values()]
        if left:
            columns.setdefault(name, left[0])
    others = [one for one in properties if one not in columns.values()]
    if "input" not in columns and len(others) == 1:
        columns["input"] = others[0]
    return columns


def _metric(name: str, grader: Mapping[str, Json], columns: Mapping[str, str]) -> dict[str, Json]:
    if (make := _KINDS.get(str(grader.get("type")))) is None:
        raise _UnsupportedError(f"unsupported type; expected one of {', '.join(_KINDS)}")
    return {"metricName": name, **make(grader, columns)}


def _string_check(grader: Mapping[str, Json], columns: Mapping[str, str]) -> dict[str, Json]:
    _check_graded(grader)
    operation, reference = grader.get("operation"), str(grader.get("reference") or "")
    if operation not in ("eq", "ne", "like", "ilike"):
        raise _UnsupportedError(f"operation {operation!r}; expected eq, ne, like or ilike")
    if not _VARIABLE.search(reference):
        rule: dict[str, Json] = {"id": "1", "type": "exact", "value": reference}
        if operation in ("like", "ilike"):
            rule = {"id": "1", "type": "contains", "values": [reference]}
        rule |= {"negate": operation == "ne", "caseInsensitive": operation == "ilike"}
        criterion = {
            "rules": {"rules": [{key: one for key, one in rule.items() if one is not False}]}
        }
        return {"evaluatorName": "rule_avg_score", "threshold": 1, "criterion": criterion}
    _check_reference(reference, columns)
    if operation == "ne":
        raise _UnsupportedError("ne with a column as reference has no counterpart")
    text = {"matchStrategy": "exact" if operation == "eq" else "contains"}
    folded = {"caseInsensitive": True} if operation == "ilike" else {}
    return {
        "evaluatorName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {**text, **folded}}},
    }


def _text_similarity(grader: Mapping[str, Json], columns: Mapping[str, str]) -> dict[str, Json]:
    _check_graded(grader)
    _check_reference(str(grader.get("reference") or ""), columns)
    measure, bound = grader.get("evaluation_metric"), grader.get("pass_threshold")
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        raise _UnsupportedError("pass_threshold is missing; add it")
    if measure in _ROUGE:
        rouge = {"rougeType": _ROUGE[str(measure)], "threshold": {"f1": bound}}
        criterion: dict[str, Json] = {"finalResponse": {"rouge": rouge}}
        name, threshold = "final_response_avg_score", 1.0
    elif measure == "fuzzy_match":
        criterion = {"lexical": {"algorithm": "levenshtein", "caseSensitive": True}}
        name, threshold = "lexical_similarity", float(bound)
    elif measure == "cosine":
        criterion, name, threshold = {"embedding": {}}, "embedding_similarity", float(bound)
    else:
        raise _UnsupportedError(f"evaluation_metric {measure} has no counterpart here")
    return {"evaluatorName": name, "threshold": threshold, "criterion": criterion}


def _label_model(grader: Mapping[str, Json], columns: Mapping[str, str]) -> dict[str, Json]:
    labels, passing = grader.get("labels"), grader.get("passing_labels")
    if (
        not isinstance(labels, list)
        or not isinstance(passing, list)
        or not set(passing) <= set(labels)
    ):
        raise _UnsupportedError(
            "labels and passing_labels must be lists, the second part of the first"
        )
    categories = [{"label": label, "score": float(label in passing)} for label in labels]
    options = {
        "responseScorerName": "categorical",
        "responseScorerOptions": {"categories": categories},
    }
    instruction = f"Answer with one of these labels as `category`: {', '.join(map(str, labels))}."
    return _judged(grader, columns, instruction, options, 1.0)


def _score_model(grader: Mapping[str, Json], columns: Mapping[str, str]) -> dict[str, Json]:
    span = grader.get("range") or [0, 1]
    low, high = span if isinstance(span, list) and len(span) == 2 else (None, None)
    if not _is_number(low) or not _is_number(high):
        raise _UnsupportedError(f"range {span}: expected two numbers")
    bound = grader.get("pass_threshold")
    if not _is_number(bound):
        raise _UnsupportedError("pass_threshold is missing; add it")
    if not low <= bound <= high or low == high:
        raise _UnsupportedError(f"pass_threshold {bound} is not in the range {span}")
    instruction = f"Answer with a number from {low:g} to {high:g} as `score`."
    scorer: dict[str, Json] = {"responseScorerName": "single_score"}
    if [low, high] != [0, 1]:
        scorer["responseScorerOptions"] = {"min": low, "max": high}
    return _judged(grader, columns, instruction, scorer, (bound - low) / (high - low))


def _is_number(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _judged(
    grader: Mapping[str, Json],
    columns: Mapping[str, str],
    instruction: str,
    options: Mapping[str, Json],
    threshold: float,
) -> dict[str, Json]:
    sources: dict[str, tuple[str, str]] = {}

    def bound(match: re.Match[str]) -> str:
        variable, source = match[1], _source(match[1], columns)
        if source is None:
            raise _UnsupportedError(
                f"{{{{{variable}}}}} is neither the output, the input nor the reference; "
                "map a column with --map"
            )
        name = source[0] + "_" + source[1]
        sources[name] = source
        return f"{{{{{name}}}}}"

    parts = [_VARIABLE.sub(bound, _message_text(one)) for one in grader.get("input") or ()]
    bindings = [
        {"templateVariable": name, "source": {"scope": scope, "field": part}}
        for name, (scope, part) in sources.items()
    ]
    template = {
        "prompt": "\n\n".join([*parts, instruction]),
        **options,
        "variableBindings": bindings,
    }
    judge = {"judgeModel": {"modelName": str(grader.get("model") or "")}, "template": template}
    return {
        "evaluatorName": "llm_judge_template",
        "threshold": threshold,
        "criterion": {"llmJudge": judge},
    }


def _message_text(message: Json) -> str:
    content = message.get("content") if isinstance(message, Mapping) else None
    parts = content if isinstance(content, list) else [content]
    texts = [one.get("text") if isinstance(one, Mapping) else one for one in parts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise _UnsupportedError("a message of its input is not text")
    return "\n".join(map(str, texts))


def _source(variable: str, columns: Mapping[str, str]) -> tuple[str, str] | None:
    if variable in _OUTPUT:
        return "actual", "finalResponse"
    column = variable.removeprefix("item.")
    if column == columns.get("input"):
        return "actual", "userContent"
    return ("expected", "finalResponse") if column == columns.get("expected") else None


def _check_graded(grader: Mapping[str, Json]) -> None:
    graded = _VARIABLE.fullmatch(str(grader.get("input") or "").strip())
    if not graded or graded[1] not in _OUTPUT:
        raise _UnsupportedError(
            f"input is {grader.get('input')!r}; only {{{{sample.output_text}}}}"
        )


def _check_reference(reference: str, columns: Mapping[str, str]) -> None:
    found = _VARIABLE.fullmatch(reference.strip())
    if not found or found[1].removeprefix("item.") != columns.get("expected"):
        raise _UnsupportedError(
            f"reference is {reference!r}; a case has one expected answer, which is the column "
            f"'{columns.get('expected')}'"
        )


_KINDS: Final[Mapping[str, Callable[[Mapping[str, Json], Mapping[str, str]], dict[str, Json]]]] = {
    "string_check": _string_check,
    "text_similarity": _text_similarity,
    "label_model": _label_model,
    "score_model": _score_model,
}
