"""Group near-duplicate turns: similar words, the same tools and the same outcome."""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

from evaltap.evaluator.analysis.filters.choice import turns_with
from evaltap.evaluator.curation.near import RADIUS, Progress, TextGroup, near_groups, normal
from evaltap.evaluator.curation.picks import TurnKey, scope_of, source_of
from evaltap.evaluator.curation.recipe import Recipe
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import Row, Scratch, StoreReader


class Block(NamedTuple):
    """Properties that must be equal: a failure never joins a success, nor "cancel" a "track"."""

    app: str
    tool_path: str
    outcome: str


class ComparedTurn(NamedTuple):
    """A turn in the form used for comparison."""

    key: TurnKey
    block: Block
    text: str
    """The user's message."""
    weight: float = 1.0
    copies: float = 1.0
    """The number of recorded turns of its block for which it stands; the weight includes them."""
    clean: bool = True
    """Whether no run of its session failed."""
    turns: int = 1
    """The turns of its block with its text, if it stands for all of them; the weight includes them."""


@dataclass(frozen=True, slots=True)
class TurnGroup:
    """Turns that are near-duplicates of the first of them."""

    members: tuple[ComparedTurn, ...]
    """The medoid first; the others by name."""
    weight: float
    """The number of turns of the traffic that they represent."""
    similarities: Mapping[TurnKey, float]
    doubtful: int

    @property
    def medoid(self) -> ComparedTurn:
        """The turn that represents the group."""
        return self.members[0]

    @property
    def turns(self) -> int:
        """The number of turns."""
        return sum(one.turns for one in self.members)

    def data(self, members: Sequence[str]) -> dict[str, object]:
        """Return the group as JSON data, with the names of its turns."""
        medoid = self.medoid
        return {
            "medoid": medoid.key.name,
            "members": members,
            "weight": self.weight,
            "app": medoid.block.app,
            "path": medoid.block.tool_path,
            "outcome": medoid.block.outcome,
            "text": medoid.text,
        }


class Likeness(NamedTuple):
    """The thresholds at which texts are near-duplicates."""

    radius: float = RADIUS
    semantic: float | None = None
    """The cosine of word vectors, which must be installed."""


def turn_groups(
    turns: Iterable[ComparedTurn],
    likeness: Likeness = Likeness(),  # noqa: B008  # a frozen value
    progress: Progress = lambda _: None,
) -> list[TurnGroup]:
    """Return the groups, the heaviest first; every turn is in exactly one group.

    The result does not depend on the order of turns.
    """
    blocks: dict[Block, dict[str, list[ComparedTurn]]] = {}
    for one in turns:
        blocks.setdefault(one.block, {}).setdefault(normal(one.text), []).append(one)
    embed = None if likeness.semantic is None else _embedder()
    groups: list[TurnGroup] = []
    done = 0
    for block in sorted(blocks):
        by_text = blocks[block]
        texts = sorted(by_text)
        weights = [sum(one.weight for one in by_text[text]) for text in texts]
        found = near_groups(
            texts,
            weights,
            radius=likeness.radius,
            vectors=embed(texts) if embed else None,
            cosine=likeness.semantic or 1.0,
            progress=_from(done, progress),
        )
        done += len(texts)
        groups += [_group(one, texts, by_text) for one in found]
    return sorted(groups, key=lambda group: (-group.weight, group.medoid.key))


def _from(before: int, progress: Progress) -> Progress:
    return lambda grouped: progress(before + grouped)


def _group(
    group: TextGroup, texts: Sequence[str], by_text: Mapping[str, Sequence[ComparedTurn]]
) -> TurnGroup:
    # Among equals, a turn of a clean session is the better example.
    named = [
        sorted(by_text[texts[place]], key=lambda one: (not one.clean, one))
        for place in group.members
    ]
    first, *same = named[0]
    members = (first, *sorted(chain(same, *named[1:])))
    similarities = {
        one.key: similarity
        for turns, similarity in zip(named, group.similarities, strict=True)
        for one in turns
    }
    return TurnGroup(members, sum(one.weight for one in members), similarities, group.doubtful)


def _embedder() -> Callable[[Sequence[str]], Any]:
    import numpy as np

    from evaltap.evaluator.scoring.embeddings import WordLlamaEmbedder

    embedder = WordLlamaEmbedder()

    def embed(texts: Sequence[str]) -> object:
        vectors = np.asarray(embedder.embed(texts), np.float64)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    return embed


def health(groups: Sequence[TurnGroup]) -> dict[str, Any]:
    """Return figures for assessing the groups, and warnings."""
    turns = sum(group.turns for group in groups)
    together = sum(group.turns for group in groups if group.turns > 1)
    likeness, others = 0.0, 0
    in_block: dict[Block, int] = {}
    for group in groups:
        medoid = group.medoid
        in_block[medoid.block] = in_block.get(medoid.block, 0) + group.turns
        for one in group.members:
            count = one.turns - (one is medoid)
            others += count
            likeness += count * group.similarities[one.key]
    warnings = [
        f"one group has {group.turns / in_block[group.medoid.block]:.0%} of the"
        f" {in_block[group.medoid.block]:,} turns with the tools"
        f" {group.medoid.block.tool_path or '(none)'!r}: {group.medoid.text[:60]!r}"
        for group in groups
        if group.turns > 20
        and group.turns > 0.05 * in_block[group.medoid.block]
        and in_block[group.medoid.block] > group.turns
    ]
    return {
        "groups": len(groups),
        "turns": turns,
        "largest": max((group.turns for group in groups), default=0),
        "share_in_groups": together / turns if turns else 0.0,
        "mean_similarity": likeness / others if others else None,
        "doubtful": sum(group.doubtful for group in groups),
        "warnings": warnings,
    }


MOST_COMPARED: Final = 20_000
"""The number of turns that are compared with chosen ones; large blocks are sampled."""
LEAST_COMPARED: Final = 500
"""The minimum number of compared turns per block, however many blocks there are."""

BATCH: Final = 20_000
"""The number of turns that are read at once."""
_KEY: Final = "app, eval_set_id, eval_id, invocation_id"


@dataclass(frozen=True, slots=True)
class WindowTurns:
    """The turns of a recipe's window, with blocks that are computed once."""

    store: StoreReader
    turns: Scratch

    def weight(self) -> float:
        """Return the number of turns of the traffic."""
        ((total,),) = self.store.rows(f"SELECT coalesce(sum(weight), 0) FROM {self.turns}")
        return float(total)

    @contextmanager
    def texts(self) -> Iterator["WindowTexts"]:
        """Yield the distinct texts of the turns."""
        chosen = f"SELECT *, 1::DOUBLE AS copies FROM {self.turns}"
        query = sql(__name__, "compared_turns").format(chosen=chosen)
        with self.store.scratch(f"FROM ({query}) ORDER BY ALL") as rows:
            yield WindowTexts(self.store, rows)

    def of(self, keys: Sequence[TurnKey]) -> dict[TurnKey, ComparedTurn]:
        """Return the turns with these keys."""
        with self._some(_KEY, keys) as offered:
            found = self._compared_turns(
                f"SELECT *, 1::DOUBLE AS copies FROM {self.turns} SEMI JOIN {offered} USING ({_KEY})"
            )
        return {one.key: one for one in found}

    def in_blocks(
        self, blocks: Sequence[Block], without: Iterable[TurnKey] = ()
    ) -> list[ComparedTurn]:
        """Return the turns of some blocks, each with the number of turns that it represents.

        Blocks with many turns are sampled, reproducibly.
        """
        most = max(LEAST_COMPARED, MOST_COMPARED // max(len(blocks), 1))
        with (
            self._some("app, tool_path, outcome", sorted(blocks)) as some,
            self._some(_KEY, sorted(without)) as others,
        ):
            drawn = sql(__name__, "drawn_turns").format(
                turns=self.turns, blocks=some, without=others
            )
            return self._compared_turns(drawn, {"most": most})

    def _some(self, columns: str, rows: Sequence[Row]) -> AbstractContextManager[Scratch]:
        return self.store.scratch(f"SELECT {columns} FROM {self.turns} LIMIT 0", rows=rows)

    def _compared_turns(
        self, chosen: str, parameters: dict[str, object] | None = None
    ) -> list[ComparedTurn]:
        query = sql(__name__, "compared_turns").format(chosen=chosen)
        rows = self.store.rows(f"FROM ({query}) ORDER BY ALL", parameters)
        return [
            ComparedTurn(
                TurnKey(*key), Block(key[0], path, outcome), text, weight * copies, copies, clean
            )
            for *key, path, outcome, text, weight, copies, clean in rows
        ]


class WindowTexts:
    """The distinct normalised texts of each block, read in batches: a million turns are not held at once."""

    def __init__(self, store: StoreReader, rows: Scratch) -> None:
        self._store = store
        self._rows = rows
        self._text_of = array("I")  # of each row
        self.turns = self._read()
        """The first turn of each text, which stands for all of them."""

    def _read(self) -> list[ComparedTurn]:
        known: dict[tuple[Block, str], int] = {}
        found: list[ComparedTurn] = []
        for *key, path, outcome, text, weight, _, clean in self._batches("*"):
            block = Block(key[0], path, outcome)
            place = known.setdefault((block, normal(text)), len(found))
            self._text_of.append(place)
            turn = ComparedTurn(TurnKey(*key), block, text, weight, 1.0, clean)
            if place == len(found):
                found.append(turn)
                continue
            one = found[place]
            first = (
                turn if clean and not one.clean else one
            )  # a clean session is the better example
            found[place] = first._replace(weight=one.weight + weight, turns=one.turns + 1)
        return found

    def members(self, groups: Sequence[TurnGroup]) -> list[list[str]]:
        """Return the names of the turns of each group, the medoid's first, the others by name."""
        place_of = {one.key: place for place, one in enumerate(self.turns)}
        group_of = array("I", bytes(array("I").itemsize * len(self.turns)))
        for number, group in enumerate(groups):
            for one in group.members:
                group_of[place_of[one.key]] = number
        names = [[group.medoid.key.name] for group in groups]
        for key, text in zip(self._batches(_KEY), self._text_of, strict=True):
            turn, number = TurnKey(*key), group_of[text]
            if turn != groups[number].medoid.key:
                names[number].append(turn.name)
        return names

    def _batches(self, columns: str) -> Iterator[Row]:
        ((count,),) = self._store.rows(f"SELECT count(*) FROM {self._rows}")
        for first in range(0, count, BATCH):
            yield from self._store.rows(
                f"SELECT {columns} FROM {self._rows} WHERE rowid >= $first AND rowid < $end ORDER BY rowid",
                {"first": first, "end": first + BATCH},
            )


@contextmanager
def window_turns(store: StoreReader, recipe: Recipe) -> Iterator[WindowTurns]:
    """Yield the turns of a recipe's window."""
    turns = turns_with(recipe.where, "tool_path outcome")
    query = sql(__name__, "window_turns").format(turns=turns, source=source_of(store, recipe))
    with store.scratch(query, scope_of(recipe)) as found:
        yield WindowTurns(store, found)
