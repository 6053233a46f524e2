"""The evaluator pages are accurate: examples build, code runs, every evaluator is described."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from evaltap.evaluator import CaseScorer, Evaluator, Registry
from evaltap.evaluator.scoring.evaluators.catalogue import described
from evaltap.schemas import EvalMetric

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted((DOCS / "reference/evaluators").glob("*.md"))
REFERENCE = "\n".join(page.read_text() for page in PAGES)
HOW_TO = (DOCS / "how-to/write-an-evaluator.md").read_text()
JUDGE = (DOCS / "how-to/judge.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_code_of_the_how_to_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec("\n".join(blocks(HOW_TO, "python")), {})

    assert capsys.readouterr().out == "failed 0.0 2 tool calls, at most 1\n"


def needs_deepeval(metric: EvalMetric) -> bool:
    """Tell whether a metric cannot be built here: DeepEval has an environment of its own."""
    absent = find_spec("deepeval") is None
    return absent and metric.criterion is not None and metric.criterion.deepeval is not None


def test_each_example_of_the_reference_page_is_a_metric_that_can_be_built() -> None:
    found = [EvalMetric.model_validate(json.loads(text)) for text in blocks(REFERENCE, "json")]
    metrics = [metric for metric in found if not needs_deepeval(metric)]

    assert len(CaseScorer(metrics).metrics) == len(metrics)


def test_each_judge_of_the_how_to_page_can_be_built() -> None:
    metrics = [EvalMetric.model_validate(json.loads(text)) for text in blocks(JUDGE, "json")]

    assert len(CaseScorer(metrics).metrics) == len(metrics) > 0


def test_each_installed_evaluator_has_a_section() -> None:
    sections = re.findall(r"^#{2,3} (\w+_\w+)$", REFERENCE, re.MULTILINE)

    assert sorted(sections) == Registry().names()


def test_metrics_prints_the_example_of_the_section() -> None:
    sections = re.split(r"^#{2,3} (\w+_\w+)$", REFERENCE, flags=re.MULTILINE)[1:]
    examples = {
        name: json.loads(blocks(text, "json")[0])
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }

    assert {one.name: one.example for one in described()} == examples


def test_each_section_has_an_example_that_keeps_the_protocol() -> None:
    sections = re.split(r"^#{2,3} (\w+_\w+)$", REFERENCE, flags=re.MULTILINE)[1:]

    for name, text in zip(sections[::2], sections[1::2], strict=True):
        example = EvalMetric.model_validate(json.loads(blocks(text, "json")[0]))
        assert (example.evaluator_name or example.metric_name) == name
        if needs_deepeval(example):
            continue  # tests/support/proofs/deepeval_proof.py builds it
        evaluator = Registry().build(example)
        assert isinstance(evaluator, Evaluator)
        assert (evaluator.name, bool(evaluator.version)) == (name, True)
