"""The independent checker of invariants between the ledger, the log and the store after any faults.

It knows the wire format and the tables from their documentation and imports nothing of the product. `check`
returns findings, or none if all invariants hold; each has one of the kinds below.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from chaos.evidence import Evidence, Record, Turn, TurnKey

LOST = "lost"
DUPLICATED = "duplicated"
TORN = "torn"
UNACCOUNTED = "unaccounted"
WRONG_SCORE = "wrong score"
WRONG_OFFSET = "wrong offset"
DEAD_LETTER = "dead letter"
RAISED = "raised"
"""Not found by a look at the evidence: something raised, so that there is none."""

LARGEST_VALUE = 1_000_000
TYPES = ("evaltap.case", "evaltap.manifest", "evaltap.feedback")


class Finding(NamedTuple):
    """Something that must not be."""

    kind: str
    what: str


def check(evidence: Evidence) -> list[Finding]:
    """Return what is wrong."""
    look = _Look(evidence)
    return [
        *_lost(look),
        *_numbers(look),
        *_accounts(look),
        *(() if not evidence.tables else _landed(look)),
        *(() if not evidence.tables else _letters(look)),
        *(() if not evidence.tables else _offsets(look)),
        *(() if not evidence.tables else _scores(look)),
    ]


def what_is_wrong_with(record: Record) -> str | None:
    """Return why nobody could land the record, judged by the documented wire format alone."""
    headers, value = record.headers, record.value
    if not value or len(value) > LARGEST_VALUE:
        return "no value" if not value else "too large"
    kind = headers.get("ce_type")
    if kind not in TYPES:
        return "ce_type"
    if not re.fullmatch(rf"{re.escape(kind)}/1\.[0-9]+", headers.get("schema", "")):
        return "schema"
    promised = headers.get("content_sha256")
    if promised is not None and promised != hashlib.sha256(value).hexdigest():
        return "hash"
    try:
        body = json.loads(value)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(body, dict):
        return "no object"
    if kind == "evaltap.case":
        turns = body.get("actualConversation")
        whole = body.get("evalId") and isinstance(turns, list) and len(turns) == 1
        numbered = headers.get("producer_id") and headers.get("seq", "").isdecimal()
        return None if whole and numbered else "no case"
    return None


class _Case(NamedTuple):
    """A case record, read."""

    record: Record
    key: TurnKey
    revision: int
    turn: dict[str, Any]


class _Look:
    """The evidence, read once for all laws."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.tables = evidence.tables
        self.bad: dict[tuple[str, int, int], Record] = {}
        self.on_log: list[_Case] = []
        self.manifests: list[tuple[Record, dict[str, Any]]] = []
        for record in evidence.log:
            if what_is_wrong_with(record) is None:
                self._read(record, self.on_log)
            else:
                self.bad[record[:3]] = record
        self.elsewhere: list[_Case] = []
        self.gone: list[_Case] = []
        for records, into in ((evidence.spooled, self.elsewhere), (evidence.gone, self.gone)):
            for record in records:
                if what_is_wrong_with(record) is None:
                    self._read(record, into)
        self.turns = {
            (*_key(row), row["invocation_id"], row["turn_revision"]): row
            for row in self.tables.get("turns", ())
        }
        self.landed_of: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for key in self.turns:
            self.landed_of[key[2]].add((key[3], key[4]))

    def _read(self, record: Record, into: list[_Case]) -> None:
        body = json.loads(record.value)
        if record.headers["ce_type"] == "evaltap.manifest":
            self.manifests.append((record, body))
        elif record.headers["ce_type"] == "evaltap.case":
            (turn,) = body["actualConversation"]
            app = (body.get("sessionInput") or {}).get("appName") or ""
            eval_set = body.get("evalSetId") or body["evalId"]
            key = (app, eval_set, body["evalId"], turn["invocationId"])
            into.append(_Case(record, key, (body.get("source") or {}).get("revision", 1), turn))


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["app_name"], row["eval_set_id"], row["eval_id"]


def _lost(look: _Look) -> Iterator[Finding]:
    """Every safe turn of the ledger is somewhere, and says what the agent said."""
    seen: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for case in (*look.on_log, *look.elsewhere, *look.gone):
        seen[case.key[2], case.key[3], case.revision].append(case.turn)
    landed = {(key[2], key[3], key[4]) for key in look.turns}
    for turn in look.evidence.ledger.turns:
        found = seen.get((turn.eval_id, turn.invocation_id, turn.revision), [])
        if (
            not found
            and turn.safe
            and (turn.eval_id, turn.invocation_id, turn.revision) not in landed
        ):
            yield Finding(LOST, f"{_name(turn)} is nowhere")
        for written in found:
            if not _says(written, turn):
                yield Finding(TORN, f"{_name(turn)} is not what the agent said")


def _says(written: dict[str, Any], turn: Turn) -> bool:
    answer = (written.get("finalResponse") or {}).get("content")
    return (turn.answer is None or answer == turn.answer) and (
        turn.tools is None or len(written.get("tools") or ()) == turn.tools
    )


def _name(turn: Turn) -> str:
    return f"turn {turn.eval_id}/{turn.invocation_id} revision {turn.revision}"


def _numbers(look: _Look) -> Iterator[Finding]:
    """Each producer's numbers are dense, and a number names one content."""
    contents: dict[tuple[str, int], set[bytes]] = defaultdict(set)
    for case in (*look.on_log, *look.elsewhere, *look.gone):
        producer = case.record.headers["producer_id"]
        contents[producer, int(case.record.headers["seq"])].add(case.record.value)
    highest: Counter[str] = Counter()
    numbers: dict[str, set[int]] = defaultdict(set)
    for (producer, number), values in contents.items():
        numbers[producer].add(number)
        highest[producer] = max(highest[producer], number)
        if len(values) > 1:
            yield Finding(UNACCOUNTED, f"number {number} of {producer} was given to several turns")
    for row in look.tables.get("dead_letters", ()):
        named = {name: text for name, text, *_ in json.loads(row["record_headers"] or "[]")}
        if str(named.get("seq", "")).isdecimal():
            numbers[named.get("producer_id", "")].add(int(named["seq"]))
    for row in look.turns.values():
        numbers[row["producer_id"]].add(row["seq"])
    if look.evidence.power_cut:
        return
    for record, body in look.manifests:
        producer = body["producerId"]
        highest[producer] = max(highest[producer], body["highestSeq"])
        if record.headers.get("producer_id") != producer:
            yield Finding(TORN, f"a manifest of {producer} came from another producer")
    for producer, last in highest.items():
        if missing := set(range(1, last + 1)) - numbers[producer]:
            yield Finding(UNACCOUNTED, f"numbers of {producer} are missing: {sorted(missing)[:5]}")


def _accounts(look: _Look) -> Iterator[Finding]:
    """A recorder that was closed in order accounts for every turn, and its last manifest says so."""
    final = {body["producerId"]: body for _, body in look.manifests if body.get("closing") is True}
    for closed in look.evidence.ledger.closed:
        dropped = sum(closed.dropped.values())
        if closed.begun != closed.numbered + dropped:
            yield Finding(
                UNACCOUNTED,
                f"{closed.producer_id}: {closed.begun} turns begun, {closed.numbered} numbered,"
                f" {dropped} dropped",
            )
        body = final.get(closed.producer_id)
        if body is None or look.evidence.power_cut:
            continue
        if (body["highestSeq"], body["drops"]) != (closed.numbered, dict(closed.dropped)):
            yield Finding(UNACCOUNTED, f"the last manifest of {closed.producer_id} says {body}")


def _landed(look: _Look) -> Iterator[Finding]:
    """What is on the log is landed once, whole, at its latest revision, in a case of that revision."""
    written = {(*case.key, case.revision): case.turn for case in (*look.on_log, *look.gone)}
    latest: dict[TurnKey, int] = {}
    for case in look.on_log:
        latest[case.key] = max(latest.get(case.key, 0), case.revision)
    if look.evidence.drained:
        for turn_key, revision in latest.items():
            if (*turn_key, revision) not in look.turns:
                yield Finding(LOST, f"{turn_key} revision {revision} is on the log, never landed")
        yield from _gaps(look)
    yield from _twice(look)
    calls = Counter(
        (*_key(row), row["invocation_id"], row["turn_revision"])
        for row in look.tables["tool_calls"]
    )
    sums: Counter[tuple[str, str, str]] = Counter()
    best: dict[TurnKey, int] = {}
    for key, row in look.turns.items():
        best[key[:4]] = max(best.get(key[:4], 0), key[4])
        turn = json.loads(row["actual_json"])
        if written.get(key, turn if look.evidence.power_cut else None) != turn:
            yield Finding(TORN, f"{key} landed with another content than the log has")
        if calls[key] != len(turn.get("tools") or ()):
            yield Finding(TORN, f"{key} landed with {calls[key]} tool calls")
    for turn_key, revision in best.items():
        sums[turn_key[:3]] += revision
    newest: dict[tuple[str, str, str], int] = {}
    for row in look.tables["cases"]:
        newest[_key(row)] = max(newest.get(_key(row), 0), row["revision"])
    if newest != dict(sums):
        odd = sorted(set(newest.items()) ^ set(sums.items()))[:3]
        yield Finding(TORN, f"cases are not at the revision of their turns: {odd}")
    answers = {
        (turn.eval_id, turn.invocation_id, turn.revision): turn
        for turn in look.evidence.ledger.turns
    }
    for key, row in look.turns.items():
        said = answers.get((key[2], key[3], key[4]))
        if said is not None and not _says(json.loads(row["actual_json"]), said):
            yield Finding(TORN, f"{key} landed with another answer than the agent gave")


def _twice(look: _Look) -> Iterator[Finding]:
    """No row of any table stands there twice."""
    identities = {
        "turns": ("app_name", "eval_set_id", "eval_id", "invocation_id", "turn_revision"),
        "cases": ("app_name", "eval_set_id", "eval_id", "revision"),
        "tool_calls": ("app_name", "eval_set_id", "eval_id", "invocation_id", "turn_revision",
                       "call_index"),
        "dead_letters": ("topic", "partition_number", "record_offset"),
    }  # fmt: skip
    for table, columns in identities.items():
        counts = Counter(tuple(row[name] for name in columns) for row in look.tables[table])
        for identity, count in counts.items():
            if count > 1:
                yield Finding(DUPLICATED, f"{table} holds {identity} {count} times")


def _gaps(look: _Look) -> Iterator[Finding]:
    """What the log deleted before it was landed is missing only where the consumer has said so."""
    told = [
        (found[1], int(found[2]), int(found[3]), int(found[4]))
        for gap in look.evidence.gaps
        if (found := re.match(r"(.+)\[(\d+)\]: records (\d+) to (\d+) are gone", gap))
    ]
    for case in look.gone:
        revisions = (key[4] for key in look.turns if key[:4] == case.key)
        if any(revision >= case.revision for revision in revisions):
            continue
        topic, partition, offset = case.record[:3]
        if not any((topic, partition) == gap[:2] and gap[2] <= offset <= gap[3] for gap in told):
            yield Finding(LOST, f"{case.key} was deleted before it landed, and nobody said so")


def _letters(look: _Look) -> Iterator[Finding]:
    """Each bad record is one dead letter with its reason and bytes; no good one is."""
    letters = {
        (row["topic"], row["partition_number"], row["record_offset"]): row
        for row in look.tables["dead_letters"]
    }
    good = {case.record[:3] for case in look.on_log}
    for place, row in letters.items():
        if not row["reason"] or not row["detail"]:
            yield Finding(DEAD_LETTER, f"{place} has no reason")
        if place in look.bad and (row["record_value"] or b"") != look.bad[place].value:
            yield Finding(DEAD_LETTER, f"{place} does not hold the record's bytes")
        if place in good:
            yield Finding(DEAD_LETTER, f"{place} is a good record")
    if look.evidence.drained:
        for place in look.bad.keys() - letters.keys():
            yield Finding(DEAD_LETTER, f"{place} is a bad record and no dead letter")


def _offsets(look: _Look) -> Iterator[Finding]:
    """The stored offsets are where the log ends, once all is read, and never beyond it."""
    stored: dict[tuple[str, int], int] = {}
    for row in look.tables["offsets"]:
        place = (row["topic"], row["partition_number"])
        stored[place] = max(stored.get(place, 0), row["next_offset"])
    for place, end in look.evidence.ends.items():
        offset = stored.get(place, 0)
        if offset > end:
            yield Finding(WRONG_OFFSET, f"{place}: {offset} is stored, the log ends at {end}")
        elif look.evidence.drained and offset != end and end:
            yield Finding(WRONG_OFFSET, f"{place}: {offset} is stored, all up to {end} was read")


def _scores(look: _Look) -> Iterator[Finding]:
    """Each case revision and metric has one score, and it is the one that its turns must get."""
    for table, columns in _SCORED.items():
        rows = look.tables[table]
        for identity, count in Counter(
            tuple(row[name] for name in columns) for row in rows
        ).items():
            if count > 1:
                yield Finding(DUPLICATED, f"{table} holds {identity} {count} times")
        for row in rows:
            # What a crashed run did besides answering may have a score.
            without = row["status"] in ("error", "not_evaluated")
            if row["status"] != "crashed" and (row["score"] is None) != without:
                yield Finding(
                    WRONG_SCORE, f"{row['status']} with score {row['score']}: {row['eval_id']}"
                )
            if row["status"] in ("error", "not_evaluated", "crashed") and not row["reason"]:
                yield Finding(WRONG_SCORE, f"{row['status']} without a reason: {row['eval_id']}")
    if not look.tables["run_metrics"]:
        return
    yield from _case_scores(look)
    yield from _turn_scores(look)


_SCORED = {
    "scores": ("run_id", "app_name", "eval_set_id", "eval_id", "revision", "metric_digest"),
    "turn_scores": ("run_id", "app_name", "eval_set_id", "eval_id", "invocation_id",
                    "turn_revision", "metric_digest"),
}  # fmt: skip


def _case_scores(look: _Look) -> Iterator[Finding]:
    metrics = {row["metric_name"] for row in look.tables["run_metrics"]}
    newest: dict[tuple[str, str, str], int] = {}
    known = set()
    for row in look.tables["cases"]:
        newest[_key(row)] = max(newest.get(_key(row), 0), row["revision"])
        known.add((*_key(row), row["revision"]))
    found = {
        (*_key(row), row["revision"], row["metric_name"]): row for row in look.tables["scores"]
    }
    expected: dict[tuple[str, str], list[str]] = defaultdict(list)
    best: dict[tuple[str, str], Turn] = {}
    for turn in look.evidence.ledger.turns:
        named = (turn.eval_id, turn.invocation_id)
        landed = (turn.invocation_id, turn.revision) in look.landed_of[turn.eval_id]
        if landed and (named not in best or best[named].revision < turn.revision):
            best[named] = turn
    for turn in best.values():
        for metric, status in turn.scores.items():
            expected[turn.eval_id, metric].append(status)
    for key in found:
        if key[:4] not in known:
            yield Finding(WRONG_SCORE, f"{key} was scored and never landed")
    # The newest revision of a turn tells how its run ended.
    ends: dict[TurnKey, tuple[int, str]] = {}
    for row in look.tables["turns"]:
        turn_key = (*_key(row), row["invocation_id"])
        ends[turn_key] = max(
            ends.get(turn_key, (0, "")), (row["turn_revision"], row["status"] or "")
        )
    crashed = {key[2] for key, (_, end) in ends.items() if end in ("error", "incomplete")}
    if not look.evidence.drained:
        return
    for case, revision in newest.items():
        for metric in metrics:
            row_found = found.get((*case, revision, metric))
            wanted = expected.get((case[2], metric))
            if case[2] in crashed:
                wanted = ["crashed"]
            if row_found is None:
                yield Finding(LOST, f"{case} revision {revision} has no score of {metric}")
            elif wanted and row_found["status"] != _summary(wanted):
                yield Finding(
                    WRONG_SCORE,
                    f"{case} revision {revision}: {metric} is {row_found['status']},"
                    f" want {_summary(wanted)}",
                )


def _summary(statuses: list[str]) -> str:
    for status in ("crashed", "error", "failed", "passed"):
        if status in statuses:
            return status
    return "not_evaluated"


def _turn_scores(look: _Look) -> Iterator[Finding]:
    expected = {
        (turn.eval_id, turn.invocation_id, turn.revision, metric): status
        for turn in look.evidence.ledger.turns
        for metric, status in turn.scores.items()
    }
    found = set()
    for row in look.tables["turn_scores"]:
        key = (row["eval_id"], row["invocation_id"], row["turn_revision"], row["metric_name"])
        found.add(key)
        if (*_key(row), row["invocation_id"], row["turn_revision"]) not in look.turns:
            yield Finding(WRONG_SCORE, f"{key} was scored and never landed")
        if key in expected and row["status"] not in (expected[key], "crashed"):
            yield Finding(WRONG_SCORE, f"{key} is {row['status']}, want {expected[key]}")
    if not look.evidence.drained:
        return
    best: dict[TurnKey, int] = {}
    for landed in look.turns:
        best[landed[:4]] = max(best.get(landed[:4], 0), landed[4])
    # An evaluator that failed has a row for the case, and none for its turns.
    failed = {
        (*_key(row), row["metric_name"])
        for row in look.tables["scores"]
        if row["status"] == "error" or (row["status"] == "crashed" and row["score"] is None)
    }
    for metric in {row["metric_name"] for row in look.tables["run_metrics"]}:
        for turn_key, revision in best.items():
            key = (*turn_key[2:], revision, metric)
            if key not in found and (*turn_key[:3], metric) not in failed:
                yield Finding(LOST, f"{key} has no turn score")
