"""A day of a support agent with an incident, as shown in the pictures of the page."""

import json
import math
import random
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from evaltap.cli.main import main
from evaltap.evaluator.scoring.contract.judge import JudgeReply
from evaltap.evaluator.store.database import Store
from evaltap.schemas.wire.record import WireRecord, encode_case
from support.builders.cases import RESPONSE, make_case, make_turn, write_log
from support.builders.reports import score_into, write_cases
from support.worlds.page_store import (
    RUBRICS,
    TRAJECTORY_F1,
    call_of,
    generous,
    records_of,
    without_tools,
)

NOON: Final = datetime(2026, 11, 23, 12, tzinfo=UTC)
INCIDENT: Final = (NOON - timedelta(hours=4), NOON - timedelta(hours=2, minutes=20))
"""While it lasts the carrier does not answer, and parcels are not tracked."""
STORE: Final = Path("support.duckdb")
GOLDEN: Final = Path("golden.evalset.json")
METRICS: Final = Path("metrics.json")
RULES: Final = Path("monitor.json")
WATCH: Final = {"name": "tools", "signal": "tool_error_rate", "above": 0.02, "hours": 6}
_SAID: Final = (
    ("Where is order {order}?", "track_parcel", "Order {order} arrives on Tuesday."),
    ("Please cancel order {order}, I bought it twice.", "cancel_order", "I have cancelled order {order}."),
    ("The invoice of order {order} has the wrong address.", "correct_invoice", "I have sent a new invoice."),
    ("Order {order} came broken. Can I have my money back?", "refund", "I have refunded order {order}."),
    ("When does the parcel of order {order} arrive?", "track_parcel", "It arrives on Tuesday."),
)  # fmt: skip


def day_of_support(seed: int = 7) -> list[dict[str, Any]]:
    """Return a day's sessions, more of them by day than by night; the last was too generous."""
    source = random.Random(seed)
    at = NOON - timedelta(hours=24)
    cases: list[dict[str, Any]] = []
    while at < NOON - timedelta(minutes=3):
        cases.append(_session(len(cases), at, source))
        busy = 1.15 + math.sin((at.hour + at.minute / 60 - 9) / 24 * 2 * math.pi)
        at += timedelta(minutes=source.expovariate(0.12 + 0.35 * busy))
    return [*cases, generous(NOON)]


def _session(number: int, at: datetime, source: random.Random) -> dict[str, Any]:
    order = f"A-{1000 + 7 * number % 900}"
    said, tool, answer = source.choice(_SAID)
    question = {"role": "user", "content": said.format(order=order)}
    calls = [
        call_of("get_order", source.lognormvariate(2.5, 0.4), order_id=order),
        call_of(tool, source.lognormvariate(3.2, 0.6), order_id=order),
    ]
    made, status = list(calls), "ok"
    away = tool == "track_parcel" and INCIDENT[0] <= at < INCIDENT[1]
    if away and source.random() < 0.7:
        error = {"type": "Timeout", "message": "the carrier does not answer"}
        made = [calls[0], calls[1] | {"result": None, "error": error, "durationMs": 5_000}]
        status = "error" if source.random() < 0.3 else "ok"
    elif source.random() < 0.05:
        made = (
            calls[:1] if source.random() < 0.6 else [*calls, call_of("search", 220, query="policy")]
        )
    turn = make_turn(
        f"t-{number}", answer.format(order=order), userContent=question, tools=made,
        creationTimestamp=at.timestamp(),
        telemetry={
            "traceId": f"{number:032x}", "models": ["claude-sonnet-5"], "status": status,
            "latencyMs": source.lognormvariate(7.1, 0.35) + (5_000 if away else 0),
            "costUsd": round(source.lognormvariate(-6.2, 0.4), 6), "inputTokens": 700 + number % 400,
            "outputTokens": 90 + number % 80,
        },
    )  # fmt: skip
    if status == "error":
        turn["telemetry"]["error"] = {"type": "TimeoutError", "message": "no answer within 30 s"}
        turn.pop("finalResponse")
    expected = make_turn(
        f"t-{number}", answer.format(order=order), userContent=question, tools=calls
    )
    return make_case(
        f"s-{number:03d}", [turn], conversation=[expected], evalSetId="live",
        source={"revision": 1, "service": "shop-bot"},
        sessionInput={"appName": "shop", "userId": f"u-{number % 40:02d}"},
    )  # fmt: skip


def picture_store(folder: Path) -> tuple[Path, Path]:
    """Land, score, compare and watch the day; return the DuckDB file and an eval set beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = day_of_support()
    with chdir(folder):  # pages name files as they were given
        _land(cases)
        _score_more(cases)
        known = [case for case in cases[:40] if "refund" not in str(case["actualConversation"])]
        references = [
            {"evalId": one["evalId"], "conversation": one["conversation"]} for one in known
        ]
        GOLDEN.write_text(json.dumps({"evalSetId": "golden", "evalCases": references}))
    return folder / STORE, folder / GOLDEN


def _land(cases: list[dict[str, Any]]) -> None:
    """Land what two processes recorded, one of which lost some; two records are damaged."""
    other = "shop-bot-2b41"
    damaged = [WireRecord(one.key, b"{}", one.headers) for one in records_of(cases[:2], other)[:2]]
    few = [
        encode_case(case | {"evalId": f"n-{seq}"}, producer_id=other, seq=seq, time=NOON)
        for seq, case in enumerate(cases[:9], 1)
        if seq not in (4, 5)
    ]
    write_log(Path("agent.log.db"), [*records_of(cases, "shop-bot-7f9c"), *few, *damaged])
    METRICS.write_text(json.dumps([TRAJECTORY_F1, RESPONSE]))
    RULES.write_text(json.dumps({"watch": [WATCH]}))
    _run("consume", "--log", "agent.log.db", "--db", STORE, "--metrics", METRICS, "--monitor", RULES,
         "--until-idle", "--json")  # fmt: skip


def _score_more(cases: list[dict[str, Any]]) -> None:
    """Ask a judge about the last sessions, and score two versions of the agent on a regression set."""
    source = random.Random(3)

    def votes() -> JudgeReply:
        kept = [0 if source.random() < 0.08 else 1 for _ in range(2)]
        reasons = {1: "It says what was done and names no date.", 0: "It promises a day."}
        scores = [
            {"id": name, "score": score, "reason": reasons[score]}
            for name, score in zip(("no-promise", "names-order"), kept, strict=True)
        ]
        took = timedelta(milliseconds=source.lognormvariate(6.4, 0.3))
        return JudgeReply(
            json.dumps({"rubricScores": scores}), model="gpt-5-mini", input_tokens=420,
            output_tokens=61, latency=took, cost_usd=0.00023,
        )  # fmt: skip

    judged = [
        case | {"source": {"revision": len(case["actualConversation"])}} for case in cases[-90:]
    ]
    fixed = [case | {"evalSetId": "regression"} for case in cases[:120]]
    before = [without_tools(case) if number % 7 == 4 else case for number, case in enumerate(fixed)]
    after = [without_tools(case) if number % 30 == 7 else case for number, case in enumerate(fixed)]
    here = Path()
    with Store(STORE) as store:
        score_into(store, write_cases(here, judged, "last-90.jsonl"), [RUBRICS], votes)
        for name, chosen in (("main-4c1.jsonl", before), ("fix-refund.jsonl", after)):
            score_into(store, write_cases(here, chosen, name), [TRAJECTORY_F1, RESPONSE])


def _run(*arguments: str | Path) -> None:
    main([str(one) for one in arguments])
