"""Fill a recipe: pick one turn from each group of near-duplicates."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaltap.evaluator.cases.evalsets.content import expected_turns, message_text, tool_path
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.curation.grouping import (
    Block,
    ComparedTurn,
    Likeness,
    TurnGroup,
    WindowTurns,
    turn_groups,
    window_turns,
)
from evaltap.evaluator.curation.near import RADIUS, SimilarTexts, normal
from evaltap.evaluator.curation.picks import Offer, TurnKey, offered
from evaltap.evaluator.curation.recipe import Pick, Recipe
from evaltap.evaluator.curation.values import Seen, seen_of_set
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.text import did_you_mean_one_of

Progress = Callable[[int], None]


@dataclass(slots=True)
class Chosen:
    """A picked turn, and the traffic that it represents."""

    turn: ComparedTurn
    labels: list[str]
    weight: float = 1.0
    """The number of similar turns of the traffic, including itself."""
    members: int = 1
    """The number of recorded turns among them."""


@dataclass(slots=True)
class Choices:
    """The turns that a recipe picked, by pick, and the groups of the offered turns."""

    chosen: list[Chosen] = field(default_factory=list)
    picks: list[dict[str, object]] = field(default_factory=list)
    groups: list[TurnGroup] = field(default_factory=list)


def choose(store: StoreReader, recipe: Recipe, progress: Progress = lambda _: None) -> Choices:
    """Return the turns that a recipe picks, in the order of its picks."""
    offers = [offered(store, recipe, pick) for pick in recipe.picks]
    with window_turns(store, recipe) as window:
        return _choose(store, recipe, offers, window, progress)


def _choose(
    store: StoreReader,
    recipe: Recipe,
    offers: Sequence[Sequence[Offer]],
    window: WindowTurns,
    progress: Progress,
) -> Choices:
    compared = window.of(sorted({offer.key for offers_ in offers for offer in offers_}))
    groups: list[TurnGroup] = []
    if recipe.radius is not None:
        groups = turn_groups(compared.values(), Likeness(recipe.radius, recipe.semantic), progress)
    filling = _Filling(compared, groups, recipe.limit)
    taken, allowed = list[dict[str, Any]](), list[list[Offer]]()
    for pick, offers_ in zip(recipe.picks, offers, strict=True):
        allowed.append(_allowed(store, pick, offers_, compared, recipe))
        count = filling.fill(pick, allowed[-1])
        taken.append({"label": pick.label, "offered": len(offers_), "taken": count})
        if pick.metric and not offers_ and (note := _unknown_metric(store, pick.metric)):
            taken[-1]["note"] = note
    for allowed_ in allowed:
        filling.label(allowed_)
    chosen = list(filling.chosen.values())
    if recipe.radius is not None and chosen:
        _count_alike(window, recipe.radius, chosen)
    else:
        for one in chosen:
            one.weight = one.turn.weight
    return Choices(chosen, taken, groups)


def _unknown_metric(store: StoreReader, metric: str) -> str:
    """Return a message about a metric that scored no turn; empty if it scored one."""
    known = store.column("SELECT DISTINCT metric_name FROM turn_scores ORDER BY 1")
    if metric in known:
        return ""
    hint = did_you_mean_one_of(metric, known) if known else "score some first"
    return f"no turn has a verdict of {metric!r}; {hint}"


class _Filling:
    """Takes offers until there are enough; near-duplicates count once."""

    def __init__(
        self,
        compared: Mapping[TurnKey, ComparedTurn],
        groups: Iterable[TurnGroup],
        limit: int | None,
    ) -> None:
        self._compared = compared
        self._groups = {one.key: group for group in groups for one in group.members}
        self._limit = limit
        self._taken_groups: set[TurnKey] = set()
        self.chosen: dict[TurnKey, Chosen] = {}

    def fill(self, pick: Pick, offers: Sequence[Offer]) -> int:
        """Take the offers that a pick may use; return their number."""
        offered_now = {offer.key: offer for offer in offers}
        most = min(one for one in (pick.limit, pick.count, len(offers)) if one is not None)
        strata: Counter[str] = Counter()
        count = 0
        for offer in offers:
            if count >= most or (self._limit is not None and len(self.chosen) >= self._limit):
                break
            per_stratum = pick.label in ("stratified", "uncovered")
            if per_stratum and strata[offer.label] >= pick.per:
                continue
            taken = self._take(offer, offered_now)
            if taken:
                strata[offer.label] += 1
                count += 1
        return count

    def _take(self, offer: Offer, offered_now: Mapping[TurnKey, Offer]) -> bool:
        if offer.key in self.chosen or offer.key not in self._compared:
            return False
        key = offer.key
        if group := self._groups.get(offer.key):
            if group.medoid.key in self._taken_groups:
                return False
            self._taken_groups.add(group.medoid.key)
            # The medoid represents its group, unless this pick does not offer it.
            key = group.medoid.key if group.medoid.key in offered_now else key
        self.chosen[key] = Chosen(self._compared[key], [offered_now[key].label])
        return True

    def label(self, offers: Sequence[Offer]) -> None:
        """Add the other labels that apply to chosen turns, except those of random draws."""
        for offer in offers:
            taken = self.chosen.get(offer.key)
            drawn = offer.label.partition(":")[0] in ("random", "stratified")
            if taken is not None and not drawn and offer.label not in taken.labels:
                taken.labels.append(offer.label)


def _allowed(
    store: StoreReader,
    pick: Pick,
    offers: Sequence[Offer],
    compared: Mapping[TurnKey, ComparedTurn],
    recipe: Recipe,
) -> list[Offer]:
    """Return the offers that a pick accepts, with the strata that are computed in Python."""
    found = [offer for offer in offers if offer.key in compared]
    if "language" in pick.by and pick.label in ("stratified", "uncovered"):
        found = [
            offer._replace(label=_with(offer.label, language_of(compared[offer.key].text)))
            for offer in found
        ]
    if not pick.against:
        return found
    path = Path(pick.against)
    cases = read_set(path if path.is_absolute() else recipe.folder / path).cases
    if pick.label == "new":
        radius = RADIUS if recipe.radius is None else recipe.radius
        return _new(found, compared, cases, radius)
    covered = {_value(pick, turn) for turn in seen_of_set(cases, store)}
    return [offer for offer in found if offer.label.partition(":")[2] not in covered]


def _with(label: str, value: str) -> str:
    return f"{label}, {value}" if ":" in label else f"{label}:{value}"


def _value(pick: Pick, turn: Seen) -> str | None:
    """Return the stratum of a case's turn as in labels; None if unknown."""
    values = {
        "tool_path": " > ".join(turn.tools),
        "app": turn.key.app,
        "model": turn.model,
        "version": turn.version,
        "language": language_of(turn.text),
    }
    names = sorted(pick.by, key=lambda name: name == "language")  # labels end with the language
    found = [values[name] for name in names]
    return None if None in found else ", ".join(value or "(none)" for value in found)


def _new(
    offers: Sequence[Offer],
    compared: Mapping[TurnKey, ComparedTurn],
    cases: Sequence[CaseData],
    radius: float,
) -> list[Offer]:
    """Return the offers that are not similar to any case of a set: other tools or other words."""
    texts: dict[str, list[str]] = {}
    for case in cases:
        for turn in expected_turns(case):
            text = normal(message_text(turn.get("userContent")))
            texts.setdefault(tool_path(turn), []).append(text)
    known = {path: SimilarTexts(found) for path, found in texts.items()}

    def is_new(offer: Offer) -> bool:
        one = compared[offer.key]
        index = known.get(one.block.tool_path)
        return index is None or float(index.to_text(normal(one.text)).max()) < radius

    return [offer for offer in offers if is_new(offer)]


def _count_alike(window: WindowTurns, radius: float, chosen: Sequence[Chosen]) -> None:
    """Set the traffic that each chosen turn represents: the turns of its block to which it is the nearest."""
    blocks: dict[Block, list[Chosen]] = {}
    for one in chosen:
        blocks.setdefault(one.turn.block, []).append(one)
    indexes = {
        block: SimilarTexts([normal(one.turn.text) for one in found])
        for block, found in blocks.items()
    }
    for one in chosen:
        one.weight, one.members = 0.0, 0
    nearest: dict[tuple[Block, str], Chosen | None] = {}
    for compared in window.in_blocks(list(blocks)):
        place = (compared.block, normal(compared.text))
        if place not in nearest:
            similar = indexes[compared.block].to_text(place[1])
            best = int(similar.argmax())
            near = similar[best] >= radius
            nearest[place] = blocks[compared.block][best] if near else None
        if (taken := nearest[place]) is not None:
            taken.weight += compared.weight
            taken.members += 1
    for one in chosen:
        if not one.members:  # a random draw of the traffic need not contain it
            one.weight, one.members = one.turn.weight, 1
