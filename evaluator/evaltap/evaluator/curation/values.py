"""Values for comparing production with eval sets: tools, paths, models, languages, intents, versions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from evaltap.evaluator.analysis.filters.choice import turns_with
from evaltap.evaluator.cases.evalsets.content import expected_turns, message_text
from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.curation.grouping import Block, ComparedTurn, Likeness, turn_groups
from evaltap.evaluator.curation.near import SimilarTexts, normal
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known

DIMENSIONS: Final = ("tools", "tool", "model", "language", "intent", "version")
INTENT_RADIUS: Final = 0.35
"""Texts with the same intent are less similar than near-duplicates."""


@dataclass(frozen=True, slots=True)
class Period:
    """Turns that started in a period, of one or all applications; None means unbounded."""

    since: datetime | None = None
    until: datetime | None = None
    app: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A turn of production or of a set."""

    key: TurnKey
    tools: tuple[str, ...]
    model: str | None
    """Empty if none was recorded; None if unknown, for a case without a recording."""
    version: str | None
    text: str
    probability: float = 1.0


def check_dimensions(by: Sequence[str]) -> None:
    """Raise InputError for an unknown dimension."""
    for name in by:
        check_known(name, DIMENSIONS, f"--by {name}: unknown dimension")


def check_app(store: StoreReader, app: str) -> None:
    """Raise InputError for an application without landed turns."""
    known = store.column("SELECT DISTINCT app_name FROM cases ORDER BY 1")
    if app and known:
        check_known(app, known, f"--app {app}: no turn of this application has landed")


def seen_in(store: StoreReader, period: Period) -> list[Seen]:
    rows = store.rows(
        f"""SELECT app, eval_set_id, eval_id, invocation_id, tools, models[1], version,
                  coalesce(user_text, ''), inclusion_probability
        FROM ({turns_with("tools")})
        WHERE ($since::TIMESTAMP IS NULL OR started_at >= $since)
          AND ($until::TIMESTAMP IS NULL OR started_at < $until)
          AND ($app::VARCHAR = '' OR app = $app)
        ORDER BY app, eval_set_id, eval_id, invocation_id""",
        {
            "since": period.since and stored_time(period.since),
            "until": period.until and stored_time(period.until),
            "app": period.app,
        },
    )
    return [
        Seen(TurnKey(*key), tuple(tools), model or "", of_agent or "", text, probability)
        for *key, tools, model, of_agent, text, probability in rows
    ]


def seen_of_set(cases: Iterable[CaseData], store: StoreReader) -> list[Seen]:
    """Return the turns of a set: the expected ones, or otherwise the recorded ones.

    Sets contain no telemetry: models and versions are those of the landed turns from which cases were
    created.
    """
    cases = list(cases)
    origins = [_origin(case) for case in cases]
    recorded = _recorded(store, set(filter(None, origins)))
    found = []
    for case, origin in zip(cases, origins, strict=True):
        app = (case.get("sessionInput") or {}).get("appName") or ""
        of_origin = recorded.get(origin) if origin else None
        model, version = of_origin or (None, None)
        for number, turn in enumerate(expected_turns(case)):
            key = TurnKey(app, "", str(case["evalId"]), str(number))
            names = tuple(tool.get("name") or "" for tool in turn.get("tools") or () if tool)
            (own, *_) = (turn.get("telemetry") or {}).get("models") or [model]
            found.append(Seen(key, names, own, version, message_text(turn.get("userContent"))))
    return found


def _origin(case: CaseData) -> TurnKey | None:
    """Return the landed turn from which a case was created, or the last of several."""
    origin = ((case.get("source") or {}).get("curation") or {}).get("from") or {}
    turns = origin.get("invocationIds")
    turn = turns[-1] if isinstance(turns, list) and turns else None
    parts = [*(origin.get(name) for name in ("appName", "evalSetId", "evalId")), turn]
    return None if None in parts else TurnKey(*map(str, parts))


def _recorded(store: StoreReader, turns: Iterable[TurnKey]) -> dict[TurnKey, tuple[str, str]]:
    names = sorted({turn.eval_id for turn in turns})
    rows = store.rows(
        """SELECT app_name, eval_set_id, eval_id, invocation_id, models[1], version
        FROM latest_turns WHERE eval_id IN (SELECT unnest($names::VARCHAR[]))""",
        {"names": names},
    )
    return {TurnKey(*key): (model or "", version or "") for *key, model, version in rows}


def values_of(
    name: str, seen: Sequence[Seen], others: Sequence[Seen] = (), *, fold: bool = False
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the values of a dimension for each turn, and for each of some others.

    `others` are compared with the turns: their intents are those of the turns, and unknown values do not
    count.  `fold`: consecutive calls of one tool count once in a path.
    """
    if name == "intent":
        return _intents(seen, others)
    one: Mapping[str, Callable[[Seen], tuple[str, ...]]] = {
        "tools": lambda turn: (_path(turn.tools, fold=fold),),
        "tool": lambda turn: tuple(dict.fromkeys(turn.tools)),
        "model": lambda turn: () if turn.model is None else (turn.model,),
        "version": lambda turn: () if turn.version is None else (turn.version,),
        "language": lambda turn: (language_of(turn.text),),
    }
    unknown = () if name == "tool" else ("",)
    return [one[name](turn) or unknown for turn in seen], [one[name](turn) for turn in others]


def _path(tools: Sequence[str], *, fold: bool) -> str:
    if fold:
        tools = [tool for at, tool in enumerate(tools) if not at or tool != tools[at - 1]]
    return " > ".join(tools)


def _intents(
    seen: Sequence[Seen], others: Sequence[Seen]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Group turns by the user's text alone; others belong to every group whose medoid they are similar to."""
    # Not even by application, which many sets do not name.
    turns = [
        ComparedTurn(turn.key, Block("", "", ""), turn.text, 1 / turn.probability) for turn in seen
    ]
    groups = turn_groups(turns, Likeness(INTENT_RADIUS))
    named: Mapping[TurnKey, str] = {
        one.key: group.medoid.key.name for group in groups for one in group.members
    }
    medoids = [group.medoid for group in groups]
    index = SimilarTexts([normal(one.text) for one in medoids])

    def of(turn: Seen) -> tuple[str, ...]:
        similar = index.to_text(normal(turn.text))
        return tuple(medoids[at].key.name for at in (similar >= INTENT_RADIUS).nonzero()[0])

    return [(named[turn.key],) for turn in seen], [of(turn) for turn in others]


class NothingSeenError(InputError):
    """Report that there is no turn to compare with."""

    exit_code = 3
