"""SIGKILL of a recording process at random moments: turns on the log are complete and unique.

The process records its turns through the plain API, or as the spans of an instrumented framework.

The recording process writes a ledger through a pipe: each turn with the time of its end, each completed
flush, and a heartbeat every few milliseconds.  A process that the machine does not run cannot write either:
while its heartbeats stop, the grace period is paused, for at most a second. `EVALTAP_TEST_KILLS` sets the
number of kills (default 50).
"""

import json
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from chaos.checker import DUPLICATED, TORN, Finding, check, what_is_wrong_with
from chaos.evidence import Evidence, Ledger, Turn, read_log_file

KILLS = int(os.environ.get("EVALTAP_TEST_KILLS", "25"))
GRACE_SECONDS = 0.050
"""A turn that ended longer ago than this survives the kill, unless the writer's thread was not run."""
LATE_SECONDS = 0.500
"""A turn that ended longer ago than this survives every kill."""
LATE_LIVES = KILLS // 2
"""Of all agents: those whose writer may have been kept waiting, by a busy disk or processor.

On a slow machine beside two other tests, these were six of 25.  A writer that waits too long by itself is
late in nearly every life.
"""
BEAT_SECONDS = 0.005
MISSED_BEAT_SECONDS = 0.010
"""Longer without a beat than Python's switching between threads explains: nothing ran."""
MAX_STALLED_SECONDS = 1.0

BY_HAND = """
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1])
def run(name, pad):
    with recorder.turn(session_id=name, invocation_id=name, user='where is ' + name) as turn:
        turn.tool('get_order', {'name': name, 'pad': pad}, id='c', result={'of': name})
        turn.respond('it is ' + name)
    time.sleep(0.01)
    return name
def flush():
    return recorder.flush(5)
"""

BY_SPANS = """
import json
from opentelemetry.sdk.trace import TracerProvider
from evaltap.recorder import CaseSpanProcessor
provider = TracerProvider()
provider.add_span_processor(CaseSpanProcessor(sys.argv[1]))
tracer = provider.get_tracer('agent')
def span(operation, **attributes):
    named = {'gen_ai.' + key.replace('_of_', '.'): value for key, value in attributes.items()}
    return tracer.start_as_current_span(
        operation, attributes={'gen_ai.operation.name': operation, **named}
    )
def said(role, text):
    return json.dumps([{'role': role, 'parts': [{'type': 'text', 'content': text}]}])
def run(name, pad):
    with span('invoke_agent', conversation_of_id=name) as agent:
        agent.set_attribute('gen_ai.input.messages', said('user', 'where is ' + name))
        with span('chat', request_of_model='m'):
            time.sleep(0.01)
        with span('execute_tool', tool_of_name='get_order') as tool:
            arguments = json.dumps({'name': name, 'pad': pad})
            tool.set_attribute('gen_ai.tool.call.arguments', arguments)
            tool.set_attribute('gen_ai.tool.call.result', json.dumps({'of': name}))
        with span('chat', request_of_model='m'):
            time.sleep(0.01)
        agent.set_attribute('gen_ai.output.messages', said('assistant', 'it is ' + name))
    at = agent.get_span_context()
    return f'{at.trace_id:032x}-{at.span_id:016x}'
def flush():
    return provider.force_flush(5000)
"""

AGENT = """
import os, sys, threading, time
{way_in}
life = sys.argv[2]
def tell(*words):
    os.write(1, (' '.join(map(str, words)) + '\\n').encode())
def work(thread):
    n = 0
    while True:
        name = f'{{life}}-{{thread}}-{{n}}'
        invocation = run(name, 'x' * (n % 3000))
        tell('ended', name, time.monotonic_ns(), invocation)
        n += 1
        if n % 20 == 0 and flush():
            tell('flushed', thread, n)
def beat():
    while True:
        tell('alive', time.monotonic_ns())
        time.sleep({beat_seconds})
run(life + '-warm', '')
flush()
tell('ready')
threading.Thread(target=beat, daemon=True).start()
for thread in range(3):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
time.sleep(600)
"""


def live_and_die(
    way_in: str, log: Path, life: str, rng: random.Random
) -> tuple[list[list[str]], int]:
    """Let an agent record until it is killed; return its ledger and the moment of the kill."""
    agent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            AGENT.format(way_in=way_in, beat_seconds=BEAT_SECONDS),
            str(log),
            life,
        ],
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert agent.stdout is not None
    assert agent.stdout.readline() == b"ready\n"
    deadline = time.monotonic() + rng.uniform(0, 0.5)
    told = bytearray()
    os.set_blocking(agent.stdout.fileno(), False)
    while (left := deadline - time.monotonic()) > 0:
        # Emptied, so that the agent never waits for the pipe.
        if select.select([agent.stdout], [], [], left)[0]:
            told += agent.stdout.read(1 << 16) or b""
    killed_at = time.monotonic_ns()
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    told += agent.stdout.read() or b""
    agent.stdout.close()
    whole, _, _ = told.rpartition(b"\n")
    return [line.split() for line in whole.decode().splitlines()], killed_at


def integrity(log: Path) -> str:
    """Return what SQLite itself says about the file."""
    connection = sqlite3.connect(f"file:{log}?mode=ro", uri=True)
    (said,) = connection.execute("PRAGMA integrity_check").fetchone()
    connection.close()
    return str(said)


def ran_seconds(since_ns: int, until_ns: int, beats_ns: list[int]) -> float:
    """Return how long a process ran between two moments, by its beats."""
    within = [beat for beat in beats_ns if since_ns < beat < until_ns]
    gaps = [(later - earlier) / 1e9 for earlier, later in pairwise([since_ns, *within, until_ns])]
    stalled = sum(gap - BEAT_SECONDS for gap in gaps if gap > MISSED_BEAT_SECONDS)
    return (until_ns - since_ns) / 1e9 - min(stalled, MAX_STALLED_SECONDS)


def look(
    log: Path, lives: list[tuple[list[list[str]], int]], grace_seconds: float = GRACE_SECONDS
) -> list[Finding]:
    """Return what the checker finds on the log, by what the agents said while they lived."""
    ledger = Ledger()
    for lines, killed_at in lives:
        beats = [int(line[1]) for line in lines if line[0] == "alive"]
        acknowledged = {(line[1], int(line[2])) for line in lines if line[0] == "flushed"}
        for _, name, ended_at, invocation in (line for line in lines if line[0] == "ended"):
            _, thread, number = name.split("-")
            flushed = any(of == thread and int(number) < upto for of, upto in acknowledged)
            old = ran_seconds(int(ended_at), killed_at, beats) > grace_seconds
            ledger.turns.append(
                Turn(name, invocation, f"it is {name}", tools=1, safe=flushed or old)
            )
    records = read_log_file(log)
    torn = [Finding(TORN, what) for record in records if (what := what_is_wrong_with(record))]
    names = Counter(
        json.loads(record.value)["evalId"]
        for record in records
        if record.headers["ce_type"] == "evaltap.case" and not what_is_wrong_with(record)
    )
    doubled = [Finding(DUPLICATED, name) for name, count in names.items() if count > 1]
    return [*check(Evidence(ledger, log=records)), *torn, *doubled]


@pytest.mark.parametrize("way_in", [BY_HAND, BY_SPANS], ids=["by_hand", "by_spans"])
@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_a_killed_agent_loses_no_turn_of_half_a_second_ago_and_mostly_none_of_50_ms_ago(
    tmp_path: Path, way_in: str
) -> None:
    rng = random.Random(20261121)
    log = tmp_path / "log.db"

    ledger = [live_and_die(way_in, log, f"life{number}", rng) for number in range(KILLS)]

    assert look(log, ledger, LATE_SECONDS) == []
    late = {finding.what.split("-")[0] for finding in look(log, ledger)}
    assert len(late) <= LATE_LIVES
    assert integrity(log) == "ok"
    assert sum(line[0] == "ended" for lines, _ in ledger for line in lines) > 10 * KILLS


def oldest_turn(log: Path, lives: list[tuple[list[list[str]], int]]) -> int:
    """Return the offset of the record of the turn that ended longest before its agent was killed."""
    ages = [
        (killed_at - int(line[2]), line[1])
        for lines, killed_at in lives
        for line in lines
        if line[0] == "ended"
    ]
    _, name = max(ages)
    return next(
        record.offset for record in read_log_file(log) if f'"{name}"'.encode() in record.value
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ('DELETE FROM records WHERE "offset" = ?', "lost"),
        ("INSERT INTO records (key, headers, value, appended_at) SELECT key, headers, value, 0"
         ' FROM records WHERE "offset" = ?', "duplicated"),
        ("UPDATE records SET value = substr(value, 1, 100) WHERE \"offset\" = ?", "torn"),
    ],
)  # fmt: skip
@pytest.mark.chaos
def test_the_checker_sees_a_planted_loss_a_double_and_a_torn_record(
    tmp_path: Path, damage: str, said: str
) -> None:
    log = tmp_path / "log.db"
    rng = random.Random(4)
    ledger = [live_and_die(BY_HAND, log, f"life{number}", rng) for number in range(3)]
    with sqlite3.connect(log) as connection:
        connection.execute(damage, [oldest_turn(log, ledger)])
    connection.close()

    wrong = look(log, ledger)

    assert any(said == kind for kind, _ in wrong), wrong
