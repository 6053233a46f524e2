"""A judge that returns garbage drawn from a seed, and the truth about each answer.

The answer to try `t` of sample `s` for case `c` only depends on the seed and these three, so a checker can
compute the expected result independently of the product.
"""

import json
import random
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from evaltap.evaluator.scoring.contract.judge import (
    JudgeInvalid,
    JudgeRejected,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
)
from evaltap.evaluator.scoring.judges.budget import worst_tokens

IDS: Final = ("1", "2")
NOT_CHARACTERS: Final = "\ud800\x00\u202e\u200b\uffff"


class Response(NamedTuple):
    """One response: a text, or an exception; `verdict` is the score it honestly gives, if any."""

    kind: str
    text: str = ""
    error: Exception | None = None
    verdict: float | None = None
    again: bool = False
    """The judge was unavailable, so that it may be asked again."""
    billed: bool = True


def rows(*scores: Any, ids: tuple[Any, ...] = IDS, reason: Any = "because") -> str:
    """Return an answer with a row for each id."""
    pairs = zip(ids, scores, strict=False)
    return json.dumps({"rubricScores": [{"id": i, "score": s, "reason": reason} for i, s in pairs]})


def response(seed: int, case: int, sample: int, number: int) -> Response:
    """Return what try `number` of a sample about a case gets."""
    rng = random.Random(f"{seed}/{case}/{sample}/{number}")
    scores = [rng.choice((0, 1)), rng.choice((0, 1))]
    honest = sum(scores) / 2
    if rng.random() < 0.5:
        return _usable(rng, scores, honest)
    if rng.random() < 0.4:
        return _failure(rng)
    return _garbage(rng, scores)


def _usable(rng: random.Random, scores: list[int], honest: float) -> Response:
    text = rows(
        *scores, reason=rng.choice(["because", "", "ja, weil … 😀", "x" * 5000, "\x00\u202e"])
    )
    shape = rng.choice(["plain", "fenced", "padded", "turned", "extra", "fraction"])
    if shape == "fenced":
        text = f"```json\n{text}\n```"
    elif shape == "padded":
        text = f"\n\t {text} \n"
    elif shape == "turned":
        text = rows(*reversed(scores), ids=IDS[::-1])
    elif shape == "extra":
        text = json.dumps({**json.loads(text), "note": ["ignore", None, {"a": 1e300}]})
    elif shape == "fraction":
        text, honest = rows(0.25, 0.5), 0.375
    return Response(f"usable {shape}", text, verdict=honest)


def _failure(rng: random.Random) -> Response:
    wait = timedelta(seconds=rng.choice([0, 1, 59]))
    far = timedelta(days=1)
    busy, slow = JudgeUnavailable("429", retry_after=wait), JudgeUnavailable("s", maybe_billed=True)
    empty = JudgeInvalid("no text", reply=JudgeReply("", "m", 1, 0))
    choices = [
        Response("throttled", error=busy, again=True, billed=False),
        Response(
            "throttled for a day", error=JudgeUnavailable("429", retry_after=far), billed=False
        ),
        Response("out of reach", error=JudgeUnavailable("refused"), again=True, billed=False),
        Response("timed out", error=slow, again=True),
        Response("rejected", error=JudgeRejected("401"), billed=False),
        Response("broken completion", error=JudgeInvalid("not a completion")),
        Response("empty completion", error=empty),
        Response(
            "fault", error=rng.choice([RuntimeError("\ud800"), RecursionError(), KeyError("x")])
        ),
    ]
    return rng.choice(choices)


def _garbage(rng: random.Random, scores: list[int]) -> Response:
    valid = rows(*scores)
    one = rng.choice(scores)
    texts = {
        "prose": "All rubrics are met. Score: 1.",
        "empty": rng.choice(["", " \n", "```json\n```", "null", "[]", "{}", '""', "1"]),
        "cut off": valid[: rng.randrange(1, len(valid) - 1)],
        "deep": "[" * 5000 + "]" * 5000,
        "characters": "".join(rng.choice(NOT_CHARACTERS) for _ in range(50)),
        "bytes": rng.randbytes(60).decode("latin-1"),
        "unknown id": rows(one, one, ids=("1", rng.choice(["3", "1 ", "2\u200b", "rubric 2"]))),
        "missing id": rows(one),
        "doubled id": rows(1, 1, ids=("1", "1")),
        "more ids": rows(1, 1, 1, ids=("1", "2", "3")),
        "id of another type": rows(1, 1, ids=(1, 2)),
        "score out of range": rows(1, rng.choice([-1, 2, 1.0001, 1e308, -0.1])),
        "score of another type": rows(1, rng.choice(["1", True, None, [1], {"a": 1}])),
        "no number": valid.replace(f'"score": {scores[0]}', '"score": NaN', 1),
        "no reason": valid.replace('"reason"', '"because"', 1),
        "reason of another type": rows(*scores, reason=rng.choice([None, 1, ["because"]])),
        "another key": valid.replace("rubricScores", "scores"),
        "rows of another type": json.dumps({"rubricScores": rng.choice([7, "all", {}, [1, 2]])}),
        "two answers": valid + rows(1, 1),
        "half of the lines": "ID: 1\nReason: r\nVerdict: yes\n\nID: 2\nReason: r\nVerdict: perhaps\n",
    }
    kind = rng.choice([*texts])
    return Response(kind, texts[kind])


@dataclass(frozen=True)
class Expected:
    """What must come of one sample: its verdict, None for none."""

    verdict: float | None
    kind: str


def expected(seed: int, case: int, sample: int, retries: int) -> Expected:
    """Return what a sample comes to when an unavailable judge is asked again."""
    got, number = response(seed, case, sample, 0), 0
    while got.again and number < retries:
        number += 1
        got = response(seed, case, sample, number)
    return Expected(got.verdict, got.kind)


class GarbageJudge:
    """The client of that judge; it keeps the true bill, whatever it says about tokens."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._tries: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()
        self.billed_tokens = 0
        self.calls = 0

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Answer, or raise, as the seed says for this case, sample and try."""
        case = int(request.prompt.partition("case number ")[2].split()[0])
        with self._lock:
            number = self._tries[case, request.sample]
            self._tries[case, request.sample] += 1
            self.calls += 1
        got = response(self._seed, case, request.sample, number)
        rng = random.Random(f"bill {self._seed}/{case}/{request.sample}/{number}")
        most_in, most_out = worst_tokens(request)
        used = (rng.randint(1, most_in), rng.randint(1, most_out))
        if got.billed:
            with self._lock:
                self.billed_tokens += sum(used)
        if got.error is not None:
            raise got.error
        return JudgeReply(
            got.text,
            rng.choice(["m", "", "m" * 300, "<script>", "\x00"]),
            rng.choice([used[0], used[0], None]),
            rng.choice([used[1], used[1], None]),
            rng.choice([timedelta(seconds=1), None, timedelta(days=999)]),
        )
