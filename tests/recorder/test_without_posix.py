"""Without file locks and forks, as on Windows, a recorder still records."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import DecodedCase, decode_record

WITHOUT_POSIX = """
import os, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios"):
            raise ImportError(f"no module {name} on this system")

sys.meta_path.insert(0, Blocker())
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
for name in ("fork", "register_at_fork", "getuid", "geteuid"):
    delattr(os, name)
"""


def run(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX + program],
        cwd=folder,
        env={"PATH": "", "HOME": str(folder), "EVALTAP_SPOOL_DIR": str(folder / "spool")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_turn_is_recorded_to_a_local_log_and_the_process_is_looked_at(tmp_path: Path) -> None:
    said = run(
        """
from evaltap.recorder import Recorder, diagnose

recorder = Recorder("log.db")
with recorder.turn(session_id="s-1", user="Where is A-100?") as turn:
    turn.tool("get_order", {"id": "A-100"}, result={"status": "shipped"})
    turn.respond("It has shipped.")
assert recorder.close(), recorder.counters()
assert recorder.counters().delivered == 1, recorder.counters()
print(*(sight.about for sight in diagnose()), sep="\\n")
""",
        tmp_path,
    )

    assert "tracer provider" in said
    log = open_log(tmp_path / "log.db", mode="read")
    found = [decode_record(record) for _, record in log.records()]
    log.close()
    (case,) = [one.case for one in found if isinstance(one, DecodedCase)]
    assert case["actualConversation"][0]["finalResponse"]["content"] == "It has shipped."


@pytest.mark.slow
def test_a_recorder_spools_before_a_broker_that_is_away_and_leaves_the_spools_of_others(
    tmp_path: Path,
) -> None:
    url = "kafka://127.0.0.1:9/evaltap.cases"
    program = f"""
from evaltap.recorder import Recorder

recorder = Recorder({url!r}, close_timeout_seconds=0.5)
with recorder.turn(session_id="s-1", user="hi") as turn:
    turn.respond("hello")
recorder.close()
counters = recorder.counters()
assert counters.recorded == counters.spooled == 1, counters
"""

    run(program, tmp_path)
    run(program, tmp_path)

    left = sorted((tmp_path / "spool").rglob("*.log.db"))
    assert len(left) == 2, "each process has a spool of its own"
    for path in left:
        log = open_log(path, mode="read")
        assert sum(1 for _ in log.records()) >= 1
        log.close()
