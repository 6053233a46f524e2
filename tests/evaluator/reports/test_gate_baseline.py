"""A gate with a baseline: regressions fail it, known failures do not; and the commands of the how-to."""

import json
import re
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from support.builders.cases import make_case, make_turn
from support.builders.commands import Evaltap

HOW_TO = Path(__file__).parents[3] / "docs/how-to/gate-a-pull-request.md"


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    """Run a command in an empty folder with a gate; return its exit code, its output and its errors."""
    Path("gate.json").write_text(json.dumps({"dimensions": [dimension("correctness", "done")]}))

    return evaltap


def dimension(name: str, word: str, threshold: float = 1) -> dict[str, Any]:
    return {
        "name": name,
        "threshold": threshold,
        "metrics": [
            {
                "metricName": f"says {word}",
                "evaluatorName": "rule_avg_score",
                "criterion": {
                    "rules": {"rules": [{"id": "1", "type": "contains", "values": [word]}]}
                },
            }
        ],
    }


def rounds(
    name: str, *, broken: Collection[int] = (), flaky: Collection[int] = (), of: int = 5
) -> list[str]:
    """Write the cases of several rounds; a flaky case fails every other time."""
    files = []
    for at in range(of):
        cases = []
        for number in range(12):
            fails = number in broken or (number in flaky and at % 2 == 0)
            turn = make_turn(answer="no" if fails else "done")
            telemetry = {"latencyMs": 900 + number, "costUsd": 0.01}
            case = make_case(f"c-{number:02}", [turn | {"telemetry": telemetry}])
            cases.append(case | {"evalSetId": "golden"})
        files.append(f"{name}-{at}.jsonl")
        Path(files[-1]).write_text("".join(json.dumps(case) + "\n" for case in cases))
    return files


GATE = ("--gate", "gate.json")


def baseline(evaltap: Evaltap, *files: str) -> str:
    code, _, _ = evaltap("gate", *files, *GATE, "--write-baseline", "b.json", "--fail-on", "never")
    assert code == 0
    return "b.json"


def test_a_baseline_of_other_metrics_is_refused_before_anything_runs(evaltap: Evaltap) -> None:
    known = baseline(evaltap, *rounds("main", of=1))
    Path("gate.json").write_text(json.dumps({"dimensions": [dimension("safety", "bye")]}))

    code, _, said = evaltap("gate", "gone.jsonl", *GATE, "--baseline", known)

    assert code == 2
    assert "no metric is in both: b.json has correctness, the gate has safety, says bye" in said


@pytest.mark.slow
def test_a_known_failure_shuts_the_gate_unless_only_regressions_do(evaltap: Evaltap) -> None:
    files = rounds("main", broken={3}, flaky={4})
    known = baseline(evaltap, *files)

    assert evaltap("gate", *files, *GATE)[0] == 1
    assert evaltap("gate", *files, *GATE, "--baseline", known)[0] == 1
    code, out, _ = evaltap("gate", *files, *GATE, "--baseline", known, "--fail-on", "regressed")
    assert code == 0
    assert "still failing (1)" in out


@pytest.mark.slow
def test_what_breaks_shuts_it_and_is_named(evaltap: Evaltap) -> None:
    known = baseline(evaltap, *rounds("main", broken={3}, flaky={4}))
    files = rounds("pr", broken={3, 7}, flaky={4})

    code, out, _ = evaltap(
        "gate", *files, *GATE, "--baseline", known, "--fail-on", "regressed", "--json"
    )

    found = json.loads(out)
    assert (code, found["exit_code"], found["comparison"]["verdict"]) == (1, 1, "regression")
    changes = {case["eval_id"]: case["change"] for case in found["comparison"]["cases"]}
    assert {name for name, change in changes.items() if change == "regressed"} == {"c-07"}
    assert changes["c-04"] == "flaky"
    assert found["comparison"]["usage"][0]["ratio"] == pytest.approx(1, abs=1e-3)


def test_a_head_that_lacks_cases_of_the_baseline_is_undecided_unless_that_is_allowed(
    evaltap: Evaltap,
) -> None:
    known = baseline(evaltap, *rounds("main"))
    command = ("gate", *rounds("pr"), *GATE, "--baseline", known, "--fail-on", "regressed")
    for path in rounds("pr"):
        lines = Path(path).read_text().splitlines()
        Path(path).write_text("\n".join(lines[:3]) + "\n")

    code, out, _ = evaltap(*command)
    assert code == 3
    assert "9 of 12 cases of base are not in head" in out
    assert evaltap(*command, "--subset")[0] == 0


@pytest.mark.slow
def test_every_form_of_baseline_gives_the_same_verdict(evaltap: Evaltap) -> None:
    files = rounds("main", broken={3})
    evaltap("gate", *files, *GATE, "--db", "main.duckdb", "--write-baseline", "b.json")
    evaltap("runs", "export", "main.duckdb", "--out", "main.scores.jsonl")
    (run,) = json.loads(evaltap("runs", "main.duckdb", "--json")[1])
    head = rounds("pr", broken={3, 7})

    found = []
    for form in ("b.json", "main.duckdb", f"main.duckdb#{run['run_id']}", "main.scores.jsonl"):
        code, out, _ = evaltap("gate", *head, *GATE, "--baseline", form, "--json")
        comparison = json.loads(out)["comparison"]
        found.append((code, comparison["p_value"], comparison["base"]["trials"]))

    assert found == [(1, found[0][1], 60)] * 4


@pytest.mark.slow
def test_a_run_of_the_same_store_is_a_baseline(evaltap: Evaltap) -> None:
    evaltap("gate", *rounds("main"), *GATE, "--db", "x.duckdb")
    (run,) = json.loads(evaltap("runs", "x.duckdb", "--json")[1])

    code, out, _ = evaltap(
        "gate", *rounds("pr", broken={1}), *GATE,
        "--db", "x.duckdb", "--baseline", run["run_id"], "--json",
    )  # fmt: skip

    assert code == 1
    assert json.loads(out)["comparison"]["base"]["trials"] == 60
    assert evaltap("gate", *rounds("pr"), *GATE, "--baseline", "x.duckdb")[0] == 0


@pytest.mark.slow
def test_thresholds_of_now_hold_for_both_sides(evaltap: Evaltap) -> None:
    files = rounds("main", broken=range(12))
    evaltap("gate", *files, *GATE, "--db", "main.duckdb")

    Path("gate.json").write_text(json.dumps({"dimensions": [dimension("correctness", "done", 0)]}))
    code, out, _ = evaltap("gate", *files, *GATE, "--baseline", "main.duckdb", "--json")

    assert code == 0
    assert json.loads(out)["comparison"]["base"]["rate"] == 1


@pytest.mark.slow
def test_counts_under_another_threshold_are_not_compared(evaltap: Evaltap) -> None:
    files = rounds("main", broken=range(12))
    lenient = json.dumps({"dimensions": [dimension("correctness", "done", 0)]})
    strict = Path("gate.json").read_text()
    Path("gate.json").write_text(lenient)
    known = baseline(evaltap, *files)
    evaltap("gate", *files, *GATE, "--db", "lenient.duckdb")
    Path("gate.json").write_text(strict)
    evaltap("gate", *files, *GATE, "--db", "strict.duckdb")

    code, _, error = evaltap("gate", *files, *GATE, "--baseline", known, "--fail-on", "regressed")

    assert code == 2
    assert "'correctness' differs between the sides (thresholds 0 and 1)" in error
    assert evaltap("compare", "lenient.duckdb", "strict.duckdb")[0] == 2


@pytest.mark.slow
def test_another_rule_is_not_compared_silently(evaltap: Evaltap) -> None:
    known = baseline(evaltap, *rounds("main"))
    Path("gate.json").write_text(json.dumps({"dimensions": [dimension("correctness", "on")]}))

    code, _, error = evaltap("gate", *rounds("pr"), *GATE, "--baseline", known)

    assert code == 2
    assert "--across-metrics" in error


@pytest.mark.slow
@pytest.mark.parametrize(("wanted", "code"), [("0.7", 0), ("0.9", 3), ("1", 1)])
def test_a_least_pass_rate_replaces_that_every_case_must_pass(
    evaltap: Evaltap, wanted: str, code: int
) -> None:
    found, _, said = evaltap("gate", *rounds("main", broken={3}), *GATE, "--min-pass-rate", wanted)

    assert found == code
    assert "91.7% pass" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fail-on", "regressed"), "add --baseline"),
        (("--report", "r.md"), "add --baseline"),
        (("--baseline", "none.json"), "no such file"),
        (("--write-baseline", "b.txt"), "expected a .json file"),
        (("--min-pass-rate", "90"), "a share from 0 to 1"),
    ],
)
def test_what_makes_no_sense_is_refused(
    evaltap: Evaltap, arguments: tuple[str, ...], message: str
) -> None:
    code, _, error = evaltap("gate", *rounds("pr", of=1), *GATE, *arguments)

    assert code == 2
    assert message in error


# The how-to.


def shown_commands() -> list[list[str]]:
    """Return the commands of the page; those of its workflow are run with the action."""
    text = HOW_TO.read_text("utf-8")
    lines = [
        line
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
        for line in block.replace("$ ", "").splitlines()
    ]
    return [shlex.split(line)[1:] for line in lines if line.startswith("evaltap ")]


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "code"), [((), 0), ((7,), 1)])
def test_the_commands_of_the_how_to_work(
    evaltap: Evaltap, broken: tuple[int, ...], code: int
) -> None:
    rounds("main", broken={3})
    rounds("pr", broken={3, *broken})
    commands = [
        [file for word in command for file in (sorted(map(str, Path().glob(word))) or [word])]
        for command in shown_commands()
    ]

    codes = [evaltap(*command)[0] for command in commands]

    assert codes == [0, code]
    assert Path("pr.md").read_text().startswith("## ❌ worse" if broken else "## ✅")
    assert Path("junit.xml").exists()


def test_the_options_that_the_how_to_names_exist(evaltap: Evaltap) -> None:
    _, text, _ = evaltap("gate", "--help")

    for option in set(re.findall(r"`(--[a-z-]+)", HOW_TO.read_text("utf-8"))):
        assert option in text, option


@pytest.mark.slow
def test_slices_inform_beside_the_verdict_of_the_gate(evaltap: Evaltap) -> None:
    b = baseline(evaltap, *rounds("main"))
    code, out, _ = evaltap("gate", *rounds("pr", broken=[3]), *GATE, "--baseline", b,
                           "--fail-on", "regressed", "--by", "tool,language",
                           "--report", "x.json")  # fmt: skip

    found = json.loads(Path("x.json").read_text())
    assert code == 1
    assert {(one["by"], one["base"]["cases"]) for one in found["strata"]} == {
        ("tool", 12),
        ("language", 12),
    }
    assert "slices (for information only)" in out


@pytest.mark.slow
def test_equal_verdicts_of_trials_are_printed_once(evaltap: Evaltap) -> None:
    _, out, _ = evaltap("gate", *rounds("main", broken=[3], flaky=[5]), *GATE)

    assert "52 of 60 trials of 12 cases passed the gate" in out
    assert out.count("c-03: failed in 5 of 5 trials") == 1
    assert out.count("c-05: failed in 3 of 5 trials") == 1


@pytest.mark.slow
def test_a_case_without_a_verdict_in_the_baseline_is_not_new(evaltap: Evaltap) -> None:
    (file,) = rounds("main", of=1)
    with Path(file).open("a") as lines:
        lines.write(
            json.dumps(make_case("open", [make_turn(answer=None)], evalSetId="golden")) + "\n"
        )

    out = evaltap("gate", file, *GATE, "--baseline", baseline(evaltap, file))[1]

    assert "without a verdict on one side (1)\n  open " in out
    assert "only in head" not in out


def test_a_baseline_without_verdicts_is_pointed_out(evaltap: Evaltap) -> None:
    case = make_case("c-1", [make_turn(answer="done")])
    del case["sessionInput"]
    Path("bare.jsonl").write_text(json.dumps(case) + "\n")

    _, _, err = evaltap("gate", "bare.jsonl", *GATE, "--write-baseline", "b.json")

    assert "b.json has no verdicts" in err
