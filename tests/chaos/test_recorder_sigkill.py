"""SIGKILL of a recording process at random moments: what is on the log is whole and said once.

The recording process writes a ledger of its own through a pipe: each turn with the moment it ended,
and each flush that was answered.  The checker reads log and ledger with sqlite3 and json alone.
`EVALTAP_TEST_KILLS` sets the number of kills (default 25).
"""

import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

KILLS = int(os.environ.get("EVALTAP_TEST_KILLS", "25"))
GRACE_SECONDS = 0.050
"""A turn that ended longer ago than this must survive the kill."""

AGENT = """
import os, sys, threading, time
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1])
life = sys.argv[2]
def tell(*words):
    os.write(1, (' '.join(map(str, words)) + '\\n').encode())
def work(thread):
    n = 0
    while True:
        name = f'{life}-{thread}-{n}'
        with recorder.turn(session_id=name, user='where is ' + name) as turn:
            turn.tool('get_order', {'name': name, 'pad': 'x' * (n % 3000)}, id='c', result={'of': name})
            turn.respond('it is ' + name)
        tell('ended', name, time.monotonic_ns())
        n += 1
        if n % 20 == 0 and recorder.flush(5):
            tell('flushed', thread, n)
        time.sleep(0.01)
with recorder.turn(session_id=life + '-warm', user='u') as turn:
    turn.respond('a')
recorder.flush(5)
tell('ready')
for thread in range(3):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
time.sleep(600)
"""


def live_and_die(log: Path, life: str, rng: random.Random) -> tuple[list[list[str]], int]:
    """Let an agent record until it is killed; return its ledger and the moment of the kill."""
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(log), life], stdout=subprocess.PIPE, bufsize=0
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + rng.uniform(0, 0.5)
    told = bytearray()
    os.set_blocking(agent.stdout.fileno(), False)
    while time.monotonic() < deadline:
        # Only emptied, so that the agent never waits for the pipe.
        told += agent.stdout.read(1 << 16) or b""
    killed_at = time.monotonic_ns()
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    told += agent.stdout.read() or b""
    agent.stdout.close()
    whole, _, _ = told.rpartition(b"\n")
    return [line.split() for line in whole.decode().splitlines()], killed_at


def check(log: Path, ledger: list[tuple[list[list[str]], int]]) -> list[str]:
    """Return what is wrong: turns lost, doubled or torn, numbers that are not dense."""
    connection = sqlite3.connect(f"file:{log}?mode=ro", uri=True)
    rows = connection.execute('SELECT headers, value FROM records ORDER BY "offset"').fetchall()
    wrong = [
        f"integrity: {row[0]}"
        for row in connection.execute("PRAGMA integrity_check")
        if row[0] != "ok"
    ]
    connection.close()
    seen: Counter[str] = Counter()
    numbers: dict[str, list[int]] = {}
    for packed, value in rows:
        headers = dict(json.loads(packed))
        if hashlib.sha256(value).hexdigest() != headers["content_sha256"]:
            wrong.append("torn record")
        if headers["ce_type"] != "evaltap.case":
            continue
        case = json.loads(value)
        name = case["evalId"]
        seen[name] += 1
        numbers.setdefault(headers["producer_id"], []).append(int(headers["seq"]))
        (turn,) = case["actualConversation"]
        if not name.endswith("warm") and (
            turn["finalResponse"]["content"] != f"it is {name}"
            or turn["tools"][0]["result"] != {"of": name}
        ):
            wrong.append(f"torn turn {name}")
    wrong += [f"doubled {name}" for name, count in seen.items() if count > 1]
    for producer, found in numbers.items():
        if found != list(range(1, len(found) + 1)):
            wrong.append(f"numbers of {producer} are not dense")
    for lines, killed_at in ledger:
        acknowledged = {(line[1], int(line[2])) for line in lines if line[0] == "flushed"}
        for line in lines:
            if line[0] != "ended" or seen[line[1]]:
                continue
            _, thread, number = line[1].split("-")
            if any(of == thread and int(number) < upto for of, upto in acknowledged):
                wrong.append(f"acknowledged turn {line[1]} is lost")
            elif killed_at - int(line[2]) > GRACE_SECONDS * 1e9:
                age = (killed_at - int(line[2])) / 1e6
                wrong.append(f"turn {line[1]} is lost, {age:.0f} ms old")
    return wrong


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_killed_agent_loses_no_turn_that_ended_50_ms_ago(tmp_path: Path) -> None:
    rng = random.Random(20261121)
    log = tmp_path / "log.db"

    ledger = [live_and_die(log, f"life{number}", rng) for number in range(KILLS)]

    assert check(log, ledger) == []
    assert sum(line[0] == "ended" for lines, _ in ledger for line in lines) > 10 * KILLS


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ('DELETE FROM records WHERE "offset" = 12', "lost"),
        ("INSERT INTO records (key, headers, value, appended_at) SELECT key, headers, value, 0"
         ' FROM records WHERE "offset" = 12', "doubled"),
        ("UPDATE records SET value = substr(value, 1, 100) WHERE \"offset\" = 30", "torn"),
    ],
)  # fmt: skip
@pytest.mark.chaos
def test_the_checker_sees_a_planted_loss_a_double_and_a_torn_record(
    tmp_path: Path, damage: str, said: str
) -> None:
    log = tmp_path / "log.db"
    rng = random.Random(4)
    ledger = [live_and_die(log, f"life{number}", rng) for number in range(3)]
    with sqlite3.connect(log) as connection:
        connection.execute(damage)
    connection.close()

    try:
        wrong = check(log, ledger)
    except json.JSONDecodeError:
        wrong = ["torn record"]

    assert any(said in line for line in wrong), wrong
