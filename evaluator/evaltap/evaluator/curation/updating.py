"""Update an existing set with curated cases, preserving manual edits."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.evalsets.content import content_hash
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.files.content import eval_set_name
from evaltap.schemas.files.documents import read_metrics, write_document
from evaltap.schemas.formats.metric import EvalMetric

_OF_PEOPLE: Final = ("conversation", "rubrics", "contextMessages", "conversationScenario")
"""The fields of a case that reviewers edit."""


@dataclass(slots=True)
class Updated:
    """The updated cases of a set, and the changes by id."""

    cases: list[CaseData] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """In the set, but no longer produced by the recipe."""
    pruned: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    """Newly produced, but equal in content to an existing case with another id."""

    def data(self) -> dict[str, Json]:
        names = ("added", "updated", "kept", "gone", "pruned", "same")
        return {name: getattr(self, name) for name in names}


def add_to(existing: Sequence[CaseData], made: Sequence[CaseData]) -> Updated:
    """Return a set with new cases added; existing cases are not changed."""
    updated = Updated(cases=list(existing), kept=[case["evalId"] for case in existing])
    _add(updated, existing, made)
    return updated


def update(
    existing: Sequence[CaseData],
    made: Sequence[CaseData],
    *,
    prune: bool,
    landed: Collection[str] | None = None,
) -> Updated:
    """Return the updated set; manual edits are preserved, and gone cases remain unless pruned.

    `landed` are the sessions in the store; cases of erased sessions are marked in their provenance.
    """
    by_id = {case["evalId"]: case for case in made}
    updated = Updated()
    for case in existing:
        name = case["evalId"]
        again = by_id.get(name)
        if again is None:
            # A case without provenance was written by hand, and is never pruned.
            curated = bool((case.get("source") or {}).get("curation"))
            (updated.pruned if prune and curated else updated.gone).append(name)
            if not (prune and curated):
                updated.cases.append(_marked(case, landed))
            continue
        merged = _merged(case, again)
        (updated.kept if merged == case else updated.updated).append(name)
        updated.cases.append(merged)
    _add(updated, existing, made)
    return updated


def _marked(case: CaseData, landed: Collection[str] | None) -> CaseData:
    """Return a case that the recipe no longer makes: it represents no traffic beside those that it does.

    Its provenance says `gone` if its session is no longer in the store.
    """
    source = case.get("source") or {}
    curation = source.get("curation") or {}
    if not curation:
        return case
    marked = {**curation, "weight": 0}
    origin = curation.get("from") or {}
    if landed is not None and origin.get("evalId") and origin["evalId"] not in landed:
        marked["from"] = {**origin, "gone": True}
    return {**case, "source": {**source, "curation": marked}}


def _add(updated: Updated, existing: Sequence[CaseData], made: Sequence[CaseData]) -> None:
    names = {case["evalId"] for case in existing}
    hashes = {content_hash(case) for case in existing}
    for case in made:
        if case["evalId"] in names:
            continue
        if case.get("conversation") and content_hash(case) in hashes:
            updated.same.append(case["evalId"])
            continue
        updated.cases.append(case)
        updated.added.append(case["evalId"])
    updated.cases.sort(key=lambda case: str(case["evalId"]))


def _merged(existing: CaseData, made: CaseData) -> CaseData:
    """Return the newly produced case with the manual edits of the existing one."""
    curation = (existing.get("source") or {}).get("curation") or {}
    if curation.get("contentHash") == content_hash(existing):
        return made
    merged: CaseData = dict(made)
    merged |= {key: existing[key] for key in _OF_PEOPLE if key in existing}
    source = dict(made["source"]["curation"])
    source["contentHash"] = curation.get("contentHash", source["contentHash"])
    return merged | {"source": {"curation": source}}


def metrics_path(path: Path) -> Path:
    """Return the path of the metrics file of a regression set: next to the set."""
    return path.with_name(f"{eval_set_name(path)}.metrics.json")


def write_metrics(set_path: Path, metrics: Sequence[EvalMetric]) -> None:
    """Write the metrics of a regression set; keep the changes that people made in the file."""
    path = metrics_path(set_path)
    known = {metric.metric_name: metric for metric in metrics}
    before = read_metrics(path) if path.is_file() else []
    kept = {metric.metric_name: metric for metric in before}
    write_document(path, [*({**known, **kept}[one] for one in sorted({*known, *kept}))])
