"""Mistakes on the command line are explained; guards on scores."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from evaltap.cli.main import COMMANDS, GROUPS, every_command
from support.builders.cases import RESPONSE, RUBRIC, TRAJECTORY, make_case, make_turn, write_log
from support.builders.command_files import case, write, write_lines
from support.builders.commands import Evaltap


def test_a_selection_that_leaves_nothing_is_a_mistake_and_the_environment_may_name_one(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("score", write_lines("c.jsonl", case(), case("t")), "--metrics")
    metrics = write("m.json", [TRAJECTORY])
    monkeypatch.setenv("EVALTAP_TASKS", "x*")
    monkeypatch.setenv("EVALTAP_ITEMS", "1")

    code, _, err = evaltap(*command, metrics)
    assert (code, "none of 2 cases matches; the first is c/s-1" in err) == (2, True)
    code, out, _ = evaltap(*command, metrics, "--tasks", "s-*,t", "--json")
    assert (code, json.loads(out)["cases"]) == (0, 1)
    monkeypatch.setenv("EVALTAP_ITEMS", "few")
    code, _, err = evaltap(*command, metrics)
    assert (code, "EVALTAP_ITEMS: found 'few'; expected a whole number" in err) == (2, True)


@pytest.mark.parametrize("command", [("cases", "x.duckdb"), ("sql", "x.duckdb"), ("show",)])
def test_an_argument_that_is_not_utf_8_is_refused(
    evaltap: Evaltap, command: tuple[str, ...]
) -> None:
    code, _, said = evaltap(*command, "stra\udcdfe")

    assert code == 2
    assert said.endswith(": 'stra\\udcdfe' is not UTF-8; give text and file names in UTF-8\n")


def test_a_worker_that_is_killed_leaves_the_run_incomplete(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("deadly.py").write_text(
        "import os\ndef deadly(actual, expected):\n    os.kill(os.getpid(), 9)\n"
    )
    metric = {
        "metricName": "deadly", "evaluatorName": "python_function", "threshold": 1,
        "criterion": {"function": {"path": "deadly:deadly"}},
    }  # fmt: skip
    monkeypatch.syspath_prepend(Path.cwd())
    command = ("score", write_lines("c.jsonl", case()), "--metrics", write("m.json", [metric]))

    code, _, said = evaltap(*command, "--workers", "2", "--allow-code")

    assert code == 3
    assert "a worker process was killed, perhaps because memory ran out" in said


@pytest.mark.parametrize(
    ("fail_on", "code"), [("never", 0), ("failed", 0), ("error", 0), ("not_evaluated", 3)]
)
def test_fail_on_says_what_a_gap_costs_and_the_argument_goes_before_the_environment(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch, fail_on: str, code: int
) -> None:
    lines, metrics = write_lines("c.jsonl", case()), write("m.json", [TRAJECTORY, RUBRIC])
    monkeypatch.setenv("EVALTAP_FAIL_ON", fail_on)

    assert evaltap("score", lines, "--metrics", metrics)[0] == code
    found = evaltap("score", lines, "--metrics", metrics, "--fail-on", "not_evaluated", "--json")
    assert (found[0], json.loads(found[1])["exit_code"]) == (3, 3)


@pytest.mark.slow
def test_a_threshold_may_be_given_by_argument_before_environment_before_file(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = make_case(turns=[make_turn(), make_turn("t-2")])
    half["conversation"] = [make_turn(), make_turn("t-2", tools=[])]
    name = TRAJECTORY["metricName"]
    command = ("score", write_lines("c.jsonl", half), "--metrics", write("m.json", [TRAJECTORY]))

    assert evaltap(*command)[0] == 1
    monkeypatch.setenv("EVALTAP_THRESHOLDS", f"{name}=0.5")
    assert evaltap(*command)[0] == 0
    assert evaltap(*command, "--threshold", f"{name}=0.6")[0] == 1
    code, _, err = evaltap(*command, "--threshold", "other=0.6")
    assert (code, "no metric has this name; metrics: tool_trajectory" in err) == (2, True)


@pytest.mark.parametrize(("limit", "code"), [("2000", 0), ("1000", 1)])
def test_slow_turns_fail_although_all_scores_pass(evaltap: Evaltap, limit: str, code: int) -> None:
    turn = make_turn(telemetry={"latencyMs": 1500})
    lines = write_lines("c.jsonl", make_case(turns=[turn], conversation=[make_turn()]))

    found, _, err = evaltap(
        "score", lines, "--metrics", write("m.json", [TRAJECTORY]), "--p95-ms", limit
    )

    assert found == code
    assert f"95 % of turns within {limit} ms: " in err


def test_latencies_that_nobody_recorded_leave_a_bound_on_them_open(
    evaltap: Evaltap, store: str
) -> None:
    code, _, err = evaltap("report", store, "--p95-ms", "10", "--fail-on", "failed")
    assert (code, "2 have no latency recorded" in err) == (1, True)

    lines, metrics = write_lines("c.jsonl", case()), write("m.json", [TRAJECTORY])
    assert evaltap("score", lines, "--metrics", metrics, "--p95-ms", "10")[0] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "x.duckdb", "--out", "r.pdf"), "unknown report format '.pdf'"),
        (("report", "x.duckdb", "--out", "r.md", "--json"), "needs a file format"),
        (
            ("report", "x.duckdb", "--format", "html", "--run", "no"),
            "no run 'no'; expected one of: live-",
        ),
        (
            ("report", "x.duckdb", "--cases", "no.jsonl", "--out", "r.md"),
            "no.jsonl: no such file",
        ),
        (("report", "x.duckdb", "--p95-ms", "-1"), "expected milliseconds, more than 0"),
        (("report", "x.duckdb", "--fail-on", "all"), "expected one of never, failed, error"),
        (("score", "c.jsonl", "--metrics", "m.json", "--report", "r"), "unknown report format"),
        (("score", "c.jsonl", "--metrics", "m.json", "--threshold", "x"), "expected METRIC=NUMBER"),
    ],
)
def test_a_mistake_about_reports_or_guards_is_explained(
    evaltap: Evaltap, store: str, arguments: tuple[str, ...], message: str
) -> None:
    write_lines("c.jsonl", case())

    code, _, err = evaltap(*arguments)

    assert (code, message in err) == (2, True), err
    assert "Traceback" not in err


def test_the_help_lists_every_command_once_in_a_group(evaltap: Evaltap) -> None:
    code, out, _ = evaltap("--help")

    assert code == 0
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert all(out.count(f"\n  {name:<11} {text[:30]}") == 1 for name, text in COMMANDS.items())
    assert len(COMMANDS) <= 36


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["reprot"],
            "evaltap: unknown command 'reprot'; did you mean 'report'? (see evaltap --help)",
        ),
        (
            ["score", "c.jsonl", "--metrics", "m.json", "--retryy"],
            "evaltap score: unknown argument --retryy; did you mean '--retry'? (see evaltap score",
        ),
        (
            ["score", "c.jsonl"],
            "evaltap score: missing --metrics (see",
        ),
        (
            ["score", "c.jsonl", "--metrcs", "m.json"],
            "evaltap score: unknown argument --metrcs; did you mean '--metrics'? (see",
        ),
        (
            ["curate", "x.duckdb", "status:failed", "--out", "s.json"],
            "evaltap curate: unknown argument status:failed; did you mean '--filter status:failed'?",
        ),
        (
            ["doctor", "tap.db"],
            "evaltap doctor: unknown argument tap.db; did you mean '--log tap.db'?",
        ),
        (
            ["report", "x.duckdb", "--format", "markdwn"],
            "evaltap report: --format: unknown 'markdwn'; did you mean 'markdown'?",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_with_the_nearest_word(
    evaltap: Evaltap, arguments: list[str], message: str
) -> None:
    code, out, err = evaltap(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("score", "none.jsonl", "--metrics", "m.json"), "none.jsonl: no such file"),
        (("score", "c.jsnl", "--metrics", "m.json"), "no such file; did you mean 'c.jsonl'?"),
        (("score", "c.jsonl", "--metrics", "mm.json"), "no such file; did you mean 'm.json'?"),
        (("score", ".", "--metrics", "m.json"), ".: is a folder"),
        (("score", "c.jsonl", "--metrics", "none.json"), "none.json: no such file"),
        (("score", "c.jsonl", "--metrics", "empty.json"), "contains no metrics"),
        (("score", "c.jsonl", "--metrics", "cut.json"), "cut.json: line 1, column"),
        (
            ("score", "c.jsonl", "--metrics", "nocriterion.json"),
            "found no criterion; add criterion.rules",
        ),
        (("score", "c.jsonl", "--metrics", "wrongpart.json"), "finalResponse: is empty; give text"),
        (
            ("score", "c.jsonl", "--metrics", "negated.json"),
            """'r' has type 'not_contains'; use "type": "contains" with "negate": true""",
        ),
        (
            ("score", "c.jsonl", "--metrics", "unknown.json"),
            "no evaluator named 'made_up'; correct the name or install its package;",
        ),
        (("score", "cut.evalset.json", "--metrics", "m.json"), "ends too early"),
        (("score", "c.jsonl", "--metrics", "m.json", "--db", "c.jsonl"), "not a DuckDB file"),
        (("score", "c.jsonl", "--metrics", "m.json", "--db", "no/x.duckdb"), "does not exist"),
        (("score", "c.jsonl", "--metrics", "m.json", "--db", "other.duckdb"), "not evaltap's"),
        (("score", "c.jsonl", "--metrics", "m.json", "--db", "newer.duckdb"), "upgrade evaltap"),
        (("report", "none.duckdb"), "none.duckdb: no such file"),
        (("report", "c.jsonl"), "not a DuckDB file; `evaltap score c.jsonl --metrics M.json --db"),
        (
            ("report", "l.db"),
            "l.db: is a log or another SQLite file; land a log with `evaltap consume",
        ),
        (("ui", "l.db"), "l.db: is a log or another SQLite file; land a log with `evaltap consume"),
        (("score", "l.db", "--metrics", "m.json"), "land a log with `evaltap consume --log l.db`"),
        (("try", "l.db"), "land a log with `evaltap consume --log l.db`"),
        (("try", "other.duckdb"), "is a DuckDB file; if it is a store, `evaltap ui other.duckdb`"),
        (("completion",), "missing {bash,zsh,fish,tcsh}"),
        (("set", "fmt", "other.duckdb"), "other.duckdb: is a DuckDB file; expected JSON"),
        (("score", "c.jsonl", "--metrics", "l.db"), "l.db: is a SQLite file, such as a local log"),
        (
            ("score", "c.jsonl", "--metrics", "m.json.gz"),
            "m.json.gz: is a gzip file; expected JSON",
        ),
        (
            ("store", "erase", "--subject", "alice", "other.duckdb"),
            "name it with --db other.duckdb",
        ),
        (("report", "/"), "/: is a folder; expected a DuckDB file"),
        (("runs", "."), ".: is a folder; expected a DuckDB file"),
        (("score", "/dev/zero", "--metrics", "m.json"), "/dev/zero: is a device or a pipe"),
        (("score", "c.jsonl", "--metrics", "/dev/zero"), "/dev/zero: is a device; expected"),
        (
            ("record", "otlp", "/dev/zero", "--log", "l.db"),
            "/dev/zero: is a device; expected a file",
        ),
        (("score", "endless.jsonl", "--metrics", "m.json"), "endless.jsonl: is a device"),
        (("set", "fmt", "/dev/zero"), "/dev/zero: is a device; expected a file"),
        (("consume", "--log", "none.db", "--db", "x.duckdb", "--until-idle"), "no log at none.db"),
        (("consume", "--log", "c.jsonl", "--db", "x.duckdb", "--until-idle"), "not an evaltap log"),
        (("set", "fmt", "c.txt"), "of unknown kind"),
        (("set", "fmt", "none.json"), "no such file"),
        (("set", "export", "none.duckdb", "--out", "e.json"), "none.duckdb: no such file"),
    ],
)
def test_a_mistake_is_explained_with_exit_code_2_and_no_traceback(
    evaltap: Evaltap, arguments: tuple[str, ...], message: str
) -> None:
    write_lines("c.jsonl", case())
    Path("endless.jsonl").symlink_to("/dev/zero")
    write("m.json", [TRAJECTORY])
    write("empty.json", [])
    write("cut.json", '[{"metricName": ')
    write("nocriterion.json", [{"metricName": "rule_avg_score", "threshold": 1}])
    write("wrongpart.json", [TRAJECTORY | {"criterion": {"finalResponse": {}}}])
    rules = {"rules": {"rules": [{"id": "r", "type": "not_contains", "values": ["x"]}]}}
    write("negated.json", [{"metricName": "rule_avg_score", "threshold": 1, "criterion": rules}])
    write("unknown.json", [TRAJECTORY | {"metricName": "made_up"}])
    write("cut.evalset.json", '{"evalSetId": "s", "evalCases": [{')
    write("c.txt", '{"hello": 1}')
    write_log(Path("l.db"), [])
    Path("m.json.gz").write_bytes(gzip.compress(Path("m.json").read_bytes()))
    for name, statements in {
        "other.duckdb": "CREATE TABLE mine (a INT)",
        "newer.duckdb": "CREATE TABLE meta AS SELECT 'schema_version' AS key, '99' AS value",
    }.items():
        with duckdb.connect(name) as other:
            other.execute(statements)

    code, _, err = evaltap(*arguments)

    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert err.startswith("evaltap ")


def test_a_database_that_another_process_holds_is_explained(evaltap: Evaltap, store: str) -> None:
    program = "import duckdb,sys; c = duckdb.connect('x.duckdb'); print('open', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        code, _, err = evaltap("report", store)
    finally:
        holder.communicate(b"")

    assert code == 2
    assert f"open in another process (process {holder.pid})" in err


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("TopicAuthorizationFailedError", "the Kafka broker refused"),
        ("KafkaTimeoutError", "do not respond properly"),
        ("UnsupportedCodecError", "pip install"),
    ],
)
def test_what_the_kafka_client_raises_is_explained_by_whether_trying_again_can_help(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch, store: str, name: str, told: str
) -> None:
    errors = pytest.importorskip("kafka.errors")

    def failing(options: object) -> int:
        raise getattr(errors, name)()

    monkeypatch.setattr("evaltap.cli.commands.report.run", failing)

    code, _, err = evaltap("report", store)

    assert code == 2
    assert told in err
    assert "Traceback" not in err


def test_an_unknown_metric_may_be_skipped_on_request(evaltap: Evaltap) -> None:
    metrics = write("m.json", [TRAJECTORY, TRAJECTORY | {"metricName": "made_up"}])
    lines = write_lines("c.jsonl", case())

    code, out, _ = evaltap(
        "score", lines, "--metrics", metrics, "--unknown-metrics", "skip", "--json"
    )

    assert code == 0
    assert [row["metric_name"] for row in json.loads(out)["metrics"]] == [
        "tool_trajectory_avg_score"
    ]


@pytest.mark.slow
def test_a_ten_megabyte_field_is_scored_like_any_other(evaltap: Evaltap) -> None:
    big = make_turn(answer="x" * 10_000_000)
    lines = write_lines("c.jsonl", make_case(turns=[big], conversation=[big]))

    assert evaltap("score", lines, "--metrics", write("m.json", [RESPONSE]))[0] == 0


@pytest.mark.parametrize("command", every_command())
def test_every_command_has_help_with_an_example(evaltap: Evaltap, command: str) -> None:
    code, out, _ = evaltap(*command.split(), "--help")

    assert code == 0
    assert f"evaltap {command}" in out.partition("example")[2]


def test_no_command_prints_the_help_and_fails(evaltap: Evaltap) -> None:
    code, out, _ = evaltap()

    assert code == 2
    assert "COMMAND" in out


def test_cases_with_the_same_ids_and_other_turns_are_refused_before_all_but_one_are_lost(
    evaltap: Evaltap,
) -> None:
    first, second = make_case("s"), make_case("s", [make_turn(answer="another")])
    trials = [one | {"source": {"run": run}} for one, run in ((first, "1"), (second, "2"))]

    code, _, err = evaltap(
        "record", "cases", write_lines("c.jsonl", first, second), "--log", "l.db"
    )

    assert (code, "case 's' occurs a second time, with other content in turn t-1" in err) == (
        2,
        True,
    )
    assert (
        evaltap("record", "cases", write_lines("t.jsonl", *trials, first, first), "--log", "t.db")[
            0
        ]
        == 0
    )
