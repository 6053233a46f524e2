"""The GitHub Action, as far as it runs without GitHub: its steps, with a server in place of the API."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema

from evaltap.cli.main import main
from support.builders.cases import make_case, make_tool, make_turn

ROOT = Path(__file__).parents[1]
ACTION = ROOT / "deploy/github-action"
STEPS = {
    one["name"]: one for one in yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"]
}
PROGRAM = "import sys; from evaltap.cli.main import main; sys.exit(main())"


def test_the_action_follows_the_schema_of_github() -> None:
    action = yaml.safe_load((ACTION / "action.yml").read_text())

    jsonschema.validate(action, get_builtin_schema("vendor.github-actions"))


def test_a_baseline_is_only_restored_under_the_whole_name() -> None:
    restored, saved = (
        STEPS[name]["with"] for name in ("Restore the baseline", "Save the next baseline")
    )
    keys = {
        name: saved["key"].replace("${{ inputs.name }}", name) for name in ("shop", "shop-nightly")
    }
    prefix = restored["restore-keys"].replace("${{ inputs.name }}", "shop")

    assert [name for name, key in keys.items() if key.startswith(prefix)] == ["shop"]


def test_no_script_contains_an_expression() -> None:
    scripts = [step["run"] for step in STEPS.values() if "run" in step]

    assert len(scripts) == 5
    assert [script for script in scripts if "${{" in script] == []


class Comments:
    """The comments of a pull request, served as GitHub's API does."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.refuses = False
        api = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                api.asked.append(self.command)
                assert self.headers["Authorization"] == "Bearer secret"
                length = int(self.headers["Content-Length"] or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                code, data = api.reply(self.command, self.path, body)
                self.send_response(code)
                self.end_headers()
                self.wfile.write(json.dumps(data).encode())

            do_GET = do_POST = do_PATCH = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def reply(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.refuses and method != "GET":
            return 403, {"message": "Resource not accessible by integration"}
        if page := re.fullmatch(r"/repos/o/r/issues/7/comments\?per_page=100&page=(\d+)", path):
            start = (int(page[1]) - 1) * 100
            return 200, self.found[start : start + 100]
        if method == "POST" and path == "/repos/o/r/issues/7/comments":
            self.add(body["body"], "Bot")
            return 201, self.found[-1]
        if method == "PATCH" and (own := re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path)):
            self.found[int(own[1])]["body"] = body["body"]
            return 200, self.found[int(own[1])]
        return 404, {}

    def add(self, body: str, kind: str) -> None:
        self.found.append({"id": len(self.found), "body": body, "user": {"type": kind}})


@pytest.fixture
def comments() -> Iterator[Comments]:
    served = Comments()
    thread = threading.Thread(target=served.server.serve_forever)
    thread.start()
    yield served
    served.server.shutdown()
    served.server.server_close()
    thread.join()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "evaltap").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    (scripts / "evaltap").chmod(0o755)
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "metrics.json").write_text('[{"metricName": "trajectory_exact", "threshold": 1}]')
    for name, tool in (("good", "get_order"), ("bad", "refund")):
        cases = [
            make_case(f"c-{n}", [make_turn(tools=[make_tool(tool)])], conversation=[make_turn()])
            for n in range(12)
        ]
        lines = (json.dumps({**one, "evalSetId": "golden"}) for one in cases)
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return folder


def step(work: Path, name: str, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does, with its variables."""
    assert given.keys() >= STEPS[name]["env"].keys()
    environment = {
        **os.environ,
        "PATH": f"{work.parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(work / "output.txt"),
        "GITHUB_STEP_SUMMARY": str(work / "summary.md"),
        **given,
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
        cwd=work, env=environment, capture_output=True, text=True,
    )  # fmt: skip


def ran(work: Path, cases: str, store: str) -> subprocess.CompletedProcess[str]:
    command = f"evaltap score {cases}.jsonl --metrics metrics.json --db {store}"
    return step(work, "Run", RUN=command, STORE=store)


@pytest.mark.slow
def test_a_pull_request_that_is_worse_is_commented_once_and_fails(
    work: Path, comments: Comments
) -> None:
    assert ran(work, "good", "head.duckdb").returncode == 0
    first = step(
        work, "Compare", STORE="head.duckdb", BASELINE=".evaltap/baseline.duckdb", OPTIONS=""
    )
    assert first.returncode == 0, first.stderr
    assert "no baseline yet" in first.stdout
    assert not (work / "output.txt").exists()
    assert step(work, "Gate", CODE="", FAIL_ON="regressed").returncode == 0
    assert step(work, "Prepare the next baseline", STORE="head.duckdb").returncode == 0

    (work / "head.duckdb").unlink()
    assert ran(work, "bad", "head.duckdb").returncode == 0, "the comparison judges failed cases"
    found = step(
        work,
        "Compare",
        STORE="head.duckdb",
        BASELINE=".evaltap/baseline.duckdb",
        OPTIONS="--margin 0.02",
    )
    assert found.returncode == 0, found.stderr
    assert (work / "output.txt").read_text() == "code=1\n"
    assert "c-11" in (work / "summary.md").read_text()
    assert "<html" in (work / ".evaltap/report.html").read_text()
    assert step(work, "Gate", CODE="1", FAIL_ON="regressed").returncode == 1
    assert step(work, "Gate", CODE="1", FAIL_ON="never").returncode == 0
    assert step(work, "Gate", CODE="1", FAIL_ON="Never").returncode == 2

    for number in range(130):
        comments.add("<!-- evaltap -->\nnot mine" if number == 3 else "a comment", "User")
    given = {
        "TOKEN": "secret",
        "NAME": "evaltap",
        "NUMBER": "7",
        "ACTION": str(ACTION),
        "GITHUB_API_URL": comments.url,
        "GITHUB_REPOSITORY": "o/r",
    }
    for _ in range(2):
        done = step(work, "Comment on the pull request", **given)
        assert done.returncode == 0, done.stderr
    assert len(comments.found) == 131
    assert comments.found[-1]["body"].startswith("<!-- evaltap -->\n")
    assert "c-0" in comments.found[-1]["body"]
    assert (comments.asked.count("POST"), comments.asked.count("PATCH")) == (1, 1)

    (work / ".evaltap/report.md").write_text("line\n" * 40_000)
    assert step(work, "Comment on the pull request", **given).returncode == 0
    assert len(comments.found[-1]["body"]) < 65_536

    comments.refuses = True
    refused = step(work, "Comment on the pull request", **given)
    assert refused.returncode == 0
    assert "::warning::no comment" in refused.stdout


@pytest.mark.slow
def test_a_command_that_cannot_run_fails_its_step(work: Path) -> None:
    assert step(work, "Run", RUN="evaltap score none.jsonl", STORE="x.duckdb").returncode == 2
    assert "wrote no x.duckdb" in step(work, "Run", RUN="true", STORE="x.duckdb").stdout
    assert (
        step(work, "Compare", STORE="good.jsonl", BASELINE="metrics.json", OPTIONS="").returncode
        == 2
    )


def test_the_hook_checks_the_files_that_it_is_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    family, command, *arguments = hook["entry"].split()[1:]

    loose = tmp_path / "golden.evalset.json"
    loose.write_text('{"evalSetId": "golden", "evalCases": []}')
    assert re.search(hook["files"], loose.name)
    assert not re.search(hook["files"], "package.json")
    assert main([family, command, *arguments, str(loose)]) == 1
    assert "not canonical" in capsys.readouterr().err
    assert main([family, command, str(loose)]) == 0
    assert main([family, command, *arguments, str(loose)]) == 0
