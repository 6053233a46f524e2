"""Values for comparing production with eval sets: tools, paths, models, languages, intents, versions."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from evaltap.evaluator.analysis.estimates.scope import SESSION
from evaltap.evaluator.analysis.filters.choice import turns_with
from evaltap.evaluator.analysis.stats.estimate import Cell, Estimate, Profile, estimate
from evaltap.evaluator.analysis.traffic import without_runs
from evaltap.evaluator.cases.evalsets.content import expected_turns, message_text
from evaltap.evaluator.cases.language import UNKNOWN, language_of
from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.cases.turn import absent_state
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
    tools: tuple[str, ...] | None
    """None if unknown: they were not recorded, or a case without a recording expects no particular ones."""
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
    """Return the turns of the traffic of a period."""
    apart = without_runs(store)
    rows = store.rows(
        f"""SELECT app, eval_set_id, eval_id, invocation_id, {_TOOLS}, models[1], version,
                  coalesce(user_text, ''), inclusion_probability
        FROM ({turns_with("tools")})
        WHERE ($since::TIMESTAMP IS NULL OR started_at >= $since)
          AND ($until::TIMESTAMP IS NULL OR started_at < $until)
          AND ($app::VARCHAR = '' OR app = $app) {apart and f"AND {apart}"}
        ORDER BY app, eval_set_id, eval_id, invocation_id""",
        {
            "since": period.since and stored_time(period.since),
            "until": period.until and stored_time(period.until),
            "app": period.app,
        },
    )
    return [
        Seen(TurnKey(*key), _names(tools), model or "", of_agent or "", text, probability)
        for *key, tools, model, of_agent, text, probability in rows
    ]


_TOOLS: Final = """
if(len(tools) = 0 AND capture->>'$.tools' IN ('missing', 'redacted'), NULL, tools)"""


def _names(tools: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if tools is None else tuple(tools)


def seen_of_set(cases: Iterable[CaseData], store: StoreReader, app: str = "") -> list[Seen]:
    """Return the turns of a set: the expected ones, or otherwise the recorded ones.

    Sets contain no telemetry: models and versions are those of the landed turns from which cases were
    created, and so are the tools of a last turn that expects no particular ones.  With `app`, cases that name
    another application are left out.
    """
    found = []
    cases = [case for case in cases if not app or case_identity(case, "").app_name in ("", app)]
    origins = [_origin(case) for case in cases]
    recorded = _recorded(store, set(filter(None, origins)))
    for case, origin in zip(cases, origins, strict=True):
        tools, model, version = recorded.get(origin, _UNKNOWN) if origin else _UNKNOWN
        turns = expected_turns(case)
        for number, turn in enumerate(turns):
            key = TurnKey(case_identity(case, "").app_name, "", str(case["evalId"]), str(number))
            names = _own_tools(case, turn)
            if names is None and number == len(turns) - 1:
                names = tools
            (own, *_) = (turn.get("telemetry") or {}).get("models") or [model]
            found.append(Seen(key, names, own, version, message_text(turn.get("userContent"))))
    return found


_UNKNOWN: Final = (None, None, None)


def _own_tools(case: CaseData, turn: CaseData) -> tuple[str, ...] | None:
    """Return the tools that a turn of a set expects or recorded; None if it says nothing of them."""
    found = tuple(tool.get("name") or "" for tool in turn.get("tools") or () if tool)
    answers = turn.get("finalResponse") and absent_state(turn, "tools") is None
    return found if found or answers or not case.get("conversation") else None


def _origin(case: CaseData) -> TurnKey | None:
    """Return the landed turn from which a case was created, or the last of several."""
    origin = ((case.get("source") or {}).get("curation") or {}).get("from") or {}
    turns = origin.get("invocationIds")
    turn = turns[-1] if isinstance(turns, list) and turns else None
    parts = [*(origin.get(name) for name in ("appName", "evalSetId", "evalId")), turn]
    return None if None in parts else TurnKey(*map(str, parts))


def _recorded(
    store: StoreReader, turns: Iterable[TurnKey]
) -> dict[TurnKey, tuple[tuple[str, ...] | None, str, str]]:
    """Return the tools, the model and the version of turns."""
    names = sorted({turn.eval_id for turn in turns})
    rows = store.rows(
        f"""SELECT app, eval_set_id, eval_id, invocation_id, {_TOOLS}, models[1], version
        FROM ({turns_with("tools")}) WHERE eval_id IN (SELECT unnest($names::VARCHAR[]))""",
        {"names": names},
    )
    return {
        TurnKey(*key): (_names(tools), model or "", version or "")
        for *key, tools, model, version in rows
    }


def values_of(
    name: str, seen: Sequence[Seen], others: Sequence[Seen] = (), *, fold: bool = False
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the values of a dimension for each turn, and for each of some others; none if it is unknown.

    `others` are compared with the turns: their intents are those of the turns.  `fold`: consecutive calls of
    one tool count once in a path.
    """
    if name == "intent":
        return _intents(seen, others)
    one: Mapping[str, Callable[[Seen], str | None]] = {
        "tools": lambda turn: None if turn.tools is None else _path(turn.tools, fold=fold),
        "model": lambda turn: turn.model,
        "version": lambda turn: turn.version,
        "language": lambda turn: found if (found := language_of(turn.text)) != UNKNOWN else None,
    }

    def of(turn: Seen) -> tuple[str, ...]:
        if name == "tool":
            return tuple(dict.fromkeys(turn.tools or ()))
        value = one[name](turn)
        return () if value is None else (value,)

    return [of(turn) for turn in seen], [of(turn) for turn in others]


def _path(tools: Sequence[str], *, fold: bool) -> str:
    if fold:
        tools = [tool for at, tool in enumerate(tools) if not at or tool != tools[at - 1]]
    return " > ".join(tools)


def _intents(
    seen: Sequence[Seen], others: Sequence[Seen]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Group turns by the user's text alone, which names them by their medoid's.

    Others belong to every group whose medoid they are similar to.
    """
    # Not even by application, which many sets do not name.
    turns = [
        ComparedTurn(turn.key, Block("", "", ""), turn.text, 1 / turn.probability) for turn in seen
    ]
    groups = turn_groups(turns, Likeness(INTENT_RADIUS))
    # By texts: two sets may have turns with the same key.
    named = {normal(one.text): group.medoid.text for group in groups for one in group.members}
    medoids = [group.medoid.text for group in groups]
    index = SimilarTexts([normal(text) for text in medoids])

    def of(turn: Seen) -> tuple[str, ...]:
        similar = index.to_text(normal(turn.text))
        return tuple(medoids[at] for at in (similar >= INTENT_RADIUS).nonzero()[0])

    return [(named[normal(turn.text)],) for turn in seen], [of(turn) for turn in others]


def pairs_of(turns: Sequence[Seen], values: Sequence[Iterable[str]]) -> list[tuple[Seen, str]]:
    """Return each turn with each of its values."""
    return [(turn, value) for turn, found in zip(turns, values, strict=True) for value in found]


def shares_of(
    pairs: Iterable[tuple[Seen, str]], wanted: Iterable[Collection[str]]
) -> list[Estimate | None]:
    """Return the share of turns with one of some values, for each choice of values; sessions are clusters."""
    sessions: dict[tuple[str, ...], dict[float, Counter[str]]] = {}
    for turn, value in pairs:
        of_session = sessions.setdefault(SESSION.of(turn.key), {})
        of_session.setdefault(turn.probability, Counter())[value] += 1
    alike = Counter(
        tuple(sorted((p, tuple(sorted(found.items()))) for p, found in one.items()))
        for one in sessions.values()
    )

    def cell(probability: float, found: Iterable[tuple[str, int]], values: Collection[str]) -> Cell:
        having = sum(count for value, count in found if value in values)
        return Cell(probability, sum(count for _, count in found), having, having)

    return [
        estimate(
            Profile(tuple(cell(p, found, values) for p, found in cells), count)
            for cells, count in alike.items()
        )
        for values in wanted
    ]


class NothingSeenError(InputError):
    """Report that there is no turn to compare with."""

    exit_code = 3
