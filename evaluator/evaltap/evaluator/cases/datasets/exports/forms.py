"""All export formats: evaltap's own set files, and those of other tools."""

from collections.abc import Mapping, Sequence
from typing import Final

from evaltap.evaluator.cases.datasets.exports.rows import json_lines, with_questions
from evaltap.evaluator.cases.datasets.exports.tools import FORMS, Files
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.files import adk, canonical
from evaltap.schemas.files.run_error import with_run_errors
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalCase, EvalSet

ENDINGS: Final[Mapping[str, str]] = {
    "trpc": ".evalset.json",
    "adk": ".evalset.json",
    "jsonl": ".jsonl",
    "deepeval": ".json",
    "openai-evals": ".jsonl",
    "langsmith": ".json",
    "langfuse": ".jsonl",
    "huggingface": "",
    "promptfoo": ".json",
    "pytest": ".py",
}
"""The formats, and the suffix of the file name of each; huggingface is a folder."""


def files_of(
    form: str,
    cases: Sequence[CaseData],
    name: str,
    *,
    with_actual: bool = False,
    fields: Mapping[str, Json] | None = None,
) -> Files:
    """Return cases in a format; `name` is the id of the set, `fields` are those that it has besides cases."""
    if form in FORMS:
        return FORMS[form](cases, name, with_actual=with_actual)
    if form == "jsonl":
        return {"": json_lines(list(cases))}
    shown = map(with_run_errors if form == "trpc" else with_questions, cases)
    models = [parse(EvalCase, case, place=f"case {case['evalId']!r:.40}") for case in shown]
    about = parse(EvalSet, {"name": name, **(fields or {}), "evalSetId": name})
    eval_set = about.model_copy(update={"eval_cases": models})
    data = adk.to_adk(eval_set) if form == "adk" else eval_set.model_dump(by_alias=True)
    return {"": canonical.dumps(data)}
