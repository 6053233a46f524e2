"""A store like that of a support agent, really landed and scored, for tests of the web page."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import WireRecord, encode_case, encode_feedback
from support.builders.cases import RESPONSE, make_case, make_tool, make_turn, write_log
from support.builders.reports import score_into, write_cases
from support.worlds.once import made_once

TRAJECTORY_F1 = {"metricName": "trajectory_f1", "threshold": 0.9, "criterion": {"trajectory": {}}}
RUBRICS = {
    "metricName": "llm_rubric_response",
    "threshold": 1,
    "criterion": {
        "llmJudge": {
            "judgeModel": {"providerName": "openai", "modelName": "judge-1", "numSamples": 5},
            "rubrics": [
                {"id": "no-promise", "content": {"text": "The answer promises no date."}},
                {"id": "names-order", "content": {"text": "The answer names the order."}},
            ],
        }
    },
}
GENEROUS = "s-too-generous"
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
QUESTIONS = (
    "Where is order A-{n}?",
    "Please cancel order A-{n}, I bought it twice.",
    "The invoice of order A-{n} has the wrong address.",
    "Order A-{n} came broken; what can I do?",
    "When does the parcel of order A-{n} arrive?",
)


def call_of(name: str, milliseconds: float = 12, **arguments: Any) -> dict[str, Any]:
    """Return a call of the support agent."""
    return make_tool(name, arguments=arguments, result={"ok": True, "order": arguments.get("order_id")},
                     durationMs=milliseconds, agent="support")  # fmt: skip


def generous(at: datetime) -> dict[str, Any]:
    """Return the session that a reader shall find the wrong step of: 100 euros, not 10."""
    first = make_turn(
        "g-1", "Of course. What is the number of the order?",
        userContent={"role": "user", "content": "Hello, I need help with an order."}, tools=[],
        creationTimestamp=at.timestamp(), telemetry=_telemetry(1, 900),
    )  # fmt: skip
    made = make_turn(
        "g-2", "I have refunded 10 euros for order A-100.",
        userContent={"role": "user", "content": "Order A-100 came late, I would like 10 euros back."},
        tools=[
            call_of("get_order", order_id="A-100"),
            call_of("search", 5_000, query="refund policy", limit=5)
            | {"result": None, "error": {"type": "Timeout", "message": "no answer after 5 s"}},
            call_of("refund", 31, order_id="A-100", amount=100, currency="EUR"),
        ],
        creationTimestamp=(at + timedelta(seconds=40)).timestamp(), telemetry=_telemetry(2, 6200),
        capture={"systemPrompt": "missing"},
    )  # fmt: skip
    expected = make_turn(
        "g-2", "I have refunded 10 euros for order A-100.", userContent=made["userContent"],
        tools=[
            call_of("get_order", order_id="A-100"),
            call_of("refund", order_id="A-100", amount=10, currency="EUR"),
            call_of("notify_user", channel="email", text="10 euros are on their way."),
        ],
    )  # fmt: skip
    return _case(GENEROUS, [first, made], [{**first, "tools": []}, expected])


def _telemetry(number: int, latency: float) -> dict[str, Any]:
    return {
        "traceId": f"trace-{number}", "models": ["claude-sonnet-5"], "latencyMs": latency,
        "costUsd": 0.0015, "status": "ok", "inputTokens": 900 + number, "outputTokens": 140,
    }  # fmt: skip


def _case(name: str, turns: list[dict[str, Any]], expected: list[dict[str, Any]]) -> dict[str, Any]:
    return make_case(
        name, turns, conversation=expected, evalSetId="live", source={"revision": 1, "service": "shop-bot"},
        sessionInput={"appName": "shop", "userId": f"u-{len(name)}"},
    )  # fmt: skip


def _plain(number: int, at: datetime) -> dict[str, Any]:
    order = f"A-{100 + number}"
    question = QUESTIONS[number % len(QUESTIONS)].format(n=100 + number)
    tools = [call_of("get_order", order_id=order), call_of("track_parcel", order_id=order)]
    made = make_turn(
        f"t-{number}", f"Order {order} is on its way.", userContent={"role": "user", "content": question},
        tools=tools if number % 7 else tools[:1], creationTimestamp=at.timestamp(),
        telemetry=_telemetry(number, 400.0 + 37 * (number % 11)),
    )  # fmt: skip
    if number % 13 == 5:
        error = {"type": "TimeoutError", "message": "the model did not answer"}
        made["telemetry"] |= {"status": "error", "error": error}
        made.pop("finalResponse")
    expected = make_turn(
        f"t-{number}", f"Order {order} is on its way.", userContent=made["userContent"], tools=tools
    )
    return _case(f"s-{number:03d}", [made], [expected])


def long_session(turns: int, wrong: Sequence[int]) -> dict[str, Any]:
    """Return a session of many turns; those numbered in `wrong`, from 1, lack a call."""
    made, expected = [], []
    for number in range(1, turns + 1):
        question = {"role": "user", "content": f"Where is order A-{number}?"}
        tools = [call_of("get_order", order_id=f"A-{number}"), call_of("track_parcel")]
        at = (NOON + timedelta(seconds=number)).timestamp()
        turn = make_turn(
            f"l-{number}", f"Answer {number}.", userContent=question, tools=tools,
            creationTimestamp=at, telemetry=_telemetry(number, 500),
        )  # fmt: skip
        expected.append(turn)
        made.append(turn | {"tools": tools[:1]} if number in wrong else turn)
    return _case("s-long", made, expected)


def support_cases(count: int = 60) -> list[dict[str, Any]]:
    """Return sessions, one every ten minutes; the last is the one that was too generous."""
    cases = [
        _plain(number, NOON - timedelta(minutes=10 * (count - number))) for number in range(count)
    ]
    return [*cases, generous(NOON)]


def records_of(cases: Sequence[dict[str, Any]], producer: str = "p") -> list[WireRecord]:
    """Return the records of cases, one a turn, and what a user thought of the generous one."""
    single = [
        case | {"actualConversation": [turn], "conversation": [expected]}
        for case in cases
        for turn, expected in zip(case["actualConversation"], case["conversation"], strict=True)
    ]  # a record brings one turn
    made = [
        encode_case(case, producer_id=producer, seq=number + 1, time=NOON)
        for number, case in enumerate(single)
    ]
    thought = Feedback(
        "f-1", "live", GENEROUS, NOON, app_name="shop", invocation_id="g-2", name="thumbs", positive=False,
        comment="I got far too much.",
    )  # fmt: skip
    return [*made, encode_feedback(thought, producer_id=producer)]


def without_tools(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case whose agent called nothing."""
    return case | {
        "actualConversation": [turn | {"tools": []} for turn in case["actualConversation"]]
    }


def _votes() -> str:
    _votes_asked.append(1)
    promise = 0 if len(_votes_asked) % 5 == 3 else 1
    said = "No date is named." if promise else "It says when the money arrives."
    scores = [
        {"id": "no-promise", "score": promise, "reason": said},
        {"id": "names-order", "score": 1, "reason": "The order is named."},
    ]
    return orjson.dumps({"rubricScores": scores}).decode()


_votes_asked: list[int] = []


@made_once
def support_store(
    folder: Path, *, count: int = 60, cases: Sequence[dict[str, Any]] | None = None
) -> Path:
    """Land the sessions in a new DuckDB file, score them, and return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = support_cases(count) if cases is None else cases
    write_log(folder / "log.db", records_of(chosen))
    (folder / "metrics.json").write_text(json.dumps([TRAJECTORY_F1, RESPONSE]))
    path = folder / "support.duckdb"
    main(["consume", "--log", str(folder / "log.db"), "--db", str(path),
          "--metrics", str(folder / "metrics.json"), "--until-idle", "--json"])  # fmt: skip
    _votes_asked.clear()
    judged = [
        case | {"source": {"revision": len(case["actualConversation"])}} for case in chosen[-3:]
    ]
    with Store(path) as store:
        score_into(store, write_cases(folder, judged), [RUBRICS], _votes)
        fixed = [
            case | {"evalSetId": "regression"} for case in chosen if case["evalId"] != GENEROUS
        ]
        score_into(store, write_cases(folder, fixed, "before.jsonl"), [TRAJECTORY_F1])
        worse = [without_tools(case) if number < 4 else case for number, case in enumerate(fixed)]
        score_into(store, write_cases(folder, worse, "after.jsonl"), [TRAJECTORY_F1])
    return path


@made_once
def compared_store(folder: Path, *, count: int = 30, files: bool = False) -> Path:
    """Land and score two versions of the agent's work, or score them from files; return the store.

    The first fails every eleventh session and none else, the second those of `support_cases`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    now = support_cases(count)
    before = [case | {"actualConversation": _worked(case, n)} for n, case in enumerate(now)]
    path, metrics = folder / "runs.duckdb", folder / "metrics.json"
    metrics.write_text(json.dumps([TRAJECTORY_F1, RESPONSE]))
    for name, cases in (("main", before), ("branch", now)):
        made = [case | {"evalSetId": name} for case in cases]
        scored = str(write_cases(folder, made, f"{name}.jsonl")) if files else str(path)
        if not files:
            log = write_log(folder / f"{name}.db", records_of(made, name)[:-1])
            main(["consume", "--log", str(log), "--db", str(path), "--until-idle", "--json"])
        into = ["--db", str(path)] if files else []
        main(["score", scored, "--metrics", str(metrics), *into, "--json"])
    return path


def _worked(case: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return the turns as they were expected, without the last call in some sessions."""
    made = []
    for actual, expected in zip(case["actualConversation"], case["conversation"], strict=True):
        tools = expected["tools"][:1] if number % 11 == 3 else expected["tools"]
        telemetry = {**actual["telemetry"], "status": "ok"}
        telemetry.pop("error", None)
        made.append(
            {**actual, "tools": tools, "telemetry": telemetry,
             "finalResponse": expected["finalResponse"]}
        )  # fmt: skip
    return made
