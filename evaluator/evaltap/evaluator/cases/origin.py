"""What a case that has not landed states about its origin: its identity, its sampling, what it represents."""

import math
from collections.abc import Mapping
from typing import TypeAlias

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.cases.outline import LazyCase
from evaltap.schemas.data import Json
from evaltap.schemas.wire.record import recording_name

NamedCase: TypeAlias = tuple[CaseIdentity, Mapping[str, Json]]
"""A case with its identity."""


def case_identity(case: Mapping[str, Json], eval_set_id: str) -> CaseIdentity:
    """Return the identity of a case that has not landed.

    `eval_set_id` applies to a case without its own.  Repeats of a case are distinguished by their
    `source.run`, within a version.
    """
    if isinstance(case, LazyCase):
        known = case.outline
        app_name, named, eval_id = case.app_name, known.evalSetId or eval_set_id, known.evalId or ""
        run, version = (known.source.run, known.source.version) if known.source else ("", "")
    else:
        app_name = (case.get("sessionInput") or {}).get("appName") or ""
        named, eval_id = case.get("evalSetId") or eval_set_id, case.get("evalId") or ""
        source = case.get("source") or {}
        run, version = source.get("run"), source.get("version")
    recording = recording_name(version, run) if run else ""
    return CaseIdentity(app_name, f"{named}@{recording}" if recording else named, eval_id)


def is_sampled(case: Mapping[str, Json]) -> bool:
    """Return whether a case was sampled with a probability below 1, so that it represents more traffic."""
    if isinstance(case, LazyCase):
        source = case.outline.source
        chance = source.inclusionProbability if source else None
    else:
        chance = (case.get("source") or {}).get("inclusionProbability")
    return isinstance(chance, int | float) and chance < 1


def traffic_weight(case: Mapping[str, Json]) -> float | None:
    """Return the number of turns of the traffic that a curated case represents; None for other cases."""
    if isinstance(case, LazyCase):  # a curated case has no outline
        return None
    curation = (case.get("source") or {}).get("curation")
    weight = curation.get("weight") if isinstance(curation, Mapping) else None
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        return None
    return float(weight) if 0 <= weight < math.inf else None
