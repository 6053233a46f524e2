"""What a pattern of agents buys with its model calls: one agent, a pipeline, a team, a loop, a splitter.

The model is scripted: it is wrong as often as its rates say, and no network is used.  So what differs is the
pattern.  Put your own model in the place of `ScriptedModel` to measure it.

    python docs/benchmarks/agent_patterns.py [--cases 40] [--runs 5] [--seed 2026]
"""

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.store.database import Store
from evaltap.experiments import evaluate
from evaltap.recorder import Turn
from evaltap.schemas.files.canonical import dumps

STEP: Final = 0.92
"""How often one step of reasoning is right; a question needs one to four."""
REPAIRS, BREAKS = 0.5, 0.03
"""How often a second look repairs a wrong answer, and breaks a right one."""
FINDS, OBJECTS = 0.9, 0.05
"""How often a check finds a wrong answer, and objects to a right one."""
METRIC: Final = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
}


class ScriptedModel:
    """Answers "QUESTION with N steps"; each call is recorded with its tokens."""

    def __init__(self, question: str, turn: Turn, chance: random.Random) -> None:
        self.right = f"answer to {question}"
        self.steps = int(question.rsplit(" ", 2)[1])
        self._turn, self._chance = turn, chance

    def _called(self, output_tokens: int) -> None:
        self._turn.model("scripted", input_tokens=300, output_tokens=output_tokens)

    def draft(self, steps: int | None = None) -> str:
        """Answer in one go: right if every step is."""
        steps = self.steps if steps is None else steps
        self._called(60 * steps)
        is_right = all(self._chance.random() < STEP for _ in range(steps))
        return self.right if is_right else f"wrong {self._chance.randrange(3)}"

    def revise(self, answer: str) -> str:
        """Look at an answer again."""
        self._called(60)
        if answer == self.right:
            return "wrong 3" if self._chance.random() < BREAKS else answer
        return self.right if self._chance.random() < REPAIRS else answer

    def objects_to(self, answer: str) -> bool:
        """Check an answer."""
        self._called(20)
        return self._chance.random() < (OBJECTS if answer == self.right else FINDS)


def single(model: ScriptedModel) -> str:
    """One agent answers."""
    return model.draft()


def pipeline(model: ScriptedModel) -> str:
    """One agent drafts, two look at it again."""
    return model.revise(model.revise(model.draft()))


def team(model: ScriptedModel) -> str:
    """Three agents answer; the most frequent answer wins."""
    return Counter(model.draft() for _ in range(3)).most_common(1)[0][0]


def loop(model: ScriptedModel) -> str:
    """One agent drafts and another checks, at most three times."""
    answer = model.draft()
    for _ in range(2):
        if not model.objects_to(answer):
            break
        answer = model.draft()
    return answer


def splitter(model: ScriptedModel) -> str:
    """One agent for each step, each checked once."""
    for _ in range(model.steps):
        found = model.draft(1)
        if model.objects_to(found):
            found = model.draft(1)
        if found != model.right:
            return found
    return model.right


PATTERNS: Final[Sequence[Callable[[ScriptedModel], str]]] = (single, pipeline, team, loop, splitter)


class Measured(NamedTuple):
    """A pattern on all cases; calls and tokens are means per turn."""

    pattern: str
    passed: Rate
    pass_hat: float
    calls: float
    tokens: float


def measure(pattern: Callable[[ScriptedModel], str], cases: int, runs: int, seed: int) -> Measured:
    """Run a pattern as an agent on an eval set, and read what it took."""
    asked: Counter[str] = Counter()

    def agent(messages: list[dict[str, Any]], turn: Turn) -> str:
        question = messages[-1]["content"]
        asked[question] += 1
        chance = random.Random(f"{seed}/{question}/{asked[question]}")
        return pattern(ScriptedModel(question, turn, chance))

    with tempfile.TemporaryDirectory() as folder:
        path, db = Path(folder) / "questions.evalset.json", Path(folder) / "x.duckdb"
        path.write_bytes(dumps({"evalSetId": "questions", "evalCases": questions(cases)}))
        found = evaluate(path, [METRIC], agent=agent, runs=runs, db=db, concurrency=1)
        with Store(db) as store:
            ((calls, tokens),) = store.rows(_TAKEN)
    (metric,) = found.outcome.metrics
    assert metric.rate is not None
    return Measured(pattern.__name__, metric.rate, metric.pass_hat[runs].value, calls, tokens)


def questions(count: int) -> list[dict[str, Any]]:
    """Return cases with questions of one to four steps."""
    cases = []
    for number in range(count):
        text = f"question {number} with {1 + number % 4} steps"
        turn = {
            "userContent": {"role": "user", "content": text},
            "finalResponse": {"role": "assistant", "content": f"answer to {text}"},
        }
        cases.append({"evalId": f"q-{number}", "conversation": [turn], "sessionInput": {}})
    return cases


_TAKEN: Final = """
SELECT avg((input_tokens / 300)::DOUBLE), avg(input_tokens + output_tokens) FROM latest_turns
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each pattern."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args(arguments)
    print(f"| pattern | passed (95 %) | pass^{options.runs} | model calls | tokens |")
    print("|---|---|---:|---:|---:|")
    for pattern in PATTERNS:
        one = measure(pattern, options.cases, options.runs, options.seed)
        low, high = one.passed.interval
        print(
            f"| {one.pattern} | {one.passed.value:.1%} ({low:.1%} to {high:.1%}) | {one.pass_hat:.1%}"
            f" | {one.calls:.1f} | {one.tokens:,.0f} |"
        )


if __name__ == "__main__":
    main()
