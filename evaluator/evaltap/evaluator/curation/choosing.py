"""Fill a recipe: pick one turn from each group of near-duplicates."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

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
from evaltap.evaluator.curation.picks import OFFERED, STRATIFIED, Offer, TurnKey, offered
from evaltap.evaluator.curation.recipe import Pick, Recipe
from evaltap.evaluator.curation.values import Seen, seen_of_set
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.text import did_you_mean_one_of

Progress = Callable[[int], None]


@dataclass(slots=True)
class Chosen:
    """A picked turn, and the traffic that it represents."""

    turn: ComparedTurn
    labels: list[str]
    weight: float = 1.0
    """The number of turns of the traffic that it represents: similar ones, over the chance that one of them
    was drawn."""
    members: int = 1
    """The number of similar recorded turns, including itself."""


@dataclass(slots=True)
class Choices:
    """The turns that a recipe picked, by pick, and the groups of the offered turns."""

    chosen: list[Chosen] = field(default_factory=list)
    picks: list[dict[str, object]] = field(default_factory=list)
    groups: list[TurnGroup] = field(default_factory=list)
    window: float = 0.0
    """The number of turns of the traffic in the recipe's window."""


def choose(store: StoreReader, recipe: Recipe, progress: Progress = lambda _: None) -> Choices:
    """Return the turns that a recipe picks, in the order of its picks."""
    offers = [offered(store, recipe, pick) for pick in recipe.picks]
    with window_turns(store, recipe) as window:
        compared = window.of(sorted({offer.key for some in offers for offer in some}))
        groups: list[TurnGroup] = []
        if recipe.radius is not None:
            likeness = Likeness(recipe.radius, recipe.semantic)
            groups = turn_groups(compared.values(), likeness, progress)
        filling = _Filling(compared, groups, recipe.limit)
        taken, allowed = list[dict[str, Any]](), list[list[Offer]]()
        for pick, some in zip(recipe.picks, offers, strict=True):
            allowed.append(_allowed(store, pick, some, compared, recipe))
            count = filling.fill(pick, allowed[-1], cut=len(some) >= OFFERED)
            taken.append({"label": pick.label, "offered": len(some), "taken": count})
            if pick.metric and not some and (note := _unknown_metric(store, pick.metric)):
                taken[-1]["note"] = note
        for some in allowed:
            filling.label(some)
        whole = window.weight()
        _weigh(filling, window, recipe.radius, whole)
    return Choices(list(filling.chosen.values()), taken, groups, whole)


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
        groups: Sequence[TurnGroup],
        limit: int | None,
    ) -> None:
        self.compared = compared
        self.groups = groups
        self._groups = {one.key: group for group in groups for one in group.members}
        self._limit = limit
        self._taken_groups: set[TurnKey] = set()
        self.chosen: dict[TurnKey, Chosen] = {}
        self.ends: dict[TurnKey, float] = {}
        """Up to which draw a turn would have been taken: over its weight, the chance that it was."""
        self.end_of_others = 0.0
        """The same for turns that were not offered, because there were too many."""

    def group_of(self, key: TurnKey) -> TurnKey:
        """Return the medoid of the turn's group; the turn itself if near-duplicates are kept."""
        return self._groups[key].medoid.key if key in self._groups else key

    def fill(self, pick: Pick, offers: Sequence[Offer], *, cut: bool) -> int:
        """Take the offers that a pick may use; return their number.  `cut`: there are more like them."""
        offered_now = {offer.key: offer for offer in offers}
        most = self._most(pick, offers)
        strata, ends = Counter[str](), dict[str, float]()
        count = 0
        for offer in offers:
            stratum = _stratum(pick, offer)
            if count >= most or (stratum and strata[stratum] >= pick.per):
                ends.setdefault(stratum, offer.draw or 0.0)
            elif self._take(offer, offered_now):
                strata[stratum] += 1
                count += 1
            if offer.draw is None:  # a measure orders them: it is certain, or has no chance
                self._extend(offer.key, ends.get(stratum, math.inf))
        if cut and offers:
            ends.setdefault("", offers[-1].draw or 0.0)
            if pick.label == "random":
                self.end_of_others = max(self.end_of_others, ends[""])
        for offer in offers:
            if offer.draw is not None:
                self._extend(offer.key, ends.get(_stratum(pick, offer), math.inf))
        return count

    def _most(self, pick: Pick, offers: Sequence[Offer]) -> int:
        """Return how many offers a pick may take at most."""
        left = None if self._limit is None else self._limit - len(self.chosen)
        return min(one for one in (pick.limit, pick.count, left, len(offers)) if one is not None)

    def _extend(self, key: TurnKey, end: float) -> None:
        self.ends[key] = max(end, self.ends.get(key, 0.0))

    def _take(self, offer: Offer, offered_now: Mapping[TurnKey, Offer]) -> bool:
        if offer.key in self.chosen or offer.key not in self.compared:
            return False
        key = offer.key
        if group := self._groups.get(offer.key):
            if group.medoid.key in self._taken_groups:
                return False
            self._taken_groups.add(group.medoid.key)
            # The medoid represents its group, unless this pick does not offer it.
            key = group.medoid.key if group.medoid.key in offered_now else key
        self.chosen[key] = Chosen(self.compared[key], [offered_now[key].label])
        return True

    def label(self, offers: Sequence[Offer]) -> None:
        """Add the other labels that apply to chosen turns, except those of random draws."""
        for offer in offers:
            taken = self.chosen.get(offer.key)
            drawn = offer.label.partition(":")[0] in ("random", "stratified")
            if taken is not None and not drawn and offer.label not in taken.labels:
                taken.labels.append(offer.label)


def _stratum(pick: Pick, offer: Offer) -> str:
    return offer.label if pick.label in STRATIFIED else ""


def _allowed(
    store: StoreReader,
    pick: Pick,
    offers: Sequence[Offer],
    compared: Mapping[TurnKey, ComparedTurn],
    recipe: Recipe,
) -> list[Offer]:
    """Return the offers that a pick accepts, with the strata that are computed in Python."""
    found = [offer for offer in offers if offer.key in compared]
    if "language" in pick.by and pick.label in STRATIFIED:
        found = [_with_language(offer, compared[offer.key].text) for offer in found]
    if not pick.against:
        return found
    path = Path(pick.against)
    cases = read_set(path if path.is_absolute() else recipe.folder / path).cases
    if pick.label == "new":
        is_new = _unlike(cases, RADIUS if recipe.radius is None else recipe.radius)
        return [offer for offer in found if is_new(compared[offer.key])]
    covered = {_value(pick, turn) for turn in seen_of_set(cases, store)}
    return [offer for offer in found if offer.label.partition(":")[2] not in covered]


def _with_language(offer: Offer, text: str) -> Offer:
    separator = ", " if ":" in offer.label else ":"
    return offer._replace(label=f"{offer.label}{separator}{language_of(text)}")


def _unlike(cases: Iterable[CaseData], radius: float) -> Callable[[ComparedTurn], bool]:
    """Return whether a turn is similar to no turn of some cases: it has other tools or other words."""
    texts: dict[str, list[str]] = {}
    for turn in chain.from_iterable(map(expected_turns, cases)):
        text = normal(message_text(turn.get("userContent")))
        texts.setdefault(tool_path(turn), []).append(text)
    known = {path: SimilarTexts(same) for path, same in texts.items()}

    def is_new(one: ComparedTurn) -> bool:
        index = known.get(one.block.tool_path)
        return index is None or float(index.to_text(normal(one.text)).max()) < radius

    return is_new


def _value(pick: Pick, turn: Seen) -> str | None:
    """Return the stratum of a case's turn as in labels; None if unknown."""
    values = {
        "tool_path": None if turn.tools is None else " > ".join(turn.tools),
        "app": turn.key.app,
        "model": turn.model,
        "version": turn.version,
        "language": language_of(turn.text),
    }
    names = sorted(pick.by, key=lambda name: name == "language")  # labels end with the language
    found = [values[name] for name in names]
    return None if None in found else ", ".join(value or "(none)" for value in found)


_CERTAIN: Final = 1 - 1e-9


@dataclass(slots=True)
class _Alike:
    """Turns of the window that are near-duplicates of each other."""

    weight: float = 0.0
    members: int = 0
    missed: float = 0.0
    """The logarithm of the chance that none of them was drawn."""

    def add(self, turn: ComparedTurn, end: float) -> None:
        """Add a turn that would have been drawn up to `end`."""
        self.weight += turn.weight
        self.members += 1
        chance = end * turn.weight / turn.copies
        self.missed += turn.copies * math.log1p(-chance) if chance < 1 else -math.inf

    @property
    def chance(self) -> float:
        """The chance that one of them was drawn."""
        return -math.expm1(self.missed)


def _weigh(filling: _Filling, window: WindowTurns, radius: float | None, whole: float) -> None:
    """Set the traffic that each chosen turn represents, so that all that had a chance is represented.

    Near-duplicates are taken together as soon as one is drawn: each group stands for its size over the chance
    of that (Horvitz and Thompson).  Where the chance is below 1, the weights are scaled to what is known.
    """
    found: defaultdict[TurnKey, _Alike] = defaultdict(_Alike)
    for turn in filling.compared.values():
        found[filling.group_of(turn.key)].add(turn, filling.ends.get(turn.key, 0.0))
    if radius is not None and _weight(found.values()) < whole * (1 - 1e-9):
        for group, turn in _others(filling, window, radius):
            found[group].add(turn, filling.end_of_others)
    reached = whole
    if not filling.end_of_others:
        reached = _weight(alike for alike in found.values() if alike.missed)
    chosen = [(one, found[filling.group_of(one.turn.key)]) for one in filling.chosen.values()]
    certain = _weight(alike for _, alike in chosen if alike.chance > _CERTAIN)
    drawn = [alike for _, alike in chosen if alike.chance <= _CERTAIN]
    rest = max(reached - certain, _weight(drawn))
    expanded = sum(alike.weight / alike.chance for alike in drawn)
    for one, alike in chosen:
        one.weight, one.members = alike.weight, alike.members
        if alike.chance <= _CERTAIN:
            one.weight *= rest / expanded / alike.chance


def _weight(groups: Iterable[_Alike]) -> float:
    return sum(alike.weight for alike in groups)


def _others(
    filling: _Filling, window: WindowTurns, radius: float
) -> Iterator[tuple[TurnKey, ComparedTurn]]:
    """Yield the turns that no pick offered and that resemble a group, with the nearest group's medoid."""
    blocks = sorted({one.turn.block for one in filling.chosen.values()})
    medoids = {
        block: [group.medoid for group in filling.groups if group.medoid.block == block]
        for block in blocks
    }
    indexes = {
        block: SimilarTexts([normal(one.text) for one in found]) for block, found in medoids.items()
    }
    nearest: dict[tuple[Block, str], TurnKey | None] = {}
    for one in window.in_blocks(blocks, without=filling.compared):
        place = one.block, normal(one.text)
        if place not in nearest:
            similar = indexes[one.block].to_text(place[1])
            best = int(similar.argmax())
            near = similar[best] >= radius
            nearest[place] = medoids[one.block][best].key if near else None
        if (group := nearest[place]) is not None:
            yield group, one
