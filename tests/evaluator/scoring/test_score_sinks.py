"""The overall score of a case, and sinks that take scores besides the store."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, EvaluationContext, EvaluatorFailure, MetricScore, Registry
from evaltap.evaluator.scoring.contract.context import Status, TurnScore
from evaltap.schemas import EvalMetric
from support.builders.cases import make_case, make_turn

ANSWERED = {
    "metricName": "answered",
    "evaluatorName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "a", "type": "contains", "values": ["A-100"]}]}},
}
TOOLS = {
    "metricName": "tool_use",
    "threshold": 1,
    "weight": 3,
    "criterion": {"toolUse": {"tools": [{"name": "get_order"}]}},
}
UNSCORED = {
    "metricName": "completed_within",
    "threshold": 1,
    "criterion": {"operations": {"maxSeconds": 1}},
}


class Fixed:
    """An evaluator of somebody's own, with scores on any scale."""

    name, version = "fixed", "1"

    def __init__(self, score: float | None) -> None:
        self._score = score

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        if self._score is None:
            return EvaluatorFailure("broken", "Broken")
        turns = tuple(TurnScore(Status.PASSED, self._score) for _ in context.actual)
        return MetricScore(Status.PASSED, self._score, "", turns)


def overall(scores: Sequence[float | None], weights: Sequence[float | None] = ()) -> float | None:
    metrics = [
        EvalMetric(metric_name=f"m{place}", weight=weight)
        for place, weight in enumerate(weights or [None] * len(scores))
    ]
    made = {f"m{place}": Fixed(score) for place, score in enumerate(scores)}
    registry = Registry({name: partial(_made, one) for name, one in made.items()})
    return CaseScorer(metrics, registry=registry).score(make_case()).overall


def _made(evaluator: Fixed, metric: EvalMetric) -> Fixed:
    return evaluator


@pytest.mark.parametrize(
    ("scores", "weights", "wanted"),
    [
        ([1.0, 0.0], (), 0.5),
        ([1.0, 0.0], (3.0, None), 0.75),
        ([0.5, 80.0], (), 0.65),
        ([1.0, 101.0, -1.0], (), 1.0),
        ([1.0, None], (), 1.0),
        ([1.0, 0.0], (0.0, 1.0), 0.0),
        ([1.0, 1.0, 1.0], (0.1, 0.1, 0.1), 1.0),
        ([None], (), None),
        ([1.0], (0.0,), None),
    ],
)
def test_the_overall_score_is_the_weighted_mean_of_what_has_a_score(
    scores: list[float | None], weights: tuple[float | None, ...], wanted: float | None
) -> None:
    assert overall(scores, weights) == wanted


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    crashed = make_turn("t-2", telemetry={"status": "error"})
    cases = [
        make_case("good", turns=[make_turn(answer="A-100 is shipped")]),
        make_case("crashed", turns=[crashed]),
    ]
    Path("c.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    Path("m.json").write_text(json.dumps([ANSWERED, TOOLS, UNSCORED]))
    return tmp_path


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.usefixtures("files")
def test_a_file_gets_a_line_for_each_case_and_keeps_earlier_ones() -> None:
    arguments = ["score", "c.jsonl", "--metrics", "m.json", "--sink", "jsonl:scores.jsonl"]

    assert [main(arguments), main([*arguments, "--workers", "2"])] == [1, 1]

    good, crashed, *again = lines("scores.jsonl")
    assert len(again) == 2
    assert Path("scores.jsonl").stat().st_mode & 0o077 == 0, "it holds what users said"
    assert (good["overallScore"], crashed["overallScore"]) == (1, 0)
    assert good["inputSnapshot"] == [
        {"prompt": "Where is order A-100?", "response": "A-100 is shipped"}
    ]
    assert [one["score"] for one in good["results"]] == [1, 1, None]
    assert good["results"][0]["evaluatorType"] == "rule_avg_score"
    assert good["metadata"] == {"evalSetId": "c", "evalId": "good", "status": "passed"}
    assert good["evaluationConfigSnapshot"]["criteriaNames"][0] == "answered"


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_landed_cases_go_to_sinks_too(capsys: pytest.CaptureFixture[str]) -> None:
    from support.builders.cases import make_records, write_log

    write_log(Path("log.db"), make_records([make_case("s-1", turns=[make_turn(answer="A-100")])]))
    assert main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"]) == 0
    Path("m.json").write_text(json.dumps([ANSWERED, TOOLS]))

    code = main(["score", "x.duckdb", "--metrics", "m.json", "--sink", "jsonl:s.jsonl"])

    assert code == 0
    assert [(one["agentId"], one["overallScore"]) for one in lines("s.jsonl")] == [("app", 1)]


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ("jsonl:none/x.jsonl", "--sink jsonl:none/x.jsonl: FileNotFoundError: No such file"),
        ("jsnl:x", "--sink jsnl:x: unknown; did you mean 'jsonl'?"),
        ("jsonl:", "--sink jsonl:: names no file; expected jsonl:PATH"),
        ("mine:full", "--sink mine:full: RuntimeError: no room"),
    ],
)
def test_a_sink_that_cannot_take_scores_is_named(
    sink: str, said: str, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "c.jsonl", "--metrics", "m.json", "--sink", sink]) == 2

    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_a_package_provides_sinks(package: Path) -> None:
    assert main(["score", "c.jsonl", "--metrics", "m.json", "--sink", "mine:log.txt"]) == 1

    assert Path("log.txt").read_text() == "good crashed closed"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with a sink."""
    (tmp_path / "sink_of_a_stranger.py").write_text(
        "from pathlib import Path\n"
        "class Sink:\n"
        "    def __init__(self, path):\n"
        "        self.path, self.names = path, []\n"
        "    def write(self, scored):\n"
        "        if self.path == 'full':\n"
        "            raise RuntimeError('no room')\n"
        "        self.names.append(scored.identity.eval_id)\n"
        "    def close(self):\n"
        "        if self.names:\n"
        "            Path(self.path).write_text(' '.join([*self.names, 'closed']))\n"
    )
    about = tmp_path / "sink_of_a_stranger-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sink-of-a-stranger\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[evaltap.score_sinks]\nmine = sink_of_a_stranger:Sink\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path
