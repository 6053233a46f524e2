"""What is in a store that was filled a moment ago, on one screen: turns, tools, failures, extremes, gaps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.summary import CaseRow, summarise
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.text import counted

METRICS: Final[Sequence[CaseData]] = (
    {"metricName": "run_succeeded", "threshold": 1},
    {
        "metricName": "trajectory_no_loop",
        "threshold": 1,
        "criterion": {"trajectory": {"repeats": 3, "maxPeriod": 4}},
    },
    {"metricName": "trajectory_redundancy", "threshold": 0.8, "criterion": {"trajectory": {}}},
    {"metricName": "trajectory_error_recovery", "threshold": 0.5, "criterion": {"trajectory": {}}},
)
"""What can be said of any turn, without a reference or a judge."""

_TOOLS: Final = 8
_EXTREMES: Final = 3
_WORST: Final = 5
_REASON: Final = 160
_OPENING: Final = 48


@dataclass(frozen=True, slots=True)
class ToolUse:
    name: str
    calls: int
    errors: int
    p95_ms: float | None


@dataclass(frozen=True, slots=True)
class TurnValue:
    """A turn that is extreme in some amount, and the user's message."""

    eval_id: str
    value: float
    opening: str


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What the turns of a store show; None is unknown."""

    sessions: int
    turns: int
    calls: int
    failed: int
    """Turns whose run failed."""
    unfinished: int
    """Turns whose run did not end."""
    status_unknown: int
    dead_letters: int
    """Records that could not be landed."""
    looping: int
    """Turns that repeat a call over and over."""
    tools: Sequence[ToolUse]
    slowest: Sequence[TurnValue]
    """In milliseconds."""
    costliest: Sequence[TurnValue]
    """In US dollars."""
    cost_usd: float | None
    """Of the turns whose cost is known."""
    cost_known: int
    """Number of turns whose cost is known."""
    tokens: int | None
    tokens_known: int
    worst: Sequence[CaseRow]
    missing: Sequence[tuple[str, int, int]]
    """What was not recorded, the number of turns or calls without it, and their total."""

    def data(self) -> dict[str, object]:
        rows = [{"what": what, "without": lack, "of": total} for what, lack, total in self.missing]
        return {**asdict(self), "missing": rows}


def first_look(store: StoreReader) -> FirstLook:
    """Return what the landed and scored turns of a store show."""
    (figures,) = store.records(_FIGURES)
    return FirstLook(
        **figures,
        tools=[ToolUse(*row) for row in store.rows(_BY_TOOL)],
        slowest=[TurnValue(*row) for row in store.rows(_EXTREME.format(amount="latency_ms"))],
        costliest=[TurnValue(*row) for row in store.rows(_EXTREME.format(amount="cost_usd"))],
        worst=summarise(store, worst=_WORST).worst,
        missing=[(what, lack, total) for what, lack, total in store.rows(_MISSING) if lack],
    )


_FIGURES = """
SELECT (SELECT count(*) FROM latest_cases) AS sessions, count(*) AS turns,
       (SELECT count(*) FROM latest_tool_calls) AS calls,
       count(*) FILTER (status = 'error') AS failed,
       count(*) FILTER (status = 'incomplete') AS unfinished,
       count(*) FILTER (status IS NULL) AS status_unknown,
       (SELECT count(*) FROM dead_letters) AS dead_letters,
       (SELECT count(*) FROM latest_turn_scores
        WHERE metric_name = 'trajectory_no_loop' AND score < 1) AS looping,
       sum(cost_usd) AS cost_usd, count(cost_usd) AS cost_known,
       sum(input_tokens + output_tokens)::BIGINT AS tokens,
       count(input_tokens + output_tokens) AS tokens_known
FROM latest_turns
"""
_BY_TOOL = (
    "SELECT coalesce(tool_name, ''), calls, errors, p95_ms FROM v_tools"
    f" ORDER BY errors DESC, calls DESC, tool_name LIMIT {_TOOLS}"
)
_EXTREME = (
    "SELECT eval_id, {amount}, coalesce(user_text, '') FROM latest_turns WHERE {amount} IS NOT NULL"
    f" ORDER BY {{amount}} DESC, eval_id LIMIT {_EXTREMES}"
)
_MISSING = """
SELECT 'question', count(*) FILTER (user_text IS NULL), count(*) FROM latest_turns
UNION ALL SELECT 'answer', count(*) FILTER (final_text IS NULL), count(*) FROM latest_turns
WHERE coalesce(status, '') NOT IN ('error', 'incomplete')
UNION ALL SELECT 'status', count(*) FILTER (status IS NULL), count(*) FROM latest_turns
UNION ALL SELECT 'latency', count(*) FILTER (latency_ms IS NULL), count(*) FROM latest_turns
UNION ALL SELECT 'tokens', count(*) FILTER (input_tokens + output_tokens IS NULL), count(*)
FROM latest_turns
UNION ALL SELECT 'cost', count(*) FILTER (cost_usd IS NULL), count(*) FROM latest_turns
UNION ALL SELECT 'session id', count(*) FILTER (capture ->> 'sessionId' = 'synthesized'), count(*)
FROM latest_turns
UNION ALL SELECT 'tool calls', count(*) FILTER (capture ->> 'tools' IS NOT NULL), count(*)
FROM latest_turns
UNION ALL SELECT 'tool arguments', count(*) FILTER (arguments IS NULL), count(*) FROM latest_tool_calls
UNION ALL SELECT 'tool result',
  count(*) FILTER (result IS NULL AND error_type IS NULL AND error_message IS NULL), count(*)
FROM latest_tool_calls
UNION ALL SELECT 'tool duration', count(*) FILTER (duration_ms IS NULL), count(*)
FROM latest_tool_calls
"""


def look_lines(look: FirstLook) -> Iterator[str]:
    """Yield the screen: one subject a line, the unknown said as such."""
    yield (
        f"{counted(look.turns, 'turn')} in {counted(look.sessions, 'session')},"
        f" {counted(look.calls, 'tool call')}"
    )
    if look.dead_letters:
        yield f"not landed   {counted(look.dead_letters, 'record')}, see evaltap store dlq list"
    if known := look.turns - look.status_unknown:
        yield (
            f"crashed      {look.failed:,} of {counted(known, 'turn')} failed, {look.unfinished:,}"
            f" did not end{_unknown(look.status_unknown)}"
        )
    else:
        yield "crashed      unknown: these files do not say how runs ended"
    if look.calls:
        yield f"loops        {counted(look.looping, 'turn')}"
        yield "tools        failed of calls, 95 % of calls within"
        for tool in look.tools:
            within = "" if tool.p95_ms is None else f", {_seconds(tool.p95_ms)}"
            yield f"  {_short(tool.name, 32):<32} {tool.errors:>5,} of {tool.calls:,}{within}"
    yield from _extremes("slowest", look.slowest, _seconds)
    yield from _extremes("costliest", look.costliest, _dollars)
    if look.cost_usd is not None:
        yield f"total cost   {_dollars(look.cost_usd)}{_unknown(look.turns - look.cost_known)}"
    if look.tokens is not None:
        yield f"tokens       {look.tokens:,}{_unknown(look.turns - look.tokens_known)}"
    if look.worst:
        yield "worst cases"
        for case in look.worst:
            verdict = case.status if case.status == "crashed" else case.metric_name
            yield f"  {_short(case.name, 40)}  {verdict}: {_short(case.reason, _REASON)}"
    if look.missing:
        gaps = (f"{what} ({lack:,} of {total:,})" for what, lack, total in look.missing)
        yield f"not recorded {', '.join(gaps)}"


def _extremes(
    title: str, turns: Sequence[TurnValue], shown: Callable[[float], str]
) -> Iterator[str]:
    if not turns:
        yield f"{title:<12} unknown"
    for number, turn in enumerate(turns):
        head = title if not number else ""
        text = _short(turn.opening, _OPENING)
        yield f"{head:<12} {shown(turn.value):>9}  {_short(turn.eval_id, 36)}  {text}".rstrip()


def _unknown(count: int) -> str:
    return f"; unknown for {counted(count, 'turn')}" if count else ""


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:,.1f} s"


def _dollars(amount: float) -> str:
    return f"${amount:,.4f}"


def _short(text: str, limit: int) -> str:
    return one_line(visible(text), limit)
