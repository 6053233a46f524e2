"""The pytest plugin, in separate pytest runs: each case a test, distinct outcomes, explained mistakes."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from support.builders.cases import RESPONSE, RUBRIC, TRAJECTORY, make_case, make_tool, make_turn

pytest_plugins = ["pytester"]

Run = Callable[..., pytest.RunResult]


def case(eval_id: str, *made: dict[str, Any], **given: Any) -> dict[str, Any]:
    turn = make_turn(tools=list(made) or [make_tool()], **given)
    return make_case(eval_id, [turn], conversation=[make_turn()])


CASES = [
    case("good"),
    case("bad", make_tool(arguments={"order_id": "B"}), make_tool("send")),
    case("hidden", capture={"finalResponse": "redacted"}),
    make_case("broken", conversation=[make_turn(), make_turn()]),
]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a test file beside `cases.jsonl` and `metrics.json` in a pytest of its own.

    Only the first test and that of the workers find the plugin as users do, by its entry point: loading
    everybody's plugins takes seconds.
    """
    for name in ("BASE_URL", "MODEL", "API_KEY"):
        monkeypatch.delenv(f"EVALTAP_JUDGE_{name}", raising=False)
    folder = pytester.path / "suite"
    folder.mkdir()
    (folder / "cases.jsonl").write_text("".join(json.dumps(one) + "\n" for one in CASES))
    (folder / "metrics.json").write_text(json.dumps([TRAJECTORY, RESPONSE]))

    def run_it(test: str, *arguments: str, found: bool = False) -> pytest.RunResult:
        (folder / "test_it.py").write_text(test)
        if not found:
            monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            arguments = ("-p", "evaltap.evaluator.pytest_plugin", *arguments)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-v", "-rA", *arguments)

    return run_it


MARKED = """
import pytest

@pytest.mark.evaltap(cases="cases.jsonl", metrics="metrics.json"{more})
def test_agent():
    pass
"""


@pytest.mark.slow
def test_a_case_whose_run_failed_fails_its_test_and_names_the_error(
    run: Run, pytester: pytest.Pytester
) -> None:
    failed = {"status": "error", "error": {"type": "TimeoutError", "message": "agent died"}}
    path = pytester.path / "suite" / "cases.jsonl"
    path.write_text(json.dumps(case("crashed", telemetry=failed)) + "\n")

    result = run(MARKED.format(more=""))

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the run failed (TimeoutError: agent died)*"])


@pytest.mark.slow
def test_each_case_is_a_test_named_by_its_id_with_an_outcome_of_its_own(run: Run) -> None:
    result = run(MARKED.format(more=""), found=True)

    result.assert_outcomes(passed=1, failed=1, skipped=1, errors=1)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED suite/test_it.py::test_agent[[]good]",
            "FAILED suite/test_it.py::test_agent[[]bad]*",
            "ERROR suite/test_it.py::test_agent[[]broken]*",
            "SKIPPED*eval case cases/hidden: 1 of 2 metrics did not pass",
        ]
    )


@pytest.mark.slow
def test_metrics_may_be_names_and_functions_as_in_python(run: Run) -> None:
    made = """
import pytest

def is_polite(turn, expected):
    return False

@pytest.mark.evaltap(cases="cases.jsonl", metrics=["trajectory_exact", is_polite])
def test_agent():
    pass
"""
    result = run(made, "-k", "good")

    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(
        ["eval case cases/good: 1 of 2 metrics did not pass", "  is_polite failed, score 0*"]
    )


@pytest.mark.slow
def test_a_failure_tells_metric_score_threshold_reason_and_the_calls(run: Run) -> None:
    result = run(MARKED.format(more=""), "-k", "bad")

    result.stdout.fnmatch_lines(
        [
            "eval case cases/bad: 1 of 2 metrics did not pass",
            "  tool_trajectory_avg_score failed, score 0, threshold 1",
            "    turn 1 failed: 2 tool calls, expected 1",
            "  turn 1, tool calls (- expected, + made):",
            '  ! get_order({"order_id":"B"})',
            "  !     order_id: expected 'A-100', found 'B'",
            '  + send({"order_id":"A-100"})',
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert "pytest_plugin.py" not in result.stdout.str()


@pytest.mark.slow
def test_strict_and_thresholds_are_for_the_marker_to_say_before_the_ini_file(run: Run) -> None:
    marks = {
        "strict": ", strict=True",
        "lenient": ", strict=False",
        "by_ini": "",
        "low": ', strict=False, thresholds={"tool_trajectory_avg_score": 0}',
    }
    tests = [
        MARKED.format(more=more).replace("test_agent", f"test_{name}")
        for name, more in marks.items()
    ]

    result = run("".join(tests), "-k", "hidden or bad", "-o", "evaltap_strict=true")

    assert outcomes(result) == {
        "test_strict[bad]": "FAILED",
        "test_strict[hidden]": "FAILED",
        "test_lenient[bad]": "FAILED",
        "test_lenient[hidden]": "SKIPPED",
        "test_by_ini[bad]": "FAILED",
        "test_by_ini[hidden]": "FAILED",
        "test_low[bad]": "PASSED",
        "test_low[hidden]": "SKIPPED",
    }


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    """Return the outcome of each test of a verbose run."""
    lines = (line.split() for line in result.outlines if "::test_" in line and "%]" in line)
    return {line[0].rpartition("::")[2]: line[1] for line in lines}


@pytest.mark.slow
def test_the_body_of_a_marked_test_sees_the_scored_case_and_may_fail_it(run: Run) -> None:
    result = run(
        """
import pytest

@pytest.mark.evaltap(cases="cases.jsonl", metrics="metrics.json")
def test_agent(evaltap_case):
    assert evaltap_case.eval_id != "good", "no good"
"""
    )

    result.assert_outcomes(failed=2, skipped=1, errors=1)
    result.stdout.fnmatch_lines(["*AssertionError: no good*"])


PRODUCED = """
import json, pytest
from pathlib import Path

HERE = Path(__file__).parent
CASES = {case["evalId"]: case for case in map(json.loads, open(HERE / "cases.jsonl"))}
METRICS = json.loads((HERE / "metrics.json").read_text())

def test_file(evaltap_score):
    assert evaltap_score(CASES["good"], "metrics.json").status == "passed"

def test_list(evaltap_score):
    evaltap_score(CASES["good"], METRICS)

def test_bad(evaltap_score):
    evaltap_score(CASES["bad"], METRICS)

def test_broken(evaltap_score):
    evaltap_score(CASES["broken"], METRICS)

def test_hidden(evaltap_score):
    evaltap_score(CASES["hidden"], METRICS)

def test_strict(evaltap_score):
    evaltap_score(CASES["hidden"], METRICS, strict=True)

def test_low(evaltap_score):
    evaltap_score(CASES["bad"], METRICS, thresholds={"tool_trajectory_avg_score": 0})

def test_lost(evaltap_case):
    pass
"""


@pytest.mark.slow
def test_a_case_made_in_the_test_is_scored_by_the_fixture(run: Run) -> None:
    result = run(PRODUCED)

    assert outcomes(result) == {
        "test_file": "PASSED",
        "test_list": "PASSED",
        "test_bad": "FAILED",
        "test_broken": "FAILED",
        "test_hidden": "SKIPPED",
        "test_strict": "FAILED",
        "test_low": "PASSED",
        "test_lost": "ERROR",
    }
    result.stdout.fnmatch_lines(["*evaltap_case needs @pytest.mark.evaltap(cases=*"])


@pytest.mark.slow
def test_the_fixture_takes_what_is_left_out_from_the_marker_and_a_judge_from_the_test(
    run: Run,
) -> None:
    result = run(
        f"""
import json, pytest
from evaltap.evaluator import ScriptedJudge, Services
from evaltap.schemas import EvalCase

judge = ScriptedJudge(lambda request: json.dumps(
    {{"rubricScores": [{{"id": "1", "score": 1, "reason": "named"}}]}}))
CASE = EvalCase.model_validate({make_case()!r})

@pytest.mark.evaltap(metrics=[{RUBRIC!r}], services=Services(judge=lambda _: judge))
def test_it(evaltap_score):
    report = evaltap_score(CASE)
    assert [vote.reason for cell in report.cells for vote in cell.votes] == ["named"]

@pytest.mark.evaltap(metrics=[{RUBRIC!r}])
def test_without_a_judge(evaltap_score):
    evaltap_score(CASE)
"""
    )

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*eval case s-1: 1 of 1 metrics did not pass"])


MISTAKES = {
    'cases="none.jsonl", metrics="metrics.json"': "none.jsonl: no such file",
    'cases="empty.jsonl", metrics="metrics.json"': "empty.jsonl: contains no eval cases; add at least one",
    'cases="cases.jsonl", metrics="none.json"': "none.json: no such file",
    'cases="cases.jsonl"': "no metrics; name a metrics file or a list of metrics",
    'case="cases.jsonl"': "evaltap has no argument 'case'; known: cases, metrics",
    '"cases.jsonl"': "evaltap has no argument one without a name",
    'cases="cases.jsonl", metrics="metrics.json", thresholds={"x": 1}': (
        "threshold of 'x': no metric has this name; metrics: tool_trajectory_avg_score"
    ),
}


@pytest.mark.slow
def test_a_mistake_is_a_message_and_no_traceback(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "suite/empty.jsonl").write_text("")
    for number, marker in enumerate(MISTAKES):
        text = f"import pytest\n@pytest.mark.evaltap({marker})\ndef test_it(): pass\n"
        (pytester.path / f"suite/test_mistake_{number}.py").write_text(text)

    result = run("", "--continue-on-collection-errors")

    said = result.stdout.str()
    result.assert_outcomes(errors=4 + 3 * len(CASES))
    assert [message for message in MISTAKES.values() if message not in said] == []
    assert "Traceback" not in said
    assert "another exception" not in said
    assert "site-packages" not in said
    assert "pytest_plugin.py" not in said


@pytest.mark.slow
def test_the_marker_is_declared_and_tests_without_it_are_left_alone(run: Run) -> None:
    result = run("def test_it(): pass\n", "--strict-markers")

    result.assert_outcomes(passed=1)
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.evaltap(cases, metrics, *"])


@pytest.mark.slow
def test_cases_are_shared_out_to_several_workers(run: Run) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")

    run(MARKED.format(more=""), "-n", "2", found=True).assert_outcomes(
        passed=1, failed=1, skipped=1, errors=1
    )


def test_a_pytest_that_does_not_use_the_plugin_imports_nothing_of_evaltap() -> None:
    program = (
        "import sys, pytest, evaltap.evaluator.pytest_plugin\n"
        "heavy = {'pydantic', 'duckdb', 'orjson', 'jinja2', 'rich', 'openai', 'msgspec'}\n"
        "ours = sorted(name for name in sys.modules if name.startswith('evaltap.'))\n"
        "print(sorted(heavy & set(sys.modules)), ours)"
    )

    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert found.stdout.split("] ") == [
        "[",
        "['evaltap.evaluator', 'evaltap.evaluator.pytest_plugin']\n",
    ]
