"""Under gevent and eventlet nothing is lost and no greenlet waits, whichever is imported first."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import CASE_TYPE

PATCH = {
    "gevent": "from gevent import monkey; monkey.patch_all(); from gevent import sleep, spawn",
    "eventlet": "import eventlet; eventlet.monkey_patch(); from eventlet import sleep, spawn",
}
IMPORT = "from evaltap.recorder import Recorder"
PROGRAM = """
import sys
import time

recorder = Recorder(sys.argv[1])
longest_stop = 0.0
agents = 20


def beat():
    global longest_stop
    while agents:
        before = time.perf_counter()
        sleep(0.001)
        longest_stop = max(longest_stop, time.perf_counter() - before)


def agent(number):
    global agents
    for step in range(10):
        with recorder.turn(session_id=f"s-{number}", user="Where is my order?") as turn:
            turn.tool("get_order", {"step": step}, result={"rows": [1] * 50})
            sleep(0.02)
            turn.respond("It ships on Friday.")
    agents -= 1


beating = spawn(beat)
for number in range(20):
    spawn(agent, number)
while agents:
    sleep(0.01)
assert longest_stop < 1, f"other greenlets stood still for {longest_stop:.1f} s"
assert recorder.flush(20)
"""
CLOSED = """
assert recorder.close(20)
counters = recorder.counters()
assert (counters.recorded, counters.delivered, counters.faults) == (200, 200, 0), counters
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "end"),
    [("patched", CLOSED), ("imported", "")],
    ids=["patched, closed", "imported, left to the end of the program"],
)
@pytest.mark.parametrize("library", PATCH)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_turn_of_many_greenlets_is_on_the_log(
    tmp_path: Path, library: str, first: str, end: str
) -> None:
    path = tmp_path / "log.db"
    lines = [PATCH[library], IMPORT] if first == "patched" else [IMPORT, PATCH[library]]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, PROGRAM, end]), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    log = open_log(path, mode="read")
    records = log.read(log.start_offset(), 500)
    log.close()
    assert sum(record.header("ce_type") == CASE_TYPE for _, record in records) == 200
