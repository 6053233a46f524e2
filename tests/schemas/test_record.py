"""The wire record: written records are read back, and broken ones have a reason."""

import hashlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evaltap.schemas.wire.dead_letter import cut_letter, encode_dead_letter
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import (
    CASES_TOPIC,
    DEAD_LETTERS_TOPIC,
    SCORES_TOPIC,
    DecodedCase,
    Manifest,
    Reason,
    RecordError,
    WireRecord,
    decode_record,
    encode_case,
    encode_feedback,
    encode_manifest,
)
from evaltap.schemas.wire.score import CaseRevision, encode_score
from support.builders.cases import NOON, make_case, make_turn

ASYNCAPI = Path(__file__).parents[2] / "schemas/asyncapi.yaml"

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


def record_of(case: dict[str, Any], **given: Any) -> WireRecord:
    settings: dict[str, Any] = {"producer_id": "p", "seq": 1, "time": NOON}
    return encode_case(case, **settings | given)


def with_header(record: WireRecord, name: str, value: str | None) -> WireRecord:
    """Return the record with one header replaced, or taken out."""
    kept = tuple(pair for pair in record.headers if pair[0] != name)
    added = () if value is None else ((name, value.encode()),)
    return WireRecord(record.key, record.value, kept + added)


def with_value(record: WireRecord, value: bytes | None) -> WireRecord:
    """Return the record with another value and the hash that goes with it."""
    digest = hashlib.sha256(value or b"").hexdigest()
    return with_header(WireRecord(record.key, value, record.headers), "content_sha256", digest)


@given(json_values, st.text(st.characters(codec="utf-8"), min_size=1))
def test_a_case_is_read_back_as_it_was_written(arguments: Any, eval_id: str) -> None:
    turn = make_turn(tools=[{"name": "t", "arguments": arguments}])
    case = make_case(eval_id, [turn], source={"revision": 3})

    decoded = decode_record(record_of(case, producer_id="host/ä", seq=42))

    assert isinstance(decoded, DecodedCase)
    assert decoded.case == case
    assert (decoded.eval_id, decoded.app_name) == (eval_id, "app")
    assert (decoded.producer_id, decoded.seq) == ("host/ä", 42)
    assert (decoded.invocation_id, decoded.revision) == ("t-1", 3)


def test_a_redelivery_is_recognised_and_a_revision_is_another_event() -> None:
    first = record_of(make_case())
    again = record_of(make_case(), producer_id="other", seq=9, time=NOON + timedelta(hours=1))
    revised = record_of(make_case(source={"revision": 2}))
    other_app = record_of(make_case(sessionInput={"appName": "another"}))

    assert first.header("ce_id") == again.header("ce_id")
    assert len({r.header("ce_id") for r in (first, revised, other_app)}) == 3


def test_turns_of_a_session_share_their_key() -> None:
    one = record_of(make_case("s", [make_turn("t-1")]))
    two = record_of(make_case("s", [make_turn("t-2")]))
    of_a_set = record_of(make_case("s", evalSetId="set"))

    assert one.key == two.key == b"s"
    assert of_a_set.key == b"set/s"


def test_the_time_is_written_in_utc_whatever_its_zone() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5)))

    assert record_of(make_case(), time=east).header("ce_time") == "2026-11-21T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda r: WireRecord(r.key, None, r.headers), Reason.EMPTY),
        (lambda r: WireRecord(r.key, b"", r.headers), Reason.EMPTY),
        (lambda r: WireRecord(r.key, b"x" * 1_000_001, r.headers), Reason.TOO_LARGE),
        (lambda r: with_header(r, "ce_type", None), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "schema", None), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "producer_id", None), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "seq", None), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "seq", "-1"), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "seq", "0"), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "seq", str(2**53 + 1)), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "seq", "9" * 40), Reason.MISSING_HEADER),
        (lambda r: with_header(r, "ce_type", "com.example.other"), Reason.WRONG_TYPE),
        (lambda r: with_header(r, "schema", "evaltap.case/2.0"), Reason.SCHEMA_UNKNOWN),
        (lambda r: with_header(r, "schema", "evaltap.case/0.9"), Reason.SCHEMA_UNKNOWN),
        (lambda r: with_header(r, "schema", "evaltap.other/1.0"), Reason.SCHEMA_UNKNOWN),
        (lambda r: with_header(r, "schema", "1.0"), Reason.SCHEMA_UNKNOWN),
        (lambda r: with_header(r, "content_sha256", "0" * 64), Reason.HASH_MISMATCH),
        (lambda r: WireRecord(r.key, r.value + b" ", r.headers), Reason.HASH_MISMATCH),
        (lambda r: with_value(r, b"{not json"), Reason.UNDECODABLE),
        (lambda r: with_value(r, b"\xff\xfe"), Reason.UNDECODABLE),
        (lambda r: with_value(r, b'{"evalId": NaN}'), Reason.UNDECODABLE),
        (lambda r: with_value(r, b'{"a":' * 2000 + b"1" + b"}" * 2000), Reason.UNDECODABLE),
        (lambda r: with_value(r, b'["\\ud800"]'), Reason.UNDECODABLE),
        (lambda r: with_value(r, b"[]"), Reason.INVALID_CASE),
        (lambda r: with_value(r, b"{}"), Reason.INVALID_CASE),
        (lambda r: with_value(r, b'{"evalId": 7}'), Reason.INVALID_CASE),
    ],
)
def test_a_broken_record_is_refused_with_its_reason(damage: Any, reason: Reason) -> None:
    broken = damage(record_of(make_case()))

    with pytest.raises(RecordError) as caught:
        decode_record(broken)

    assert caught.value.reason is reason
    assert caught.value.parked == (reason is Reason.SCHEMA_UNKNOWN)


@pytest.mark.parametrize(
    "broken",
    [
        {"actualConversation": []},
        {"actualConversation": [make_turn("a"), make_turn("b")]},
        {"actualConversation": [{"userContent": {}}]},
        {"evalId": ""},
        {"source": {"revision": -1}},
        {"source": {"revision": True}},
        {"source": [1]},
        {"sessionInput": {"appName": 3}},
    ],
)
def test_a_case_without_one_identified_turn_is_neither_written_nor_read(
    broken: dict[str, Any],
) -> None:
    case = make_case() | broken

    with pytest.raises(RecordError) as writing:
        record_of(case)
    with pytest.raises(RecordError) as reading:
        decode_record(with_value(record_of(make_case()), orjson.dumps(case)))

    assert writing.value.reason is reading.value.reason is Reason.INVALID_CASE


def test_the_only_major_version_that_is_known_is_named_once() -> None:
    with pytest.raises(RecordError, match=r"this reader knows evaltap\.case/1\.x: upgrade evaltap"):
        decode_record(with_header(record_of(make_case()), "schema", "evaltap.case/2.0"))


def test_a_newer_minor_version_and_unknown_headers_are_accepted() -> None:
    newer = with_header(record_of(make_case()), "schema", "evaltap.case/1.7")
    newer = with_header(newer, "x-trace", "abc")

    decoded = decode_record(newer)

    assert isinstance(decoded, DecodedCase)
    assert decoded.minor == 7


@pytest.mark.parametrize("time", [None, "yesterday", "2026-11-21T12:00:00"])
def test_an_unreadable_time_costs_nothing(time: str | None) -> None:
    decoded = decode_record(with_header(record_of(make_case()), "ce_time", time))

    assert isinstance(decoded, DecodedCase)


def test_what_is_no_json_or_too_large_is_not_written() -> None:
    with pytest.raises(RecordError) as not_json:
        record_of(make_case(extra=object()))
    with pytest.raises(RecordError) as large:
        record_of(make_case(), max_bytes=100)

    assert not_json.value.reason is Reason.UNDECODABLE
    assert large.value.reason is Reason.TOO_LARGE


def test_a_manifest_is_read_back() -> None:
    manifest = Manifest("p-1", 7, datetime(2026, 1, 2, tzinfo=UTC), {"queue_full": 3}, closing=True)

    record = encode_manifest(manifest)

    assert decode_record(record) == manifest
    assert record.key == b"p-1"


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"producerId": "p"},
        {"producerId": 1, "highestSeq": 1},
        {"producerId": "p", "highestSeq": -1},
        {"producerId": "p", "highestSeq": 1, "drops": {"x": "many"}},
        {"producerId": "p", "highestSeq": 1, "drops": [1]},
        {"producerId": "p", "highestSeq": 2**53 + 1},
        {"producerId": "p", "highestSeq": 1, "drops": {"x": 2**53, "y": 1}},
    ],
)
def test_a_broken_manifest_is_refused(body: Any) -> None:
    record = encode_manifest(Manifest("p", 1, NOON))

    with pytest.raises(RecordError) as caught:
        decode_record(with_value(record, orjson.dumps(body)))

    assert caught.value.reason is Reason.INVALID_MANIFEST


@given(st.binary(max_size=200), st.dictionaries(st.text(max_size=12), st.binary(max_size=40)))
def test_bytes_from_anywhere_are_decoded_or_refused_never_worse(
    value: bytes, headers: dict[str, bytes]
) -> None:
    good = record_of(make_case())
    merged = dict(good.headers) | headers

    # Any other exception fails the test.
    with suppress(RecordError):
        decode_record(WireRecord(b"k", value, tuple(merged.items())))


class TestAsyncApi:
    """The published description and the codec say the same."""

    document: dict[str, Any] = yaml.safe_load(ASYNCAPI.read_text())

    def schema(self, name: str) -> dict[str, Any]:
        """Return a schema of the document with its references resolvable."""
        return {"$ref": f"#/components/schemas/{name}", "components": self.document["components"]}

    def headers(self, record: WireRecord) -> dict[str, str]:
        return {name: value.decode() for name, value in record.headers}

    def test_it_names_the_topics_of_the_code(self) -> None:
        addresses = {channel["address"] for channel in self.document["channels"].values()}

        assert addresses == {
            CASES_TOPIC,
            DEAD_LETTERS_TOPIC,
            SCORES_TOPIC,
        }
        assert self.document["asyncapi"].startswith("3.")

    def test_every_reference_leads_somewhere(self) -> None:
        def references(node: Any) -> list[str]:
            if isinstance(node, dict):
                own = [node["$ref"]] if "$ref" in node else []
                return own + [r for value in node.values() for r in references(value)]
            return [r for one in node for r in references(one)] if isinstance(node, list) else []

        found = references(self.document)
        assert found
        for reference in found:
            node: Any = self.document
            for part in reference.removeprefix("#/").split("/"):
                node = node[part]

    def test_a_written_case_fits_its_schemas(self) -> None:
        record = record_of(make_case("ä b", source={"revision": 1, "inclusionProbability": 0.1}))

        jsonschema.validate(self.headers(record), self.schema("caseHeaders"))
        jsonschema.validate(orjson.loads(record.value or b""), self.schema("case"))

    def test_a_written_manifest_fits_its_schemas(self) -> None:
        record = encode_manifest(Manifest("p", 0, NOON, {"sampled_out": 1}))

        jsonschema.validate(self.headers(record), self.schema("manifestHeaders"))
        jsonschema.validate(orjson.loads(record.value or b""), self.schema("manifest"))

    def test_written_feedback_fits_its_schemas_and_comes_back(self) -> None:
        said = Feedback("f-1", "set", "s ü", NOON, positive=True, score=0.5, comment="Good.")
        record = encode_feedback(said, producer_id="p")

        jsonschema.validate(self.headers(record), self.schema("feedbackHeaders"))
        jsonschema.validate(orjson.loads(record.value or b""), self.schema("feedback"))
        assert decode_record(record) == said

    @pytest.mark.parametrize("name", [name for name, _ in record_of(make_case()).headers])
    def test_each_header_that_is_written_is_required_and_described(self, name: str) -> None:
        headers = self.headers(record_of(make_case()))
        del headers[name]

        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(headers, self.schema("caseHeaders"))

    def test_written_scores_and_dead_letters_fit_their_schemas(self) -> None:
        of = CaseRevision("app", "set", "case", 3)
        score = {
            "runId": "r", "metricName": "m", "metricDigest": "d", "score": None,
            "status": "error", "threshold": 1.0,
        }  # fmt: skip
        record = encode_score(of, score, event_id="0" * 32, producer_id="p", time=NOON)
        letter = encode_dead_letter(
            WireRecord(b"k", b"{"), reason="undecodable", detail="no JSON", topic="t", partition=0,
            offset=7, producer_id="p", time=NOON,
        )  # fmt: skip

        jsonschema.validate(self.headers(record), self.schema("envelope"))
        jsonschema.validate(orjson.loads(record.value or b""), self.schema("score"))
        jsonschema.validate(self.headers(letter), self.schema("deadLetterHeaders"))
        cut = cut_letter(letter._replace(value=b"x" * 70_000))
        assert cut is not None
        described = self.schema("deadLetterHeaders")["components"]["schemas"]["deadLetterHeaders"]
        assert set(self.headers(cut)) == set(described["properties"]), "each one is described"

    def test_it_lists_every_reason_of_a_dead_letter(self) -> None:
        headers = self.document["components"]["schemas"]["deadLetterHeaders"]

        assert set(headers["properties"]["dead_letter_reason"]["enum"]) == set(Reason)
