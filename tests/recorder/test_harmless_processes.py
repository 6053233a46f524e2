"""The recorder harms no process: threads, forks, signals, exits."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.recorder import Recorder
from evaltap.schemas.wire.record import DecodedCase, Manifest, decode_record
from support.builders.recording_program import run


def sessions(log: Path) -> list[str]:
    source = LocalLogSource(log)
    decoded = [decode_record(item.record) for item in source.poll(10_000, 0).records]
    source.close()
    return [item.eval_id for item in decoded if isinstance(item, DecodedCase)]


def manifests(log: Path) -> list[Manifest]:
    source = LocalLogSource(log)
    decoded = [decode_record(item.record) for item in source.poll(10_000, 0).records]
    source.close()
    return [item for item in decoded if isinstance(item, Manifest)]


@pytest.mark.slow
def test_recording_from_a_garbage_collection_and_a_signal_never_deadlocks(tmp_path: Path) -> None:
    body = """
import gc
counted = 0
def count_and_record():
    global counted
    counted += 1
    record('s')

class Recording:
    def __init__(self):
        self.loop = self
    def __del__(self):
        count_and_record()
        gone.append(1)

gone = []
gc.set_threshold(5)
signal.signal(signal.SIGALRM, lambda *_: count_and_record())
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for _ in range(300):
    Recording()
    count_and_record()
signal.setitimer(signal.ITIMER_REAL, 0)
gc.set_threshold(700)
while len(gone) < 300:  # the recorder's thread may be collecting garbage
    gc.collect()
    time.sleep(0.001)
assert recorder.close(60), recorder.counters()
assert recorder.counters().delivered == counted >= 600, (counted, recorder.counters())
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr


ENDINGS = {
    "falling off the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an unhandled exception": ("raise ValueError('x')", 1),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", -signal.SIGTERM),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(30)", -signal.SIGINT),
    "a SIGTERM handler of its own": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7));"
        "os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 7,
    ),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
def test_however_the_process_ends_its_turns_are_on_the_log(tmp_path: Path, ending: str) -> None:
    code, status = ENDINGS[ending]
    body = f"""
for n in range(20): record(f's-{{n}}')
open_turn = recorder.turn(session_id='open', user='u')
open_turn.__enter__()
{code}
"""

    began = time.monotonic()
    done = run(body, tmp_path / "log.db")

    assert done.returncode == status, done.stderr
    assert time.monotonic() - began < 20
    assert sorted(sessions(tmp_path / "log.db")) == sorted([*(f"s-{n}" for n in range(20)), "open"])
    assert manifests(tmp_path / "log.db")[-1].closing


def test_a_sigterm_while_the_recorder_is_being_closed_loses_no_turn(tmp_path: Path) -> None:
    """As a pool ends its workers: it asks them to, and sends the signal while they do."""
    log = tmp_path / "log.db"
    body = f"""
import sqlite3
record('first'); recorder.flush()
other = sqlite3.connect({str(log)!r}, isolation_level=None, check_same_thread=False)
other.execute('BEGIN IMMEDIATE')
record('last')
def end():
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)
    other.execute('ROLLBACK')
threading.Thread(target=end).start()
recorder.close()
time.sleep(30)
"""

    done = run(body, log)

    assert done.returncode == -signal.SIGTERM, done.stderr
    assert sorted(sessions(log)) == ["first", "last"]


@pytest.mark.slow
def test_a_forked_child_records_its_own_turns_under_its_own_name(tmp_path: Path) -> None:
    body = """
stop = threading.Event()
def hammer():
    n = 0
    while not stop.is_set():
        record(f'parent-thread-{n}'); n += 1
        time.sleep(0.0005)
thread = threading.Thread(target=hammer); thread.start()
open_turn = recorder.turn(session_id='parent-open', user='u')
open_turn.__enter__()
for number in range(20):
    pid = os.fork()
    if pid == 0:
        record(f'child-{number}')
        open_turn.respond('the child must not finish the turn of its parent')
        complete = recorder.close(10)
        counters = recorder.counters()
        os._exit(0 if complete and counters.delivered == 1 == counters.recorded else 9)
    assert os.waitpid(pid, 0)[1] == 0, number
    record(f'parent-{number}')
stop.set(); thread.join()
open_turn.respond('by the parent')
open_turn.__exit__(None, None, None)
assert recorder.close(10), recorder.counters()
print(recorder.counters().delivered)
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr
    seen = sessions(tmp_path / "log.db")
    assert len(seen) == len(set(seen)) == int(done.stdout) + 20
    assert {f"{who}-{n}" for who in ("child", "parent") for n in range(20)} <= set(seen)
    by_producer = {item.producer_id: item.highest_seq for item in manifests(tmp_path / "log.db")}
    assert len(by_producer) == 21
    assert sum(by_producer.values()) == len(seen)


@pytest.mark.slow
def test_a_directory_that_cannot_be_written_costs_turns_only(tmp_path: Path) -> None:
    # Not below tmp_path, which only its owner may enter.
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    body = f"""
# Root writes anywhere: give that up, once everything is loaded.
record('warm'); assert recorder.flush(10)
if os.geteuid() == 0:
    os.seteuid(65534)
other = Recorder({str(folder / "log.db")!r})
with other.turn(session_id='s', user='u') as turn:
    turn.respond('a')
assert not other.close(3)
assert other.counters().dropped == {{'log_unavailable': 1}}, other.counters()
os._exit(0)
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    folder.rmdir()


@pytest.mark.parametrize("late", [0, 2])
def test_the_end_of_the_process_says_how_many_turns_came_after_close(
    tmp_path: Path, late: int
) -> None:
    body = f"""
record('first')
recorder.close()
for number in range({late}):
    record(f'late-{{number}}')
"""
    done = run(body, tmp_path / "log.db")

    warned = b"lost 2 turns that came after the recorder of " in done.stderr
    assert (done.returncode, warned) == (0, late == 2)


def test_the_background_thread_imports_nothing(tmp_path: Path) -> None:
    """A process that is forked in the middle of an import keeps half of the module for ever."""
    body = """
before = set(sys.modules)
record('first')
assert recorder.flush(10)
print(sorted(set(sys.modules) - before))
"""
    done = run(body, tmp_path / "log.db")

    assert done.stdout.decode().strip() == "[]", done.stderr


@pytest.mark.slow
def test_multiprocessing_workers_record(tmp_path: Path) -> None:
    body = """
import multiprocessing
def work(n):
    record(f'worker-{n}')
    return recorder.flush(10)
record('main')
with multiprocessing.get_context('fork').Pool(3) as pool:
    assert all(pool.map(work, range(30)))
"""
    done = run(body, tmp_path / "log.db")

    assert done.returncode == 0, done.stderr
    assert sorted(sessions(tmp_path / "log.db")) == sorted(
        ["main", *(f"worker-{n}" for n in range(30))]
    )


@pytest.mark.slow
def test_time_in_which_the_process_stands_still_costs_a_close_no_turn(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("""
import os, signal
from evaltap.recorder import MemorySink, Recorder
class Pausing(MemorySink):
    def append(self, records):
        if not self.records:
            os.kill(os.getpid(), signal.SIGSTOP)
        super().append(records)
sink = Pausing()
recorder = Recorder(sink=sink, close_timeout_seconds=0.7)
for session in ('a', 'b'):
    with recorder.turn(session_id=session, user='u') as turn:
        turn.respond('a')
print(recorder.close(), sorted({case['evalId'] for case in sink.cases}))
""")
    process = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)

    assert process.communicate(timeout=60)[0] == "True ['a', 'b']\n"


@pytest.mark.parametrize(
    ("method", "records"), [("fork", True), ("fork", False), ("spawn", True), ("forkserver", False)]
)
def test_a_child_process_whose_main_thread_does_not_notice_sigterm_dies_of_it(
    tmp_path: Path, method: str, *, records: bool
) -> None:
    """As a pool's workers do not that wait for work: the signal here only reaches another thread."""
    (tmp_path / "program.py").write_text(f"""
import multiprocessing, os, signal, threading
from evaltap.recorder import Recorder
recorder = Recorder({str(tmp_path / "log.db")!r})
def work(session):
    with recorder.turn(session_id=session, user='u') as turn:
        turn.respond('a')
def wait(records):
    if records:
        work('child')
    def end():
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    waiting = threading.Lock()
    waiting.acquire()
    threading.Timer(0.3, end).start()
    waiting.acquire()
if __name__ == '__main__':
    work('main')
    child = multiprocessing.get_context({method!r}).Process(target=wait, args=({records},))
    child.start()
    child.join(20)
    print(child.exitcode == -signal.SIGTERM)
    child.kill()
""")

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.stdout == "True\n", done.stderr
    assert sorted(sessions(tmp_path / "log.db")) == ["child"] * records + ["main"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_process_that_ends_at_once_loses_no_turn(tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(f"""
import multiprocessing
from evaltap.recorder import Recorder
recorder = Recorder({str(tmp_path / "log.db")!r})
def work(session):
    with recorder.turn(session_id=session, user='u') as turn:
        turn.respond('a')
    recorder.turn(session_id='open', user='u').__enter__()
if __name__ == '__main__':
    work('main')
    child = multiprocessing.get_context({method!r}).Process(target=work, args=('child',))
    child.start(); child.join()
""")

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert sorted(sessions(tmp_path / "log.db")) == ["child", "main", "open", "open"]
    assert sum(one.closing for one in manifests(tmp_path / "log.db")) == 2


def test_importing_and_constructing_opens_no_file_socket_or_thread(tmp_path: Path) -> None:
    program = """
import sys
seen = []
def hook(event, arguments):
    if event in ('socket.__new__', 'sqlite3.connect', '_thread.start_new_thread', 'os.fork'):
        seen.append(event)
    if event == 'open' and isinstance(arguments[1], str) and set(arguments[1]) & set('wax+'):
        seen.append(arguments[0])
sys.addaudithook(hook)
import evaltap.recorder
from evaltap.recorder import MemorySink, Recorder, RecorderConfig
Recorder(sys.argv[1])
heavy = {'duckdb', 'kafka', 'grpc', 'pydantic', 'opentelemetry', 'starlette', 'openai', 'google'}
print(seen, heavy & {name.partition('.')[0] for name in sys.modules})
"""
    done = subprocess.run(
        [sys.executable, "-B", "-c", program, str(tmp_path / "log.db")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == "[] set()"


def test_a_recorded_call_costs_the_agent_little(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "log.db", queue_max_events=1_000_000)
    result = {"rows": [{"id": n, "label": "row"} for n in range(20)]}
    spent = []

    for n in range(300):
        began = time.thread_time_ns()
        with recorder.turn(session_id=f"s-{n}", user="hello " * 60) as turn:
            for step in range(4):
                turn.tool("t", {"q": "item", "n": step}, id=str(step), result=result)
            turn.respond("ok " * 100)
        spent.append(time.thread_time_ns() - began)
    recorder.close(30)

    # 11 events; generous, since the machine may be busy: the benchmark has the figures.
    assert sorted(spent)[150] < 11 * 200_000
