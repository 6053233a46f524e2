"""A command that runs until it is stopped ends in order when told once, at once when told twice."""

import signal
import subprocess
import sys

import pytest

STUBBORN = r"""
import os, time
from evaltap.cli.signals import stopped_by_signals

with stopped_by_signals("consume", lambda: os.write(1, b"asked\n")):
    os.write(1, b"ready\n")
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_what_does_not_heed_the_first(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(number)
    assert process.stdout.readline() == "asked\n"
    process.send_signal(number)
    _, told = process.communicate(timeout=20)

    assert process.returncode == -number
    assert ("again: at once" in told) == (number == signal.SIGINT)
