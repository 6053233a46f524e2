"""Rows extracted from a record's bytes equal those of full decoding, with the same rejections."""

import hashlib
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, to_builtins

from evaltap.evaluator.ingest.landing import reading
from evaltap.evaluator.ingest.landing.record_fields import holds_no_surprise
from evaltap.evaluator.ingest.landing.turns import LandedTurn
from evaltap.schemas.wire.envelope import open_envelope
from evaltap.schemas.wire.record import TYPES, RecordError, WireRecord, encode_case
from support.builders.cases import NOON, make_case, make_tool, make_turn


def with_value(record: WireRecord, value: bytes) -> WireRecord:
    """Return the record with other bytes, which its hash agrees with."""
    digest = hashlib.sha256(value).hexdigest().encode()
    headers = [(name, digest if name == "content_sha256" else old) for name, old in record.headers]
    return WireRecord(record.key, value, tuple(headers))


def record_of(case: dict[str, Any]) -> WireRecord:
    return encode_case(case, producer_id="p", seq=1, time=NOON)


def with_argument(raw: bytes) -> WireRecord:
    """Return a record that holds these bytes as an argument of a call."""
    case = make_case("s", [make_turn(tools=[make_tool(arguments={"x": "HERE"})])])
    record = record_of(case)
    return with_value(record, (record.value or b"").replace(b'"HERE"', raw))


def told(read: object) -> object:
    """Return what was made of a record, JSON columns as what they hold."""
    if isinstance(read, RecordError):
        return read.reason
    assert isinstance(read, LandedTurn)
    case = read.case
    about = case.eval_mode, to_builtins(case.session), to_builtins(case.source)
    header = orjson.loads(case.header_json)
    return (
        read.origin,
        about,
        header,
        [[value_of(one) for one in row] for row in (read.row, *read.calls)],
    )


def value_of(field: object) -> object:
    """Return what a field of a row holds; of JSON, not how it is written."""
    return ("JSON", orjson.loads(bytes(field))) if isinstance(field, Raw) else field


def as_a_whole(record: WireRecord, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return what is made of a record that is decoded as a whole."""
    with monkeypatch.context() as patched:
        patched.setattr(reading, "holds_no_surprise", lambda _: False)
        return told(reading.read_record(record))


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.sampled_from(["e9", "1e999"]),
)
VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(), one, max_size=3)
)


@pytest.mark.slow
@given(
    arguments=VALUES, result=VALUES, extra=st.dictionaries(st.sampled_from(
        ["telemetry", "capture", "creationTimestamp", "state", "unknown", "finalResponse", "tools"]
    ), VALUES, max_size=2),
    source=st.dictionaries(st.sampled_from(["revision", "service", "samplingReason"]), VALUES, max_size=2),
    reference=st.booleans(), spaced=st.booleans(),
)  # fmt: skip
def test_rows_are_those_of_the_whole_record(
    arguments: Any, result: Any, extra: dict[str, Any], source: dict[str, Any], reference: bool,
    spaced: bool,
) -> None:  # fmt: skip
    turn = make_turn(tools=[make_tool(arguments=arguments, result=result)]) | extra
    case = make_case("s", [turn]) | ({"source": source} if source else {})
    if reference:
        case["conversation"] = [make_turn("t-1")]
    try:
        record = record_of(case)
    except (RecordError, TypeError, ValueError):
        return  # no recorder writes it
    if spaced:
        record = with_value(
            record, orjson.dumps(orjson.loads(record.value or b""), option=orjson.OPT_INDENT_2)
        )

    assert told(reading.read_record(record)) == as_a_whole(record, pytest.MonkeyPatch())


@pytest.mark.parametrize(
    "raw",
    [
        b"1e999", b"-1E400", b"1e+309", b"1.7976931348623159e308", b"1" * 400, b"1e308", b"1e-999",
        b"1" * 190 + b"e99", b"1" * 250 + b"e99", b"1e+0400", b"12e0309",
        b"18446744073709551616", b"-9223372036854775809", b"-0", b'"\\u0000"', b'"\\ud800"',
        b'"\xff"', b'"\xed\xa0\x80"', b'"\\x"', b'"\x01"', b"NaN", b"01", b"tru", b"[1,]", b'{"a":1,}',
        b"[" * 200 + b"]" * 200, b"[" * 260 + b"]" * 260, b"[" * 2000 + b"]" * 2000,
        b'{"a":' * 260 + b"1" + b"}" * 260, b'{"a":1,"a":2}', b'"e9 1e9 0e0"', b"null", b"  1  ",
    ],
    ids=lambda raw: str(raw[:20]),
)  # fmt: skip
def test_bytes_that_only_a_whole_look_would_find_are_found(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = with_argument(raw)

    assert told(reading.read_record(record)) == as_a_whole(record, monkeypatch)


@pytest.mark.parametrize(
    "text", ["88a5e2", "3e5", "4-1e9", "x1e5", "7e1f9e3", "a" + "1" * 199, "1e23", "7e1f990"]
)
def test_ids_that_look_like_numbers_need_no_whole_look(text: str) -> None:
    assert holds_no_surprise(record_of(make_case(text, [make_turn()])).value or b"")


def test_a_sampled_record_needs_no_whole_look() -> None:
    source = {"service": "shop", "samplingReason": "head", "inclusionProbability": 0.5}

    read = reading.read_record(record_of(make_case("s", [make_turn()], source=source)))

    assert isinstance(read, LandedTurn)
    assert read.line is not None


@given(st.data())
def test_damaged_bytes_are_refused_as_in_a_whole_look(data: st.DataObject) -> None:
    record = record_of(make_case("s", [make_turn()], conversation=[make_turn()]))
    value = bytearray(record.value or b"")
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] = data.draw(st.integers(0, 255))
    damaged = with_value(record, bytes(value))

    assert told(reading.read_record(damaged)) == as_a_whole(damaged, pytest.MonkeyPatch())


def test_the_envelope_is_checked_before_the_value_is_looked_at() -> None:
    record = record_of(make_case("s", [make_turn()]))

    assert open_envelope(record, TYPES).value == record.value
