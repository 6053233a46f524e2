"""A recorder, its local log at the smallest size, and consumers that come and go."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.pipeline.live.log_cursor import LogCursor
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.schemas.log.local import open_log

SMALLEST = 1 << 20
PER_SECOND = 200


@pytest.fixture(autouse=True)
def no_tracer_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide a provider that another test has set for this process, about which `doctor` would complain."""
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", None)


def record(recorder: Recorder, name: str) -> None:
    with recorder.turn(user="Where is my order?", session_id=name) as turn:
        call = turn.tool("find_order", {"id": name})
        turn.tool_result(call, {"status": "sent", "where": "on its way to you, by van"})
        turn.respond("It is on its way and comes tomorrow before noon.")


def consume(log: Path, db: Path, *more: str) -> int:
    return main(["consume", "--log", str(log), "--db", str(db), "--until-idle", "--json", *more])


def turns(db: Path) -> int:
    with Store(db, create=False) as store:
        return int(store.rows("SELECT count(*) FROM turns")[0][0])


class LiveConsumer:
    """A consumer in a thread of its own, started and stopped at will."""

    def __init__(self, log: Path, db: Path) -> None:
        self._stopped: Callable[[], None] = lambda: None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(log, db))
        self._thread.start()
        assert self._ready.wait(30)

    def _run(self, log: Path, db: Path) -> None:
        with Store(db) as store:
            source = LocalLogSource(log)
            cursor = LogCursor(log, store, timedelta(hours=24))
            consumer = Consumer(source, store, tasks=[cursor])
            self._stopped = consumer.stop
            self._ready.set()
            consumer.run(until_idle=False, report=lambda _: None)
            cursor.close()
            source.close()

    def stop(self) -> None:
        self._stopped()
        self._thread.join()


def run_doctor(capsys: pytest.CaptureFixture[str], log: Path) -> str:
    assert main(["doctor", "--log", str(log), "--json"]) == 1
    return capsys.readouterr().out


def produce(recorder: Recorder, seconds: float, begins: int) -> int:
    """Record PER_SECOND turns a second; return the number of the next turn."""
    wait, started = threading.Event(), time.monotonic()
    for number in range(round(seconds * PER_SECOND)):
        record(recorder, f"s-{begins + number}")
        wait.wait(max(0.0, started + number / PER_SECOND - time.monotonic()))
    return begins + round(seconds * PER_SECOND)


@pytest.mark.slow
@pytest.mark.parametrize(("together", "away", "repeats"), [(2.0, 3.0, 2), (20.0, 10.0, 1)])
@pytest.mark.timeout(900)
def test_a_consumer_that_is_away_for_a_while_costs_no_turn_and_no_room(
    tmp_path: Path, together: float, away: float, repeats: int
) -> None:
    log, db = tmp_path / "log.db", tmp_path / "x.duckdb"
    recorder = Recorder(str(log), log_max_bytes=SMALLEST)
    record(recorder, "first")
    assert recorder.flush(10)
    largest, number = 0, 0
    for _ in range(repeats):
        consumer = LiveConsumer(log, db)
        number = produce(recorder, together, number)
        consumer.stop()
        number = produce(recorder, away, number)
        largest = max(largest, sum(one.stat().st_size for one in tmp_path.glob("log.db*")))
    consumer = LiveConsumer(log, db)
    complete = recorder.flush(60)
    recorder.close()
    consumer.stop()
    consume(log, db)

    assert complete
    assert recorder.counters().dropped == {}
    assert turns(db) == number + 1
    assert largest < 2.5 * SMALLEST, "with its journal"


@pytest.mark.slow
def test_a_log_that_was_consumed_takes_turns_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, db = tmp_path / "log.db", tmp_path / "x.duckdb"
    recorder = Recorder(str(log), log_max_bytes=SMALLEST, queue_max_bytes=1 << 16)
    recorded = 0
    while not recorder.counters().dropped:
        record(recorder, f"s-{recorded}")
        recorded += 1
        recorder.flush(0.2)
    lost = sum(recorder.counters().dropped.values())
    before = consume(log, db)

    for number in range(200):
        assert recorder.flush(30)
        record(recorder, f"more-{number}")
    recorder.close()
    assert 1 in (before, consume(log, db)), "the agent dropped turns"

    assert turns(db) == recorded + 200 - lost
    capsys.readouterr()
    assert main(["doctor", "--log", str(log), "--db", str(db), "--json"]) == 1
    (account,) = json.loads(capsys.readouterr().out)["producers"]
    assert account["dropped"] == {"log_unavailable": lost}
    assert account["lost"] == 0
    assert account["trimmed"] > 0
    assert json.loads(run_doctor(capsys, log))["losses"] == {"log_unavailable": lost}


@pytest.mark.slow
def test_what_was_landed_is_kept_as_long_as_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.db"
    recorder = Recorder(str(log))
    record(recorder, "one")
    recorder.close()

    consume(log, tmp_path / "a.duckdb")
    consume(log, tmp_path / "b.duckdb")
    assert turns(tmp_path / "b.duckdb") == 1, "a day is the default"
    consume(log, tmp_path / "a.duckdb", "--keep-log", "0")
    capsys.readouterr()
    assert consume(log, tmp_path / "c.duckdb") == 1

    assert turns(tmp_path / "c.duckdb") == 0
    assert "older records were trimmed" in capsys.readouterr().err
    assert main(["doctor", "--log", str(log), "--db", str(tmp_path / "c.duckdb")]) == 1
    assert main(["doctor", "--log", str(log), "--db", str(tmp_path / "a.duckdb")]) == 0
    assert main(["doctor", "--log", str(log)]) == 0, "what was trimmed is not lost"


@pytest.mark.slow
def test_a_copy_of_a_store_that_missed_turns_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, db, copy = tmp_path / "log.db", tmp_path / "x.duckdb", tmp_path / "copy.duckdb"
    recorder = Recorder(str(log))
    for number in range(5):
        record(recorder, f"s-{number}")
    recorder.flush(10)
    consume(log, db, "--keep-log", "0")
    shutil.copy(db, copy)
    for number in range(5, 12):
        record(recorder, f"s-{number}")
    recorder.flush(10)
    consume(log, db, "--keep-log", "0")
    for number in range(12, 15):
        record(recorder, f"s-{number}")
    recorder.close()
    capsys.readouterr()

    assert consume(log, copy) == 1
    assert "GAP" in capsys.readouterr().err
    assert main(["doctor", "--log", str(log), "--db", str(copy)]) == 1
    assert "records 6 to 12 never landed in this file" in capsys.readouterr().out
    assert consume(log, db) == 0
    assert main(["doctor", "--log", str(log), "--db", str(db)]) == 0


@pytest.mark.slow
def test_a_restored_backup_gets_all_that_the_log_still_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, db, backup = tmp_path / "log.db", tmp_path / "x.duckdb", tmp_path / "backup.duckdb"
    recorder = Recorder(str(log))
    for number in range(5):
        record(recorder, f"s-{number}")
    recorder.flush(10)
    consume(log, db)
    shutil.copy(db, backup)
    for number in range(5, 12):
        record(recorder, f"s-{number}")
    recorder.close()
    consume(log, db)
    db.unlink()

    shutil.copy(backup, db)

    assert consume(log, db) == 0
    assert turns(db) == 12
    assert "GAP" not in capsys.readouterr().err
    assert main(["doctor", "--log", str(log), "--db", str(db)]) == 0


@pytest.mark.slow
def test_a_store_that_began_now_lacks_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    recorder = Recorder(str(log))
    record(recorder, "one")
    recorder.flush(10)
    consume(log, tmp_path / "now.duckdb", "--from", "now")
    consume(log, tmp_path / "all.duckdb", "--keep-log", "0")
    record(recorder, "two")
    recorder.close()

    assert consume(log, tmp_path / "now.duckdb", "--keep-log", "0") == 0
    assert main(["doctor", "--log", str(log), "--db", str(tmp_path / "now.duckdb")]) == 0


@pytest.mark.slow
def test_a_second_consumer_begins_where_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.db"
    recorder = Recorder(str(log))
    record(recorder, "one")
    recorder.flush(10)
    capsys.readouterr()
    consume(log, tmp_path / "now.duckdb", "--from", "now")
    assert (
        "is new to this log and begins at record 2: after the newest record (--from now)"
        in capsys.readouterr().err
    )
    record(recorder, "two")
    recorder.close()

    consume(log, tmp_path / "now.duckdb", "--from", "now")
    consume(log, tmp_path / "oldest.duckdb")

    assert turns(tmp_path / "now.duckdb") == 1
    assert turns(tmp_path / "oldest.duckdb") == 2


@pytest.mark.slow
def test_beginning_at_the_oldest_record_is_for_new_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, file = tmp_path / "log.db", tmp_path / "x.duckdb"
    recorder = Recorder(str(log))
    record(recorder, "one")
    recorder.close()

    consume(log, file, "--from", "oldest")
    first = capsys.readouterr().err
    consume(log, file, "--from", "oldest")
    again = capsys.readouterr().err
    consume(log, file)

    assert "--from oldest only applies to a new file" in again
    assert "only applies" not in first + capsys.readouterr().err


def test_a_log_that_may_only_be_read_is_read_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Root may write whatever the mode says, so the path is one that cannot be opened to append.
    with Store(tmp_path / "x.duckdb") as store:
        cursor = LogCursor(tmp_path, store, timedelta(0))
        cursor.begin()
        cursor.step(None)

    (warning,) = [one.getMessage() for one in caplog.records]
    assert "cannot store this consumer's position" in warning


def test_a_second_without_memory_costs_the_consumer_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory has a ceiling while a statement of a reader is carried out."""
    log, now = tmp_path / "log.db", [time.time() + 1]
    with Recorder(log) as recorder:
        record(recorder, "s-1")
    consume(log, tmp_path / "x.duckdb")

    def no_memory(*_: object, **__: object) -> int:
        raise MemoryError

    with Store(tmp_path / "x.duckdb") as store:
        cursor = LogCursor(log, store, timedelta(0), clock=lambda: now[0], now=lambda: now[0])
        with monkeypatch.context() as patch:
            patch.setattr("evaltap.evaluator.pipeline.live.log_cursor.trim_landed", no_memory)
            assert not cursor.step(None)
        now[0] += 2
        cursor.step(None)

    with closing(open_log(log, mode="read")) as left:
        assert left.start_offset() == left.end_offset()
