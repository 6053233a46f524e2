"""Commands as evaluators, in several languages, including misbehaving ones."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.evaluator import CaseScorer, CostClass, MetricError, MetricOutcome, Registry
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.schemas import EvalMetric
from support.builders.cases import make_case, make_turn

WORDS = """
import json, sys
asked = json.load(sys.stdin)
rows = []
for turn in asked["turns"]:
    text = (turn["actual"].get("finalResponse") or {}).get("content")
    limit = asked["metric"]["extension"]["words"]
    rows.append({"score": None if text is None else float(len(text.split()) <= limit),
                 "reason": "" if text is None else f"{len(text.split())} words"})
print(json.dumps({"turns": rows}))
"""


def metric(*argv: str, **limits: Any) -> EvalMetric:
    return EvalMetric.model_validate(
        {
            "metricName": "external_command",
            "threshold": 1,
            "criterion": {"command": {"argv": [*argv], "timeoutSeconds": 20, **limits}},
            "extension": {"words": 2},
        }
    )


def score(one: EvalMetric, *answers: str | None) -> MetricOutcome:
    turns = [make_turn(answer=answer) for answer in answers or ("done",)]
    return CaseScorer([one]).score(make_case(turns=turns)).metrics[0]


def shell(script: str, **limits: Any) -> MetricOutcome:
    return score(metric("sh", "-c", script, **limits))


def python(script: str, **limits: Any) -> MetricOutcome:
    return score(metric(sys.executable, "-c", script, **limits))


def test_a_program_in_python_scores_each_turn() -> None:
    found = score(metric(sys.executable, "-c", WORDS), "done", None, "one two three")

    assert [turn.score for turn in found.turns] == [1, None, 0]
    assert [turn.reason for turn in found.turns] == [
        "1 words", "the command gave no score", "3 words"
    ]  # fmt: skip
    assert (found.status, found.score) == (Status.FAILED, 0.5)


def test_a_shell_script_may_give_one_score_for_all_turns() -> None:
    script = "if grep -q done; then echo '{\"score\": true}'; else echo '{\"score\": false}'; fi"

    assert [turn.score for turn in score(metric("sh", "-c", script), "done", "no").turns] == [1, 1]


def test_null_for_a_turn_is_nothing_to_score() -> None:
    found = shell("echo '{\"turns\": [null]}'")

    assert (found.status, found.reason) == (Status.NOT_EVALUATED, "the command gave no score")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("", "nothing; expected JSON like"),
        ("fine", "not JSON"),
        ('{"score": NaN}', "not JSON (NaN is not JSON)"),
        ("[1]", "found [1]; expected `turns` with 1"),
        ('{"turns": []}', "found 0 rows; expected `turns` with 1"),
        ('{"turns": [0.5]}', "turns[0] is 0.5; expected an object with `score`"),
        ('{"score": 1, "reason": 7}', "reason is 7; expected a text"),
        ('{"score": 1} {"score": 1}', "not JSON"),
    ],
)
def test_an_answer_that_is_none_is_an_error_and_no_score(output: str, told: str) -> None:
    found = shell(f"printf %s {shlex.quote(output)}")

    assert (found.status, found.score, found.error_type) == (Status.ERROR, None, "CommandError")
    assert told in found.reason


@pytest.mark.parametrize("value", ["1.5", "-1", '"1"', "[]"])
def test_a_score_that_is_none_is_an_error(value: str) -> None:
    found = shell(f"echo '{{\"score\": {value}}}'")

    assert (found.status, found.score) == (Status.ERROR, None)


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    witness = tmp_path / "pid"
    found = shell(f"sleep 300 & echo $! > {witness}; wait", timeoutSeconds=0.5)

    assert found.reason == "the command did not end within 0.5 s and was killed"
    assert _is_gone(int(witness.read_text()))


_LEFT = """
import os, signal, sys, threading, time
from evaltap.evaluator.scoring.evaluators.external.subprocess_runner import Limits, run_command

command = ("/bin/sh", "-c", "echo $$ > left.pid; exec sleep 60")
threading.Thread(target=run_command, args=(command, b"", Limits(1, 0), {}), daemon=True).start()
while not (os.path.exists("left.pid") and os.path.getsize("left.pid")):
    time.sleep(0.01)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ended", "killed"])
def test_a_command_that_hangs_does_not_outlive_who_ran_it(tmp_path: Path, how: str) -> None:
    subprocess.run([sys.executable, "-c", _LEFT, how], cwd=tmp_path, check=False)

    assert _is_gone(int((tmp_path / "left.pid").read_text()))


def test_a_child_that_is_left_behind_is_killed_and_not_waited_for(tmp_path: Path) -> None:
    witness = tmp_path / "pid"
    found = shell(f"sleep 300 & echo $! > {witness}; echo '{{\"score\": 1}}'")

    assert found.score == 1
    assert _is_gone(int(witness.read_text()))


def test_a_flood_of_output_is_cut_off() -> None:
    found = shell("yes")

    assert found.reason == "the command wrote more than 1048576 bytes and was killed"


def test_a_flood_of_errors_is_drained_and_its_end_is_told() -> None:
    found = python(
        "import sys; sys.stderr.write('x' * 5_000_000 + 'the end'); sys.exit(3)"
    )  # fmt: skip

    assert found.reason.startswith("the command ended with code 3; standard error: xxx")
    assert found.reason.endswith("the end")
    assert len(found.reason) < 600


def test_a_crash_tells_its_signal() -> None:
    assert shell("kill -SEGV $$").reason == "the command was ended by SIGSEGV"


def test_memory_is_limited() -> None:
    found = python("held = bytearray(400 << 20); print('{\"score\": 1}')", memoryMb=200)

    assert found.status is Status.ERROR
    assert "MemoryError" in found.reason
    assert python("held = bytearray(400 << 20); print('{\"score\": 1}')", memoryMb=0).score == 1


def test_a_command_that_does_not_read_its_input_is_no_problem() -> None:
    turns = [make_turn(answer="x" * 3_000_000)]

    found = CaseScorer([metric("sh", "-c", "echo '{\"score\": 1}'")]).score(make_case(turns=turns))

    assert found.metrics[0].score == 1


def test_large_input_and_output_pass_through_without_a_deadlock() -> None:
    script = (
        "import json, sys; text = json.load(sys.stdin)['turns'][0]['actual']['finalResponse']['content'];"
        "print(json.dumps({'score': 1, 'reason': text[:900_000]}))"
    )
    found = score(metric(sys.executable, "-c", script), "y" * 2_000_000)

    assert (found.score, len(found.turns[0].reason)) == (1, 900_000)


def test_only_named_variables_of_the_environment_are_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", "k-secret")
    monkeypatch.setenv("MY_LEXICON", "words.txt")
    tell = (
        "import json, os; print(json.dumps({'score': 1, 'reason': ' '.join(sorted(os.environ))}))"
    )

    found = python(tell, env=["MY_LEXICON"])

    names = found.turns[0].reason.split()
    assert "MY_LEXICON" in names
    assert "EVALTAP_JUDGE_API_KEY" not in names


def test_a_changed_script_has_another_version(tmp_path: Path) -> None:
    script = tmp_path / "score.sh"
    script.write_text("echo '{\"score\": 1}'")
    before = Registry().build(metric("sh", str(script))).version
    script.write_text("echo '{\"score\": 0}'")

    assert Registry().build(metric("sh", str(script))).version != before


def test_the_cost_of_a_command_is_what_its_metric_says() -> None:
    scorer = CaseScorer([metric("sh"), metric("sh", costClass="paid_judge")])

    assert scorer.cost_classes() == [CostClass.FREE, CostClass.PAID_JUDGE]


@pytest.mark.parametrize(
    ("criterion", "told"),
    [
        ({}, "argv is empty"),
        ({"argv": ["no-such-program-here"]}, "not a program on PATH"),
        ({"argv": ["sh"], "timeoutSeconds": 0.0}, "expected seconds above 0"),
        ({"argv": ["sh"], "memoryMb": -1}, "expected seconds above 0"),
        ({"argv": ["sh"], "costClass": "cheap"}, "costClass is 'cheap'"),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(criterion: dict[str, Any], told: str) -> None:
    data = {"metricName": "external_command", "criterion": {"command": criterion}}

    with pytest.raises(MetricError, match=told):
        Registry().build(EvalMetric.model_validate(data))


def _is_gone(pid: int) -> bool:
    """Wait until a process that was killed has gone; whoever inherits it may take a moment."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
    return False


def test_the_question_is_json_with_the_turns_in_pairs() -> None:
    echo = (
        "import json, sys; asked = json.load(sys.stdin);"
        "print(json.dumps({'score': 1, 'reason': json.dumps(asked)}))"
    )
    case = make_case(conversation=[make_turn(answer="expected")])

    found = CaseScorer([metric(sys.executable, "-c", echo)]).score(case).metrics[0]

    asked = orjson.loads(found.turns[0].reason)
    assert set(asked) == {"evalId", "metric", "turns", "sessionInput"}
    assert asked["turns"][0]["expected"]["finalResponse"]["content"] == "expected"
    assert asked["metric"]["extension"] == {"words": 2}
