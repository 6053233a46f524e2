"""Landing: each record ends in exactly one place, once, together with the offset."""

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import orjson
import pytest

from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.store.database import Store
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import Manifest, WireRecord, encode_feedback, encode_manifest
from support.builders.cases import NOON, make_case, make_records, make_tool, make_turn

LOG = Partition("local:test")


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


def batch(records: list[WireRecord], first: int = 1) -> SourceBatch:
    placed = tuple(SourceRecord(LOG, first + i, record) for i, record in enumerate(records))
    return SourceBatch(placed, {LOG: first + len(records)})


def test_a_turn_lands_with_its_case_its_tool_calls_and_the_offset(store: Store) -> None:
    turn = make_turn(
        tools=[make_tool(result={"ok": True}), make_tool("refund", error={"type": "Timeout"})],
        telemetry={"status": "ok", "models": ["m-1"], "inputTokens": 12},
        creationTimestamp=NOON.timestamp(),
        capture={"finalResponse": "truncated"},
    )

    counts = Lander(store).land(batch(make_records([make_case(turns=[turn])])))

    assert (counts.records, counts.turns) == (1, 1)
    assert store.rows("SELECT app_name, eval_id, revision, turn_count FROM cases") == [
        ("app", "s-1", 1, 1)
    ]
    assert store.rows(
        "SELECT user_text, final_text, tool_count, models, input_tokens, started_at FROM turns"
    ) == [("Where is order A-100?", "done", 2, ["m-1"], 12, NOON.replace(tzinfo=None))]
    assert store.rows("SELECT capture->>'finalResponse' FROM turns") == [("truncated",)]
    assert store.rows("SELECT tool_name, result->>'$.ok', error_type FROM tool_calls") == [
        ("get_order", "true", None),
        ("refund", None, "Timeout"),
    ]
    assert Lander(store).offsets() == {LOG: 2}


WHOLE_TURN = make_turn(
    tools=[
        make_tool(),
        {
            "id": "call-7", "name": "refund", "arguments": {"ü": [1]}, "result": False, "agent": "clerk",
            "parentId": "call-6", "error": {"type": "Timeout", "message": "after 3 s"},
            "startTime": NOON.timestamp(), "durationMs": 3.5,
        },
    ],
    creationTimestamp=NOON.timestamp(),
    capture={"finalResponse": "truncated"},
    telemetry={
        "status": "error", "models": ["m-1", "m-2"], "agents": ["triage"], "inputTokens": 12,
        "outputTokens": 7, "costUsd": 0.25, "latencyMs": 2.5, "traceId": "trace", "rootSpanId": "span",
        "error": {"type": "Late", "message": "was late"},
    },
)  # fmt: skip
WHOLE_CASE = make_case(
    "s-1", [WHOLE_TURN], conversation=[make_turn("t-0")], evalSetId="set",
    source={
        "service": "shop", "framework": "adk", "convention": "genai", "recorderVersion": "1.2",
        "inclusionProbability": 0.5, "closeReason": "idle", "samplingReason": "head", "version": "v2",
        "environment": "production", "tags": ["a", "ß"], "run": "nightly", "revision": 3,
    },
)  # fmt: skip
NAMED = {"app_name": "app", "eval_set_id": "set@v2@nightly", "eval_id": "s-1"}


@pytest.mark.parametrize("count", [1, Store.FEWEST_AS_COLUMNS])
def test_each_field_of_a_turn_is_in_its_column_however_many_land(store: Store, count: int) -> None:
    others = [make_case(f"o-{number}") for number in range(count - 1)]

    Lander(store).land(batch(make_records([*others, WHOLE_CASE])))

    def landed(table: str) -> list[dict[str, object]]:
        found = store.records(f"FROM {table} WHERE eval_id = 's-1'")
        return [{**row, "event_id": "", "landed_at": NOON} for row in found]

    now = {"event_id": "", "landed_at": NOON}
    names = {**NAMED, "invocation_id": "t-1", "turn_revision": 3}
    at = NOON.replace(tzinfo=None)
    assert landed("turns") == [
        {
            **names, "started_at": at, "status": "error", "user_text": "Where is order A-100?",
            "final_text": "done", "tool_count": 2, "models": ["m-1", "m-2"], "input_tokens": 12,
            "output_tokens": 7, "cost_usd": 0.25, "latency_ms": 2.5, "error_type": "Late",
            "error_message": "was late", "trace_id": "trace", "root_span_id": "span", "close_reason": "idle",
            "capture": '{"finalResponse":"truncated"}', "actual_json": orjson.dumps(WHOLE_TURN).decode(),
            "expected_json": orjson.dumps(make_turn("t-0")).decode(), "producer_id": "p", "seq": count,
            "landed_seq": count, "sampling_reason": "head", "inclusion_probability": 0.5,
            "agent_name": "triage", "version": "v2", "environment": "production", "tags": ["a", "ß"],
            "run": "nightly", **now,
        }
    ]  # fmt: skip
    assert landed("tool_calls")[1:] == [
        {
            **names, "call_index": 1, "call_id": "call-7", "tool_name": "refund", "agent": "clerk",
            "parent_id": "call-6", "arguments": '{"ü":[1]}', "result": "false", "error_type": "Timeout",
            "error_message": "after 3 s", "started_at": at, "duration_ms": 3.5, **now,
        }
    ]  # fmt: skip
    (case,) = landed("cases")
    header = orjson.loads(str(case.pop("case_json")))
    assert header == {
        name: WHOLE_CASE[name] for name in ("evalId", "evalMode", "sessionInput", "source")
    }
    assert case == {
        **NAMED, "revision": 3, "eval_mode": "trace", "user_id": "user", "turn_count": 1, "service": "shop",
        "framework": "adk", "convention": "genai", "recorder_version": "1.2", "inclusion_probability": 0.5,
        **now,
    }  # fmt: skip


def test_a_missing_answer_is_null_and_an_empty_one_is_empty(store: Store) -> None:
    missing = make_case("a", [make_turn(answer=None)])
    empty = make_case("b", [make_turn(finalResponse={"role": "assistant"})])

    Lander(store).land(batch(make_records([missing, empty])))

    assert store.rows("SELECT eval_id, final_text FROM turns ORDER BY eval_id") == [
        ("a", None),
        ("b", ""),
    ]


def test_turns_of_a_session_make_one_case_whose_revision_grows(store: Store) -> None:
    lander = Lander(store)
    first, second = make_records([make_case(turns=[make_turn(f"t-{i}")]) for i in (1, 2)])

    lander.land(batch([first]))
    lander.land(batch([second], first=2))

    assert store.rows("SELECT revision, turn_count FROM cases ORDER BY revision") == [
        (1, 1),
        (2, 2),
    ]
    assert store.rows("SELECT revision FROM latest_cases") == [(2,)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_case_was_kept_with_the_largest_probability_of_its_turns(
    store: Store, restart: bool
) -> None:
    lander = Lander(store)
    for number, probability in enumerate((0.1, 1.0, 0.1), start=1):
        source = {"inclusionProbability": probability}
        case = make_case(turns=[make_turn(f"t-{number}")], source=source)
        (record,) = make_records([case], first_seq=number)
        lander = Lander(store) if restart else lander
        lander.land(batch([record], number))

    assert store.rows("SELECT inclusion_probability FROM cases ORDER BY revision") == [
        (0.1,), (1.0,), (1.0,),
    ]  # fmt: skip


@pytest.mark.parametrize("probability", [1e-320, -0.5, 1.5])
@pytest.mark.parametrize("whole", [False, True])
def test_a_turn_whose_probability_cannot_be_one_is_a_dead_letter(
    store: Store, probability: float, whole: bool
) -> None:
    """As the weight of a turn, it would spoil all estimates."""
    more = {"x": [[1e300]]} if whole else {}  # which takes the way of odd records
    source = {"inclusionProbability": probability, **more}

    counts = Lander(store).land(batch(make_records([make_case(source=source)])))

    assert (counts.turns, counts.dead_letters) == (0, 1)
    ((detail,),) = store.rows("SELECT detail FROM dead_letters")
    assert f"inclusionProbability is {probability:g}; expected at least 1e-09" in detail


def test_turns_that_arrive_together_make_one_revision(store: Store) -> None:
    Lander(store).land(batch(make_records([make_case(turns=[make_turn(f"t-{i}")]) for i in "123"])))

    assert store.rows("SELECT revision, turn_count FROM cases") == [(3, 3)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_redelivered_turn_is_counted_and_not_stored_again(store: Store, restart: bool) -> None:
    records = make_records([make_case()])
    lander = Lander(store)
    lander.land(batch(records))

    counts = (Lander(store) if restart else lander).land(batch(records, first=2))

    assert (counts.turns, counts.duplicates) == (0, 1)
    assert store.rows("SELECT count(*) FROM turns") == [(1,)]
    assert store.rows("SELECT count(*) FROM cases") == [(1,)]


def test_a_higher_revision_of_a_turn_replaces_it_in_the_views(store: Store) -> None:
    lander = Lander(store)
    late = make_case(turns=[make_turn(answer="late")], source={"revision": 2})

    lander.land(batch(make_records([make_case()])))
    lander.land(batch(make_records([late]), first=2))

    assert store.rows("SELECT turn_revision, final_text FROM latest_turns") == [(2, "late")]
    assert store.rows("SELECT revision, turn_count FROM latest_cases") == [(2, 1)]


def test_an_older_revision_that_comes_late_changes_nothing(store: Store) -> None:
    lander = Lander(store)
    lander.land(batch(make_records([make_case(source={"revision": 2})])))

    counts = lander.land(batch(make_records([make_case(source={"revision": 1})]), first=2))

    assert counts.duplicates == 1
    assert store.rows("SELECT turn_revision FROM turns") == [(2,)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "undecodable"),
        (b'{"evalId": NaN}', "undecodable"),
        (b"[]", "invalid_case"),
        (b"", "empty"),
        (orjson.dumps(make_case() | {"evalMode": 7}), "invalid_case"),
        (orjson.dumps(make_case(turns=[make_turn(answer="x" * 2_000_000)])), "too_large"),
    ],
)
def test_a_bad_record_becomes_a_dead_letter_and_its_neighbours_land(
    store: Store, value: bytes, reason: str
) -> None:
    (good,) = make_records([make_case()])
    headers = tuple(pair for pair in good.headers if pair[0] != "content_sha256")
    bad = WireRecord(b"key", value, headers)

    counts = Lander(store).land(batch([bad, good]))

    assert (counts.turns, counts.dead_letters) == (1, 1)
    (row,) = store.rows("SELECT reason, record_offset, record_key, record_value FROM dead_letters")
    assert row == (reason, 1, b"key", value)


def test_a_record_of_an_unknown_schema_is_parked(store: Store) -> None:
    (record,) = make_records([make_case()])
    headers = tuple(
        (name, b"evaltap.case/9.0" if name == "schema" else value) for name, value in record.headers
    )

    Lander(store).land(batch([WireRecord(record.key, record.value, headers)]))

    assert store.rows("SELECT reason, parked FROM dead_letters") == [("schema_unknown", True)]


def test_a_manifest_says_what_its_producer_numbered_and_dropped(store: Store) -> None:
    manifest = Manifest("p", 7, NOON, {"queue_full": 2}, closing=True)

    Lander(store).land(batch([encode_manifest(manifest)]))

    assert store.rows(
        "SELECT producer_id, highest_seq, drops->>'queue_full', closing FROM manifests"
    ) == [("p", 7, "2", True)]


def test_a_failed_transaction_leaves_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        lander = Lander(store)
        store.execute("ALTER TABLE offsets RENAME TO hidden")
        records = make_records([make_case()])
        with pytest.raises(Exception, match="offsets"):
            lander.land(batch(records))
        store.execute("ALTER TABLE hidden RENAME TO offsets")

        counts = lander.land(batch(records))

        assert counts.turns == 1
        assert store.rows("SELECT count(*) FROM turns") == [(1,)]


def test_feedback_lands_once_and_stands_beside_its_turn(store: Store) -> None:
    turn = make_turn("t-1", telemetry={"traceId": "0af7"})
    said = [
        Feedback(
            "f-1", "s-1", "s-1", NOON, "app", invocation_id="t-1", positive=False, comment="No."
        ),
        Feedback("f-2", "s-1", "s-1", NOON, trace_id="0af7", name="stars", score=2),
        Feedback("f-3", "s-9", "s-9", NOON, correction="Yes."),
    ]
    records = [encode_feedback(one, producer_id="p") for one in said]
    lander = Lander(store)

    first = lander.land(batch([*make_records([make_case(turns=[turn])]), *records, records[0]]))
    again = lander.land(batch(records, first=6))

    assert (first.records, first.turns, first.feedback, first.duplicates) == (5, 1, 3, 1)
    assert (again.feedback, again.duplicates) == (0, 3)
    assert store.rows(
        "SELECT invocation_id, name, positive, score, comment, correction, final_text"
        " FROM v_feedback ORDER BY eval_id, name"
    ) == [
        ("t-1", "", False, None, "No.", None, "done"),
        ("t-1", "stars", None, 2.0, None, None, "done"),
        (None, "", None, None, None, "Yes.", None),
    ]


def test_a_bad_record_that_is_read_again_is_one_dead_letter_and_another_in_its_place_is_new(
    store: Store,
) -> None:
    lander = Lander(store)
    bad = WireRecord(b"k", b"{", ())
    lander.land(batch([bad]))

    again = lander.land(batch([bad]))
    other = lander.land(batch([WireRecord(b"k", b"[", ())]))

    assert (again.dead_letters, again.duplicates) == (0, 1)
    assert (other.dead_letters, other.duplicates) == (1, 0)
    assert store.rows("SELECT record_value FROM dead_letters") == [(b"{",), (b"[",)]


def test_broken_feedback_is_a_dead_letter(store: Store) -> None:
    good = encode_feedback(Feedback("f-1", "s-1", "s-1", NOON), producer_id="p")
    value = orjson.dumps({"feedbackId": "f-1", "evalId": "s-1", "positive": "yes"})
    digest = hashlib.sha256(value).hexdigest().encode()
    headers = tuple(
        (name, digest if name == "content_sha256" else one) for name, one in good.headers
    )

    counts = Lander(store).land(batch([WireRecord(good.key, value, headers)]))

    assert counts.dead_letters == 1
    assert store.rows("SELECT reason, detail FROM dead_letters") == [
        ("invalid_feedback", "positive is 'yes'; expected true or false")
    ]


def test_what_sampling_decided_can_be_asked_for(store: Store) -> None:
    kept = [
        make_case(f"s-{n}", source={"samplingReason": reason, "inclusionProbability": share})
        for n, (reason, share) in enumerate([("head", 0.1), ("head", 0.1), ("errors", 1.0)])
    ]
    manifests = [
        encode_manifest(Manifest("p", 1, NOON, {"sampled_out": 10})),
        encode_manifest(
            Manifest("p", 3, NOON + timedelta(1), {"sampled_out": 18, "queue_full": 1})
        ),
        encode_manifest(Manifest("q", 0, NOON, {"sampled_out": 2, "rate_limited": 5})),
    ]

    Lander(store).land(batch([*make_records(kept), *manifests]))

    assert store.rows("SELECT * FROM v_sampling") == [
        ("kept", "head", 2, pytest.approx(0.1)),
        ("kept", "errors", 1, 1.0),
        ("left out", "sampled_out", 20, None),
        ("left out", "rate_limited", 5, None),
    ]


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("tools", b'[{"name":"x","arguments":' + b"[" * 600 + b"]" * 600 + b"}]"),
        ("telemetry", b'{"inputTokens":18446744073709551615}'),
    ],
)
def test_what_can_be_read_and_not_be_stored_is_a_dead_letter_and_its_neighbours_land(
    store: Store, part: str, value: bytes
) -> None:
    before, after = make_records([make_case("s-1"), make_case("s-3")])
    (plain,) = make_records([make_case("s-2", [make_turn() | {part: "HERE"}])])
    content = (plain.value or b"").replace(b'"HERE"', value)
    odd = WireRecord(
        plain.key, content, tuple(h for h in plain.headers if h[0] != "content_sha256")
    )
    lander = Lander(store)

    counts = lander.land(batch([before, odd, after]))
    again = lander.land(batch(make_records([make_case("s-2")]), first=4))

    assert (counts.turns, counts.dead_letters, again.turns) == (2, 1, 1)
    assert store.rows("SELECT reason, record_value FROM dead_letters") == [
        ("invalid_case", content)
    ]
    assert store.rows("SELECT eval_id, revision FROM latest_cases ORDER BY 1") == [
        ("s-1", 1), ("s-2", 1), ("s-3", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "hostile",
    [
        encode_manifest(Manifest("p", 1 << 63, NOON)),
        encode_manifest(Manifest("p", (1 << 63) - 1, NOON)),
        encode_manifest(Manifest("p", 1, NOON, {name: 1 << 62 for name in "abc"})),
        encode_manifest(Manifest("p", 1, NOON, {name: 1 << 53 for name in "ab"})),
    ],
)
def test_a_manifest_beyond_every_number_is_a_dead_letter_and_breaks_no_view(
    store: Store, hostile: WireRecord
) -> None:
    good = encode_manifest(Manifest("q", 0, NOON, {"queue_full": 2}))

    counts = Lander(store).land(batch([hostile, good]))

    assert (counts.manifests, counts.dead_letters) == (1, 1)
    assert store.rows("SELECT producer_id, recorded FROM v_completeness") == [("q", 2)]


def test_drops_that_many_manifests_add_up_break_no_view(store: Store) -> None:
    manifests = [
        encode_manifest(Manifest("p", 1, NOON, {f"reason {n}": 1 << 53})) for n in range(1_025)
    ]

    Lander(store).land(batch(manifests))

    assert store.rows("SELECT dropped FROM v_completeness") == [(1 << 53,)]


@pytest.mark.parametrize("seq", [b"9" * 5_000, b"%d" % ((1 << 63) - 1), b"%d" % ((1 << 53) + 1)])
def test_a_bad_record_with_a_number_beyond_every_count_breaks_no_view(
    store: Store, seq: bytes
) -> None:
    (record,) = make_records([make_case()])
    headers = tuple((name, seq if name == "seq" else value) for name, value in record.headers)
    hostile = WireRecord(record.key, record.value, headers)
    drops = encode_manifest(Manifest("p", 0, NOON, {"queue_full": 2}))

    counts = Lander(store).land(batch([hostile, drops]))

    assert (counts.turns, counts.dead_letters) == (0, 1)
    assert store.rows("SELECT recorded, missing FROM v_completeness") == [(2, 0)]


def test_a_bad_record_that_is_read_again_is_one_dead_letter_and_another_at_its_place_a_second(
    store: Store,
) -> None:
    lander = Lander(store)
    lander.land(batch([WireRecord(b"k", b"\xff")]))

    again = lander.land(batch([WireRecord(b"k", b"\xff")]))
    other = lander.land(batch([WireRecord(b"k", b"\xfe")]))

    assert (again.duplicates, again.dead_letters) == (1, 0)
    assert (other.duplicates, other.dead_letters) == (0, 1)
    assert store.rows("SELECT count(*) FROM dead_letters") == [(2,)]


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_utc_does_not_have_ends_no_consumer(store: Store, time: str) -> None:
    stated = encode_manifest(Manifest("p", 7, NOON, {}))
    given = encode_feedback(Feedback("f-1", "s-1", "s-1", NOON), producer_id="p")

    counts = Lander(store).land(
        batch([*make_records([make_case()]), *(at(time, one) for one in (stated, given))])
    )

    assert (counts.turns, counts.feedback, counts.dead_letters) == (1, 1, 1), "no manifest"


@pytest.mark.parametrize("seconds", [-62_135_596_800, -1, 0, 253_402_300_799, 1e300])
def test_a_time_that_no_clock_had_is_unknown_and_stays_in_the_case(
    store: Store, seconds: float
) -> None:
    turn = make_turn(tools=[make_tool(startTime=seconds)], creationTimestamp=seconds)

    Lander(store).land(batch(make_records([make_case(turns=[turn])])))

    assert store.rows("SELECT started_at, landed_at IS NOT NULL FROM turns") == [(None, True)]
    assert store.rows("SELECT started_at FROM tool_calls") == [(None,)]
    ((kept,),) = store.rows("SELECT actual_json FROM turns")
    assert orjson.loads(kept)["creationTimestamp"] == seconds


def at(time: str, record: WireRecord) -> WireRecord:
    """Return a record that says it was written at another time."""
    headers = tuple(
        (name, time.encode() if name == "ce_time" else value) for name, value in record.headers
    )
    return record._replace(headers=headers)
