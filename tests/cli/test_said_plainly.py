"""Messages that used to be wrong: missing things are named, impossible requests are rejected."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from evaltap.evaluator.pipeline.maintenance.why import explained, why
from evaltap.evaluator.scoring.results.runs import run_states
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from support.builders.cases import make_case, make_turn
from support.builders.commands import Evaltap

METRICS = [{"metricName": "run_succeeded", "threshold": 1}]


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    Path("m.json").write_text(json.dumps(METRICS))
    Path("c.jsonl").write_text(json.dumps(make_case("a", [make_turn(answer="yes")])))
    return evaltap


def test_feedback_on_a_case_that_sampling_left_out_is_not_the_case(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db", sample_rate=0.0)
    with recorder.turn(session_id="gone", user="Hi") as turn:
        turn.respond("Hello")
    recorder.feedback("gone", positive=False)
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")

    code, out, _ = evaltap("why", "x.duckdb", "gone", "--log", "log.db")

    assert code == 3
    assert "1 piece of feedback on this case landed, but none of its turns" in out
    assert "log.db does not contain it" in out
    assert "sampling left out 1 turn (sampled_out)" in out


@pytest.mark.slow
def test_cases_of_two_apps_with_one_id_are_told_apart_and_one_before_the_start_lands_never(
    evaltap: Evaltap,
) -> None:
    for app in ("desk", "shop"):
        recorder = Recorder("log.db", app_name=app)
        with recorder.turn(session_id="s-1", user="Hi") as turn:
            turn.respond("Hello")
        recorder.close()
    consume = ("consume", "--log", "log.db", "--until-idle", "--metrics", "m.json")
    evaltap(*consume, "--db", "x.duckdb")
    evaltap(*consume, "--db", "late.duckdb", "--from", "now")

    _, both, _ = evaltap("why", "x.duckdb", "s-1")
    _, before, _ = evaltap("why", "late.duckdb", "s-1", "--log", "log.db")

    assert both == "run_succeeded: passed: app desk\nrun_succeeded: passed: app shop\n"
    assert "log.db has it at offset 1; late.duckdb has read past it" in before


@pytest.mark.parametrize("command", ["set export", "convert"])
def test_a_dash_is_no_file(evaltap: Evaltap, command: str) -> None:
    code, _, err = evaltap(*command.split(), "c.jsonl", "--out", "-")

    assert code == 2
    assert "argument --out: found '-'; expected a file" in err
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("set export", "expected an eval set (.evalset.json) or JSON Lines (.jsonl)"),
        ("convert", "expected an eval set (.evalset.json) or JSON Lines (.jsonl)"),
        ("set merge", "expected an eval set (.evalset.json)"),
    ],
)
def test_an_ending_that_no_command_reads_is_refused(
    evaltap: Evaltap, command: str, expected: str
) -> None:
    sources = ["c.jsonl"] if command != "set merge" else ["c.jsonl", "c.jsonl"]

    code, _, err = evaltap(*command.split(), *sources, "--out", "x.foo")

    assert code == 2
    assert f"x.foo: found .foo; {expected}" in err
    assert not Path("x.foo").exists()


@pytest.mark.parametrize("form", ["jsonl", "deepeval"])
def test_an_export_never_replaces_the_store(evaltap: Evaltap, form: str) -> None:
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")
    before = Path("x.duckdb").read_bytes()

    code, _, err = evaltap("set", "export", "c.jsonl", "--format", form, "--out", "x.duckdb")

    assert code == 2
    assert "x.duckdb: cannot be written (it is a database; name another file)" in err
    assert Path("x.duckdb").read_bytes() == before


def test_csv_has_plain_line_ends(evaltap: Evaltap) -> None:
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")

    code, out, _ = evaltap("sql", "SELECT 1 AS a, 'x,y' AS b", "--db", "x.duckdb", "--csv")

    assert (code, out) == (0, 'a,b\n1,"x,y"\n')


def test_json_of_a_query_has_every_column_and_only_json(evaltap: Evaltap) -> None:
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")

    columns = "1 AS a, 2 AS a, 3 AS a_1, 'inf'::DOUBLE AS b, ['nan'::DOUBLE, 0.1] AS c"
    code, out, _ = evaltap("sql", f"SELECT {columns}", "--db", "x.duckdb", "--json")

    assert (code, out) == (0, '[{"a": 1, "a_1": 2, "a_1_1": 3, "b": null, "c": [null, 0.1]}]\n')


def test_an_empty_cell_is_not_a_missing_column(evaltap: Evaltap) -> None:
    Path("q.csv").write_text("question,answer\nWhat?,x\n,hello\n")

    code, _, err = evaltap("convert", "q.csv", "--out", "o.jsonl")

    assert code == 2
    assert "line 3: the column question is empty here, and it is the input" in err


def test_rows_of_a_data_set_are_no_trials_of_a_case_without_id(evaltap: Evaltap) -> None:
    Path("rows.jsonl").write_text('{"question": "What?", "answer": "x"}\n' * 2)

    code, _, err = evaltap("score", "rows.jsonl", "--metrics", "m.json")

    assert code == 2
    assert "line 1: a case without `evalId`; add one (`evaltap convert` makes cases of" in err
    assert "trial" not in err


def test_an_empty_list_of_right_answers_expects_nothing(evaltap: Evaltap) -> None:
    Path("q.jsonl").write_text('{"question": "What?", "answers": {"text": []}}\n')

    code, _, err = evaltap(
        "convert", "q.jsonl", "--map", "expected=answers.text", "--out", "o.jsonl"
    )

    assert (code, err) == (0, "1 case -> o.jsonl\n")
    assert "finalResponse" not in Path("o.jsonl").read_text()


def test_a_result_file_is_not_an_empty_eval_set(evaltap: Evaltap) -> None:
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--result", "r.evalset_result.json")

    code, _, err = evaltap("set", "export", "r.evalset_result.json", "--out", "e.evalset.json")

    assert code == 2
    assert "is a result file; expected an eval set (`evaltap compare` reads results" in err


def test_a_result_file_of_adk_is_not_an_empty_eval_set(evaltap: Evaltap) -> None:
    result = {"eval_set_result_id": "r", "eval_set_id": "s", "eval_case_results": []}
    Path("r.evalset_result.json").write_text(json.dumps(result))

    code, _, err = evaltap("set", "export", "r.evalset_result.json", "--out", "e.evalset.json")

    assert code == 2
    assert "is a result file; expected an eval set" in err


def test_a_golden_without_turns_and_scenario_does_not_ask_for_another_column(
    evaltap: Evaltap,
) -> None:
    Path("g.json").write_text('[{"scenario": "", "turns": null, "name": "g"}]')

    code, _, err = evaltap("convert", "g.json", "--out", "o.jsonl")

    assert code == 2
    assert "[0]: the column turns is empty here, and it is the input" in err


@pytest.mark.parametrize("columns", [80, 100])
def test_runs_fit_a_narrow_terminal_with_their_ids_whole(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")
    (run,) = json.loads(evaltap("runs", "x.duckdb", "--json")[1])
    monkeypatch.setenv("COLUMNS", str(columns))

    code, out, _ = evaltap("runs", "x.duckdb")

    assert code == 0
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    (line,) = (one for one in lines if run["run_id"] in one)
    assert run["started_at"][5:16].replace("T", " ") in line


def test_reports_say_what_a_case_that_did_not_pass_is_about(evaltap: Evaltap) -> None:
    said = {"role": "user", "content": "My <parcel> never came"}
    turn = make_turn(answer="no", userContent=said)
    Path("w.jsonl").write_text(json.dumps(make_case("z-9", [turn])))
    words = {
        "metricName": "toxic_words",
        "threshold": 1,
        "criterion": {"toxicWords": {"values": ["no"]}},
    }
    Path("w.json").write_text(json.dumps([words]))

    out = evaltap(
        "score", "w.jsonl", "--metrics", "w.json", "--report", "r.md", "--report", "r.xml"
    )[1]

    assert "z-9  toxic_words  0.000  My <parcel> never came" in out
    assert "❌ toxic_words · My &#60;parcel&#62; never came</summary>" in Path("r.md").read_text()
    assert "user: My &lt;parcel&gt; never came" in Path("r.xml").read_text()


def test_reports_keep_the_order_of_the_metrics_file(evaltap: Evaltap) -> None:
    words = {"metricName": "a_words", "evaluatorName": "toxic_words", "threshold": 1,
             "criterion": {"toxicWords": {"values": ["no"]}}}  # fmt: skip
    Path("o.json").write_text(json.dumps([METRICS[0], words]))
    evaltap("score", "c.jsonl", "--metrics", "o.json", "--db", "x.duckdb", "--report", "r.json")

    found = json.loads(evaltap("report", "x.duckdb", "--json")[1])
    report = json.loads(Path("r.json").read_text())

    for metrics in (found["metrics"], report["metrics"], report["summary"]["metrics"]):
        assert [one["metric_name"] for one in metrics] == ["run_succeeded", "a_words"]


def test_a_live_run_whose_consumer_has_ended_is_stopped(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder("log.db")
    with recorder.turn(session_id="s", user="Hi") as turn:
        turn.respond("Hello")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--metrics", "m.json")
    (run,) = json.loads(evaltap("runs", "x.duckdb", "--json")[1])
    monkeypatch.setenv("COLUMNS", "150")

    out = evaltap("runs", "x.duckdb")[1]

    assert f"stopped, last score {run['last_scored_at'][:19].replace('T', ' ')}" in out
    assert "running" not in out


def test_of_several_live_runs_the_one_that_scored_last_is_running() -> None:
    def row(kind: str, scored: str | None, ended: str | None = None) -> dict[str, str | None]:
        times = {"started_at": "2026-11-01", "last_scored_at": scored, "ended_at": ended}
        return {"kind": kind, **times}

    rows = [
        row("live", "2026-11-02"), row("live", "2026-11-04"), row("live", None),
        row("landed", "2026-11-05"), row("files", "2026-11-03", "2026-11-03"),
    ]  # fmt: skip

    assert run_states(rows, landing=True) == [
        "stopped", "running", "stopped", "not finished", "ended",
    ]  # fmt: skip
    assert run_states(rows, landing=False)[1] == "stopped"


def test_a_store_without_runs_says_so(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    with recorder.turn(session_id="s", user="Hi") as turn:
        turn.respond("Hello")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")

    assert evaltap("runs", "x.duckdb")[1].startswith("no scoring runs yet")


@pytest.mark.slow
def test_runs_that_crashed_are_found_by_either_word(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    with pytest.raises(OSError), recorder.turn(session_id="s-1", user="Hi"):  # noqa: PT011
        raise OSError("disk")
    with recorder.turn(session_id="s-2", user="Hi") as turn:
        turn.respond("Hello")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--metrics", "m.json")

    for word in ("crashed", "error", "failed"):
        out = evaltap("cases", "x.duckdb", f"status:{word}", "--json")[1]
        assert [case["eval_id"] for case in json.loads(out)] == ["s-1"], word
    assert evaltap("cases", "x.duckdb", "metric:run_succeeded=error", "--json")[1].strip() == "[]"


def test_a_case_of_one_turn_shows_each_score_once(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    with recorder.turn(session_id="s-1", user="Hi") as turn:
        turn.respond("Hello")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--metrics", "m.json")

    out = evaltap("show", "x.duckdb", "s-1")[1]

    assert out.count("run_succeeded") == 1


def test_reasons_of_several_cases_are_one_json_document(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    for session in ("s-1", "s-2"):
        with recorder.turn(session_id=session, user="Hi") as turn:
            turn.respond("Hello")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--metrics", "m.json")

    _, many, _ = evaltap("why", "x.duckdb", "--filter", "status:passed", "--json")
    _, one, _ = evaltap("why", "x.duckdb", "s-1", "--json")

    assert sorted(answer["case"] for answer in json.loads(many)) == ["s-1/s-1", "s-2/s-2"]
    assert json.loads(one)["case"] == "s-1"
    (run,) = json.loads(evaltap("runs", "x.duckdb", "--json")[1])
    assert run["last_scored_at"][10] == "T"
    assert run["last_scored_at"].endswith("Z")


@pytest.mark.slow
@pytest.mark.parametrize("at_a_time", [1, 2, 10])
def test_many_cases_are_explained_like_each_one(evaltap: Evaltap, at_a_time: int) -> None:
    recorder = Recorder("log.db")
    for session in ("s-1", "s-2", "s-3"):
        with recorder.turn(session_id=session, user="Hi") as turn:
            turn.respond("Hello")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--metrics", "m.json")

    keys = [("", session, session) for session in ("s-3", "s-1", "s-2")]
    with Store("x.duckdb") as store:
        found = list(explained(store, keys, at_a_time=at_a_time))
        alone = [why(store, f"{session}/{session}") for _, session, _ in keys]

    assert [key for key, _ in found] == keys
    assert [answer for _, answer in found] == alone
    assert all(answer.landed and answer.metrics for answer in alone)


def test_the_doctors_lines_fit_80_columns(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    _, out, _ = evaltap("doctor")

    assert max(map(len, out.splitlines())) <= 80


def test_a_curation_report_has_no_diff(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    with recorder.turn(session_id="s-1", user="Hi") as turn:
        turn.respond("Hello")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")

    _, out, _ = evaltap("curate", "x.duckdb", "--out", "g.evalset.json", "--report", "r.json",
                        "--diff", "--json")  # fmt: skip

    assert "diff" in json.loads(out)
    assert "diff" not in json.loads(Path("r.json").read_text())


def test_a_log_is_not_a_file_of_cases(evaltap: Evaltap) -> None:
    with closing(Recorder("log.db")) as recorder, recorder.turn(session_id="s", user="Hi") as turn:
        turn.respond("Hello")

    code, _, err = evaltap("score", "log.db", "--metrics", "m.json")

    assert code == 2
    assert "land a log with `evaltap consume --log log.db`" in err


def test_sql_reads_the_store_of_the_folder_and_its_errors_are_one_line(evaltap: Evaltap) -> None:
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "cases.duckdb")

    code, out, _ = evaltap("sql", "SELECT count(*) AS n FROM scores", "--json")
    _, _, err = evaltap("sql", "FROM v_tool")

    assert (code, json.loads(out)) == (0, [{"n": 1}])
    assert err.count("\n") == 1
    assert "v_tools" in err


def test_sql_takes_the_store_before_the_statement_as_other_readers_do(evaltap: Evaltap) -> None:
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")

    assert evaltap("sql", "x.duckdb", "SELECT 1 AS a", "--csv")[:2] == (0, "a\n1\n")
    assert "missing SQL; expected a statement after x.duckdb" in evaltap("sql", "x.duckdb")[2]
    assert "missing X.duckdb" in evaltap("sql", "SELECT 1")[2]


@pytest.mark.slow
def test_a_store_of_any_name_is_read_without_the_one_of_the_folder(evaltap: Evaltap) -> None:
    for name in ("runs.db", "cases.duckdb"):
        Path("c.jsonl").write_text(json.dumps(make_case(name)) + "\n")
        evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", name)

    _, out, _ = evaltap("report", "--json", "runs.db")

    assert json.loads(out)["cases"] == 1
    assert evaltap("sql", "runs.db", "SELECT eval_id FROM scores", "--csv")[1].endswith(
        "\nruns.db\n"
    )


@pytest.mark.slow
def test_a_report_names_repeats_of_a_case_so_that_show_finds_them(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("run-1", "run-2"):
        recorder = Recorder("log.db", run=run)
        for session in ("again", f"only-{run}"):
            with recorder.turn(session_id=session, user="Hi") as turn:
                turn.respond("yes")
        recorder.close()
    metric = {
        "metricName": "a-metric-with-quite-a-long-name",
        "evaluatorName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [{"id": "n", "type": "contains", "values": ["no"]}]}},
    }
    Path("m.json").write_text(json.dumps([metric]))
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle")
    monkeypatch.setenv("COLUMNS", "80")

    _, out, _ = evaltap("report", "x.duckdb", "--pass-k", "1,3")
    worst = json.loads(evaltap("report", "x.duckdb", "--json")[1])["worst"]

    assert [case["name"] for case in worst] == [
        "run-1/again", "only-run-1", "run-2/again", "only-run-2",
    ]  # fmt: skip
    assert "  run-1/again  a-metric-with-quite-a-long-name" in out
    (shown,) = (line.split("x.duckdb ")[1] for line in out.splitlines() if "evaltap show" in line)
    assert evaltap("show", "x.duckdb", shown)[0] == 0
    trials = out[out.index("k trials") :].splitlines()
    assert max(map(len, trials)) <= 82
    assert [line.split()[0] for line in trials[3:5]] == ["a-metric-with-quite-a-long-name"] * 2


@pytest.mark.slow
def test_the_console_says_how_many_scores_did_not_pass(evaltap: Evaltap) -> None:
    broken = make_turn(telemetry={"status": "error"})
    lines = [json.dumps(make_case(f"c-{number}", [broken])) for number in range(12)]
    Path("c.jsonl").write_text("\n".join(lines))
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")

    _, short, _ = evaltap("report", "x.duckdb")
    _, full, _ = evaltap("report", "x.duckdb", "--worst", "12")

    assert "not passed, worst first: 10 of 12\n" in short
    assert "not passed, worst first\n" in full


def test_the_console_lists_a_crashed_case_once_and_leaves_room_for_failures(
    evaltap: Evaltap,
) -> None:
    broken = make_turn(telemetry={"status": "error"})
    cases = [make_case(f"crashed-{number}", [broken]) for number in range(8)]
    cases += [make_case(f"failed-{number}", [make_turn(answer="no")]) for number in range(7)]
    Path("c.jsonl").write_text("\n".join(map(json.dumps, cases)))
    says_yes = {
        "metricName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [{"id": "y", "type": "contains", "values": ["yes"]}]}},
    }
    Path("m.json").write_text(json.dumps([*METRICS, says_yes]))
    evaltap("score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb")

    _, out, _ = evaltap("report", "x.duckdb")

    assert "not passed, worst first: 10 of 15\n" in out
    listed = [
        line.split() for line in out.splitlines() if line.startswith(("  crashed-", "  failed-"))
    ]
    assert [words[:2] for words in listed[:5]] == [[f"crashed-{n}", "crashed"] for n in range(5)]
    assert [words[:3] for words in listed[5:]] == [
        [f"failed-{n}", "rule_avg_score", "0.000"] for n in range(5)
    ]


def test_the_console_says_how_many_reasons_it_leaves_out(evaltap: Evaltap) -> None:
    lines = [
        json.dumps(
            make_case(f"c-{number}", [make_turn()] * number, conversation=[make_turn()] * 30)
        )
        for number in range(1, 26)
    ]
    Path("c.jsonl").write_text("\n".join(lines))

    _, out, _ = evaltap("score", "c.jsonl", "--metrics", "m.json")

    assert "  5 more scores with other reasons\n" in out
