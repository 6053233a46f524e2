"""Traffic with a known truth, sampled, landed and estimated."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from evaltap.cli.main import main
from evaltap.recorder.sampling.rules import parse_outcome_rules
from evaltap.recorder.sampling.sampler import OutcomeSampler
from evaltap.schemas.wire.record import Manifest, encode_case, encode_manifest
from support.builders.cases import SAYS_YES, make_case, make_tool, make_turn, write_log

START = datetime(2026, 11, 21, 10, tzinfo=UTC)


RULES = (
    '[{"name": "flagged", "keep": 1, "field": {"path": "turn.telemetry.outputTokens", "over": 90}}]'
)


METRICS = [SAYS_YES]


TOOLS = ((), ("find",), ("find", "refund"), ("refund",))


MODELS = ("small", "large")


@dataclass(frozen=True)
class Kept:
    """A turn that was kept, as the test knows it."""

    session: str
    turn: str
    probability: float
    passed: bool
    tools: tuple[str, ...]
    model: str
    hour: str
    latency: float


@dataclass
class Traffic:
    """Traffic as it went through the recorder's sampler."""

    kept: list[Kept] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    turns: int = 0

    @property
    def truth(self) -> float:
        return self.passed / self.turns


def make_traffic(
    rng: np.random.Generator, *, sessions: int = 150, longest: int = 6, rate: float = 0.85, head: float = 0.3
) -> Traffic:  # fmt: skip
    """Return traffic of which a tenth, mostly failures, is flagged and kept, and of the rest a share."""
    sampler = OutcomeSampler(head, parse_outcome_rules(RULES))
    made = Traffic()
    for _ in range(sessions):
        name, chance = f"session {rng.integers(1 << 60)}", rng.beta(rate * 5, (1 - rate) * 5)
        begins = START + timedelta(minutes=int(rng.integers(0, 170)))
        for number in range(int(rng.integers(1, longest + 1))):
            passed = bool(rng.random() < chance)
            flagged = rng.random() < (0.03 if passed else 0.6)
            tools, model = TOOLS[rng.integers(4)], MODELS[rng.integers(2)]
            latency = float(rng.lognormal(6, 0.5))
            turn = make_turn(
                f"t-{number}",
                answer="yes" if passed else "no",
                tools=[make_tool(tool) for tool in tools],
                creationTimestamp=begins.timestamp(),
                telemetry={
                    "status": "ok",
                    "outputTokens": 99 if flagged else 9,
                    "models": [model],
                    "latencyMs": latency,
                },
            )
            case = make_case(name, [turn])
            decision = sampler.decide(case)
            made.turns += 1
            made.passed += passed
            if not decision.kept:
                made.dropped[decision.reason] += 1
                continue
            hour = f"{begins:%Y-%m-%dT%H}:00:00Z"
            made.kept.append(
                Kept(name, f"t-{number}", decision.probability, passed, tools, model, hour, latency)
            )
            source = {
                "samplingReason": decision.reason, "inclusionProbability": decision.probability
            }  # fmt: skip
            made.cases.append({**case, "source": source})
    return made


def land(folder: Path, traffic: Traffic, *, manifests: bool = True) -> Path:
    """Land and score traffic; return the DuckDB file."""
    records = [
        encode_case(case, producer_id="p", seq=seq, time=START)
        for seq, case in enumerate(traffic.cases, start=1)
    ]
    if manifests:
        drops = Manifest(
            "p", len(records), START + timedelta(hours=2), traffic.dropped, closing=True
        )
        records.append(encode_manifest(drops))
    write_log(folder / "log.db", records)
    (folder / "m.json").write_text(json.dumps(METRICS))
    consume = ["consume", "--log", str(folder / "log.db"), "--db", str(folder / "x.duckdb")]
    main([*consume, "--metrics", str(folder / "m.json"), "--until-idle", "--json"])
    return folder / "x.duckdb"


Estimate = Callable[..., list[dict[str, Any]]]


def consume(folder: Path) -> None:
    (folder / "m.json").write_text(json.dumps(METRICS))
    log, store = str(folder / "log.db"), str(folder / "x.duckdb")
    main(
        [
            "consume",
            "--log",
            log,
            "--db",
            store,
            "--metrics",
            str(folder / "m.json"),
            "--until-idle",
        ]
    )
