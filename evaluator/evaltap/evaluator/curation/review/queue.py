"""The queue of reviews: turns are added once and handed out one by one; decisions determine their state."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from evaltap.evaluator.analysis.estimates.labels import reviewed_labels
from evaltap.evaluator.analysis.stats.agreement import Agreement, agreement
from evaltap.evaluator.cases.evalsets.content import message_text, plain_turn
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.ingest.landing.cases import DocumentReader, LandedTurns
from evaltap.evaluator.store.database import utc_now
from evaltap.evaluator.store.queries import Row, StoreReader, StoreWriter
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import iter_case_lines
from evaltap.schemas.text import did_you_mean_one_of, utc_text

DEFAULT_QUEUE: Final = "default"
LEASE: Final = timedelta(minutes=30)
"""How long a handed-out item is reserved for its reviewer."""
DECIDED: Final = ("approve", "edit", "reject", "skip")


class Wanted(NamedTuple):
    """A turn that people should review."""

    app: str
    eval_set_id: str
    eval_id: str
    invocation_id: str
    reason: str
    priority: float = 0.0
    needed: int = 1
    inclusion_probability: float | None = None
    alone: bool = False
    """Whether this very turn is meant: it is queued even if another session contains the same turn."""


@dataclass(frozen=True, slots=True)
class Item:
    """A turn in a queue, with the information for a reviewer."""

    item_id: str
    queue: str
    app: str
    eval_set_id: str
    eval_id: str
    invocation_id: str
    reason: str
    state: str
    verdict: str | None
    reviewers: tuple[str, ...]
    needed: int
    waiting: bool
    """Whether it needs a (further) reviewer."""
    before: tuple[CaseData, ...]
    """The preceding turns of the session."""
    turn: CaseData
    correction: str
    """The answer that a user requested instead."""
    after: CaseData | None
    """The turn as a reviewer edited it."""

    def seen_by(self, reviewer: str) -> "Item":
        """Return the item without others' decisions, as long as the reviewer still has to decide."""
        if not self.waiting or reviewer in self.reviewers:
            return self
        return replace(self, state="open", verdict=None, reviewers=(), after=None)

    def data(self) -> dict[str, Json]:
        found: dict[str, Json] = asdict(self)
        del found["before"], found["waiting"]
        turn, correction = plain_turn(self.turn, "1"), self.correction or None
        return {**found, "turn": turn, "correction": correction}


class Added(NamedTuple):
    """What became of the turns that somebody wanted to queue."""

    new: int
    silent: int
    """Turns that were left out: neither question nor answer was recorded, so there is nothing to review."""


def add_items(store: StoreWriter, wanted: Sequence[Wanted], queue: str = DEFAULT_QUEUE) -> Added:
    """Queue turns that have a question or an answer and are not queued yet.

    One that is queued and now in a larger draw for labels gets another row, with its probability.
    """
    known: _Known = {
        item_id: ((app, name, eval_id, turn), probability)
        for item_id, app, name, eval_id, turn, probability in store.rows(_KNOWN)
    }
    turns = _as_landed(store, {one[:4] for one in wanted})
    now = utc_now()
    rows: list[tuple[object, ...]] = []
    new = silent = 0
    for one in wanted:
        revision, turn = turns[one[:4]]
        if not any(message_text(turn.get(part)) for part in ("userContent", "finalResponse")):
            silent += 1
            continue
        item_id = _id_of(one, queue, turn, known)
        drawn = one.inclusion_probability or 0.0
        if item_id not in known or drawn > known[item_id][1]:
            new += item_id not in known
            known[item_id] = one[:4], drawn
            rows.append((item_id, queue, *one[:4], revision, *one[4:8], now))
    with store.transaction():
        store.append("review_items", rows)
    return Added(new, silent)


_Known: TypeAlias = dict[str, tuple[tuple[str, ...], float]]
"""The turn of each item, and the probability of its largest draw."""


def _id_of(one: Wanted, queue: str, turn: CaseData, known: _Known) -> str:
    shared = _item_id(queue, turn)
    if not one.alone:
        return shared
    own = _item_id(queue, turn, one[:4])
    is_of_another = shared in known and known[shared][0] != one[:4]
    return own if own in known or is_of_another else shared


def _as_landed(
    store: StoreReader, keys: Set[tuple[str, str, str, str]]
) -> dict[tuple[str, ...], tuple[int, CaseData]]:
    """Return turns as they are now, each with its revision."""
    landed = [
        ((app, name, eval_id, turn), revision, at)
        for app, name, eval_id, turn, revision, at in store.rows(
            _LATEST, {"ids": sorted({key[2] for key in keys})}
        )
        if (app, name, eval_id, turn) in keys
    ]
    texts = DocumentReader(store).read([LandedTurns(key[:3], [at]) for key, _, at in landed])
    return {
        key: (revision, orjson.loads(*found.actual))
        for (key, revision, _), found in zip(landed, texts, strict=True)
    }


_KNOWN: Final = """
SELECT item_id, app_name, eval_set_id, eval_id, invocation_id,
       max(coalesce(inclusion_probability, 0)) OVER (PARTITION BY item_id)
FROM review_items QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY added_at) = 1
"""

_LATEST: Final = """
SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, landed_seq
FROM latest_turns WHERE eval_id IN $ids ORDER BY landed_seq
"""


def _item_id(queue: str, turn: CaseData, key: Sequence[str] = ()) -> str:
    content = orjson.dumps(plain_turn(turn, "1"), option=orjson.OPT_SORT_KEYS)
    named = "\0".join((queue, *key)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(named + b"\0" + content).hexdigest()[:16]


_ITEMS: Final = """
SELECT i.item_id, i.queue, i.app_name, i.eval_set_id, i.eval_id, i.invocation_id, i.reason, i.state,
       i.verdict, i.reviewers, i.needed, i.waiting, i.after,
       (SELECT arg_max(f.correction, f.given_at) FROM v_feedback f
        WHERE f.correction <> '' AND f.app_name = i.app_name AND f.eval_set_id = i.eval_set_id
          AND f.eval_id = i.eval_id AND f.invocation_id = i.invocation_id)
FROM v_review_items i
WHERE ($queue::VARCHAR = '' OR i.queue = $queue) AND ($item::VARCHAR = '' OR i.item_id = $item)
ORDER BY i.priority DESC, i.added_at, i.item_id
"""

_SESSIONS: Final = """
SELECT app_name, eval_set_id, eval_id,
       list(invocation_id ORDER BY started_at NULLS FIRST, first_landed_seq),
       list(landed_seq    ORDER BY started_at NULLS FIRST, first_landed_seq)
FROM latest_turns SEMI JOIN (
  SELECT app_name, eval_set_id, eval_id FROM review_items
  WHERE ($queue::VARCHAR = '' OR queue = $queue) AND ($item::VARCHAR = '' OR item_id = $item)
) USING (app_name, eval_set_id, eval_id)
GROUP BY ALL ORDER BY min(landed_seq)
"""


def items(store: StoreReader, queue: str = "", item_id: str = "") -> list[Item]:
    """Return the items of a queue (or of all queues, if empty), in the order in which they are handed out.

    Items whose turn was erased or pruned are excluded.
    """
    asked = {"queue": queue, "item": item_id}
    rows = store.rows(_SESSIONS, asked)
    turns = [LandedTurns((app, name, eval_id), at) for app, name, eval_id, _, at in rows]
    sessions = {
        tuple(names): [*zip(ids, texts.actual, strict=True)]
        for (*names, ids, _), texts in zip(rows, DocumentReader(store).read(turns), strict=True)
    }
    found = (_item(row, sessions.get(tuple(row[2:5]), ())) for row in store.rows(_ITEMS, asked))
    return [one for one in found if one is not None]


def _item(row: Row, turns: Sequence[tuple[str, str]]) -> Item | None:
    name, queue, app, eval_set_id, eval_id, invocation_id, reason, state, *rest = row
    verdict, reviewers, needed, waiting, after, correction = rest
    at = next((n for n, (one, _) in enumerate(turns) if one == invocation_id), None)
    if at is None:
        return None
    return Item(
        name, queue, app, eval_set_id, eval_id, invocation_id, reason, state, verdict,
        tuple(reviewers), needed, waiting, tuple(orjson.loads(text) for _, text in turns[:at]),
        orjson.loads(turns[at][1]), correction or "", orjson.loads(after) if after else None
    )  # fmt: skip


def item(store: StoreReader, item_id: str) -> Item:
    """Return an item; raise InputError for an unknown one."""
    if not (found := items(store, item_id=item_id)):
        raise InputError(f"no item {item_id!r} to review; `evaltap review list` shows the ids")
    return found[0]


def edited_by(store: StoreReader, one: Item, reviewer: str) -> Item:
    """Return the item with the reviewer's own edit, which a further one goes on from, and none of others."""
    edits = store.column(
        "SELECT after FROM v_review_decisions WHERE item_id = ? AND reviewer = ? AND action = 'edit'",
        [one.item_id, reviewer],
    )
    return replace(one, after=orjson.loads(edits[0]) if edits else None)


def left_for(store: StoreReader, reviewer: str, queue: str = "") -> int:
    """Return how many items wait for a (further) reviewer and were not decided by this one."""
    return int(
        store.rows(
            "SELECT count(*) FROM v_review_items ANTI JOIN ("
            " SELECT item_id FROM v_review_decisions WHERE reviewer = $reviewer"
            ") USING (item_id) WHERE waiting AND ($queue::VARCHAR = '' OR queue = $queue)",
            {"reviewer": reviewer, "queue": queue},
        )[0][0]
    )


def next_item(
    store: StoreWriter, reviewer: str, queue: str = "", *, now: datetime | None = None
) -> Item | None:
    """Claim the next item that a reviewer has not decided, as they should see it; None if none is left."""
    now = now or utc_now()
    decided = "SELECT item_id FROM v_review_decisions"
    mine = store.column(f"{decided} WHERE reviewer = ?", [reviewer])
    held = store.column(
        "SELECT item_id FROM reviews WHERE action = 'claim' AND reviewer <> ? AND reviewed_at > ?"
        f" AND item_id NOT IN ({decided})",
        [reviewer, now - LEASE],
    )
    taken = {*mine, *held}
    for row in store.rows(_ITEMS, {"queue": queue, "item": ""}):
        name, waiting = row[0], row[11]
        if not waiting or name in taken:
            continue
        for one in items(store, item_id=name):  # none if the turn was erased
            decide(store, one, reviewer, "claim", now=now)
            return one.seen_by(reviewer)
    return None


def decide(
    store: StoreWriter,
    one: Item,
    reviewer: str,
    action: str,
    *,
    after: CaseData | None = None,
    labels: Sequence[str] = (),
    comment: str = "",
    undoes: str | None = None,
    now: datetime | None = None,
) -> None:
    """Write a reviewer's action, with a time after all others, even if the clock was set back.

    Raises InputError without a reviewer, and for a turn that has changed since it was queued.
    """
    if not reviewer:
        raise InputError("no reviewer given; add --as NAME, or set EVALTAP_REVIEWER")
    if one.state == "outdated":
        raise InputError(
            f"item {one.item_id}: the turn has another answer or other calls since it was queued;"
            " `evaltap review add` queues it as it is now"
        )
    ((count, last),) = store.rows("SELECT count(*), max(reviewed_at) FROM reviews")
    now = now or utc_now()
    if last is not None:
        now = max(now, last + timedelta(microseconds=1))
    parts = (one.item_id, reviewer, action, now.isoformat(), str(count))
    review_id = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    written = orjson.dumps(after).decode() if after is not None else None
    row = (
        review_id, one.item_id, one.app, one.eval_set_id, one.eval_id, one.invocation_id, reviewer,
        action, written, list(labels), comment or None, undoes, now,
    )  # fmt: skip
    with store.transaction():
        store.append("reviews", [row])


def undo(store: StoreWriter, reviewer: str, item_id: str = "") -> Item:
    """Undo this reviewer's last decision (optionally on one item); raise InputError if there is none."""
    rows = store.rows(
        "SELECT review_id, item_id FROM v_review_decisions WHERE reviewer = $reviewer"
        " AND ($item::VARCHAR = '' OR item_id = $item) ORDER BY reviewed_at DESC LIMIT 1",
        {"reviewer": reviewer, "item": item_id},
    )
    if not rows:
        raise InputError(f"{reviewer} has no decision to undo")
    ((review_id, decided),) = rows
    decide(store, item(store, decided), reviewer, "undo", undoes=review_id)
    return item(store, decided)


def edited(one: Item, *, answer: str | None = None, tools: Json = None) -> CaseData:
    """Return the turn with a reviewer's edits; `edited_by` keeps others' out of them."""
    turn = {
        key: value
        for key, value in plain_turn(one.after or one.turn, "1").items()
        if key not in ("telemetry", "capture", "state")
    }
    if answer is not None:
        turn["finalResponse"] = {"role": "assistant", "content": answer}
    if tools is not None:
        if not isinstance(tools, list) or not all(
            isinstance(tool, dict) and isinstance(tool.get("name"), str) for tool in tools
        ):
            raise InputError('expected tools: a JSON list of {"name", "arguments", "result"}')
        turn["tools"] = tools
    return turn


TWICE: Final = 5
"""Every n-th item is assigned to two people, to measure their agreement."""

_DRAWN: Final = """
SELECT app_name, eval_set_id, eval_id, invocation_id, status = 'passed' AS passes,
       count(*) OVER (PARTITION BY status = 'passed') AS of_verdict
FROM latest_turn_scores JOIN (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision FROM latest_turns
) USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
WHERE metric_name = $metric AND status IN ('passed', 'failed')
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id, invocation_id ORDER BY scored_at DESC
) = 1
ORDER BY sha256('evaltap labels' || chr(0) || $metric || chr(0) || eval_id || chr(0) || invocation_id)
"""


def draw_for_labels(store: StoreReader, metric: str, count: int) -> list[Wanted]:
    """Return turns for labelling; raise InputError if the metric has no verdicts.

    If one verdict has too few turns, more are drawn from the other.  A larger count contains the smaller
    draw.
    """
    drawn: dict[bool, list[tuple[str, str, str, str]]] = {True: [], False: []}
    for *key, passes, _ in store.rows(_DRAWN, {"metric": metric}):
        drawn[passes].append((key[0], key[1], key[2], key[3]))
    if not any(drawn.values()):
        known = store.column("SELECT DISTINCT metric_name FROM latest_turn_scores ORDER BY 1")
        hint = did_you_mean_one_of(metric, known) if known else "score some first"
        raise InputError(f"--draw {metric}: no turn has a verdict of this metric; {hint}")
    fails = min(len(drawn[False]), max(count // 2, count - len(drawn[True])))
    shares = {False: fails, True: min(len(drawn[True]), count - fails)}
    wanted = []
    for passes, taken in shares.items():
        keys = drawn[passes]
        for place, turn in enumerate(keys[:taken]):
            needed = 2 if place % TWICE == 0 else 1
            # Reviewers must not see the verdict, so it is not the reason.
            share = taken / len(keys)
            wanted.append(Wanted(*turn, f"label:{metric}", 0.0, needed, share, alone=True))
    return wanted


@dataclass(frozen=True, slots=True)
class Decisions:
    """The current decisions on landed turns, by session and turn."""

    approved: Mapping[CaseKey, set[str]] = field(default_factory=dict)
    rejected: Mapping[CaseKey, set[str]] = field(default_factory=dict)
    corrected: Mapping[CaseKey, Mapping[str, CaseData]] = field(default_factory=dict)
    """The edited turns."""
    by: Mapping[CaseKey, Mapping[str, Mapping[str, Json]]] = field(default_factory=dict)
    """State, reviewers and time, for provenance; in the order of the decisions."""


NOTHING_DECIDED: Final = Decisions()


def decisions(store: StoreReader) -> Decisions:
    """Return the reviewers' decisions."""
    approved: dict[CaseKey, set[str]] = defaultdict(set)
    rejected: dict[CaseKey, set[str]] = defaultdict(set)
    corrected: dict[CaseKey, dict[str, CaseData]] = defaultdict(dict)
    by: dict[CaseKey, dict[str, dict[str, Json]]] = defaultdict(dict)
    rows = store.rows(
        "SELECT app_name, eval_set_id, eval_id, invocation_id, verdict, state, after, reviewers,"
        " reviewed_at FROM v_review_items WHERE verdict IS NOT NULL ORDER BY reviewed_at, item_id"
    )
    for app, name, eval_id, turn, verdict, state, after, reviewers, at in rows:
        key = (app, name, eval_id)
        (approved if verdict == "good" else rejected)[key].add(turn)
        if after and verdict == "good":
            corrected[key][turn] = orjson.loads(after)
        stamp = utc_text(at, "seconds")
        by[key].pop(turn, None)  # the newest decision comes last
        by[key][turn] = {"state": state, "by": list(reviewers), "at": stamp}
    return Decisions(approved, rejected, corrected, by)


_INDEPENDENT: Final = """
SELECT item_id, d.reviewer, d.action
FROM v_review_decisions d
JOIN (FROM v_review_items WHERE $queue::VARCHAR = '' OR queue = $queue) i USING (item_id)
JOIN (
  SELECT item_id, reviewer, min(reviewed_at) AS first_at FROM reviews
  WHERE action IN ('approve', 'edit', 'reject') GROUP BY ALL
) USING (item_id, reviewer)
WHERE d.action <> 'skip'
QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY first_at) <= greatest(i.needed, 2)
ORDER BY item_id, d.reviewer
"""


def agreement_of(store: StoreReader, queue: str = "") -> tuple[Agreement, dict[str, Any]]:
    """Return the agreement of reviewers, and by name that of the two with the most common items.

    Who settled a disagreement does not count: only what others disagreed on was shown to them.
    """
    by_item: dict[str, dict[str, str]] = defaultdict(dict)
    for item_id, reviewer, verdict in store.rows(_INDEPENDENT, {"queue": queue}):
        by_item[item_id][reviewer] = verdict
    shared: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for verdicts in by_item.values():
        for one, other in combinations(sorted(verdicts), 2):
            shared[one, other].append((verdicts[one], verdicts[other]))
    most = max(sorted(shared), key=lambda pair: len(shared[pair]), default=None)
    found = agreement(
        [list(verdicts.values()) for verdicts in by_item.values()], shared[most] if most else []
    )
    return found, {
        "items": found.items,
        "share": found.share,
        "reviewers": list(most or ()),
        "kappa": found.kappa and found.kappa.value,
        "kappa_interval": found.kappa and found.kappa.interval,
        "alpha": found.alpha and found.alpha.value,
        "alpha_interval": found.alpha and found.alpha.interval,
    }


def exported(store: StoreReader, queue: str) -> list[dict[str, object]]:
    """Return the turns of a queue with their decisions."""
    return [one.data() for one in items(store, queue)]


def exported_labels(store: StoreReader, queue: str) -> list[dict[str, object]]:
    """Return the verdicts of a queue as `evaltap calibrate` reads them."""
    return [
        {
            "evalId": key.eval_id,
            "invocationId": key.invocation_id,
            "evalSetId": key.eval_set_id,
            "appName": key.app_name,
            "label": "pass" if passes else "fail",
            **({"weight": weight} if weight else {}),
        }
        for key, passes, _, weight, _ in reviewed_labels(store, queue)
    ]


def import_decisions(store: StoreWriter, file: Path, reviewer: str) -> int:
    """Store the decisions of a JSON Lines file in one transaction; return their number.

    A line has `item_id` and `action`, and optionally `answer`, `tools`, `comment` and `reviewer`.
    Raises FormatError for a line that is not a decision.
    """
    known = {one.item_id: one for one in items(store)}  # each by itself would read the whole queue
    decided = []
    for number, line in iter_case_lines(file):
        place = f"line {number}"
        row = canonical.loads(line, path=str(file), place=place)
        action = row.get("action") if isinstance(row, dict) else None
        if action not in DECIDED:
            raise FormatError(
                f"action is {action!r}; expected item_id and action, one of {', '.join(DECIDED)}",
                path=str(file), place=place
            )  # fmt: skip
        name = str(row.get("item_id"))
        one = known.get(name) or item(store, name)
        who, after = row.get("reviewer") or reviewer, None
        if action == "edit":
            own = edited_by(store, one, who)
            after = edited(own, answer=row.get("answer"), tools=row.get("tools"))
        decided.append((one, who, action, after, row.get("comment")))
    with store.transaction():
        for one, who, action, after, comment in decided:
            decide(store, one, who, action, after=after, comment=comment or "")
    return len(decided)
