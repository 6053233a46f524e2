"""A server that is stopped, and what cannot be served."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evaltap.experiments.stores import stores_at
from support.builders.served_agents import filled

AGENT = """
import pathlib, time

def answer(messages):
    if pathlib.Path("first").exists():
        pathlib.Path("waiting").touch()
        time.sleep(60)
    pathlib.Path("first").touch()
    return "It is shipped."
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(AGENT)
    filled(stores_at(str(tmp_path)))
    return tmp_path


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    started = []

    def serve(*more: str, **variables: str) -> "subprocess.Popen[str]":
        program = "import sys; from evaltap.cli.main import main; sys.exit(main())"
        command = [sys.executable, "-c", program, "serve", "--agent", "shop:answer", *more]
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield serve
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("ended_by", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_is_stopped_in_a_run_has_saved_the_runs_that_ended(
    folder: Path, start: Start, ended_by: signal.Signals
) -> None:
    import httpx

    process = start("--sets", "app", "--port", "0", "--json")
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    with httpx.Client(headers={"Authorization": f"Bearer {told['token']}"}) as client:
        body = {"setId": "golden", "numRuns": 2}
        asked = client.post(f"{told['url']}/runs", json=body, headers={"Prefer": "respond-async"})
        while not (folder / "waiting").exists():  # the second run has begun
            client.get(f"{told['url']}/results")
    process.send_signal(ended_by)
    _, said = process.communicate(timeout=30)

    assert (asked.status_code, told["app"]) == (202, "app")
    assert process.returncode == (0 if ended_by == signal.SIGTERM else -ended_by)
    assert not said
    [saved] = stores_at(str(folder)).results.list("app")
    [case] = stores_at(str(folder)).results.get("app", saved).eval_case_results
    assert (case.run_id, case.final_eval_status) == (1, "passed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        (["--sets", "none"], {}, "no such folder"),
        (["--sets", ".", "--app", "none"], {}, "has no folder 'none'"),
        (["--sets", "x.duckdb"], {}, "name yours with --app"),
        (["--sets", "mysql://u:s3cret@127.0.0.1:1/d", "--app", "a"], {}, "mysql://u@127.0.0.1:1/d"),
        (["--sets", "app", "--host", "0.0.0.0"], {}, "--tls-cert"),
        (["--sets", "app", "--no-token", "--allow-origin", "*"], {}, "anyone could run the agent"),
        (["--sets", "app"], {"EVALTAP_SERVE_TOKEN": "short"}, "expected 16 or more"),
        (["--sets", "app", "--agent", "shop:none"], {}, "has no 'none'"),
        (["--sets", "app", "--metrics", "none.json"], {}, "none.json"),
    ],
)
def test_what_cannot_be_served_is_told(
    start: Start, options: list[str], variables: dict[str, str], said: str
) -> None:
    process = start(*options, **variables)
    out, told = process.communicate(timeout=30)

    assert (process.returncode, out) == (2, "")
    assert said in told
    assert "Traceback" not in told
    assert "s3cret" not in told
