"""`evaltap ui` as a process: its link, and links for the page that runs."""

import json
import logging
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette

from evaltap.cli.main import main
from evaltap.evaluator.page.serving import PageServer, running_address
from evaltap.evaluator.store.database import Store
from support.builders.program import Program
from support.worlds.shop import Asked, landed

_MAIN = "from evaltap.cli.main import main; raise SystemExit(main())"


@pytest.mark.slow
def test_a_new_link_is_for_the_page_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "x.duckdb"
    Store(path).close()
    command = [sys.executable, "-c", _MAIN, "ui", str(path), "--port", "0", "--no-open", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first, _, _ = json.loads(process.stdout.readline())["link"].partition("/login#")
        beside = tmp_path / "x.duckdb.page.json"

        assert main(["ui", str(path), "--link", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["link"].startswith(f"{first}/login#")
        assert json.loads(beside.read_text("utf-8"))["address"] == first
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    assert process.returncode == 0
    assert not beside.exists()
    assert main(["ui", str(path), "--link", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["link"].partition("/login#")[0].endswith(":4710")
    assert "no page is running for" in said.err


def test_a_signal_before_the_page_serves_ends_it_without_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = PageServer(Starlette(), socket.create_server(("127.0.0.1", 0)))

    server.stop()
    server.run()

    assert capsys.readouterr() == ("", "")


def test_the_page_leaves_the_handlers_of_other_loggers_open(tmp_path: Path) -> None:
    handler = logging.FileHandler(tmp_path / "agent.log")
    try:
        PageServer(Starlette(), socket.create_server(("127.0.0.1", 0))).stop()

        assert handler.stream is not None
    finally:
        handler.close()


@pytest.mark.slow
def test_commands_read_the_file_while_the_page_runs_and_none_writes_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = landed(tmp_path, [Asked("Where is order A-100?")])
    command = [sys.executable, "-c", _MAIN, "ui", str(path), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        capsys.readouterr()

        assert main(["cases", str(path)]) == 0
        assert "Where is order A-100?" in capsys.readouterr().out
        assert main(["store", "prune", str(path), "--older-than", "1d"]) == 2
        assert "open in another process" in capsys.readouterr().err
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)

    assert process.returncode == 0


def test_the_file_of_a_process_that_was_killed_names_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "x.duckdb"
    Store(path).close()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = {"address": "http://127.0.0.1:9", "process": ended.pid}
    (tmp_path / "x.duckdb.page.json").write_text(json.dumps(left))

    assert main(["ui", str(path), "--link"]) == 0
    assert ":9/" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_reload_prints_no_second_link_and_keeps_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    log, path = tmp_path / "agent.log.db", tmp_path / "x.duckdb"
    options = ["--log", str(log), "--db", str(path), "--ui", "127.0.0.1:0"]
    consumer = Program(["consume", *options], tmp_path)
    consumer.wait_for(lambda: bool(running_address(path)))
    consumer.wait_for(lambda: consumer.output.count("/login#") == 2)
    before = running_address(path)

    consumer.process.send_signal(signal.SIGHUP)
    consumer.wait_for(lambda: "reloaded the changed files" in consumer.output)
    consumer.wait_for(lambda: running_address(path) == before)

    assert consumer.stop() == 0
    # By name and by number, not again after the restart.
    assert consumer.output.count("/login#") == 2


def test_an_address_that_leads_to_no_trace_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.duckdb"
    Store(path).close()

    assert main(["ui", str(path), "--no-open", "--trace-url", "http://localhost:16686/"]) == 2
    assert "--trace-url http://localhost:16686/: expected {trace_id}" in capsys.readouterr().err
