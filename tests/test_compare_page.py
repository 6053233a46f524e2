"""What the page for those who come from other tools shows: commands, metrics and a program that run."""

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import build_parser, named
from evaltap.evaluator import Gate, Registry
from evaltap.evaluator.scoring.settings import checked
from evaltap.schemas import EvalMetric
from support.builders.cases import make_case, make_turn

PAGE = (Path(__file__).parents[1] / "docs/explanation/compare-with-others.md").read_text("utf-8")
SPANS = re.findall(r"`([^`\n]+)`", PAGE)
COMMANDS = [one for one in SPANS if re.match(r"evaltap [a-z]+ .*[./-]", one)]
METRICS = [json.loads(one) for one in SPANS if one.startswith('{"metricName"')]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_has_these_options(command: str) -> None:
    _, *arguments = shlex.split(command)
    name = named(arguments)

    parsed = build_parser(name).parse_command(arguments)

    assert parsed.command == name.split()[-1]


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: one["metricName"])
def test_every_metric_of_the_page_can_be_built(metric: dict[str, Any]) -> None:
    if metric.get("evaluatorName") == "deepeval_metric" and find_spec("deepeval") is None:
        pytest.skip("DeepEval is not installed")

    assert Registry().build(checked(EvalMetric.model_validate(metric))).version


def test_the_page_shows_a_row_for_all_that_it_promises() -> None:
    assert len(COMMANDS) >= 12
    assert len(METRICS) >= 14
    assert Gate(json.loads(next(one for one in SPANS if one.startswith('{"preset"')))).thresholds


def test_the_program_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    text = {"compareName": "same_words"}
    metric = {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": text}},
    }
    case = make_case(turns=[make_turn(answer="a b")], conversation=[make_turn(answer="b a")])

    exec(program, {"metrics": [EvalMetric.model_validate(metric)], "case": case})

    assert capsys.readouterr().out == "passed 1.0\n"
