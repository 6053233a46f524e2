"""Cases that never finish under a metric: an error of that case, while the others are scored."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from attacks.programs import attack
from evaltap.evaluator import CaseScorer
from evaltap.evaluator.pipeline.live.status import heartbeat
from evaltap.evaluator.scoring.contract.context import EvaluationContext, MetricScore, Status
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.criteria.content.json_schema import compile_schema, schema_problem
from evaltap.evaluator.scoring.time_limit import WATCH, TookTooLongError
from evaltap.schemas import EvalMetric
from evaltap.schemas.errors import InputError
from support.builders.cases import make_case, make_turn

HOSTILE = "a" * 5_000 + "!"
EXPONENTIAL = r"^(\w+\s?)*$"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "pattern": EXPONENTIAL}, HOSTILE),
        ({"patternProperties": {EXPONENTIAL: False}}, {HOSTILE: 1}),
        ({"patternProperties": {EXPONENTIAL: {}}, "additionalProperties": False}, {HOSTILE: 1}),
        ({"propertyNames": {"pattern": EXPONENTIAL}}, {HOSTILE: 1}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"pattern": EXPONENTIAL}}}, HOSTILE),
        (
            {"$schema": "https://json-schema.org/draft/2020-12/schema",
             "properties": {"a": {"$ref": "#"}}, "pattern": EXPONENTIAL},
            {"a": HOSTILE},
        ),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": EXPONENTIAL}, HOSTILE),
    ],
)  # fmt: skip
def test_no_answer_decides_how_long_a_schema_takes(schema: Any, value: Any) -> None:
    started = time.monotonic()

    compile_schema(schema)(value)

    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ({"pattern": "^a+$"}, "aaa", True),
        ({"pattern": "^a+$"}, "aab", False),
        ({"pattern": "b"}, 7, True),
        ({"patternProperties": {"^x-": {"type": "integer"}}}, {"x-a": 1, "b": "c"}, True),
        ({"patternProperties": {"^x-": {"type": "integer"}}}, {"x-a": "1"}, False),
        ({"properties": {"a": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": False},
         {"a": 1, "x-b": 2}, True),
        ({"properties": {"a": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": False},
         {"a": 1, "c": 2}, False),
        ({"additionalProperties": {"type": "integer"}}, {"a": "1"}, False),
        ({"pattern": "\ud800"}, "\ud800", True),
    ],
)  # fmt: skip
def test_patterns_mean_what_they_meant(schema: Any, value: Any, valid: bool) -> None:
    assert (compile_schema(schema)(value) is None) == valid


def test_a_number_beyond_doubles_is_a_violation_and_no_error() -> None:
    found = compile_schema({"multipleOf": 0.1})(10**400)

    assert found == "json schema validation failed: a number is out of the range of doubles"


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "(?=a)b"},
        {"properties": {"a": {"items": {"pattern": "("}}}},
        {"patternProperties": {"^a": {}}, "unevaluatedProperties": False},
    ],
)
def test_a_pattern_that_is_not_linear_is_a_mistake_in_the_schema(schema: Any) -> None:
    assert "compile json schema" in str(schema_problem(schema))
    assert schema_problem({"const": {"pattern": "(?=a)b"}}) is None


class Endless:
    """Does not come back for one case."""

    name = version = "endless"

    def evaluate(self, context: EvaluationContext) -> MetricScore:
        while context.case.get("evalId") == "bad":
            try:
                time.sleep(0.01)
            except Exception:
                continue
        return MetricScore(Status.NOT_EVALUATED, None, "done", ())


def test_a_case_that_takes_too_long_is_an_error_and_the_next_is_scored() -> None:
    registry = Registry({"endless": lambda _: Endless()})
    metric = EvalMetric(metric_name="endless", threshold=0.5)
    scorer = CaseScorer([metric], registry=registry, case_seconds=0.2)

    bad = scorer.score(make_case("bad")).metrics[0]
    good = scorer.score(make_case("good")).metrics[0]

    assert bad.status is Status.ERROR
    assert "took longer than 0.2 s" in bad.reason
    assert good.status is not Status.ERROR or "took longer" not in good.reason


def test_nothing_is_raised_once_the_work_has_ended() -> None:
    for _ in range(200):
        work = None
        try:
            work = WATCH.begin(0.0001)
            WATCH.end(work)
        except TookTooLongError:  # this process had to wait meanwhile
            if work is not None:
                WATCH.end(work)
    time.sleep(0.3)


def test_a_profiler_works_after_a_case_was_interrupted() -> None:
    attack(
        """
import cProfile, time
from evaltap.evaluator.scoring.time_limit import WATCH, TookTooLongError
work = WATCH.begin(0.01)
try:
    try:
        while True:
            time.sleep(0.001)
    finally:
        WATCH.end(work)
except TookTooLongError:
    WATCH.end(work)
cProfile.Profile().runcall(lambda: None)
""",
        seconds=20,
    )


MANY_THREADS = """
import sys, threading
from evaltap.evaluator.scoring.time_limit import Watch

sys.setswitchinterval(1e-6)
watch, enough = Watch(), threading.Event()

def hold():
    watch.begin(60)
    enough.wait()

def come_and_go():
    for _ in range(4_000):
        passing = threading.Thread(target=lambda: watch.end(watch.begin(0.004)))
        passing.start()
        passing.join()

holding = [threading.Thread(target=hold, daemon=True) for _ in range(800)]
coming = [threading.Thread(target=come_and_go) for _ in range(3)]
for thread in holding + coming:
    thread.start()
for thread in coming:
    thread.join()
enough.set()
assert "evaltap-time-limit" in [thread.name for thread in threading.enumerate()]
"""


@pytest.mark.slow
def test_threads_that_begin_while_the_watch_looks_do_not_end_it() -> None:
    subprocess.run([sys.executable, "-c", MANY_THREADS], check=True, timeout=60)


FUNCTION = """
import time
def endless(actual, expected):
    while True:
        time.sleep(0.01)
def stuck(actual, expected):
    import re
    re.match(r"(a|aa)+$", "a" * 200 + "!")
"""


def function_metric(name: str) -> str:
    criterion = {"function": {"path": f"hostile_functions:{name}"}}
    metric = {"metricName": "python_function", "threshold": 0.5, "criterion": criterion}
    return json.dumps([metric])


@pytest.mark.slow
def test_a_process_that_is_no_service_any_more_does_not_end() -> None:
    attack("""
import time
from evaltap.evaluator.scoring import time_limit
time_limit.LEAST_PATIENCE = 0.5
with time_limit.WATCH.exit_when_stuck():
    time_limit.WATCH.end(time_limit.WATCH.begin(0.1))
import re
began = time.monotonic()
while time.monotonic() - began < 2:
    re.match(r"(a|aa)+$", "a" * 25 + "!")
""")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostile_functions.py").write_text(FUNCTION)
    cases = [make_case(f"s-{n}", turns=[make_turn()]) for n in range(2)]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    return tmp_path


PROGRAM = """
import sys
sys.path.insert(0, ".")
from evaltap.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

IMPATIENT = (
    """
from evaltap.evaluator.scoring import time_limit
time_limit.LEAST_PATIENCE = 1.0
"""
    + PROGRAM
)


@pytest.mark.slow
def test_a_function_that_never_returns_is_an_error_of_each_case(folder: Path) -> None:
    (folder / "m.json").write_text(function_metric("endless"))

    attack(
        PROGRAM, "score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb", "--case-seconds", "0.3",
        "--allow-code",
        code=3, gigabytes=6,
    )  # fmt: skip

    with duckdb.connect("x.duckdb", read_only=True) as store:
        found = store.execute("SELECT status, reason FROM scores").fetchall()
    assert [status for status, _ in found] == ["error", "error"]
    assert all("took longer than 0.3 s" in reason for _, reason in found)


@pytest.mark.slow
def test_a_case_that_holds_the_interpreter_ends_the_process_and_is_given_up(folder: Path) -> None:
    (folder / "m.json").write_text(function_metric("stuck"))
    log = ("--log", "agent.log.db")
    attack(PROGRAM, "record", "cases", "c.jsonl", *log)
    consume = (
        "consume",
        *log,
        "--db",
        "x.duckdb",
        "--metrics",
        "m.json",
        "--until-idle",
        "--allow-code",
    )

    deaths = 0
    for _ in range(8):
        done = subprocess.run(
            [sys.executable, "-c", IMPATIENT, *consume, "--case-seconds", "0.3"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if not (folder / "x.duckdb.scoring").exists():
            break
        assert "Timeout" in done.stderr
        deaths += 1

    assert deaths >= 2
    with duckdb.connect("x.duckdb", read_only=True) as store:
        found = store.execute("SELECT status, reason FROM scores").fetchall()
    assert [status for status, _ in found] == ["error", "error"]
    assert all("the process died" in reason for _, reason in found)


def test_the_heartbeat_goes_on_while_cases_come_and_stops_with_the_process(folder: Path) -> None:
    now = [0.0]
    beat = heartbeat(folder / "beat", lambda: now[0])
    written = (folder / "beat").stat().st_mtime_ns
    os.utime(folder / "beat", ns=(0, 0))

    beat()
    assert (folder / "beat").stat().st_mtime_ns == 0
    now[0] = 6.0
    beat()
    assert (folder / "beat").stat().st_mtime_ns >= written

    with pytest.raises(InputError, match="--heartbeat"):
        heartbeat(folder / "no" / "beat")
