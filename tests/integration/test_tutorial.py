"""Pages and the skill are run as they stand: files written, commands typed, outputs compared."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from evaltap.cli.commands.skill import skill
from evaltap.cli.main import main
from evaltap.recorder import Recorder
from support.builders.commands import Evaltap

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r'```(\w+)(?: title="([^"]+)")?\n(.*?)```', re.DOTALL)


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Return each command of a console block with the lines that it must print, in order."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `evaltap` and `python` those of this test run."""
    scripts = folder / "bin"
    scripts.mkdir()
    program = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    for name, text in {
        "evaltap": f'#!/bin/sh\nexec "{sys.executable}" -c "{program}" "$@"\n',
        "python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n',
    }.items():
        (scripts / name).write_text(text)
        (scripts / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("page", "commands_at_least"),
    [
        ("../README.md", 4),
        ("tutorial.md", 8),
        ("how-to/try.md", 4),
        ("how-to/score-without-references.md", 2),
        pytest.param("airline.md", 4, marks=pytest.mark.slow),
        pytest.param("how-to/run-an-agent.md", 5, marks=pytest.mark.slow),
        pytest.param("how-to/serve.md", 4, marks=pytest.mark.slow),
        pytest.param("how-to/come-from-trpc-agent-go.md", 2, marks=pytest.mark.slow),
        pytest.param("how-to/replay.md", 7, marks=pytest.mark.slow),
        pytest.param("how-to/report.md", 5, marks=pytest.mark.slow),
        pytest.param("how-to/use-from-python.md", 1, marks=pytest.mark.slow),
        pytest.param("how-to/use-in-pytest.md", 3, marks=pytest.mark.slow),
        pytest.param("how-to/curate.md", 16, marks=pytest.mark.slow),
        pytest.param("how-to/gate-a-pull-request.md", 5, marks=pytest.mark.slow),
        pytest.param("how-to/watch-live-traffic.md", 8, marks=pytest.mark.slow),
    ],
)
def test_a_page_does_what_it_says(
    evaltap: Evaltap,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    page: str,
    commands_at_least: int,
) -> None:
    put_on_path(tmp_path, monkeypatch)
    work = Path()
    ran = 0
    for kind, name, content in BLOCK.findall((DOCS / page).read_text()):
        if name:
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(content)
        elif kind == "console":
            for command, expected in commands(content):
                check(evaltap, command, expected)
                ran += 1
    assert ran >= commands_at_least


def check(evaltap: Evaltap, command: str, expected: list[str]) -> None:
    """Run a command, in this process where no shell is needed, and compare what it says."""
    program, *arguments = shlex.split(command)
    if program == "evaltap" and not set("|&;<>$*") & set(command):
        ended, out, error = evaltap(*arguments)
    else:
        done = subprocess.run(command, shell=True, capture_output=True, text=True)
        ended, out, error = done.returncode, done.stdout, done.stderr
    code = 0
    said = out + error
    position = 0
    for line in expected:
        if line.startswith("exit code "):
            code = int(line.removeprefix("exit code "))
            continue
        for part in line.split("…"):  # what differs from day to day
            assert part in said[position:], f"{command}: {part!r} of {line!r} is not in\n{said}"
            position = said.index(part, position) + len(part)
    assert ended == code, f"{command}: exit code {ended}\n{said}"
    assert "Traceback" not in said


AGENT = """
def get_order(id):
    raise ConnectionError("there is no shop here")


def agent(messages, turn):
    turn.run_tool("get_order", {"id": messages[-1]["content"].split()[-1]}, get_order)
    return "It is on its way."
"""
METRICS = [{"metricName": "trajectory_no_loop", "threshold": 1}]
ADDED = {"metricName": "trajectory_redundancy", "threshold": 0.9}


@pytest.mark.slow
def test_every_command_of_the_skill_runs(
    evaltap: Evaltap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(tmp_path, monkeypatch)
    work = Path()
    (work / "shop.py").write_text(AGENT)
    for version, calls in (("v1", 1), ("v2", 4)):
        log = work / "agent.log.db"
        with Recorder(log=str(log), app_name="shop", version=version) as recorder:
            for number in range(30):
                said = f"where is A-{number}"
                with recorder.turn(session_id=f"{version}-{number}", user=said) as turn:
                    for _ in range(calls):
                        turn.tool("get_order", {"id": f"A-{number}"}, result={"status": "shipped"})
                    turn.respond("It is on its way.")
    metrics = work / "metrics.json"
    metrics.write_text(json.dumps(METRICS))
    consume = ["consume", "--log", str(log), "--db", str(work / "cases.duckdb")]
    assert main([*consume, "--metrics", str(metrics), "--until-idle"]) == 1
    metrics.write_text(json.dumps([*METRICS, ADDED]))

    ran = 0
    for block in re.findall(r"```console\n(.*?)```", skill(), re.DOTALL):
        for command, expected in commands(block):
            filled = re.sub(r"\bCASE\b", "v2-7", command).replace("tool:TOOL", "tool:get_order")
            check(evaltap, filled, expected)
            ran += 1

    assert ran == 15
