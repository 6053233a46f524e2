"""Dead letters can be listed, and landed once they are readable; and a case explains its missing score."""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.landing.dead_letters import letters
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.landing.replayed_letters import replay
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.pipeline.live.outbox import dead_letters as published
from evaltap.evaluator.store.database import Store
from evaltap.schemas.wire import envelope as wire
from evaltap.schemas.wire.record import Manifest, WireRecord, encode_manifest
from support.builders.cases import NOON, TRAJECTORY, make_case, make_records, make_turn, write_log

LOG = Partition("evaltap.cases", 2)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def called(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return called


@pytest.fixture(autouse=True)
def _schemas_are_looked_at_anew() -> Iterator[None]:
    """A test that knows another version leaves no schema of it remembered as known."""
    wire._minor.cache_clear()
    yield
    wire._minor.cache_clear()


def of_version(record: WireRecord, version: str) -> WireRecord:
    headers = tuple(
        (name, f"evaltap.case/{version}".encode() if name == "schema" else value)
        for name, value in record.headers
    )
    return WireRecord(record.key, record.value, headers)


def land(path: str, *records: WireRecord) -> None:
    with Store(path) as store:
        placed = tuple(SourceRecord(LOG, 10 + i, record) for i, record in enumerate(records))
        Lander(store).land(SourceBatch(placed, {LOG: 10 + len(records)}))


def letters_with_one_too_new() -> list[WireRecord]:
    good, new, again = make_records(
        [make_case("s-1"), make_case("s-2"), make_case("s-1", [make_turn("t-2")])]
    )
    return [good, of_version(new, "2.0"), WireRecord(b"s-3", b"{broken", good.headers), again]


def test_letters_are_listed_and_shown_with_their_bytes(run: Run) -> None:
    land("x.duckdb", *letters_with_one_too_new())

    code, out, _ = run("store", "dlq", "list", "x.duckdb")
    assert code == 0
    assert "schema_unknown" in out
    assert "written by a newer version; replay it after an upgrade" in out
    assert "2 shown of 2" in out
    assert (
        json.loads(
            run("store", "dlq", "list", "x.duckdb", "--reason", "hash_mismatch", "--json")[1]
        )["total"]
        == 1
    )

    code, out, _ = run("store", "dlq", "show", "x.duckdb", "2")
    assert code == 0
    assert "{broken" in out
    assert "header   ce_type: evaltap.case" in out


ODD_HEADERS = (("ü", b"\xff\x00"), ("text", "größe".encode()), ("none", b""), ("ü", b"\xff"))


def test_headers_of_a_letter_keep_their_bytes_in_the_store_and_on_its_topic(tmp_path: Path) -> None:
    broken = WireRecord(b"\xfe", b"{broken", ODD_HEADERS)
    land(str(tmp_path / "x.duckdb"), broken)

    with Store(tmp_path / "x.duckdb") as store:
        (letter,) = letters(store)
        (item,) = published(store, datetime.min, "", 10)
        ((column,),) = store.rows("SELECT record_headers FROM dead_letters")

    assert letter.record == broken
    assert item.record is not None
    assert item.record._replace(headers=item.record.headers[: len(ODD_HEADERS)]) == broken
    assert json.loads(column) == [
        ["ü", None, "/wA="],
        ["text", "größe"],
        ["none", ""],
        ["ü", None, "/w=="],
    ]


def test_json_gives_bytes_that_are_not_utf8_in_base64_and_nothing_more_for_text(run: Run) -> None:
    land(
        "x.duckdb", WireRecord(b"k\xff", b"\xfe{", ODD_HEADERS[:2]), WireRecord("ü".encode(), b"{")
    )

    _, out, _ = run("store", "dlq", "list", "x.duckdb", "--json")
    odd, text = json.loads(out)["letters"]

    assert (odd["key"], odd["key_base64"]) == ("k\ufffd", "a/8=")
    assert (odd["value"], odd["value_base64"]) == ("\ufffd{", "/ns=")
    assert odd["headers"] == [["ü", None, "/wA="], ["text", "größe"]]
    assert json.loads(run("store", "dlq", "show", "x.duckdb", "1", "--json")[1]) == odd
    assert (text["key"], text["value"], text["headers"]) == ("ü", "{", [])
    assert "key_base64" not in text
    assert "value_base64" not in text
    code, out, _ = run("store", "dlq", "show", "x.duckdb", "1")
    assert code == 0
    assert "header   ü: \ufffd" in out


@pytest.mark.slow
def test_what_can_be_read_after_an_upgrade_lands_and_is_no_letter_any_more(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    land("x.duckdb", *letters_with_one_too_new())
    code, out, _ = run("store", "dlq", "replay", "x.duckdb")
    assert (code, "0 dead letters landed" in out) == (1, True), "nothing has changed yet"

    monkeypatch.setattr(wire, "MAJOR", 2)
    # What it remembers of a schema would outlive the test.
    monkeypatch.setattr(wire, "_minor", wire._minor.__wrapped__)
    assert (
        "1 dead letter can be landed" in run("store", "dlq", "replay", "x.duckdb", "--dry-run")[1]
    )
    code, out, _ = run("store", "dlq", "replay", "x.duckdb")

    assert code == 1
    assert "1 dead letter landed\n  turns 1, already landed 0" in out
    assert "still unreadable: 1 dead letter (hash_mismatch)" in out
    with Store("x.duckdb") as store:
        assert store.rows("SELECT DISTINCT eval_id FROM turns ORDER BY ALL") == [("s-1",), ("s-2",)]
        assert store.rows("SELECT reason FROM dead_letters") == [("hash_mismatch",)]
        assert Lander(store).offsets() == {LOG: 14}, "replaying moves no offset"
    assert run("store", "dlq", "replay", "x.duckdb", "--reason", "schema_unknown")[0] == 0


@pytest.mark.slow
def test_letters_of_many_pages_land_and_those_that_cannot_be_read_stay(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = make_records([make_case(f"s-{number}") for number in range(250)])
    land(
        "x.duckdb",
        *(of_version(one, "3.0" if number % 5 == 0 else "2.0") for number, one in enumerate(good)),
    )
    monkeypatch.setattr(wire, "MAJOR", 2)

    code, out, _ = run("store", "dlq", "replay", "x.duckdb", "--json")

    said = json.loads(out)
    assert (code, said["records"], said["turns"]) == (1, 200, 200)
    assert said["unreadable"] == {"schema_unknown": 50}
    with Store("x.duckdb") as store:
        assert store.rows("SELECT count(*), count(DISTINCT eval_id) FROM turns") == [(200, 200)]
        assert store.rows("SELECT count(*), min(record_offset % 5 = 0) FROM dead_letters") == [
            (50, True)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)])
def test_a_letter_that_cannot_be_read_stays_when_others_at_its_place_land(
    run: Run, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    one, other = (of_version(one, "2.0") for one in make_records([make_case("a"), make_case("b")]))
    at_one_place = [WireRecord(b"s", b"{broken", one.headers), one, other]
    for number in order:
        land("x.duckdb", at_one_place[number])
    monkeypatch.setattr(wire, "MAJOR", 2)

    code, out, _ = run("store", "dlq", "replay", "x.duckdb", "--json")

    assert (code, json.loads(out)["turns"]) == (1, 2)
    with Store("x.duckdb") as store:
        assert store.rows("SELECT record_value FROM dead_letters") == [(b"{broken",)]


@pytest.mark.slow
def test_replaying_holds_a_page_of_letters_in_memory(tmp_path: Path) -> None:
    letters = [WireRecord(b"k", b"{" * 40_000) for _ in range(2_000)]
    land(str(tmp_path / "x.duckdb"), *letters)

    often, rarely = (700, 10, 10), gc.get_threshold()  # as in a command, rarely as in these tests
    with Store(tmp_path / "x.duckdb") as store:
        gc.set_threshold(*often)
        tracemalloc.start()
        try:
            found = replay(store)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.set_threshold(*rarely)

    assert found.unreadable.total() == 2_000
    assert peak < 2_000 * 40_000 / 2


def test_a_line_of_a_file_is_mended_in_the_file(run: Run) -> None:
    Path("c.jsonl").write_text(json.dumps(make_case()) + "\n{\n")
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    run("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")

    code, out, _ = run("store", "dlq", "replay", "x.duckdb")
    assert code == 1
    assert "1 line of files" in out


def test_a_number_that_no_letter_has_is_explained(run: Run) -> None:
    land("x.duckdb", *make_records([make_case()]))

    code, _, err = run("store", "dlq", "show", "x.duckdb", "7")
    assert code == 2
    assert "no dead letter 7" in err


def why(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run("why", *arguments, "--json")
    return code, json.loads(out)


@pytest.mark.slow
def test_a_case_tells_how_it_stands_under_every_metric(run: Run) -> None:
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    hidden = make_turn("t-1", capture={"tools": "missing"})
    expected = [make_turn()]
    good, blind = make_case("good"), make_case("blind", [hidden])
    cases = [one | {"conversation": expected} for one in (good, blind)]
    land("x.duckdb", *make_records(cases))
    assert "no run has scored anything yet" in run("why", "x.duckdb", "good")[1]
    run("score", "x.duckdb", "--metrics", "m.json")
    assert run("why", "x.duckdb", "good")[0] == 0

    code, said = why(run, "x.duckdb", "blind")
    assert (code, said["metrics"][0]["status"]) == (3, "not_evaluated")
    assert "tools is missing" in said["metrics"][0]["reason"]

    land("x.duckdb", *make_records([make_case("good", [make_turn("t-9")])], first_seq=8))
    code, said = why(run, "x.duckdb", "good")
    assert (code, said["metrics"][0]["status"]) == (3, "pending")
    assert "scored up to revision 1; revision 2 has landed since" in said["metrics"][0]["reason"]


def test_a_case_that_is_not_there_is_looked_for_where_it_may_have_stopped(run: Run) -> None:
    manifest = encode_manifest(Manifest("p", 2, NOON, {"sampled_out": 90, "queue_full": 2}))
    land("x.duckdb", *letters_with_one_too_new(), manifest)
    write_log(Path("log.db"), make_records([make_case("s-7")]))

    _, on_log = why(run, "x.duckdb", "s-7", "--log", "log.db")
    assert "log.db has it at offset 1; land it with evaltap consume" in on_log["notes"]
    code, said = why(run, "x.duckdb", "s-2", "--log", "log.db")
    assert (code, said["landed"]) == (3, False)
    assert any(
        note.startswith("dead letter 1 (schema_unknown) names this case") for note in said["notes"]
    )
    assert "log.db does not contain it" in said["notes"]
    assert (
        "sampling left out 90 turns (sampled_out), perhaps of this case; their ids are not stored"
        in said["notes"]
    )
    assert (
        "the recorder dropped 2 turns (queue_full), perhaps of this case; their ids are not stored"
        in said["notes"]
    )


@pytest.mark.parametrize("case", ["s-2", "größe", 'say "hi"', "back\\slash", "line\nbreak"])
def test_a_letter_names_a_case_by_its_key_or_by_what_it_holds_readable_or_not(
    run: Run, case: str
) -> None:
    land(
        "x.duckdb",
        WireRecord(f"app/set/{case}".encode(), b"\xff"),
        WireRecord(b"other", b"\xfe" + orjson.dumps({"evalId": case}) + b"\x00"),
        WireRecord(f"app/set/{case}2".encode(), orjson.dumps({"evalId": case + "2"})),
        WireRecord(case.encode(), None),
    )

    _, said = why(run, "x.duckdb", case)

    names = [note.split(" (")[0] for note in said["notes"] if " names this case" in note]
    assert names == ["dead letter 1", "dead letter 2", "dead letter 4"]


def test_a_record_that_cannot_be_read_is_bad_input_as_a_line_of_a_file_is(run: Run) -> None:
    write_log(Path("agent.log.db"), [*make_records([make_case("ok")]), WireRecord(b"k", b"{", ())])

    code, out, errors = run("consume", "--log", "agent.log.db", "--db", "x.duckdb", "--until-idle")

    assert (code, "1 turn landed, 0 duplicates, 1 dead letter" in out) == (2, True)
    assert "1 record could not be read; `evaltap store dlq list x.duckdb` shows why" in errors
    assert run("consume", "--log", "agent.log.db", "--db", "x.duckdb", "--until-idle")[0] == 0
