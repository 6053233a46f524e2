"""Under gevent the background thread is a greenlet: nothing is lost, and other greenlets continue."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import CASE_TYPE

PROGRAM = """
from gevent import monkey

monkey.patch_all()

import sys

import gevent

from evaltap.recorder import Recorder

recorder = Recorder(sys.argv[1])
beats = 0


def beat():
    global beats
    while True:
        gevent.sleep(0.001)
        beats += 1


def agent(number):
    for step in range(10):
        with recorder.turn(session_id=f"s-{number}", user="Where is my order?") as turn:
            turn.tool("get_order", {"step": step}, result={"rows": [1] * 50})
            gevent.sleep(0.02)
            turn.respond("It ships on Friday.")


gevent.spawn(beat)
gevent.joinall([gevent.spawn(agent, number) for number in range(20)])
assert beats > 20, f"other greenlets stood still: {beats} beats"
"""
CLOSED = """
assert recorder.close(20)
counters = recorder.counters()
assert (counters.recorded, counters.delivered, counters.faults) == (200, 200, 0), counters
"""


@pytest.mark.parametrize("end", [CLOSED, ""], ids=["closed", "left to the end of the program"])
def test_every_turn_of_many_greenlets_is_on_the_log(tmp_path: Path, end: str) -> None:
    path = tmp_path / "log.db"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + end, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    log = open_log(path, mode="read")
    records = log.read(log.start_offset(), 500)
    log.close()
    assert sum(record.header("ce_type") == CASE_TYPE for _, record in records) == 200
