"""Progress of long work: one line per minute if the output is not a terminal."""

import os
import subprocess
import sys
from pathlib import Path
from select import select

import pytest

from evaltap.cli.progress import MinuteLine, progress
from support.builders.cases import make_case, make_records, write_log


def test_a_line_is_written_once_a_minute_however_often_it_is_due_unless_it_is_empty() -> None:
    now, lines = [0.0], list[str]()
    line = MinuteLine(lines.append, clock=lambda: now[0])

    for second in range(0, 181, 5):
        now[0] = float(second)
        line.due(lambda second=second: "" if second == 120 else f"at {second}")  # type: ignore[misc]

    assert lines == ["at 60", "at 180"]


def test_short_work_writes_nothing_into_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("cases scored") as show:
        for count in range(1000):
            show(count)

    assert capsys.readouterr() == ("", "")


PROGRAM = """
import sys
from evaltap.cli import progress
progress._SECONDS = 0.2
from evaltap.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_service_says_what_it_landed_and_nothing_while_nothing_comes(tmp_path: Path) -> None:
    write_log(tmp_path / "log.db", make_records([make_case(f"s-{n}") for n in range(3)]))
    command = [sys.executable, "-c", PROGRAM, "consume", "--log", "log.db", "--db", "x.duckdb"]

    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, bufsize=0) as service:
        assert service.stderr is not None
        landed = b"evaltap consume: 3 turns landed (+3), 0 cases scored, 0 dead letters"
        said = service.stderr.readline()
        while said and landed not in said:  # a first line with none, if the machine is slow
            said = service.stderr.readline()
        idle = select([service.stderr], [], [], 1)[0]  # five of its minutes
        more = os.read(service.stderr.fileno(), 10_000) if idle else b""
        service.terminate()

    assert said == landed + b"\n"
    assert more == b""
