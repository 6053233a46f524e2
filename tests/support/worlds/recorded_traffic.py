"""Traffic with known truth, recorded, sampled, landed, scored and estimated by the product.

The truth is drawn here with numpy, independently of the product, of which only `Recorder` and the command
line are used.  Times are set afterwards, because a recorder only uses the current time.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from evaltap.recorder import MemorySink, Recorder
from support.builders.cases import SAYS_YES, make_records, write_log
from support.builders.commands import Evaltap

START = datetime(2026, 11, 21, 8, tzinfo=UTC)
METRICS = [SAYS_YES]
RULES = json.dumps([{"name": "errors", "keep": 1, "error": True}])
HOURS = 3


@dataclass(frozen=True)
class Truth:
    """How a data set is drawn, and what came out."""

    rate: float
    turns: int
    hours: tuple[float, ...]
    """The pass rate of the process in each hour; their mean is `rate`, which is that of each version."""
    traffic: float
    """The share of the drawn turns that pass."""


@dataclass(frozen=True)
class Drawn:
    """What the product says of a data set, beside its truth."""

    truth: Truth
    estimate: dict[str, Any]
    by_hour: list[dict[str, Any]]
    by_version: list[dict[str, Any]]
    report: dict[str, Any]
    printed: str


def draw(
    rng: np.random.Generator, folder: Path, evaltap: Evaltap, *, most: int = 5000
) -> Drawn | None:
    """Draw a data set, run it through the product; None where sampling left nothing of it."""
    turns = int(np.exp(rng.uniform(np.log(50), np.log(most))))
    rate = float(rng.choice([0.05, 0.3, 0.7, 0.9, 0.97]))
    head = float(rng.choice([1.0, 0.5, 0.25])) if turns > 400 else float(rng.choice([1.0, 0.5]))
    spread = min(rate, 1 - rate) / 2
    hours = (rate - spread, rate, rate + spread)
    ruled: dict[str, Any] = {"sample_rules": RULES} if rng.random() < 0.7 else {}
    sink = [MemorySink(limit=1_000_000) for _ in range(2)]
    recorders = [
        Recorder(sink=one, app_name="shop", version=f"v{n + 1}", sample_rate=head,
                 **ruled)
        for n, one in enumerate(sink)
    ]  # fmt: skip
    longest = int(rng.choice([1, 4, 20]))
    # A hash decides which sessions are kept, so the ids of each data set are its own.
    salt, left, passed, session = f"{rng.integers(1 << 30):x}", turns, 0, 0
    while left > 0:
        length = min(left, int(rng.integers(1, longest + 1)))
        hour, version = session % HOURS, (session // HOURS) % 2
        mean = hours[hour]
        chance = float(rng.beta(mean * 9, (1 - mean) * 9))  # turns of a session resemble each other
        for _ in range(length):
            good = bool(rng.random() < chance)
            passed += good
            crash = not good and bool(rng.random() < 0.5)
            _record(recorders[version], f"{salt}-{session}-{hour}", good, crash)
        left, session = left - length, session + 1
    for one in recorders:
        one.close()
    cases = [_at_its_hour(case) for one in sink for case in one.cases]
    if not cases:
        return None
    write_log(folder / "log.db", make_records(cases))
    (folder / "m.json").write_text(json.dumps(METRICS))
    store = str(folder / "x.duckdb")
    evaltap("consume", "--log", str(folder / "log.db"), "--db", store, "--metrics",
            str(folder / "m.json"), "--until-idle")  # fmt: skip

    def said(*arguments: str) -> Any:  # Any: what a command prints as JSON
        return json.loads(evaltap(*arguments, "--json")[1])

    (estimate,) = said("estimate", store)
    return Drawn(
        Truth(rate, turns, hours, passed / turns),
        estimate,
        said("estimate", store, "--by", "hour"),
        said("estimate", store, "--by", "version"),
        said("report", store),
        evaltap("report", store)[1],
    )


def _record(recorder: Recorder, session: str, good: bool, crash: bool) -> None:
    try:
        with recorder.turn(session_id=session, user="Is it so?") as turn:
            if crash:
                raise ConnectionError("upstream")
            turn.respond("yes" if good else "no")
    except ConnectionError:
        pass


def _at_its_hour(case: dict[str, Any]) -> dict[str, Any]:
    hour = int(case["evalId"].rpartition("-")[2])
    (turn,) = case["actualConversation"]
    turn["creationTimestamp"] = (START + timedelta(hours=hour)).timestamp()
    return case


def covers(row: dict[str, Any], truth: float, *, traffic: bool = False) -> bool:
    """Return whether the interval of an estimate holds the truth."""
    low, high = ("traffic_low", "traffic_high") if traffic else ("low", "high")
    return bool(row[low] - 1e-9 <= truth <= row[high] + 1e-9)


class Coverage:
    """How often intervals hold their truth, and how far the estimates are off."""

    def __init__(self, sets: Iterable[Drawn]) -> None:
        self.errors: list[float] = []
        held: dict[str, list[bool]] = {"process": [], "traffic": [], "hour": [], "version": []}
        for one in sets:
            truth = one.truth
            self.errors.append(one.estimate["rate"] - truth.traffic)
            held["process"].append(covers(one.estimate, truth.rate))
            if one.estimate["traffic_low"] < one.estimate["traffic_high"]:
                held["traffic"].append(covers(one.estimate, truth.traffic, traffic=True))
            for row in one.by_hour:
                hour = int(row["slice"]["hour"][11:13]) - START.hour
                held["hour"].append(covers(row, truth.hours[hour]))
            held["version"] += [covers(row, truth.rate) for row in one.by_version]
        self.held = held

    @property
    def bias(self) -> tuple[float, float]:
        """The mean error, and its standard error."""
        errors = np.array(self.errors)
        return float(errors.mean()), float(errors.std() / np.sqrt(len(errors)))

    def share(self, what: str) -> float:
        """Return how often the intervals of the whole, of hours or of versions held."""
        return float(np.mean(self.held[what]))
