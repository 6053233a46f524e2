"""A consumer as a service: probes, figures for Prometheus, reloads, and what systemd is told."""

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.live import status as status_module
from evaltap.evaluator.pipeline.live.exposition import (
    MOST_VALUES,
    Family,
    SinceStart,
    exposition,
    open_metrics,
)
from evaltap.evaluator.pipeline.live.figures import figures, records_waiting
from evaltap.evaluator.pipeline.live.running import Running, Systemd, serving
from evaltap.evaluator.pipeline.live.status import STUCK_SECONDS, LiveStatus
from evaltap.evaluator.pipeline.maintenance.lag import oldest_unscored
from evaltap.evaluator.pipeline.maintenance.why import why
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.monitor import MonitorFile
from support.builders.cases import RESPONSE, make_case, make_records, make_turn, write_log
from support.builders.commands import runner
from support.builders.program import Program
from support.builders.waiting import wait_for
from support.worlds.watched_traffic import traffic, write_metrics

SAMPLE = re.compile(
    r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\\n])*"(,[a-z_]+="(\\.|[^"\\\n])*")*\})? [-+0-9.e]+(inf|nan)?'
)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_metrics()
    write_log(Path("t.log.db"), traffic(lambda tool, day: 0.2, days=2, first=datetime.now(UTC)))
    return tmp_path


@pytest.fixture
def consumer(folder: Path) -> Iterator[Program]:
    rules = {"watch": [{"name": "helpful", "signal": "pass_rate", "metric": "helpful"}]}
    Path("monitor.json").write_text(json.dumps(rules))
    started = Program(
        ["consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json",
         "--monitor", "monitor.json", "--metrics-port", "0"], folder / "said",
    )  # fmt: skip
    yield started
    started.process.kill()
    started.process.wait()


def served(consumer: Program) -> str:
    wait_for(lambda: "http://" in consumer.output)
    found = re.search(r"http://127\.0\.0\.1:\d+", consumer.output)
    assert found is not None
    return found[0]


def figure(url: str, name: str) -> float:
    lines = [one for one in get(f"{url}/metrics")[1].splitlines() if one.startswith(name)]
    return sum(float(one.rpartition(" ")[2]) for one in lines)


@pytest.mark.slow
def test_probes_and_figures_of_a_running_consumer(consumer: Program) -> None:
    url = served(consumer)
    wait_for(lambda: figure(url, "evaltap_turns_scored_total") == 80)

    assert get(f"{url}/healthz") == (200, "ok\n")
    wait_for(lambda: get(f"{url}/readyz") == (200, "ready\n"))
    assert get(f"{url}/nothing")[0] == 404
    text = get(f"{url}/metrics")[1]
    for line in text.splitlines():
        assert line.startswith("# ") or SAMPLE.fullmatch(line), line
    assert figure(url, "evaltap_turns_landed_total") == 80
    wait_for(lambda: "\nevaltap_log_records_waiting 0\n" in get(f"{url}/metrics")[1], 30)
    assert 'evaltap_turns_landed_total{app="shop"}' in text
    assert 'evaltap_turn_latency_seconds_bucket{app="shop",le="+Inf"}' in text
    assert "s-0-1" not in text, "no ids of cases"
    asked = urllib.request.Request(
        f"{url}/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    with urllib.request.urlopen(asked, timeout=10) as answer:
        kind, opened = answer.headers["Content-Type"], answer.read().decode()
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    assert opened.endswith("# EOF\n")
    assert "# TYPE evaltap_turns_landed counter\n" in opened
    assert consumer.stop() == 0


@pytest.mark.slow
def test_a_reload_takes_new_files_and_keeps_the_old_ones_when_they_are_bad(
    consumer: Program,
) -> None:
    url = served(consumer)
    wait_for(lambda: figure(url, "evaltap_turns_scored_total") == 80)

    Path("m.json").write_text("[{")
    consumer.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "the old ones stay in effect" in consumer.output)
    wait_for(lambda: get(f"{url}/readyz")[0] == 200)

    rules = {"watch": [{"name": "x", "signal": "pass_rate", "metric": "nothing"}]}
    old = Path("monitor.json").read_text()
    write_metrics()
    Path("monitor.json").write_text(json.dumps(rules))
    consumer.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "no metric 'nothing'" in consumer.output)

    Path("monitor.json").write_text(old)
    metrics = json.loads(Path("m.json").read_text())
    Path("m.json").write_text(json.dumps([*metrics, {**RESPONSE, "metricName": "more",
                              "evaluatorName": "final_response_avg_score"}]))  # fmt: skip
    consumer.process.send_signal(signal.SIGHUP)
    wait_for(lambda: figure(url, "evaltap_turns_scored_total") == 160)
    wait_for(lambda: get(f"{url}/readyz")[0] == 200)
    assert "reloaded the changed files" in consumer.output
    assert consumer.stop() == 0


@pytest.mark.slow
def test_systemd_is_told_when_it_is_ready_alive_reloading_and_stopping(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("notify")
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(folder / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        started = Program(["consume", "--log", "t.log.db", "--db", "t.duckdb"], folder / "said")
        said = [listener.recv(256).decode() for _ in range(4)]
        started.process.send_signal(signal.SIGHUP)
        while "RELOADING" not in said[-1]:
            said.append(listener.recv(256).decode())
        while "READY" not in said[-1]:
            said.append(listener.recv(256).decode())
        assert started.stop() == 0
        while "STOPPING" not in said[-1]:
            said.append(listener.recv(256).decode())

    assert said[0] == "READY=1"
    assert said[1:4] == ["WATCHDOG=1"] * 3


def test_without_systemd_nothing_is_sent_and_a_socket_that_is_gone_stops_nothing(
    tmp_path: Path,
) -> None:
    Systemd({}).ready()
    gone = Systemd({"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "1000"})
    gone.ready()
    gone.alive()


def test_a_consumer_that_hangs_is_not_healthy() -> None:
    now = [0.0]
    shown = LiveStatus(clock=lambda: now[0])
    shown.beat()
    shown.set_ready(ready=True)
    with serving(shown, "127.0.0.1", 0) as url:
        assert (get(f"{url}/healthz")[0], get(f"{url}/readyz")[0]) == (200, 200)
        now[0] = STUCK_SECONDS + 1
        assert (get(f"{url}/healthz")[0], get(f"{url}/readyz")[0]) == (503, 503)
        shown.beat()
        shown.set_ready(ready=False)
        assert (get(f"{url}/healthz")[0], get(f"{url}/readyz")[0]) == (200, 503)
    assert status_module.STUCK_SECONDS > 60


def test_slow_clients_hold_up_no_probe() -> None:
    with serving(LiveStatus(), "127.0.0.1", 0) as url:
        host, port = url.removeprefix("http://").split(":")
        slow = [socket.create_connection((host, int(port))) for _ in range(10)]
        try:
            for one in slow:
                one.sendall(b"GET /he")
            began = time.monotonic()
            assert get(f"{url}/healthz")[0] == 200
            assert time.monotonic() - began < 10
        finally:
            for one in slow:
                one.close()


def test_a_port_that_is_taken_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, said = runner(capsys)(
            "consume", "--log", "t.log.db", "--db", "t.duckdb", "--until-idle", "--serve", str(port)
        )

    assert code == 2
    assert "cannot listen there" in said


def test_label_values_are_bounded_and_what_is_capped_is_counted() -> None:
    many = Family("evaltap_turns_landed_total", "counter", "Turns.", ("app",))
    for number in range(200):
        many.add((f'app "{number}"\n\\',), number)

    lines = exposition([many]).splitlines()

    samples = [one for one in lines if one.startswith("evaltap_turns_landed_total{")]
    assert len(samples) == MOST_VALUES["app"]
    assert all(SAMPLE.fullmatch(one) for one in samples)
    assert sum(float(one.rpartition(" ")[2]) for one in samples) == sum(range(200))
    assert 'evaltap_turns_landed_total{app="other"} 11325' in lines
    assert 'evaltap_label_values_capped_total{label="app"} 151' in lines


def test_records_of_the_log_wait_until_they_have_landed(folder: Path) -> None:
    source = LocalLogSource(Path("t.log.db"))
    with Store("t.duckdb") as store, closing(source):
        assert records_waiting(source, store) == 80
        ((partition, bounds),) = source.bounds().items()
        with store.transaction():
            store.append("offsets", [(*partition, bounds.end - 3, store.now())])
        assert records_waiting(source, store) == 3
    with (
        Store(":memory:") as store,
        closing(LocalLogSource("none.log.db", must_exist=False)) as missing,
    ):
        assert records_waiting(missing, store) is None, "not zero"


def test_counters_begin_with_the_process_and_rows_that_go_are_no_traffic() -> None:
    def shown(landed: int, waiting: int = 0) -> dict[str, float]:
        counter = Family("evaltap_turns_landed_total", "counter", "Turns.", ("app",))
        gauge = Family("evaltap_cases_unscored", "gauge", "Cases.")
        counter.add(("shop",), landed)
        gauge.add((), waiting)
        return {one.name: next(iter(one.samples.values())) for one in since.of([counter, gauge])}

    since = SinceStart()

    assert shown(1_000, 7) == {"evaltap_turns_landed_total": 0, "evaltap_cases_unscored": 7}
    assert shown(1_020)["evaltap_turns_landed_total"] == 20
    assert shown(1_019, 5) == {"evaltap_turns_landed_total": 20, "evaltap_cases_unscored": 5}
    assert shown(1_025)["evaltap_turns_landed_total"] == 25


@pytest.mark.slow
def test_a_consumer_that_starts_again_counts_from_zero(consumer: Program, folder: Path) -> None:
    wait_for(lambda: figure(served(consumer), "evaltap_turns_landed_total") == 80)
    assert consumer.stop() == 0
    command = ["consume", "--log", "t.log.db", "--db", "t.duckdb", "--serve", "0"]
    again = Program(command, folder / "again")

    url = served(again)
    wait_for(lambda: get(f"{url}/readyz")[0] == 200)

    assert 'evaltap_turns_landed_total{app="shop"} 0\n' in get(f"{url}/metrics")[1]
    assert again.stop() == 0


def test_rates_are_shown_of_the_applications_with_most_traffic() -> None:
    landed = Family("evaltap_turns_landed_total", "counter", "Turns.", ("app",))
    ratio = Family("evaltap_pass_ratio", "gauge", "Rate.", ("app", "metric", "window"))
    for number in range(60):
        landed.add((f"app-{number}",), number)
        ratio.add((f"app-{number}", "helpful", "1h"), 1 - number / 60)

    lines = exposition([landed, ratio]).splitlines()

    assert any(one.startswith('evaltap_pass_ratio{app="app-59"') for one in lines)
    assert not any(one.startswith('evaltap_pass_ratio{app="app-0"') for one in lines)


def test_open_metrics_end_a_line_where_prometheus_does() -> None:
    odd = Family("evaltap_turns_landed_total", "counter", "Turns.", ("app",))
    odd.add(("a\u2028b\x85c\rd",), 1)
    text = exposition([odd])

    lines = open_metrics(text).split("\n")

    assert lines[:2] == [
        "# HELP evaltap_turns_landed Turns.",
        "# TYPE evaltap_turns_landed counter",
    ]
    assert lines[2:3] == text.split("\n")[2:3]
    assert lines[-2:] == ["# EOF", ""]


def test_a_consumer_that_was_told_to_stop_is_not_ready_while_it_finishes() -> None:
    running = Running(lambda: None, lambda said: None)
    running.beat()
    assert running.status.ready

    running.ending(lambda: None)()
    running.beat()

    assert not running.status.ready
    assert running.status.moves


def test_a_consumer_whose_log_is_away_is_not_ready_until_it_is_back() -> None:
    running = Running(lambda: None, lambda said: None)

    ready = []
    for away in (False, True, False):
        running.beat(away=away)
        ready.append(running.status.ready)

    assert ready == [True, False, True]
    assert running.status.moves


@pytest.mark.slow
def test_figures_are_of_stored_rows_and_the_estimates_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(capsys)
    run("consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json", "--until-idle")
    rate = json.loads(run("estimate", "t.duckdb", "--by", "app", "--json")[1])[0]

    with Store("t.duckdb") as store:
        found = {one.name: one for one in figures(store, datetime(2026, 12, 24, tzinfo=UTC))}
        again = exposition(figures(store, datetime(2026, 12, 24, tzinfo=UTC)))

    assert again == exposition(found.values())
    assert not found["evaltap_pass_ratio"].samples
    with Store("t.duckdb") as store:
        ends = store.rows("SELECT max(started_at) FROM turns")[0][0].replace(tzinfo=UTC)
        found = {one.name: one for one in figures(store, ends)}
    key = (rate["slice"]["app"], "helpful", "7d")
    assert found["evaltap_pass_ratio"].samples[key] == pytest.approx(rate["rate"], abs=0.05)
    assert found["evaltap_cases_unscored"].samples[()] == 0


@pytest.mark.slow
def test_no_counter_falls_when_a_turn_is_revised(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, counted = runner(capsys), []
    command = (
        "consume",
        "--log",
        "r.log.db",
        "--db",
        "r.duckdb",
        "--metrics",
        "m.json",
        "--until-idle",
    )
    for revision, answer in ((1, "no"), (2, "done")):
        case = make_case("s", [make_turn(answer=answer)], conversation=[make_turn()])
        case["source"] = {"revision": revision}
        write_log(Path("r.log.db"), make_records([case], first_seq=revision))
        Path("m.json").write_text(json.dumps([RESPONSE]))
        run(*command)
        with Store("r.duckdb") as store:
            found = {one.name: one.samples for one in figures(store)}
        counted.append(
            {status: n for (*_, status), n in found["evaltap_turns_scored_total"].items()}
        )

    assert counted == [{"failed": 1}, {"failed": 1, "passed": 1}]


def test_figures_say_what_is_left_of_a_budget_and_how_near_an_alarm_is() -> None:
    rules = MonitorFile.model_validate(
        {"score": [{"name": "judged", "metrics": ["helpful"], "budget": {"usdPerDay": 5}},
                   {"name": "calls", "metrics": ["helpful"], "budget": {"callsPerDay": 5}}]}
    )  # fmt: skip
    with Store(":memory:") as store:
        columns = (
            "run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name,"
        )
        for metric, usd, days in (
            ("helpful", 0.5, 0), ("helpful", 4, 2), ("other", 4, 0), ("local", None, 0),
        ):  # fmt: skip
            store.execute(
                f"INSERT INTO judge_calls ({columns} sample_index, judge, status, cached, cost_usd,"
                " scored_at)"
                " VALUES ('r', 'a', '', 's', 't', 1, $metric, 0, 'judge', 'passed', false, $usd,"
                " (now() AT TIME ZONE 'UTC') - to_days($days))",
                {"metric": metric, "usd": usd, "days": days},
            )
        store.execute("INSERT INTO manifests (producer_id, highest_seq, drops, closing, stated_at, landed_at)"
                      " VALUES ('p', 3, '{}', false, now(), now())")  # fmt: skip
        found = {
            one.name: one.samples for one in figures(store, rules=rules, evidence={"helpful": 0.25})
        }

    assert found["evaltap_budget_left_usd"] == {("judged",): 4.5}
    costs = {metric: usd for (metric, _), usd in found["evaltap_judge_cost_usd_total"].items()}
    assert costs == {"helpful": 4.5, "other": 4}, "a cost that is not known is not 0"
    assert found["evaltap_watch_evidence_ratio"] == {("helpful",): 0.25}
    assert found["evaltap_turns_missing"] == {(): 3}


@pytest.mark.slow
def test_nothing_waits_for_metrics_that_were_taken_back_and_the_report_says_what_it_mixes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(capsys)
    consume = ("consume", "--log", "r.log.db", "--db", "r.duckdb", "--metrics", "m.json")
    for number, threshold in enumerate((1, 0.5, 1)):
        case = make_case(f"case-{number}", conversation=[make_turn()])
        write_log(Path("r.log.db"), make_records([case], first_seq=number + 1))
        Path("m.json").write_text(json.dumps([{**RESPONSE, "threshold": threshold}]))
        run(*consume, "--until-idle")

    assert (
        "rate of final_response_avg_score mixes 2 versions of the metric (2, 1 cases)"
        in run("report", "r.duckdb")[1]
    )
    with Store("r.duckdb") as store:
        assert oldest_unscored(store).cases == 0
        assert why(store, "case-2").complete


@pytest.mark.slow
def test_doctor_sees_what_waits_for_scores(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runner(capsys)
    run("consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json", "--until-idle")
    assert json.loads(run("doctor", "--db", "t.duckdb", "--json")[1])["unscored"]["cases"] == 0
    with Store("t.duckdb") as store:
        store.execute("DELETE FROM scores WHERE eval_id = 's-0-1'")
        store.execute("UPDATE cases SET landed_at = now()::TIMESTAMP - INTERVAL 1 HOUR"
                      " WHERE eval_id = 's-0-1'")  # fmt: skip

    said = json.loads(run("doctor", "--db", "t.duckdb", "--json")[1])["unscored"]

    assert said["cases"] == 1
    assert said["oldest_seconds"] >= 3_500
    assert "1 case without scores" in run("doctor", "--db", "t.duckdb")[1]
