"""`evaltap doctor`: every turn is accounted for, gaps are named, and misconfiguration is detected."""

import json
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.cli.main import main
from evaltap.evaluator.ingest.landing.seq_ranges import merged, size, without
from evaltap.recorder import Recorder, diagnose
from evaltap.schemas.wire.record import Manifest, WireRecord, encode_manifest
from support.builders.cases import NOON, make_case, make_records, make_turn, write_log

BOTH = ("--log", "log.db", "--db", "x.duckdb")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("EVALTAP_LOG", "OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


def consume(code: int = 0) -> None:
    """Land the log; it ends with 2 where it holds a bad record."""
    assert main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"]) == code


def producers(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    main(["doctor", "--json", *options])
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["producers"]
    for one in found:
        assert one["recorded"] == one["delivered"] + sum(one["dropped"].values()) + one["lost"]
    return found


@pytest.mark.slow
def test_a_recorder_is_accounted_for_to_the_last_turn(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder("log.db", sample_rate=0.5)
    for number in range(200):
        with recorder.turn(user="hi", session_id=f"s-{number}"):
            pass
    assert recorder.close(10)
    consume()

    (account,) = producers(capsys, *BOTH)

    counters = recorder.counters()
    assert account["recorded"] == counters.recorded == 200
    assert account["delivered"] == account["landed"] == counters.delivered
    assert account["dropped"] == counters.dropped
    assert account["closed"]
    assert account["gaps"] == []


def test_what_a_redactor_drops_is_left_out_on_purpose_and_not_by_sampling(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = Manifest("p", 8, NOON, {"sampled_out": 2, "redactor": 3})
    write_log(Path("log.db"), [*make_records([make_case("s")]), encode_manifest(manifest)])

    main(["doctor", "--log", "log.db"])

    said = capsys.readouterr().out
    assert "left out on purpose 5" in said
    assert "+ dropped 5, redactor 3, sampled_out 2" in said


@pytest.mark.slow
def test_records_before_the_start_of_a_store_do_not_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorder = Recorder("log.db")
    consumed = ("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--from", "now")
    for sessions in (("a", "b"), ("c", "d", "e"), ("f",)):
        for session in sessions:
            with recorder.turn(user="hi", session_id=session):
                pass
        assert recorder.flush(10)
        if sessions != ("f",):
            main(list(consumed))
    recorder.close()

    (account,) = producers(capsys, *BOTH)

    assert (account["skipped"], account["landed"], account["waiting"]) == (2, 3, 1)
    main(["doctor", *BOTH])
    assert "before its start 2" in capsys.readouterr().out


@pytest.mark.slow
def test_a_gap_is_named_and_an_erased_record_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    cases = [make_case(f"s-{n}", sessionInput={"userId": f"user-{n}"}) for n in range(6)]
    manifest = encode_manifest(Manifest("p", 8, NOON, {"queue_full": 2}))
    write_log(Path("log.db"), [*make_records(cases), manifest])
    consume(1)
    main(["store", "erase", "--subject", "user-0", *BOTH])
    with closing(sqlite3.connect("log.db", isolation_level=None)) as connection:
        connection.execute('DELETE FROM records WHERE "offset" = 3')

        (account,) = producers(capsys, *BOTH)
        (by_log,) = producers(capsys, "--log", "log.db")
        code = main(["doctor", *BOTH])

    assert account["gaps"] == [[7, 8]]
    assert (account["erased"], account["landed"]) == (1, 5)
    assert by_log["gaps"] == [[3, 3], [7, 8]]
    said = capsys.readouterr().out
    assert code == 1
    assert "GAP: records 7 to 8 are missing" in said
    assert "no closing manifest" in said  # this test had the log open


@pytest.mark.slow
def test_dead_letters_and_records_that_brought_nothing_new_are_no_gaps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second, third = make_records([make_case("s", [make_turn(f"t-{n}")]) for n in range(3)])
    broken = WireRecord(second.key, b"{", (*second.headers, ("odd", b"\xff")))
    (again,) = make_records([make_case("s", [make_turn("t-0")])], first_seq=4)
    write_log(Path("log.db"), [first, broken, third, again])
    consume(2)

    (account,) = producers(capsys, *BOTH)

    assert account["gaps"] == []
    assert (account["landed"], account["dead_letters"], account["waiting"]) == (3, 1, 0)


def completeness() -> list[tuple[Any, ...]]:
    with duckdb.connect("x.duckdb", read_only=True) as connection:
        return connection.execute(
            "SELECT producer_id, recorded, landed, dropped, missing, gaps, closed"
            " FROM v_completeness"
        ).fetchall()


@pytest.mark.slow
def test_the_store_alone_proves_what_landed_was_dropped_and_is_missing() -> None:
    cases = [make_case(f"s-{n}") for n in range(10)]
    records = make_records(cases)
    broken = WireRecord(records[4].key, b"{", records[4].headers)
    early = encode_manifest(Manifest("p", 5, NOON, {"queue_full": 1}))
    late = encode_manifest(Manifest("p", 12, NOON, {"queue_full": 2, "sampled_out": 7}, True))
    write_log(
        Path("log.db"),
        [*records[:2], *records[3:4], broken, early, *records[8:], *records[:1], late],
    )
    consume(2)
    main(["store", "erase", "--subject", "s-0", *BOTH])

    assert completeness() == [
        ("p", 21, 6, 9, 6, [{"first": f, "last": t} for f, t in ((3, 3), (6, 8), (11, 12))], True)
    ]


def test_a_producer_without_a_gap_has_none_and_one_without_a_manifest_is_known_by_its_records() -> (
    None
):
    write_log(
        Path("log.db"),
        [
            *make_records([make_case(f"a-{n}") for n in range(3)]),
            encode_manifest(Manifest("p", 3, NOON, {}, True)),
            encode_manifest(Manifest("silent", 2, NOON, {})),
        ],
    )
    consume()

    assert completeness() == [
        ("silent", 2, 0, 0, 2, [{"first": 1, "last": 2}], False),
        ("p", 3, 3, 0, 0, None, True),
    ]


@pytest.mark.slow
def test_a_file_of_an_older_layout_tells_what_its_rows_still_know() -> None:
    records = make_records([make_case(f"s-{n}") for n in range(6)])
    broken = WireRecord(records[4].key, b"{", (*records[4].headers, ("odd", b"\xff")))
    closing = encode_manifest(Manifest("p", 6, NOON, {}, True))
    write_log(Path("log.db"), [*records[:2], records[3], broken, closing])
    consume(2)
    main(["store", "erase", "--subject", "s-0", *BOTH])
    now = completeness()
    with duckdb.connect("x.duckdb") as connection:
        connection.execute("DROP TABLE consumed_ranges")
        connection.execute("UPDATE meta SET value = '2' WHERE key = 'schema_version'")
    consume()

    assert now == completeness()
    assert now[0][4:6] == (2, [{"first": 3, "last": 3}, {"first": 6, "last": 6}])


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), max_size=12),
       st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6)), max_size=12))  # fmt: skip
def test_ranges_are_the_sets_of_their_numbers(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    def numbers(ranges: list[tuple[int, int]]) -> set[int]:
        return {number for first, last in ranges for number in range(first, last + 1)}

    a, b = ([(first, first + more) for first, more in ranges] for ranges in (one, other))

    assert numbers(merged(a)) == numbers(a)
    assert size(merged(a)) == len(numbers(a))
    assert numbers(without(merged(a), merged(b))) == numbers(a) - numbers(b)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(merged(a)))


@pytest.mark.parametrize(
    ("variables", "about", "verdict"),
    [
        ({}, "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "note"),
        (
            {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY"},
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
            "ok",
        ),
        ({"TRACELOOP_TRACE_CONTENT": "true"}, "TRACELOOP_TRACE_CONTENT", "ok"),
        ({}, "ENABLE_SENSITIVE_DATA", None),  # Microsoft's framework is not installed
        ({"ENABLE_SENSITIVE_DATA": "false"}, "ENABLE_SENSITIVE_DATA", "note"),
        ({"TRACELOOP_TRACE_CONTENT": "false"}, "TRACELOOP_TRACE_CONTENT", "note"),
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED", "problem"),
        ({"OTEL_SDK_DISABLED": "false"}, "OTEL_SDK_DISABLED", None),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, "OTEL_TRACES_SAMPLER", "problem"),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, "OTEL_TRACES_SAMPLER", None),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "9"}, "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "problem"),
        ({"EVALTAP_REDACTION_KEY": "do-not-show-me"}, "EVALTAP_* variables", "ok"),
    ],
)  # fmt: skip
def test_switches_are_seen_with_what_to_do(
    variables: dict[str, str], about: str, verdict: str | None
) -> None:
    sights = {sight.about: sight for sight in diagnose(variables)}

    seen = sights.get(about)

    assert (seen.verdict if seen else None) == verdict
    assert all(sight.remedy for sight in sights.values() if sight.severity == "problem")
    assert "do-not-show-me" not in repr(sights)


def test_doctor_says_which_settings_come_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("evaltap.toml").write_text('store = "x.duckdb"\n')
    monkeypatch.setenv("EVALTAP_APP_NAME", "shop")

    main(["doctor"])

    said = " ".join(capsys.readouterr().out.split())  # wrapped where the paths are long
    assert "EVALTAP_* variables: EVALTAP_APP_NAME" in said
    assert "; from evaltap.toml: EVALTAP_STORE " in said


def test_packages_and_the_provider_of_this_process_are_seen() -> None:
    sights = {sight.about: sight for sight in diagnose({})}

    assert "google-adk" in sights["frameworks installed"].found
    assert sights["tracer provider"].found


@pytest.mark.parametrize(
    ("log", "verdict", "found"),
    [
        ("new.db", "ok", "does not exist yet"),
        ("there.db", "ok", "writable"),
        ("none/log.db", "problem", "does not exist"),
        ("other.txt", "problem", "not a SQLite file"),
        ("full.db", "problem", "is full"),
    ],
)
def test_a_log_that_cannot_be_written_is_a_problem(
    log: str,
    verdict: str,
    found: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("there.db", "full.db"):
        write_log(Path(name), make_records([make_case()] * (3_000 if name == log else 1)))
    Path("other.txt").write_text("not a log " * 100)
    monkeypatch.setenv("EVALTAP_LOG", log)
    monkeypatch.setenv("EVALTAP_LOG_MAX_BYTES", str(1 << 20) if log == "full.db" else str(1 << 30))

    code = main(["doctor", "--json"])

    sights = {one["about"]: one for one in json.loads(capsys.readouterr().out)["sights"]}
    assert sights[f"log {log}"]["verdict"] == verdict
    assert found in sights[f"log {log}"]["found"]
    if verdict == "problem":
        assert code == 1
