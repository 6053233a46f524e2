"""Messages that are broken in every way that bytes, JSON, types and headers allow, drawn from a seed."""

import hashlib
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson

from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import (
    Manifest,
    WireRecord,
    encode_case,
    encode_feedback,
    encode_manifest,
)
from support.builders.cases import NOON, make_case, make_tool, make_turn

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, 2**31, 2**40, 2**63, 2**64 - 1, -(2**63), "", "x", "\x00",
    "a\x00b", "\u202e", "0", "NaN", [], {}, [[]], [None], {"": None}, {"a": {"b": [1, {"c": 2}]}}, "ü" * 3000,
    [1] * 50, {"capture": 5}, [{"id": 1}], {"content": 7}, {"role": None, "content": {"x": 1}},
)  # fmt: skip
RAW: tuple[bytes, ...] = (
    b"1e999", b"-1e999", b"NaN", b"Infinity", b"1" + b"0" * 400, b'"\\ud800"', b'"\xff\xfe"', b"tru",
    b"[" * 600 + b"]" * 600, b'{"a":' * 700 + b"1" + b"}" * 700, b"[" * 100_000,
    b'{"evalId":"a","evalId":"b"}', b"", b",", b'"\x01"', b"\xef\xbb\xbf1", b"1 2",
)  # fmt: skip
HEADERS: tuple[bytes, ...] = (
    b"", b"\xff", b"evaltap.case/9.0", b"evaltap.case/0.9", b"evaltap.case/1.999999", b"case", b"-1",
    b"1" * 18, b"1" * 30, b"1.5", b"\x00", b"evaltap.unknown", b"x" * 70_000, b"2026-13-99T99:99:99Z",
    b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00",
)  # fmt: skip


def good(number: int) -> WireRecord:
    """Return a whole record of its own case: a neighbour that must land whatever lies around it."""
    turn = make_turn("t", answer=f"answer {number}")
    return encode_case(
        make_case(f"good-{number}", [turn]), producer_id="p", seq=number + 1, time=NOON
    )


def full(rng: random.Random) -> WireRecord:
    """Return a record that uses every part of the format."""
    choice = rng.random()
    if choice < 0.06:
        return encode_manifest(Manifest("p", rng.randint(0, 99), NOON, {"sampled_out": 3}, True))
    if choice < 0.12:
        feedback = Feedback(f"f-{rng.random()}", "s", "s", datetime.now(UTC), comment="good")
        return encode_feedback(feedback, producer_id="p")
    tools = [make_tool(result={"a": [1, None]}, error={"type": "T", "message": "m"},
                       startTime=1.5, durationMs=3.0, capture={"result": "truncated"})]  # fmt: skip
    turn = make_turn(
        f"t-{rng.randint(0, 5)}",
        tools=tools,
        creationTimestamp=1_790_000_000.5,
        intermediateResponses=[{"role": "assistant", "content": "hm"}],
        capture={"finalResponse": "truncated"},
        telemetry={"traceId": "t", "models": ["m"], "inputTokens": 5, "outputTokens": 6, "costUsd": 0.1,
                   "latencyMs": 7.5, "status": "error", "error": {"type": "E", "message": "m"}},
    )  # fmt: skip
    source = {"service": "s", "framework": "f", "revision": rng.randint(1, 3),
              "inclusionProbability": 0.5, "closeReason": "run_ended"}  # fmt: skip
    case = make_case(f"s-{rng.randint(0, 200)}", [turn], source=source, conversation=[turn])
    return encode_case(case, producer_id="p", seq=rng.randint(1, 10**6), time=NOON)


def mutated(rng: random.Random) -> WireRecord:
    """Return a record with one or a few things wrong, or by chance with nothing wrong."""
    record = full(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        record = rng.choice(_WAYS)(record, rng)
    return record


def _signed(record: WireRecord, value: bytes | None, rng: random.Random) -> WireRecord:
    """Give a record another value, most often with the hash that belongs to it."""
    if value is None or rng.random() < 0.1:
        return record._replace(value=value)
    digest = hashlib.sha256(value).hexdigest().encode()
    headers = tuple(
        (name, digest if name == "content_sha256" else one) for name, one in record.headers
    )
    return record._replace(value=value, headers=headers)


def _cut(record: WireRecord, rng: random.Random) -> WireRecord:
    value = record.value or b""
    return _signed(record, value[: rng.randint(0, len(value))], rng)


def _flip(record: WireRecord, rng: random.Random) -> WireRecord:
    value = bytearray(record.value or b"x")
    for _ in range(rng.randint(1, 4)):
        value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
    return _signed(record, bytes(value), rng)


def _splice(record: WireRecord, rng: random.Random) -> WireRecord:
    value = record.value or b""
    place = rng.randint(0, len(value))
    return _signed(
        record, value[:place] + rng.choice(RAW) + value[place + rng.randint(0, 8) :], rng
    )


def _replace_raw(record: WireRecord, rng: random.Random) -> WireRecord:
    """Put something that is no ordinary JSON in the place of one value."""
    value = record.value or b""
    places = [i for i, one in enumerate(value) if one == ord(":")]
    if not places:
        return _signed(record, rng.choice(RAW), rng)
    place = rng.choice(places) + 1
    end = next((i for i in range(place, len(value)) if value[i] in b",}"), len(value))
    return _signed(record, value[:place] + rng.choice(RAW) + value[end:], rng)


def _retype(record: WireRecord, rng: random.Random) -> WireRecord:
    """Put an odd value in the place of one part of the document, delete it, or add one."""
    try:
        body = orjson.loads(record.value or b"")
    except ValueError:
        return record
    at: Any = None
    key: Any = None
    node = body
    while isinstance(node, dict | list) and node and (at is None or rng.random() < 0.8):
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        at, node = node, node[key]
    choice = rng.random()
    if at is None:
        body = rng.choice(ODD)
    elif choice < 0.7:
        at[key] = rng.choice(ODD)
    elif choice < 0.9:
        del at[key]
    elif isinstance(at, dict):
        at[rng.choice(("revision", "evalId", "tools", "x", "", "\x00"))] = rng.choice(ODD)
    try:
        return _signed(record, orjson.dumps(body), rng)
    except (TypeError, ValueError):
        return record


def _headers(record: WireRecord, rng: random.Random) -> WireRecord:
    headers = list(record.headers)
    place = rng.randrange(len(headers)) if headers else 0
    choice = rng.random()
    if not headers or choice < 0.1:
        return record._replace(headers=())
    if choice < 0.4:
        del headers[place]
    elif choice < 0.9:
        headers[place] = (headers[place][0], rng.choice(HEADERS))
    else:
        headers.append(rng.choice(headers))
    return record._replace(headers=tuple(headers))


def _key(record: WireRecord, rng: random.Random) -> WireRecord:
    return record._replace(key=rng.choice((None, b"", b"\xff", b"k" * 5000)))


def _tombstone(record: WireRecord, rng: random.Random) -> WireRecord:
    return record._replace(value=rng.choice((None, b"")))


_WAYS: tuple[Callable[[WireRecord, random.Random], WireRecord], ...] = (
    _cut, _flip, _splice, _replace_raw, _replace_raw, _retype, _retype, _retype, _retype, _headers,
    _headers, _key, _tombstone,
)  # fmt: skip
