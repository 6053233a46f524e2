"""A command that runs until it is stopped: in order at the first signal, immediately at the second."""

import _thread
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from support.builders.cases import RESPONSE, make_case, make_records, make_turn, write_log

STUBBORN = r"""
import os, time
from evaltap.cli.signals import stopped_by_signals

with stopped_by_signals("consume", lambda: os.write(1, b"asked\n")):
    os.write(1, b"ready\n")
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def interrupts_are_not_ignored() -> Iterator[None]:
    """A shell starts what it runs in the background with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
    assert ("interrupt again to stop at once" in told) == (number == signal.SIGINT)


def test_an_interrupted_query_is_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "x.duckdb"):
        pass
    endless = "SELECT sum(random()) FROM range(100000000000)"
    assert main(["sql", str(tmp_path / "x.duckdb"), "SELECT 1"]) == 0
    capsys.readouterr()

    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    code = main(["sql", str(tmp_path / "x.duckdb"), endless])
    timer.join()

    assert (code, capsys.readouterr().err) == (130, "evaltap sql: interrupted\n")


def test_an_interrupt_while_a_command_loads_comes_when_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded, import_module = [], importlib.import_module

    def load(name: str) -> ModuleType:
        _thread.interrupt_main()
        module = import_module(name)
        loaded.append(name)
        return module

    monkeypatch.setattr(importlib, "import_module", load)
    code = main(["cases", "x.duckdb"])

    assert (code, capsys.readouterr().err) == (130, "evaltap cases: interrupted\n")
    assert loaded[-1] == "evaltap.cli.commands.cases"


@pytest.mark.parametrize(("most", "sums"), [(1, True), (0, False)])
def test_a_stopped_consumer_sums_up_a_small_store_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    most: int,
    sums: bool,
) -> None:
    monkeypatch.setattr("evaltap.cli.commands.consume.MOST_SUMMED", most)
    case = make_case("s", conversation=[make_turn()])
    write_log(tmp_path / "log.db", make_records([case]))
    (tmp_path / "m.json").write_text(json.dumps([RESPONSE]))
    consume = ["consume", "--log", str(tmp_path / "log.db"), "--db", str(tmp_path / "x.duckdb"),
               "--metrics", str(tmp_path / "m.json")]  # fmt: skip
    assert main([*consume, "--until-idle"]) == 0
    assert "final_response_avg_score" in capsys.readouterr().out

    before = signal.getsignal(signal.SIGTERM)

    def stop() -> None:
        while signal.getsignal(signal.SIGTERM) is before:  # the consumer has not begun
            time.sleep(0.05)
        signal.raise_signal(signal.SIGTERM)

    stopping = threading.Thread(target=stop)
    stopping.start()
    code = main(consume)
    stopping.join()

    out, err = capsys.readouterr()
    assert code == 0
    assert ("final_response_avg_score" in out) == sums
    assert ("see `evaltap report" in err) != sums


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "code"), [(0, 0), (1, 1)])
def test_the_exit_code_stays_when_the_reader_of_a_pipe_leaves(
    tmp_path: Path, threshold: int, code: int
) -> None:
    metric = {**RESPONSE, "threshold": threshold}
    (tmp_path / "m.json").write_text(json.dumps([metric]))
    cases = [make_case(f"s-{n}", conversation=[make_turn(answer="else" * 50)]) for n in range(200)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    program = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "score", "c.jsonl", "--metrics", "m.json"]

    read, write = os.pipe()
    with subprocess.Popen(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        os.close(read)  # nobody reads
        _, said = process.communicate(timeout=120)

    assert (process.returncode, said) == (code, b"")
