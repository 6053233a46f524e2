"""The evaluator's side of a simulation: a store whose process may die, metrics, a judge, and bad records."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from chaos.simulated_broker import Crash
from chaos.simulated_time import BEGIN, Clock
from evaltap.evaluator.ingest.sources.base import SourceBatch
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    TurnScore,
)
from evaltap.evaluator.scoring.contract.judge import JudgeRequest, ScriptedJudge
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.wire.record import WireRecord, encode_case


class CrashingStore(Store):
    """A store whose process dies at the n-th step of writing; what was committed stays."""

    FEWEST_AS_COLUMNS = 3

    def __init__(self) -> None:
        self.crash_at: int | None = None
        self.steps = 0
        super().__init__(":memory:")
        super().execute("SET threads = 1")
        self._names_of_tables = [
            name
            for (name,) in self.rows("SELECT table_name FROM duckdb_tables()")
            if name != "meta"
        ]

    def step(self) -> None:
        """Count a step, or die in front of it."""
        self.join()
        self.steps += 1
        if self.crash_at is not None and self.steps >= self.crash_at:
            self.crash_at = None
            raise Crash(f"the consumer died at step {self.steps} of its writing")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit, unless the process dies before or after it."""
        self.step()
        with super().transaction():
            yield
            self.step()
        self.step()

    def execute(self, statement: str, parameters: Any = None) -> None:
        """Run statements, unless the process dies."""
        self.step()
        super().execute(statement, parameters)

    def append(self, table: str, rows: Any) -> None:
        """Append rows, unless the process dies."""
        self.step()
        super().append(table, rows)

    def clear(self) -> None:
        """Forget all rows, for the next schedule."""
        for table in self._names_of_tables:
            super().execute(f"TRUNCATE {table}")
        self.open_again()

    def end(self) -> None:
        """End the life of a process, once what it had left behind is done or has killed it."""
        with suppress(Crash):
            self.join()
        self.crash_at = None

    def open_again(self, crash_at: int | None = None) -> None:
        """Begin the life of another process, which dies at a step of its writing or does not."""
        self.steps, self.crash_at = 0, crash_at
        self._last_now = None


class AnswersWell:
    """A metric of the simulation: an answer says by itself whether it is good."""

    name = "answers_well"
    version = "1"
    outline_suffices = True
    """So that cases are scored from memory where nothing else is asked of them."""

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a row for each turn; raises where a user message says so."""
        turns = []
        for turn in context.actual:
            if "raise" in (turn.user_text or ""):
                raise RuntimeError("this turn breaks its evaluator")
            good = (turn.final_text or "").startswith("good")
            turns.append(TurnScore(Status.PASSED if good else Status.FAILED, float(good)))
        score = sum(turn.score or 0 for turn in turns) / len(turns)
        status = Status.PASSED if score == 1 else Status.FAILED
        return MetricScore(status, score, "", tuple(turns))


def judge_of(clock: Clock) -> ScriptedJudge:
    """Return a judge that takes its time and answers as the user message asks it to."""

    def answer(request: JudgeRequest) -> str:
        clock.advance(0.7)
        if "verdict=garbage" in request.prompt:
            return "I would rather not say."
        score = int("verdict=pass" in request.prompt)
        return json.dumps({"rubricScores": [{"id": "1", "score": score, "reason": "because"}]})

    return ScriptedJudge(answer)


ANSWERS_WELL = EvalMetric.model_validate({"metricName": "answers_well", "threshold": 1})
RUBRIC = EvalMetric.model_validate(
    {
        "metricName": "llm_rubric_response",
        "threshold": 1,
        "criterion": {
            "llmJudge": {
                "judgeModel": {"providerName": "openai", "modelName": "j", "numSamples": 1},
                "rubrics": [{"id": "1", "content": {"text": "The answer is right."}}],
            }
        },
    }
)


class ImpatientLog(LocalLogSource):
    """The local log, without waiting for what no other process will write."""

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return what there is."""
        return super().poll(max_records, 0.0)


def poison(rng: random.Random) -> WireRecord:
    """Return a record that nobody can land: a good one of a stranger's with one thing wrong."""
    name = f"stranger-{rng.randint(0, 99)}"
    turn = {"invocationId": name, "finalResponse": {"role": "assistant", "content": "good answer"}}
    case = {"evalId": name, "evalMode": "trace", "actualConversation": [turn]}
    good = encode_case(case, producer_id=name, seq=1, time=BEGIN)
    value = good.value or b""
    damaged = rng.choice(
        (b"", b"\xff\x00", b"[]", b'{"evalId": 7}', value[:30], value.replace(b"good", b"goot"))
    )
    schema = ("schema", rng.choice((b"evaltap.case/9.0", b"?", b"evaltap.manifest/1.0")))
    return rng.choice(
        (
            good._replace(value=damaged),
            good._replace(headers=(*good.headers, schema)),
            good._replace(headers=good.headers[rng.randint(3, 9) :]),
            WireRecord(b"k", None),
        )
    )


def poison_records(count: int) -> tuple[WireRecord, ...]:
    """Return bad records of all kinds, always the same."""
    rng = random.Random(count)
    return tuple(poison(rng) for _ in range(count))
