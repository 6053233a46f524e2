"""Reading and writing files: eval sets, metrics, results, JSON Lines of cases, ADK eval sets.

Readers raise FormatError with the file, the place in it and the remedy.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import adk, adk_older, canonical
from evaltap.schemas.files.content import (
    eval_set_name,
    has_key,
    is_json_lines,
    iter_case_lines,
    read_bytes,
    write_bytes,
)
from evaltap.schemas.files.fast_check import is_case_data
from evaltap.schemas.files.validation import describe, parse
from evaltap.schemas.formats.case import EvalCase, EvalSet
from evaltap.schemas.formats.gate import GateFile
from evaltap.schemas.formats.message import Message
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.model import WireModel
from evaltap.schemas.formats.result import EvalSetResult
from evaltap.schemas.text import cut_text, did_you_mean

DocumentKind: TypeAlias = Literal["eval set", "ADK eval set", "metrics", "result"]


def _read_json(path: Path) -> Any:
    """Return a file's JSON document; warn about a repeated key."""
    content = read_bytes(path)
    data = canonical.loads(content, path=str(path))
    warn_of_repeated_key(content, str(path))
    return data


def read_option(path: Path, option: str) -> Any:
    """Return the JSON of the file that an option names; raises InputError with the option's name."""
    try:
        return canonical.loads(path.read_bytes(), path=str(path))
    except OSError as error:
        raise InputError(f"{option} {path}: {error.strerror}") from error


def read_eval_set(path: Path) -> EvalSet:
    """Read an eval set in tRPC-Agent-Go's form or in Google ADK's, current or legacy."""
    return _eval_set(_read_json(path), path)


def read_set_fields(path: Path) -> dict[str, Json]:
    """Return the fields of an eval set besides its cases: id, name, description, and unknown ones."""
    data = _read_json(path)
    if isinstance(data, dict):
        cases = ("evalcases", "eval_cases")
        data = {key: [] if key.casefold() in cases else value for key, value in data.items()}
    return _eval_set(data, path).model_dump(by_alias=True, exclude={"eval_cases"})


def _eval_set(data: Json, path: Path) -> EvalSet:
    if adk_older.is_older_eval_file(data):
        newer = adk_older.newer_eval_set(data, eval_set_name(path), path=str(path))
        return adk.from_adk(newer, path=str(path))
    if isinstance(data, dict) and has_key(data, "evalCaseResults", "eval_case_results"):
        raise FormatError(
            "is a result file; expected an eval set (`evaltap compare` reads results, `evaltap try` the turns"
            " in them)",
            path=str(path),
        )
    if adk.is_adk_eval_set(data):
        return adk.from_adk(data, path=str(path))
    if isinstance(data, dict) and not has_key(data, "evalCases", "evalSetId"):
        raise FormatError(
            f"an object with keys {_some(data)}; expected an eval set with `evalSetId` and `evalCases`",
            path=str(path),
        )
    if isinstance(data, list):
        raise FormatError(
            f"found {describe(data)}; expected an object (EvalSet; `evaltap convert` makes one of"
            " rows and chats)",
            path=str(path),
        )
    eval_set = parse(EvalSet, data, path=str(path))
    for case in eval_set.eval_cases:
        _warn_of_unknown_keys(case, str(path))
    return eval_set


def read_metrics(path: Path) -> list[EvalMetric]:
    """Read a metrics file, a JSON array of uniquely named metrics, or a test_config.json of ADK or
    tRPC-Agent-Python."""
    data = _read_json(path)
    if adk_older.is_test_config(data):
        if (runs := data.get("num_runs", 1)) != 1:
            warn_once(f"{path}: num_runs is {runs}; repeat runs with `evaltap run --runs {runs}`")
        data = adk_older.metrics_of_config(data, path=str(path))
    if not isinstance(data, list):
        raise FormatError(
            f"found {describe(data)}; expected a JSON array of metrics", path=str(path)
        )
    return metrics_of(data, path=str(path))


def metrics_of(given: Sequence[EvalMetric | Json], *, path: str = "") -> list[EvalMetric]:
    """Return metrics from models, which stay unchanged, and from data as in a metrics file."""
    metrics: list[EvalMetric] = []
    for index, item in enumerate(given):
        if isinstance(item, EvalMetric):
            metrics.append(item)
            continue
        place = f"[{index}]"
        metric = parse(EvalMetric, item, path=path, place=place)
        if any(metric.metric_name == other.metric_name for other in metrics):
            raise FormatError(
                f"metric {metric.metric_name!r} occurs twice; give each metric its own name"
                " (`evaluatorName` selects its evaluator)",
                path=path,
                place=place,
            )
        if not metric.metric_name:
            raise FormatError("a metric without `metricName`; add one", path=path, place=place)
        metrics.append(metric)
    return metrics


def read_result(path: Path) -> EvalSetResult:
    """Read a result file, also of ADK; in an older form, it is a JSON string that contains the object."""
    data = canonical.loads(read_bytes(path), path=str(path))
    if isinstance(data, str):
        data = canonical.loads(data.encode(), path=str(path), place="the JSON inside the string")
    if adk.is_adk_result(data):
        data = adk.from_adk_result(data, path=str(path))
    return parse(EvalSetResult, data, path=str(path))


def iter_cases(path: Path) -> Iterator[CaseData]:
    """Yield the eval cases of a file (eval set or JSON Lines) as canonical case data.

    A JSON Lines file is read line by line, so memory does not grow with it. The cases of an eval
    set carry its id as `evalSetId`.
    """
    if is_json_lines(path):
        for number, line in iter_case_lines(path):
            yield read_case(line, path=str(path), place=f"line {number}")
        return
    data = _read_json(path)
    if not adk.is_adk_eval_set(data) and isinstance(data, dict):
        cases, name = data.get("evalCases"), data.get("evalSetId")
        if isinstance(cases, list) and isinstance(name, str):
            # Case by case: most need no model, and memory is not used twice.
            for index, item in enumerate(cases):
                yield _of_set(case_data(item, path=str(path), place=f"evalCases[{index}]"), name)
            return
    if _holds_metrics(data):
        raise FormatError(
            "is a metrics file; expected eval cases (--metrics takes it)", path=str(path)
        )
    eval_set = read_eval_set(path)
    for case in eval_set.eval_cases:
        yield _of_set(_data_of(case, path=str(path)), eval_set.eval_set_id)


def _holds_metrics(data: Json) -> bool:
    return (
        isinstance(data, list)
        and bool(data)
        and all(isinstance(one, dict) and "metricName" in one for one in data)
    )


def _of_set(case: CaseData, eval_set_id: str) -> CaseData:
    return {**case, "evalSetId": eval_set_id} if eval_set_id else case


def read_case(line: bytes, *, path: str = "", place: str = "") -> CaseData:
    """Decode one eval case from JSON; raises FormatError with the place of the first mistake."""
    return case_data(canonical.loads(line, path=path, place=place), path=path, place=place)


def case_data(data: Any, *, path: str = "", place: str = "") -> CaseData:
    """Return decoded JSON as the canonical data of an eval case with an id.

    Data already in that form is returned as is; other data goes through the model.  With a `path`, keys
    of turns that the format does not have are logged, once each.
    """
    if is_case_data(data) and data.get("evalId"):
        return cast(CaseData, data)
    case = parse(EvalCase, data, path=path, place=place)
    if path:
        _warn_of_unknown_keys(case, path)
    return _data_of(case, path=path, place=place)


def _data_of(case: EvalCase, *, path: str = "", place: str = "") -> CaseData:
    if not case.eval_id:
        raise FormatError(
            "a case without `evalId`; add one (`evaltap convert` makes cases of a data set's rows)",
            path=path,
            place=place,
        )
    try:
        return _dumped(case)
    except RecursionError:
        raise FormatError(
            f"case {case.eval_id!r:.40} is nested too deeply; expected a few hundred levels at most",
            path=path,
            place=place,
        ) from None


def _some(data: Mapping[str, object]) -> str:
    names = ", ".join(f"`{key}`" for key in list(data)[:4])
    return names + (", …" if len(data) > 4 else "") if names else "(none)"


def canonical_bytes(document: WireModel | list[EvalMetric]) -> bytes:
    """Return the canonical text of an eval set, a metrics list or a result.

    Raises FormatError for one that is nested too deeply, with the case.
    """
    try:
        if isinstance(document, list):
            return canonical.dumps([*map(_dumped, document)])
        return canonical.dumps(_dumped(document))
    except (RecursionError, FormatError):
        raise FormatError(canonical.TOO_DEEP, place=_too_deep_case(document)) from None


def _too_deep_case(document: WireModel | list[EvalMetric]) -> str:
    """Return which case of an eval set is nested too deeply; empty for other documents."""
    for case in document.eval_cases if isinstance(document, EvalSet) else ():
        try:
            canonical.dumps(_dumped(case))
        except (RecursionError, FormatError):
            return f"case {case.eval_id!r:.40}"
    return ""


def _dumped(model: WireModel) -> dict[str, Any]:
    """Return a model as JSON data; raise RecursionError if it is nested too deeply."""
    try:
        return model.model_dump(by_alias=True)
    except PydanticSerializationError as error:  # also if Ctrl-C interrupts a serializer
        cause: BaseException | None = error
        while isinstance(cause, PydanticSerializationError):
            cause = cause.__cause__
        if isinstance(cause, KeyboardInterrupt):
            raise cause from None
        raise RecursionError(str(error)) from None


def write_document(path: Path, document: WireModel | list[EvalMetric]) -> None:
    """Write a document in canonical form."""
    write_bytes(path, canonical_bytes(document))


def write_eval_set(path: Path, data: Mapping[str, object]) -> None:
    """Write an eval set given as plain JSON data."""
    write_document(path, parse(EvalSet, dict(data)))


def document_kind(data: object) -> DocumentKind:
    """Return the kind of document in decoded JSON; raises FormatError when there is none."""
    if adk_older.is_older_eval_file(data):
        raise FormatError(
            "an eval file in ADK's legacy form, which has no canonical form; `evaltap score` reads it"
            " unchanged, and `evaltap convert FILE --out X.evalset.json` converts it to an eval set"
        )
    if adk_older.is_test_config(data):
        raise FormatError(
            "a test configuration of ADK, which has no canonical form; --metrics accepts it unchanged"
        )
    if isinstance(data, list):
        return "metrics"
    if isinstance(data, str):
        return "result"
    if isinstance(data, dict):
        if adk.is_adk_eval_set(data):
            return "ADK eval set"
        if has_key(data, "evalCaseResults", "evalSetResultId"):
            return "result"
        if has_key(data, "evalCases", "evalSetId"):
            return "eval set"
    kinds = ", ".join(get_args(DocumentKind))
    raise FormatError(f"found {describe(data)} of unknown kind; expected one of: {kinds}")


READERS: Mapping[str, Callable[[Path], WireModel | list[EvalMetric]]] = {
    "eval set": read_eval_set,
    "ADK eval set": read_eval_set,
    "metrics": read_metrics,
    "result": read_result,
}


def read_gate(path: Path) -> GateFile:
    """Read a gate file: a JSON object with `dimensions`."""
    data = _read_json(path)
    if _holds_metrics(data):
        raise FormatError("is a metrics file; expected `dimensions` with metrics", path=str(path))
    return parse(GateFile, data, path=str(path))


LOG: Final = logging.getLogger("evaltap.files")
"""Takes warnings about the content of files."""


def warn_of_repeated_key(data: bytes, path: str) -> None:
    """Log a warning that names the first repeated key of a valid document, once per file and key.

    The file stays valid, because tRPC-Agent-Go reads it and uses the last value, but in a file written by
    hand it is usually a field that was copied and not renamed.  The check costs 5 ms per megabyte.
    """
    if (place := repeated_key(data)) is not None:
        warn_once(
            f"{path}: {cut_text(place, 200)} occurs more than once in its object; only the last value is used"
        )


def _warn_of_unknown_keys(case: EvalCase, path: str) -> None:
    """Log a warning for each key of the turns that nothing reads, once per file and key."""
    for key in unknown_keys(case):
        warn_once(f"{path}: not a key of eval cases and not compared: {cut_text(key, 200)}")


@lru_cache(maxsize=256)  # some commands read a file twice
def warn_once(message: str) -> None:
    """Log a warning about a file unless it was logged before."""
    LOG.warning("%s", message)


def repeated_key(data: bytes) -> str | None:
    """Return the place of the first repeated key, such as `evalCases[0].evalId`, or None."""
    try:
        json.loads(data, object_pairs_hook=_refuse_repeated)
    except _RepeatedKeyError:
        return _place(json.loads(data, object_pairs_hook=_Pairs))
    except (ValueError, RecursionError):  # nested deeper than `json` reads, or not UTF-8
        return None
    return None


class _RepeatedKeyError(Exception):
    pass


class _Pairs(list[tuple[str, Any]]):
    """An object as a list of its keys and values, repeated keys included."""


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _RepeatedKeyError


def _place(value: object, prefix: str = "") -> str | None:
    """Return the place of the first repeated key in the order of the document."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            place = f"{prefix}.{key}" if prefix else key
            if key in seen:
                return place
            seen.add(key)
            if (found := _place(item, place)) is not None:
                return found
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if (found := _place(item, f"{prefix}[{index}]")) is not None:
                return found
    return None


_DURATIONS = ("duration", "modelDuration", "toolDuration", "model_duration", "tool_duration")
_OF_ADK: Final = frozenset({*_DURATIONS, "rubrics", "appDetails", "app_details", "name"})
"""Keys that a converted set of Google ADK preserves."""


def unknown_keys(case: EvalCase) -> Iterator[str]:
    """Yield each unknown key of the turns of a case, with a suggestion where one is near.

    tRPC-Agent-Go ignores such keys and `parse` preserves them, but `parts` in place of `content` is an
    answer that passes as empty.
    """
    sides = {"conversation": case.conversation, "actualConversation": case.actual_conversation}
    for side, turns in sides.items():
        for turn in turns:
            if turn is not None:
                yield from _inside(turn, f"{side}[].")


def _inside(model: BaseModel, prefix: str) -> Iterator[str]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        many = isinstance(value, list)
        for item in value if many else (value,):
            if isinstance(item, BaseModel):
                yield from _inside(item, f"{prefix}{field.alias or name}{'[]' if many else ''}.")
    for key in model.model_extra or ():
        if key in _OF_ADK:
            continue
        if key != "parts" or not isinstance(model, Message):
            yield f"{prefix}{key}{_hint(key, type(model))}"
        elif not model.content and not model.content_parts:
            yield f"{prefix}{key} (`content` is the text of a message)"


@lru_cache(maxsize=256)  # a key that one case has, all cases of a file may have
def _hint(key: str, model: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in model.model_fields.items()]
    hint = did_you_mean(key, known)
    return f" ({hint})" if hint else ""
