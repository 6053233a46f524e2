"""How much other libraries take to compare the tool calls of the same cases, in processor time.

Each library runs in a process and a virtual environment of its own, which needs orjson too.  `--venv` names
one that exists, `--create` makes the others in a temporary folder with pip; what is missing is reported.
A turn scores 1 if the names and arguments of its calls equal the reference in order; the mean over all turns
must be the same everywhere.  The floor, orjson and a comparison of dictionaries, runs in the same process.

    python docs/benchmarks/peers.py [--cases 2000] [--create] [--venv deepeval=/venvs/deepeval]
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import orjson

Json = Any
Score = Callable[[Sequence[bytes]], Iterable[float]]
"""Returns the score of each case."""


def pairs(line: bytes) -> list[tuple[Json, Json]]:
    """Return the actual and the expected turns of a case."""
    case = orjson.loads(line)
    return [*zip(case["actualConversation"], case["conversation"], strict=True)]


def calls(turn: Json) -> list[tuple[str, Json]]:
    return [(one["name"], one["arguments"]) for one in turn["tools"]]


def mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores)


def floor(lines: Sequence[bytes]) -> Iterable[float]:
    return [mean([calls(one) == calls(other) for one, other in pairs(line)]) for line in lines]


def evaltap() -> Score:
    from evaltap.evaluator import CaseScorer
    from evaltap.evaluator.cases.outline import lazy_case
    from evaltap.schemas.files.documents import metrics_of, read_case

    strategy = {"orderSensitive": True, "defaultStrategy": {"name": {}, "arguments": {}}}
    metric = {
        "metricName": "tool_trajectory_avg_score",
        "threshold": 1,
        "criterion": {"toolTrajectory": strategy},
    }
    scorer = CaseScorer(metrics_of([metric]))
    return lambda lines: [
        scorer.score(lazy_case(line) or read_case(line)).metrics[0].score or 0.0 for line in lines
    ]


def google_adk() -> Score:
    case = import_module("google.adk.evaluation.eval_case")
    evaluator = import_module("google.adk.evaluation.trajectory_evaluator").TrajectoryEvaluator
    return adk_like(evaluator, case, import_module("google.genai.types"))


def adk_like(evaluator: Any, case: Any, types: Any) -> Score:
    """Return the scores by the classes of google-adk, or of a library with the same ones."""
    trajectory = evaluator(threshold=1.0)

    def text(role: str, message: Json) -> Any:
        return types.Content(role=role, parts=[types.Part(text=message["content"])])

    def made(turn: Json) -> Any:
        tools = [types.FunctionCall(name=name, args=given) for name, given in calls(turn)]
        return case.Invocation(
            user_content=text("user", turn["userContent"]),
            final_response=text("model", turn["finalResponse"]),
            intermediate_data=case.IntermediateData(tool_uses=tools),
        )

    def score(lines: Sequence[bytes]) -> Iterable[float]:
        for line in lines:
            actual, expected = zip(*pairs(line), strict=True)
            found = trajectory.evaluate_invocations([*map(made, actual)], [*map(made, expected)])
            yield found.overall_score or 0.0

    return score


def pydantic_evals() -> Score:
    evals = import_module("pydantic_evals")

    class Exact(import_module("pydantic_evals.evaluators").Evaluator):  # type: ignore[misc]  # not installed here
        def evaluate(self, ctx: Any) -> float:
            turns = zip(ctx.output, ctx.expected_output, strict=True)
            return mean([one == other for one, other in turns])

    def score(lines: Sequence[bytes]) -> Iterable[float]:
        cases = []
        for number, line in enumerate(lines):
            actual, expected = zip(*pairs(line), strict=True)
            wanted = [*map(calls, expected)]
            cases.append(evals.Case(name=str(number), inputs=actual, expected_output=wanted))
        dataset = evals.Dataset(name="calls", cases=cases, evaluators=[Exact()])

        async def made(actual: Any) -> Any:
            return [*map(calls, actual)]

        found = dataset.evaluate_sync(made, progress=False)
        return [one.scores["Exact"].value for one in found.cases]

    return score


def agentevals() -> Score:
    trajectory = import_module("agentevals.trajectory.match")
    match = trajectory.create_trajectory_match_evaluator(trajectory_match_mode="strict")

    def messages(turn: Json) -> list[Json]:
        made = [
            {"function": {"name": name, "arguments": json.dumps(given)}}
            for name, given in calls(turn)
        ]
        return [
            {"role": "user", "content": turn["userContent"]["content"]},
            {"role": "assistant", "content": "", "tool_calls": made},
        ]

    def score(lines: Sequence[bytes]) -> Iterable[float]:
        for line in lines:
            yield mean(
                [
                    float(match(outputs=messages(one), reference_outputs=messages(other))["score"])
                    for one, other in pairs(line)
                ]
            )

    return score


def trpc_agent_py() -> Score:
    evaluation = import_module("trpc_agent_sdk.evaluation")
    types = import_module("trpc_agent_sdk.types")
    return adk_like(evaluation.TrajectoryEvaluator, evaluation, types)


def deepeval() -> Score:
    os.environ |= {"DEEPEVAL_TELEMETRY_OPT_OUT": "YES", "OPENAI_API_KEY": "unused"}
    metrics, cases = import_module("deepeval.metrics"), import_module("deepeval.test_case")

    def made(turn: Json) -> list[Any]:
        return [cases.ToolCall(name=name, input_parameters=given) for name, given in calls(turn)]

    def score(lines: Sequence[bytes]) -> Iterable[float]:
        metric = metrics.ToolCorrectnessMetric(
            evaluation_params=[cases.ToolCallParams.INPUT_PARAMETERS],
            should_exact_match=True,
            include_reason=False,
            async_mode=False,
        )

        def measured(turn: Any) -> float:
            metric.measure(turn, _show_indicator=False)
            return float(metric.score)

        for line in lines:
            turns = [
                cases.LLMTestCase(
                    input=one["userContent"]["content"],
                    actual_output=one["finalResponse"]["content"],
                    tools_called=made(one),
                    expected_tools=made(other),
                )
                for one, other in pairs(line)
            ]
            yield mean([*map(measured, turns)])

    return score


PEERS: dict[str, Callable[[], Score]] = {
    "google-adk": google_adk,
    "pydantic-evals": pydantic_evals,
    "agentevals": agentevals,
    "trpc-agent-py": trpc_agent_py,
    "deepeval": deepeval,
}


def run(name: str, path: Path) -> None:
    """Measure one library in this process and print the figures."""
    lines = path.read_bytes().splitlines()
    score = (PEERS | {"evaltap": evaltap})[name]()
    list(score(lines[:50]))

    def taken(work: Score) -> tuple[float, float]:
        began = time.process_time()
        found = mean([*work(lines)])
        return (time.process_time() - began) / len(lines) * 1e6, found

    base = min(taken(floor)[0] for _ in range(3))
    cost, found = min(taken(score) for _ in range(3))
    print(json.dumps([importlib.metadata.version(name), cost, base, found]))


def measured(python: str, name: str, path: Path) -> tuple[str, float, float, float] | str:
    """Return version, cost and floor (us of CPU a case) and mean score, or why there are none."""
    if not Path(python).exists():
        return f"there is no {python}"
    done = subprocess.run([python, __file__, "--run", name, path], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:150]
    version, cost, base, found = json.loads(done.stdout.splitlines()[-1])
    return version, cost, base, found


def installed(name: str, folder: Path) -> str:
    """Install a library in an environment of its own and return its interpreter."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    packages = [name, "orjson", "greenlet"]  # trpc-agent-py needs greenlet and does not say so
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the cost of comparing tool calls.")
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--create", action="store_true", help="install what --venv does not name")
    parser.add_argument("--venv", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.run[0], Path(options.run[1]))
        return
    given = dict(one.split("=", 1) for one in options.venv)
    if unknown := given.keys() - PEERS.keys():
        parser.error(f"--venv {', '.join(sorted(unknown))}: expected one of {', '.join(PEERS)}")
    from score_files import write_cases  # not in the environments of the others
    from ten_metrics import in_order

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.jsonl"
        write_cases(path, options.cases)
        path.write_bytes(b"\n".join(map(in_order, path.read_bytes().splitlines())))
        means = set()
        for name in ("evaltap", *PEERS):
            python = f"{given[name]}/bin/python" if name in given else sys.executable
            if name in PEERS and name not in given and options.create:
                python = installed(name, Path(folder) / name)
            found = measured(python, name, path)
            if isinstance(found, str):
                print(f"{name:15} not measured: {found}")
                continue
            version, cost, base, score = found
            means.add(round(score, 9))
            print(f"{name:15} {version:8} {cost:7.0f} us  {cost / base:6.1f} x  mean {score:.4f}")
    if len(means) > 1:
        raise SystemExit(f"the means differ: {sorted(means)}")


if __name__ == "__main__":
    main()
