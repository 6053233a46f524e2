"""The command line as a user meets it: verdicts, exit codes, and clear words for every mistake."""

import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.recorder import Recorder
from support.builders.cases import (
    RESPONSE,
    RUBRIC,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)
from support.builders.command_files import case, write, write_lines
from support.builders.commands import Evaltap


@pytest.mark.parametrize("command", [["record", "cases", "c.jsonl"], ["collect"]])
def test_a_log_of_several_topics_is_not_written(evaltap: Evaltap, command: list[str]) -> None:
    write_lines("c.jsonl", case())

    code, _, err = evaltap(*command, "--log", "kafka://127.0.0.1:9/one,two")

    assert code == 2
    assert "names 2 topics, but only readers accept several; name the one to write to" in err


def test_score_passes_with_exit_code_0(evaltap: Evaltap) -> None:
    code, out, err = evaltap(
        "score", write_lines("c.jsonl", case()), "--metrics", write("m.json", [TRAJECTORY])
    )

    assert (code, err) == (0, "")
    assert "tool_trajectory_avg_score" in out


def test_score_fails_with_exit_code_1_and_says_why(evaltap: Evaltap) -> None:
    code, out, _ = evaltap(
        "score",
        write_lines("c.jsonl", case(wrong=True)),
        "--metrics",
        write("m.json", [TRAJECTORY]),
    )

    assert code == 1
    assert "not passed" in out
    assert "arguments" in out


def test_without_a_judge_a_judged_metric_is_not_evaluated_and_the_exit_code_says_incomplete(
    evaltap: Evaltap,
) -> None:
    metrics = write("m.json", [TRAJECTORY, RUBRIC])

    code, out, _ = evaltap(
        "score", write_lines("c.jsonl", case()), "--metrics", metrics, "--db", "x.duckdb", "--json"
    )

    summary = json.loads(out)
    assert (code, summary["exit_code"]) == (3, 3)
    (gap,) = summary["unscored"]
    assert (gap["metric_name"], gap["status"]) == ("llm_rubric_response", "not_evaluated")
    assert "EVALTAP_JUDGE" in gap["reason"]
    assert query("SELECT score, status FROM scores WHERE metric_name LIKE 'llm%'") == [
        (None, "not_evaluated")
    ]


def query(statement: str) -> list[tuple[Any, ...]]:
    with duckdb.connect("x.duckdb", read_only=True) as store:
        return store.execute(statement).fetchall()


def test_score_writes_runs_scores_and_turn_scores(evaltap: Evaltap) -> None:
    lines = write_lines("c.jsonl", case("a"), case("b", wrong=True))

    evaltap("score", lines, "--metrics", write("m.json", [TRAJECTORY]), "--db", "x.duckdb")

    assert query("SELECT eval_set_id, eval_id, score, status FROM scores ORDER BY 2") == [
        ("c", "a", 1, "passed"),
        ("c", "b", 0, "failed"),
    ]
    assert query("SELECT eval_id, turn_index, status FROM turn_scores ORDER BY 1") == [
        ("a", 0, "passed"),
        ("b", 0, "failed"),
    ]
    assert query("SELECT kind, source FROM runs") == [("files", "c.jsonl")]


@pytest.mark.slow
def test_large_files_are_scored_by_workers_with_the_same_result(evaltap: Evaltap) -> None:
    lines = write_lines("c.jsonl", *(case(f"s-{i}", wrong=i % 3 == 0) for i in range(3_000)))
    metrics = write("m.json", [TRAJECTORY, RESPONSE])

    found = [
        json.loads(evaltap("score", lines, "--metrics", metrics, "--workers", n, "--json")[1])
        for n in ("1", "2")
    ]

    assert found[0]["metrics"] == found[1]["metrics"]
    assert [metric["failed"] for metric in found[0]["metrics"]] == [1_000, 0]


def test_a_run_over_files_leaves_all_its_rows_or_none(evaltap: Evaltap) -> None:
    good = write_lines("good.jsonl", *(case(f"s-{n}") for n in range(300)))
    Path("broken.evalset.json").write_text("{")
    metrics = write("m.json", [TRAJECTORY])

    code, _, said = evaltap(
        "score", good, "broken.evalset.json", "--metrics", metrics, "--db", "x.duckdb"
    )

    assert code == 2
    assert "broken.evalset.json" in said
    assert query("SELECT count(*) FROM scores") == query("SELECT count(*) FROM run_ends") == [(0,)]


def test_a_bad_line_is_named_kept_and_does_not_stop_the_others(evaltap: Evaltap) -> None:
    good = json.dumps(case())
    lines = write(
        "c.jsonl", f'{good}\n{{"evalId": 7}}\n\n{{"evalId": "x", \n{json.dumps(case("b"))}\n'
    )

    code, out, err = evaltap(
        "score", lines, "--metrics", write("m.json", [TRAJECTORY]), "--db", "x.duckdb", "--json"
    )

    assert code == 2
    assert json.loads(out)["cases"] == 2
    assert "c.jsonl: line 2, evalId: found the number 7; expected a string" in err
    assert "c.jsonl: line 4" in err
    assert query("SELECT count(*), min(reason) FROM dead_letters") == [(2, "invalid_case")]


def test_cases_without_a_reference_are_pointed_out_where_one_is_compared_with(
    evaltap: Evaltap,
) -> None:
    lines = write_lines("c.jsonl", case("a"), make_case("b"))

    code, _, err = evaltap("score", lines, "--metrics", write("m.json", [TRAJECTORY]))

    assert code == 1
    assert "tool_trajectory_avg_score compared 1 case with an empty turn" in err
    assert "no reference (`conversation` next to `actualConversation`)" in err


def test_cases_that_share_an_id_and_ask_other_things_are_complained_about(evaltap: Evaltap) -> None:
    other = case("a")
    other["actualConversation"][0]["userContent"]["content"] = "and now something else"
    lines = write_lines("c.jsonl", case("a"), other)

    code, _, err = evaltap(
        "score", lines, "--metrics", write("m.json", [TRAJECTORY]), "--db", "x.duckdb"
    )

    assert code == 2
    assert "the same evalId (a, …)" in err
    assert query("SELECT count(*) FROM scores") == [(2,)]


def test_a_case_that_occurs_again_is_another_trial_in_files_of_any_form(evaltap: Evaltap) -> None:
    lines = write_lines("c.jsonl", {**case("a"), "evalSetId": "s"}, case("b"))
    with Path(lines).open("a") as file:
        file.write("{\n")
    again = write(
        "s.evalset.json", {"evalSetId": "s", "evalCases": [case("a", wrong=True), case("a")]}
    )
    metrics = write("m.json", [TRAJECTORY])

    code, out, err = evaltap("score", lines, again, "--metrics", metrics, "--db", "x.duckdb")

    assert code == 2
    assert "1 case occurred up to 3 times; each occurrence is scored as a trial of its own" in err
    assert "c.jsonl: line 3" in err, "a line that is no case is named as it is in the file"
    assert query("SELECT eval_set_id, eval_id, status FROM scores ORDER BY ALL") == [
        ("c@trial-1", "b", "passed"),
        ("s@trial-1", "a", "passed"),
        ("s@trial-2", "a", "failed"),
        ("s@trial-3", "a", "passed"),
    ]
    assert "s@trial-2/a" in out
    evaltap("report", "x.duckdb", "--cases", lines, "--cases", again, "--out", "r.md")
    assert "get_order" in Path("r.md").read_text(), "the calls of the trial that failed"
    _, _, err = evaltap("score", lines, again, "--metrics", metrics, "--tasks", "s/a")
    assert "3 of 4 cases match" in err


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"sessionInput": {"appName": ["a"]}}, "sessionInput.appName"),
        ({"source": {"run": {"a": 1}}}, "source.run"),
        ({"evalSetId": ["s"]}, "evalSetId"),
    ],
)
def test_an_identity_of_another_type_is_named_with_its_line(
    evaltap: Evaltap, wrong: dict[str, Any], place: str
) -> None:
    lines = write_lines("c.jsonl", case("a"), {**case("b"), **wrong})

    code, _, err = evaltap("score", lines, "--metrics", write("m.json", [TRAJECTORY]))

    assert code == 2
    assert f"c.jsonl: line 2, {place}" in err


def test_a_result_file_in_the_peers_form_is_written_and_canonical(evaltap: Evaltap) -> None:
    eval_set = write(
        "s.evalset.json", {"evalSetId": "s", "evalCases": [case("a"), case("b", wrong=True)]}
    )

    evaltap("score", eval_set, "--metrics", write("m.json", [TRAJECTORY]), "--result", "out")

    (path,) = Path("out/app").iterdir()
    result = json.loads(path.read_text())
    assert path.name.startswith("app_s_")
    assert [row["finalEvalStatus"] for row in result["evalCaseResults"]] == ["passed", "failed"]
    assert result["summary"]["runSummaries"][0]["caseStatusCounts"] == {"passed": 1, "failed": 1}
    assert evaltap("set", "fmt", "--check", str(path))[0] == 0


def test_consume_without_metrics_only_lands(evaltap: Evaltap) -> None:
    write_log(Path("log.db"), make_records([case()]))

    code, out, _ = evaltap(
        "consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--json"
    )

    assert (code, json.loads(out)["turns_landed"], json.loads(out)["summary"]) == (0, 1, None)


def test_exported_cases_score_like_the_landed_ones(evaltap: Evaltap, store: str) -> None:
    code, _, err = evaltap("set", "export", store, "--out", "e.evalset.json")

    assert (code, err) == (0, "2 cases written to e.evalset.json\n")
    assert evaltap("set", "fmt", "--check", "e.evalset.json")[0] == 0
    scored = json.loads(evaltap("score", "e.evalset.json", "--metrics", "m.json", "--json")[1])
    assert (scored["metrics"][0]["passed"], scored["metrics"][0]["failed"]) == (1, 1)


@pytest.mark.parametrize("name", ["e.jsonl", "e.evalset.json"])
def test_an_export_holds_what_was_recorded(evaltap: Evaltap, store: str, name: str) -> None:
    evaltap("set", "export", store, "--out", name)

    text = Path(name).read_text()
    cases = (
        [json.loads(line) for line in text.splitlines()]
        if name == "e.jsonl"
        else json.loads(text)["evalCases"]
    )
    assert cases == [case("a"), case("b", wrong=True)]


def test_an_export_to_adk_reads_back_as_the_same_conversation(evaltap: Evaltap, store: str) -> None:
    evaltap("set", "export", store, "--out", "e.evalset.json", "--format", "adk")
    evaltap("set", "fmt", "--to", "trpc", "e.evalset.json")

    (first, _) = json.loads(Path("e.evalset.json").read_text())["evalCases"]
    assert first["conversation"][0]["tools"] == [make_tool()]


def test_show_tells_what_happened_what_was_expected_and_why_it_failed(
    evaltap: Evaltap, store: str
) -> None:
    code, out, _ = evaltap("show", store, "b")

    assert code == 0
    assert 'get_order({"order_id":"A-100"})' in out
    assert 'get_order({"order_id":"other"})' in out
    assert "tool_trajectory_avg_score failed 0" in out


def test_show_tells_a_call_that_returned_nothing_from_one_whose_result_was_not_seen(
    evaltap: Evaltap,
) -> None:
    with Recorder("log.db") as recorder, recorder.turn(session_id="s-1", user="Tell them") as turn:
        turn.tool("mail", {"to": 1}, result=None)
        turn.tool("mail", {"to": 2})
    evaltap("consume", "--log", "log.db", "--db", "e.duckdb", "--until-idle")

    _, out, _ = evaltap("show", "e.duckdb", "s-1")

    assert 'mail({"to":1}) -> nothing' in out
    assert 'mail({"to":2}) -> not captured' in out


WITHOUT_WRITING = """
import os, sys
from pathlib import Path
from evaltap.cli.main import main
from evaltap.recorder import Recorder
os.mkdir("logs")
with Recorder("logs/log.db") as recorder, recorder.turn(user="Hi") as turn:
    turn.respond("Hello.")
consume = ["consume", "--log", "logs/log.db", "--db", "e.duckdb", "--until-idle"]
main(consume)
for path in ("e.duckdb", "logs", *Path("logs").iterdir()):
    os.chmod(path, 0o777)
os.chmod(".", 0o555)
if os.geteuid() == 0:  # root writes anywhere
    os.seteuid(65534)
sys.exit(main(consume))
"""


@pytest.mark.slow
def test_a_store_in_a_folder_that_cannot_be_written_is_not_called_foreign() -> None:
    # Not below tmp_path, which only its owner may enter.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_WRITING], cwd=folder, capture_output=True, text=True
        )
        Path(folder).chmod(0o755)

    assert done.returncode == 2
    assert "Permission denied" in done.stderr
    assert "make the file and its folder writable" in done.stderr
    assert "evaltap did not write this" not in done.stderr


LOCKED = """
import os, sys
from evaltap.cli.main import main
from evaltap.recorder import Recorder
os.mkdir("locked")
with Recorder("locked/log.db") as recorder, recorder.turn(user="Hi") as turn:
    turn.respond("Hello.")
consume = ["consume", "--log", "locked/log.db", "--db", "locked/e.duckdb", "--until-idle"]
commands = [["report", "locked/e.duckdb"], ["convert", "locked/rows.csv", "--out", "o.jsonl"]]
for command in (consume, *commands):  # everything is loaded
    main(command)
os.chmod("locked", 0o000)
os.chmod(".", 0o777)
if os.geteuid() == 0:  # root reads anything
    os.seteuid(65534)
consume[4] = "own.duckdb"
codes = [main(command) for command in (consume, *commands)]
if os.getuid() == 0:
    os.seteuid(0)
os.chmod("locked", 0o755)
sys.exit(codes != [2, 2, 2])
"""


@pytest.mark.slow
def test_a_file_in_a_folder_of_another_user_is_told_without_a_traceback() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", LOCKED], cwd=folder, capture_output=True, text=True
        )

    assert done.returncode == 0, done.stderr
    assert "log.db: it is another user's; run agent and evaltap as the same user" in done.stderr
    assert "locked/e.duckdb: not accessible to this user (Permission denied)" in done.stderr
    assert "locked/rows.csv: cannot be read (Permission denied)" in done.stderr


def test_a_collector_refuses_a_log_that_it_cannot_write_before_it_takes_turns(
    evaltap: Evaltap,
) -> None:
    Path("notes.txt").write_text("Do not overwrite.")
    with socket.create_server(("127.0.0.1", 0)) as taken:  # it would serve on a free port
        port = str(taken.getsockname()[1])
        code, _, err = evaltap("collect", "--log", "notes.txt", "--port", port)

    assert code == 2
    assert "notes.txt is not an evaltap log" in err
    assert Path("notes.txt").read_text() == "Do not overwrite."


READ_ONLY = """
import os, sys
from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
Store("e.duckdb").close()
main(["ui", "missing.duckdb", "--no-open"])  # everything is loaded
os.chmod("e.duckdb", 0o444)
if os.geteuid() == 0:  # root writes anywhere
    os.chmod(".", 0o777)
    os.setuid(65534)
sys.exit(main(["ui", "e.duckdb", "--no-open"]))
"""


@pytest.mark.slow
def test_the_page_says_why_it_shows_no_file_that_it_may_not_write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY], cwd=folder, capture_output=True, text=True
        )

    assert done.returncode == 2
    assert "e.duckdb: is read-only, and the page keeps reviews and counts in it" in done.stderr


def test_show_names_some_cases_when_there_is_no_such_one(evaltap: Evaltap, store: str) -> None:
    code, _, err = evaltap("show", store, "nope")

    assert (code, err) == (
        2,
        "evaltap show: no case 'nope' in x.duckdb; similar ids: a, b\n",
    )


def test_runs_and_report_read_the_same_store(evaltap: Evaltap, store: str) -> None:
    (run,) = json.loads(evaltap("runs", store, "--json")[1])
    code, out, _ = evaltap("report", store, "--json")

    assert (run["kind"], run["cases"], run["passed"], run["failed"]) == ("live", 2, 1, 1)
    assert (code, json.loads(out)["cases"]) == (1, 2)
    assert evaltap("report", store, "--run", run["run_id"], "--json")[0] == 1
    assert evaltap("report", store, "--run", "nope")[0] == 2


def test_scoring_landed_cases_again_scores_nothing_twice(evaltap: Evaltap, store: str) -> None:
    code, out, _ = evaltap("score", store, "--metrics", "m.json")

    assert code == 1
    assert out.startswith("0 cases scored now")
    assert query("SELECT count(*) FROM scores") == [(2,)]


def test_the_calls_of_the_worst_cases_stand_beside_the_expected_ones_on_the_console(
    evaltap: Evaltap, store: str
) -> None:
    lines, metrics = write_lines("c.jsonl", case("b", wrong=True)), write("m.json", [TRAJECTORY])

    for command in (
        ("score", lines, "--metrics", metrics),
        ("report", store),
        ("score", store, "--metrics", metrics),
    ):
        _, out, _ = evaltap(*command)

        assert "b\n  turn 1, tool calls (- expected, + made):\n  ! get_order(" in out
        assert "!     order_id: expected 'other', found 'A-100'" in out


def test_recorded_text_does_not_steer_the_terminal(evaltap: Evaltap) -> None:
    evil = "\x1b]0;gone\x07\x1b[31m\u202e"
    turn = make_turn(answer=evil, tools=[make_tool(evil, arguments={evil: evil})])
    lines = write_lines("c.jsonl", make_case(evil, [turn], conversation=[make_turn()]))
    metrics = write("m.json", [TRAJECTORY, RESPONSE])

    _, out, _ = evaltap("score", lines, "--metrics", metrics, "--db", "x.duckdb")
    shown = evaltap("show", "x.duckdb", evil)[1]

    assert "␛" in out
    assert "␛" in shown
    assert not {"\x1b", "\x07", "\u202e"} & {*out, *shown}


def test_score_writes_each_report_that_is_asked_for(evaltap: Evaltap) -> None:
    lines = write_lines("c.jsonl", case("a"), case("b", wrong=True))
    names = ("out/r.html", "r.md", "r.xml", "r.json")
    reports = [word for name in names for word in ("--report", name)]

    code, _, err = evaltap("score", lines, "--metrics", write("m.json", [TRAJECTORY]), *reports)

    assert code == 1
    assert err.count("report written to") == 4
    (bad, _) = json.loads(Path("r.json").read_text())["cases"]
    assert [step["kind"] for step in bad["evidence"][0]["steps"]] == ["changed"]
    assert "1 of 2 cases did not pass" in Path("out/r.html").read_text()


def test_a_report_of_files_shows_their_turns_when_it_is_given_the_files(evaltap: Evaltap) -> None:
    lines = write_lines("c.jsonl", case("b", wrong=True))
    evaltap("score", lines, "--metrics", write("m.json", [TRAJECTORY]), "--db", "x.duckdb")

    (without,) = json.loads(evaltap("report", "x.duckdb", "--format", "json")[1])["cases"]
    given = evaltap("report", "x.duckdb", "--format", "json", "--cases", lines)

    (with_files,) = json.loads(given[1])["cases"]
    assert (given[0], len(without["evidence"]), len(with_files["evidence"])) == (1, 0, 1)


@pytest.mark.slow
def test_references_that_scored_landed_cases_explain_them_too(evaltap: Evaltap) -> None:
    write_log(Path("log.db"), make_records([make_case("a")]))
    reference = make_case("a", [make_turn(tools=[make_tool("refund")])])
    references = write("r.evalset.json", {"evalSetId": "r", "evalCases": [reference]})

    evaltap(
        "consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", write("m.json", [TRAJECTORY]),
        "--references", references, "--until-idle", "--report", "c.json",
    )  # fmt: skip
    evaltap("report", "x.duckdb", "--references", references, "--out", "r.json")

    for name in ("c.json", "r.json"):
        (one,) = json.loads(Path(name).read_text())["cases"]
        assert [step["kind"] for step in one["evidence"][0]["steps"]] == ["extra", "missing"]


def test_report_prints_the_format_that_is_asked_for(evaltap: Evaltap, store: str) -> None:
    code, out, err = evaltap("report", store, "--format", "markdown")

    assert (code, err) == (1, "")
    assert out.startswith("## ❌ 2 cases: 1 passed, 1 failed")
    assert evaltap("report", store, "--format", "junit")[1].startswith("<?xml")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "scored", "told"),
    [
        (("--items", "2"), ["a-1", "a-2"], "stopped after 2 (--items)"),
        (("--tasks", "a-*"), ["a-1", "a-2"], "2 of 4 cases match --tasks a-*"),
        (("--tasks", "c/b-1,b-2"), ["b-1", "b-2"], "2 of 4 cases match --tasks c/b-1,b-2"),
        (("--tasks", "c", "--items", "9"), ["a-1", "a-2", "b-1", "b-2"], "4 of 4 cases match"),
        (("--tasks", "a-1", "--tasks", "b*", "--items", "2"), ["a-1", "b-1"], "stopped after 2"),
    ],
)
def test_only_the_cases_that_are_asked_for_are_scored_from_a_file_or_what_has_landed(
    evaltap: Evaltap, arguments: tuple[str, ...], scored: list[str], told: str
) -> None:
    ids = ("a-1", "a-2", "b-1", "b-2")
    cases = [case(name) | {"evalSetId": "c"} for name in ids]
    lines, metrics = write_lines("c.jsonl", *cases), write("m.json", [TRAJECTORY])
    write_log(Path("log.db"), make_records(cases))
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")

    for source, db in ((lines, ("--db", "y.duckdb")), ("x.duckdb", ())):
        code, _, err = evaltap("score", source, "--metrics", metrics, *db, *arguments)

        assert (code, told in err) == (0, True), err
        with duckdb.connect(db[-1] if db else source, read_only=True) as found:
            query = "SELECT eval_id FROM scores ORDER BY 1"
            assert [row[0] for row in found.execute(query).fetchall()] == scored


LIGHT = ("cases", "sql", "show", "why", "estimate", "skill", "redact", "doctor",
         "store archive", "store attach", "store dlq", "store erase", "store prune")  # fmt: skip


def test_commands_that_read_no_files_of_the_formats_load_neither_pydantic_nor_reports() -> None:
    code = f"""
import importlib, sys
from evaltap.cli.main import build_parser
for command in {LIGHT}:
    build_parser(command)
    importlib.import_module("evaltap.cli.commands." + command.split()[-1])
    print([name for name in ("pydantic", "evaltap.evaluator.reports.model") if name in sys.modules])
"""

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert dict(zip(LIGHT, loaded.stdout.splitlines(), strict=True)) == dict.fromkeys(LIGHT, "[]")
