"""The values that compare production with eval sets: tools, paths, models, languages, intents, versions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.curation.grouping import Block, Likeness, Said, turn_groups
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.texts import SimilarTexts, normal
from evaltap.evaluator.evalsets.content import expected_turns, message_text
from evaltap.evaluator.filters.turns import turns_with
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.text import did_you_mean_one_of

DIMENSIONS: Final = ("tools", "tool", "model", "language", "intent", "version")
INTENT_RADIUS: Final = 0.35
"""Texts of one intent are less alike than near-duplicates."""


@dataclass(frozen=True, slots=True)
class Period:
    """Turns that started in a time, of one application or all; None: without bound."""

    since: datetime | None = None
    until: datetime | None = None
    app: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A turn of production or of a set."""

    key: TurnKey
    tools: tuple[str, ...]
    model: str
    version: str
    text: str
    probability: float = 1.0


def check_dimensions(by: Sequence[str]) -> None:
    """Raise InputError for a dimension that there is not."""
    for name in by:
        if name not in DIMENSIONS:
            hint = did_you_mean_one_of(name, DIMENSIONS)
            raise InputError(f"--by {name}: unknown dimension; {hint}")


def seen_in(store: StoreReader, period: Period) -> list[Seen]:
    """Return the turns of a period."""
    rows = store.rows(
        f"""SELECT app, eval_set_id, eval_id, invocation_id, tools, models[1], version,
                  coalesce(user_text, ''), inclusion_probability
        FROM ({turns_with("tools")})
        WHERE ($since::TIMESTAMP IS NULL OR started_at >= $since)
          AND ($until::TIMESTAMP IS NULL OR started_at < $until)
          AND ($app::VARCHAR = '' OR app = $app)
        ORDER BY app, eval_set_id, eval_id, invocation_id""",
        {"since": _plain(period.since), "until": _plain(period.until), "app": period.app},
    )
    return [
        Seen(TurnKey(*key), tuple(tools), model or "", of_agent or "", text, probability)
        for *key, tools, model, of_agent, text, probability in rows
    ]


def _plain(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def seen_of_set(cases: Iterable[CaseData]) -> list[Seen]:
    """Return the turns of a set, as they should be, else as they were recorded."""
    found = []
    for case in cases:
        app = (case.get("sessionInput") or {}).get("appName") or ""
        for number, turn in enumerate(expected_turns(case)):
            key = TurnKey(app, "", str(case["evalId"]), str(number))
            names = tuple(tool.get("name") or "" for tool in turn.get("tools") or () if tool)
            models = (turn.get("telemetry") or {}).get("models") or [""]
            text = message_text(turn.get("userContent"))
            found.append(Seen(key, names, models[0], "", text))
    return found


def values_of(
    name: str, seen: Sequence[Seen], others: Sequence[Seen] = (), *, fold: bool = False
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the values of a dimension, for each turn and for each of some others.

    `others` are compared with: intents are those of the first turns.  `fold`: a tool that is called
    several times in a row counts once in a path.
    """
    if name == "intent":
        return _intents(seen, others)
    one: Mapping[str, Callable[[Seen], tuple[str, ...]]] = {
        "tools": lambda turn: (_path(turn.tools, fold=fold),),
        "tool": lambda turn: tuple(dict.fromkeys(turn.tools)),
        "model": lambda turn: (turn.model,),
        "version": lambda turn: (turn.version,),
        "language": lambda turn: (language_of(turn.text),),
    }
    return [one[name](turn) for turn in seen], [one[name](turn) for turn in others]


def _path(tools: Sequence[str], *, fold: bool) -> str:
    if fold:
        tools = [tool for at, tool in enumerate(tools) if not at or tool != tools[at - 1]]
    return " > ".join(tools)


def _intents(
    seen: Sequence[Seen], others: Sequence[Seen]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Group by what is asked alone; others belong to every group whose medoid they are like."""
    said = [
        Said(turn.key, Block(turn.key.app, "", ""), turn.text, 1 / turn.probability)
        for turn in seen
    ]
    groups = turn_groups(said, Likeness(INTENT_RADIUS))
    named: Mapping[TurnKey, str] = {
        one.key: group.medoid.key.name for group in groups for one in group.members
    }
    medoids = [group.medoid for group in groups]
    index = SimilarTexts([normal(one.text) for one in medoids])

    def of(turn: Seen) -> tuple[str, ...]:
        similar = index.to_text(normal(turn.text))
        return tuple(medoids[at].key.name for at in (similar >= INTENT_RADIUS).nonzero()[0])

    return [(named[turn.key],) for turn in seen], [of(turn) for turn in others]
