"""Recorders of one process with equal settings write through one queue and one background thread."""

import _thread
import logging
from pathlib import Path

import pytest

from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.delivery.pipeline import MANY_RECORDERS


def record_turn(recorder: Recorder) -> None:
    with recorder.turn(session_id="s", user="Hello") as turn:
        turn.respond("Good day.")


def test_recorders_of_one_log_share_a_thread_and_the_counters(tmp_path: Path) -> None:
    before = _thread._count()
    with Recorder(tmp_path / "log.db") as one, Recorder(tmp_path / "log.db") as other:
        record_turn(one)
        record_turn(other)
        assert one.flush()
        assert _thread._count() == before + 1
        assert one.counters() == other.counters()
        assert one.counters().delivered == 2


@pytest.mark.parametrize("first", [0, 1])
def test_the_last_recorder_to_close_closes_the_log(first: int, tmp_path: Path) -> None:
    recorders = [Recorder(tmp_path / "log.db"), Recorder(tmp_path / "log.db")]
    closed, still_open = recorders[first], recorders[1 - first]
    record_turn(closed)
    assert closed.close()
    record_turn(still_open)
    assert still_open.close()
    assert still_open.counters().delivered == 2


def test_turns_of_a_closed_recorder_are_counted_as_dropped_while_others_record(
    tmp_path: Path,
) -> None:
    closed, still_open = Recorder(tmp_path / "log.db"), Recorder(tmp_path / "log.db")
    closed.close()
    record_turn(closed)
    record_turn(still_open)
    assert still_open.close()
    assert still_open.counters().delivered == 1
    assert still_open.counters().dropped == {"closed": 1}


def test_a_recorder_created_after_the_last_was_closed_records_again(tmp_path: Path) -> None:
    for _ in range(3):
        recorder = Recorder(tmp_path / "log.db")
        record_turn(recorder)
        assert recorder.close()
        assert recorder.counters().delivered == 1


def test_recorders_with_other_settings_or_a_sink_are_separate(tmp_path: Path) -> None:
    recorders = [
        Recorder(tmp_path / "log.db"),
        Recorder(tmp_path / "log.db", app_name="other"),
        Recorder(tmp_path / "log.db", sink=MemorySink()),
    ]
    record_turn(recorders[0])
    for recorder in recorders:
        assert recorder.close()
    assert [recorder.counters().recorded for recorder in recorders] == [1, 0, 0]


def test_a_recorder_per_request_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "evaltap.recorder"):
        many = [Recorder(tmp_path / "log.db") for _ in range(2 * MANY_RECORDERS)]
    assert [record.message for record in caplog.records] == [
        f"{MANY_RECORDERS + 1} recorders of {tmp_path / 'log.db'} are open in this process:"
        " create one and reuse it"
    ]
    for recorder in many:
        recorder.close()
