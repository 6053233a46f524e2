"""Untrusted metrics files that name programs and functions: none of them runs before it is allowed."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from support.builders.cases import make_case, make_turn

COMMAND = {"argv": ["sh", "-c", "touch ran; echo '{\"score\": 1}'"]}
CRITERIA: dict[str, dict[str, Any]] = {
    "external_command": {"command": COMMAND},
    "python_function": {"function": {"path": "stranger:function"}},
    "deepeval_metric": {"deepeval": {"metric": "stranger:Metric"}},
    "tool_use": {"toolUse": {"tools": [{"name": "x", "function": "stranger:function"}]}},
    "final_response_avg_score": {"finalResponse": {"text": {"compareName": "stranger:function"}}},
}
NAMES = {
    "final_response_avg_score": "criterion.finalResponse.text.compareName: stranger:function)",
    "tool_use": "criterion.toolUse.tools[0].function: stranger:function)",
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALTAP_ALLOW_CODE", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("stranger.py").write_text("open('ran', 'w').close()\ndef function(a, b): return True\n")
    case = make_case(turns=[make_turn()], conversation=[make_turn()])
    Path("c.jsonl").write_text(json.dumps(case) + "\n")


def metric(evaluator: str, name: str) -> dict[str, Any]:
    routed = {} if name == evaluator else {"evaluatorName": evaluator}
    return {"metricName": name, "threshold": 0.5, "criterion": CRITERIA[evaluator], **routed}


def in_a_suite(one: dict[str, Any]) -> dict[str, Any]:
    suite = {"suite": {"metrics": [one]}}
    return {"metricName": "metric_suite", "threshold": 0.5, "criterion": suite}


@pytest.mark.parametrize("evaluator", CRITERIA)
@pytest.mark.parametrize("shape", ["plain", "routed", "suite", "suite in a suite"])
@pytest.mark.parametrize("command", ["score", "consume", "gate", "calibrate"])
def test_nothing_runs_before_it_is_allowed(
    evaluator: str, shape: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = metric(evaluator, evaluator if shape == "plain" else "harmless")
    for _ in range(shape.count("suite")):
        one = in_a_suite(one)
    Path("m.json").write_text(json.dumps([one]))
    Path("g.json").write_text(
        json.dumps({"dimensions": [{"name": "a", "threshold": 1, "metrics": [one]}]})
    )
    Path("l.csv").write_text("evalId,label\ns-1,pass\n")
    arguments = {
        "score": ["score", "c.jsonl", "--metrics", "m.json"],
        "consume": ["consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle"],
        "gate": ["gate", "c.jsonl", "--gate", "g.json"],
        "calibrate": ["calibrate", "l.csv", "--metrics", "m.json", "--cases", "c.jsonl"],
    }  # fmt: skip

    assert main(arguments[command]) == 2

    assert not Path("ran").exists()
    said = capsys.readouterr().err
    assert NAMES.get(evaluator, f"runs code ({evaluator})") in said
    assert "--allow-code" in said


@pytest.mark.parametrize("how", ["option", "environment"])
@pytest.mark.parametrize(
    "evaluator", ["external_command", "python_function", "final_response_avg_score"]
)
def test_who_allows_it_has_it_run(
    evaluator: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("m.json").write_text(json.dumps([metric(evaluator, "mine")]))
    if how == "environment":
        monkeypatch.setenv("EVALTAP_ALLOW_CODE", "1")
    monkeypatch.delitem(__import__("sys").modules, "stranger", raising=False)

    code = main(
        ["score", "c.jsonl", "--metrics", "m.json", *(["--allow-code"] if how == "option" else [])]
    )

    assert code == 0
    assert Path("ran").exists()
