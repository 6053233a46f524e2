"""A program that records, for tests of how processes end."""

import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1], queue_max_events=1_000_000)
def record(session):
    with recorder.turn(session_id=session, user="u") as turn:
        turn.tool("t", {"n": 1}, result=2)
        turn.respond("a")
"""


def run(body: str, log: Path, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + body, str(log)], timeout=60, capture_output=True, **options
    )
