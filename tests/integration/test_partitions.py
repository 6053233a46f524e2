"""Consumers side by side on the partitions of one topic, and their files read as one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.topics.clients import create_topics
from support.builders.cases import RESPONSE, TRAJECTORY, make_records, write_log
from support.builders.topics import cases, location, publish, sessions
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(60)

QUESTIONS = (
    "SELECT * FROM v_pass_rate ORDER BY ALL",
    "SELECT app_name, eval_set_id, eval_id, revision, turn_count FROM latest_cases ORDER BY ALL",
    "SELECT eval_id, metric_name, score, status, reason FROM latest_scores ORDER BY ALL",
    "SELECT count(*), count(DISTINCT run_id) FROM runs",
    "SELECT * FROM v_completeness ORDER BY ALL",
    "SELECT metric_name, sum(passed + failed) FROM v_pass_rate_by_tool GROUP BY ALL ORDER BY ALL",
)


@pytest.fixture
def shards(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a topic of four partitions, consumed into two files, and as a whole into a third."""
    monkeypatch.chdir(tmp_path)
    url = broker.log()
    create_topics(location(url), {location(url).topics[0]: 4})
    publish(url, make_records(sessions(60, turns=2)))
    Path("m.json").write_bytes(orjson.dumps([TRAJECTORY, RESPONSE]))
    consume = ["consume", "--log", url, "--metrics", "m.json", "--until-idle", "--json"]
    main([*consume, "--partitions", "0-1", "--db", "shard-0.duckdb"])
    main([*consume, "--partitions", "2,3", "--db", "shard-1.duckdb"])
    main([*consume, "--db", "whole.duckdb"])
    return url


def answers(connection: duckdb.DuckDBPyConnection) -> list[list[Any]]:
    return [connection.execute(question).fetchall() for question in QUESTIONS]


def whole() -> list[list[Any]]:
    with duckdb.connect("whole.duckdb", read_only=True) as connection:
        return answers(connection)


@pytest.mark.slow
def test_two_consumers_share_the_partitions_and_their_files_answer_as_one(shards: str) -> None:
    assert main(["store", "attach", "shard-0.duckdb", "shard-1.duckdb", "--out", "all.sql"]) == 0

    counts: list[int] = []
    for name in ("shard-0", "shard-1"):
        with duckdb.connect(f"{name}.duckdb", read_only=True) as connection:
            counts += connection.execute("SELECT count(*) FROM turns").fetchall()[0]
    assert all(0 < count < 120 for count in counts)
    assert sum(counts) == 120
    with duckdb.connect() as connection:
        connection.execute(Path("all.sql").read_text())
        assert answers(connection) == whole()


@pytest.mark.slow
def test_a_report_over_both_files_is_that_of_one(
    shards: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    together = main(["report", "shard-0.duckdb", "shard-1.duckdb", "--json"])
    of_both = json.loads(capsys.readouterr().out)
    alone = main(["report", "whole.duckdb", "--json"])

    assert together == alone == 1
    assert of_both == json.loads(capsys.readouterr().out)
    assert main(["runs", "shard-0.duckdb", "shard-1.duckdb", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["cases"] == 60
    assert main(["show", "shard-0.duckdb", "shard-1.duckdb", "s-3"]) == 0
    assert main(["show", "shard-1.duckdb", "shard-0.duckdb", "s-3"]) == 0


@pytest.mark.slow
def test_the_command_of_duckdb_reads_the_sql(shards: str) -> None:
    program = shutil.which("duckdb")
    if program is None:
        pytest.skip("needs the command duckdb")
    main(["store", "attach", "shard-0.duckdb", "shard-1.duckdb", "--out", "all.sql"])

    done = subprocess.run(
        [program, "-init", "all.sql", "-csv", "-c", "SELECT count(*) FROM turns"],
        capture_output=True, text=True,
    )  # fmt: skip

    assert done.stdout.split() == ["count_star()", "120"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ("0-9", "has partitions 0 to 3, but not 4, 5, 6, 7, 8, 9"),
        ("7", "has partitions 0 to 3, but not 7"),
    ],
)
def test_partitions_that_the_topic_lacks_are_refused(
    shards: str, capsys: pytest.CaptureFixture[str], partitions: str, said: str
) -> None:
    arguments = ["--partitions", partitions, "--db", "x.duckdb", "--until-idle"]

    assert main(["consume", "--log", shards, *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "0,,1", "1-2-3"])
def test_what_is_no_list_of_partitions_is_refused(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["consume", "--log", "x", "--db", "x.duckdb", f"--partitions={text}"])

    assert ended.value.code == 2
    assert "--partitions: found" in capsys.readouterr().err


def test_a_local_log_and_raw_telemetry_have_no_partitions_to_choose(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_log(tmp_path / "log.db", make_records(cases(1)))
    given = ["--db", str(tmp_path / "x.duckdb"), "--partitions", "0", "--until-idle"]

    assert main(["consume", "--log", str(log), *given]) == 2
    assert "is a local log, which has no partitions" in capsys.readouterr().err
    assert main(["consume", "--log", broker.log("spans", form="otlp"), *given]) == 2
    assert "the spans of a trace may be on any partition" in capsys.readouterr().err


@pytest.mark.slow
def test_files_that_overlap_are_told_by_name(
    shards: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "attach", "shard-0.duckdb", "whole.duckdb"]) == 2
    said = capsys.readouterr().err
    assert "shard-0.duckdb and whole.duckdb both contain" in said
    assert "its own --partitions" in said


@pytest.mark.slow
def test_a_file_of_another_layout_or_none_of_ours_is_refused(
    shards: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with duckdb.connect("shard-1.duckdb") as connection:
        connection.execute("INSERT INTO meta VALUES ('schema_version', '99')")
    with duckdb.connect("other.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 1")

    for name, said in (
        ("shard-1.duckdb", "has layout 99"),
        ("other.duckdb", "but not evaltap's"),
        ("m.json", "not a DuckDB file"),
        ("gone.duckdb", "no such file"),
    ):
        assert main(["store", "attach", "shard-0.duckdb", name]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_that_a_consumer_holds_is_told(
    shards: str, capfd: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import duckdb, sys; c = duckdb.connect('shard-0.duckdb'); print(1, flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.readline()

    assert main(["store", "attach", "shard-0.duckdb", "shard-1.duckdb"]) == 2
    holder.communicate(b"\n")

    assert "shard-0.duckdb: open in another process" in capfd.readouterr().err
