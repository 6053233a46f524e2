"""`evaltap init` and what the commands make of its file."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.recorder import Recorder
from support.builders.commands import Evaltap


@pytest.fixture
def record(tmp_path: Path) -> Callable[[int], None]:
    def record(turns: int) -> None:
        recorder = Recorder(str(tmp_path / "agent.log.db"))
        for number in range(turns):
            with recorder.turn(session_id=f"s-{number}", user="Where is order A-100?") as turn:
                for call in range(1 + number % 4):
                    turn.tool(
                        "get_order", {"order_id": f"{number}-{call}"}, result={"status": "shipped"}
                    )
                turn.model("a-model-of-our-own", input_tokens=1000, output_tokens=234)
                turn.respond("It is on its way.")
        recorder.close()

    return record


@pytest.mark.slow
def test_four_commands_without_arguments_go_from_init_to_a_report(
    evaltap: Evaltap, record: Callable[[int], None], tmp_path: Path
) -> None:
    record(30)
    code, said, _ = evaltap("init", "--yes")
    assert code == 0
    assert (
        "wrote evaltap.toml\nwrote metrics.json\nwrote monitor.json\n"
        "the limits in metrics.json fit the 30 turns in agent.log.db" in said
    )
    assert evaltap("consume", "--until-idle")[0] == 0
    below = tmp_path / "below"
    below.mkdir()
    os.chdir(below)
    assert "30 cases" in evaltap("cases")[1]
    code, said, _ = evaltap("report")
    assert code == 0
    for metric in ("run_succeeded", "trajectory_no_loop", "trajectory_max_calls", "tokens_within"):
        assert metric in said
    assert evaltap("show", "s-3")[0] == 0


def test_the_starter_metrics_bound_what_was_recorded_and_leave_out_what_was_not(
    evaltap: Evaltap, record: Callable[[int], None]
) -> None:
    record(30)
    evaltap("init", "--yes", "--judge-model", "gpt-4o-mini")
    metrics = {one["metricName"]: one for one in json.loads(Path("metrics.json").read_text())}
    assert metrics["trajectory_max_calls"]["criterion"]["trajectory"] == {"maxCalls": 6}
    assert metrics["tokens_within"]["criterion"]["operations"] == {"maxTokens": 1900}
    assert "cost_within" not in metrics
    assert (
        metrics["llm_rubric_response"]["criterion"]["llmJudge"]["judgeModel"]["modelName"]
        == "gpt-4o-mini"
    )


def test_without_a_log_the_starter_metrics_have_no_bounds(evaltap: Evaltap) -> None:
    said = evaltap("init", "--yes", "--json")[1]
    assert json.loads(said) == {
        "written": ["evaltap.toml", "metrics.json", "monitor.json"],
        "turns": 0,
    }
    metrics = [one["metricName"] for one in json.loads(Path("metrics.json").read_text())]
    assert metrics == ["run_succeeded", "trajectory_no_loop"]


@pytest.mark.slow
def test_consume_watches_with_the_starter_file_and_sends_nothing_for_a_file_that_was_found(
    evaltap: Evaltap, record: Callable[[int], None]
) -> None:
    record(30)
    evaltap("init", "--yes")
    assert evaltap("consume", "--until-idle")[0] == 0
    watched = evaltap("monitor", "status")[1]
    assert [name for name in ("tool errors", "failing", "slow") if name not in watched] == []
    started = "the first five minutes have not ended: tool errors", "ok: tool errors"
    assert any(one in watched for one in started)  # by the clock, they may just have ended
    assert "tool errors" in evaltap("monitor", "replay")[1]  # the file of the settings

    rules = json.loads(Path("monitor.json").read_text())
    receiver = {"type": "webhook", "url": "https://example.com/${HOME}"}
    Path("monitor.json").write_text(json.dumps(rules | {"alerts": [receiver]}))
    code, _, error = evaltap("consume", "--until-idle")
    assert code == 2
    assert "name the file with --monitor" in error
    assert "name the file" not in evaltap("consume", "--until-idle", "--monitor", "monitor.json")[2]


def test_init_writes_over_nothing_that_is_there(evaltap: Evaltap) -> None:
    Path("metrics.json").write_text("[]")
    assert "kept the existing metrics.json" in evaltap("init", "--yes")[1]
    code, _, errors = evaltap("init", "--yes")
    assert code == 2
    assert "evaltap.toml already exists; edit it, or overwrite it with --force" in errors
    assert evaltap("init", "--yes", "--force")[0] == 0
    assert Path("metrics.json").read_text() == "[]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--log", "folder"], "log 'folder': expected a file, or kafka://"),
        (["--log", ""], "log '': expected a file, or kafka://"),
        (["--log", "kafka:/broker/x"], "not a URL; expected a path, or kafka://"),
        (["--store", "folder.duckdb"], "--store folder.duckdb: expected a file that ends in"),
        (["--store", "cases.db"], "--store cases.db: expected a file that ends in .duckdb"),
        (["--metrics", "folder"], "folder: is a folder; expected a file"),
        (["--metrics", "broken.json"], "broken.json: line 1, column 2: not valid JSON"),
    ],
)
def test_init_writes_nothing_for_a_value_that_no_command_could_use(
    evaltap: Evaltap, arguments: list[str], said: str
) -> None:
    Path("folder").mkdir()
    Path("folder.duckdb").mkdir()
    Path("broken.json").write_text("{broken")

    code, _, errors = evaltap("init", "--yes", *arguments)

    assert code == 2
    assert said in errors
    assert errors.count("\n") == 1
    assert not Path("evaltap.toml").exists()
    assert not Path("metrics.json").exists()


def test_init_asks_again_for_an_answer_that_cannot_be_used(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = io.StringIO("kafka://broker\nmy.log.db\n5\n0.2\n\n")
    monkeypatch.setattr(answers, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", answers)

    code, _, errors = evaltap("init")

    assert code == 0
    assert "log 'kafka://broker': names no broker or no topic" in errors
    assert "found '5'; expected a share from 0 to 1" in errors
    assert 'log = "my.log.db"' in Path("evaltap.toml").read_text()
    assert "sample_rate = 0.2" in Path("evaltap.toml").read_text()


def test_init_does_not_claim_to_have_read_a_topic(evaltap: Evaltap) -> None:
    said = evaltap("init", "--log", "kafka://broker:9092/otlp_spans?format=otlp")[1]

    assert "no limits on time, cost or calls, because `evaltap init` does not read topics" in said
    assert "Recorder(" not in said  # nothing records to a Collector's topic


def test_arguments_win_over_variables_and_variables_over_the_file(
    evaltap: Evaltap, record: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    record(1)
    Path("evaltap.toml").write_text('log = "agent.log.db"\nstore = "of-file.duckdb"\n')
    monkeypatch.setenv("EVALTAP_STORE", "of-variable.duckdb")
    evaltap("consume", "--until-idle", "--db", "of-argument.duckdb")
    assert Path("of-argument.duckdb").exists()
    evaltap("consume", "--until-idle")
    assert Path("of-variable.duckdb").exists()
    assert not Path("of-file.duckdb").exists()
    assert os.environ["EVALTAP_STORE"] == "of-variable.duckdb"
    assert "EVALTAP_LOG" not in os.environ


def test_the_file_names_the_tracing_tool_of_the_page(
    evaltap: Evaltap, record: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    record(1)
    evaltap("consume", "--log", "agent.log.db", "--until-idle", "--db", "cases.duckdb")
    Path("evaltap.toml").write_text('[page]\ntrace_url = "traces.example/{trace_id}"\n')
    capsys.readouterr()

    assert main(["ui"]) == 2
    assert "--trace-url traces.example/{trace_id}: expected an http" in capsys.readouterr().err


def test_a_store_that_is_named_wins_over_that_of_the_file(
    evaltap: Evaltap, record: Callable[[int], None]
) -> None:
    record(2)
    Path("evaltap.toml").write_text('log = "agent.log.db"\nstore = "missing.duckdb"\n')
    evaltap("consume", "--until-idle", "--db", "here.duckdb")
    assert "2 cases" in evaltap("cases", "here.duckdb")[1]
    code, _, errors = evaltap("cases")
    assert code == 2
    assert "missing.duckdb: no such file" in errors


def test_commands_read_cases_duckdb_where_nothing_names_a_store(
    evaltap: Evaltap, record: Callable[[int], None]
) -> None:
    assert "missing X.duckdb" in evaltap("cases")[2]
    record(2)
    evaltap("consume", "--log", "agent.log.db", "--db", "cases.duckdb", "--until-idle")
    os.rename("cases.duckdb", "other.duckdb")
    assert evaltap("cases")[0] == 2
    os.rename("other.duckdb", "cases.duckdb")

    assert "2 cases" in evaltap("cases")[1]
    assert "Where is order A-100?" in evaltap("show", "s-1")[1]
    assert evaltap("report", "missing.duckdb")[0] == 2


@pytest.mark.slow
def test_every_command_that_reads_a_store_knows_the_one_of_the_folder(
    evaltap: Evaltap, record: Callable[[int], None]
) -> None:
    record(2)
    evaltap("init", "--yes")
    evaltap("consume", "--until-idle")

    assert "live-" in evaltap("runs")[1]
    assert evaltap("runs", "export", "--out", "base.json")[0] == 0
    assert "2 cases written to all.jsonl" in evaltap("set", "export", "--out", "all.jsonl")[2]
    assert (
        evaltap("set", "export", "all.jsonl", "--format", "deepeval", "--out", "goldens.json")[0]
        == 0
    )
    evaltap("review", "add", "--limit", "1")
    assert "Where is order A-100?" in evaltap("review", "list")[1]


def test_a_misspelt_setting_stops_every_command_with_one_line(evaltap: Evaltap) -> None:
    Path("evaltap.toml").write_text('metric = "metrics.json"\n')
    code, said, errors = evaltap("cases", "x.duckdb")
    assert (code, said) == (2, "")
    assert errors.endswith("metric: unknown setting; did you mean 'metrics'?\n")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("command", [["cases"], ["collect", "--port", "0"], ["up", "--port", "0"]])
def test_a_sampling_rule_with_a_misspelt_key_stops_the_command(
    evaltap: Evaltap, command: list[str]
) -> None:
    Path("evaltap.toml").write_text(
        '[recorder]\nsample_rules = [{ name = "slow", keeps = 1, slowerThanMs = 900 }]\n'
    )
    code, said, errors = evaltap(*command)
    assert (code, said) == (2, "")
    assert "'slow': unknown key 'keeps'; did you mean 'keep'?" in errors


@pytest.mark.parametrize("command", ["collect", "up"])
def test_what_records_does_not_begin_with_a_setting_that_cannot_be_used(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EVALTAP_SAMPLE_RULES", '[{"name": "paid", "costlierThanUSD": 1}]')
    code, said, errors = evaltap(command, "--log", "agent.log.db", "--port", "0")
    assert (code, said) == (2, "")
    assert "unknown key 'costlierThanUSD'; did you mean 'costlierThanUsd'?" in errors


def test_a_password_goes_to_no_brokers_that_only_a_found_file_names(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("evaltap.toml").write_text('log = "kafka://somewhere:9092/cases"\nstore = "x.duckdb"\n')
    monkeypatch.setenv("EVALTAP_KAFKA_SASL_PLAIN_PASSWORD", "secret")
    code, _, errors = evaltap("consume", "--until-idle")
    assert code == 2
    assert (
        "the password in EVALTAP_KAFKA_SASL_PLAIN_PASSWORD would be sent to the brokers" in errors
    )
    assert "secret" not in errors
