"""Add up the usage of turns: cost, tokens, latency; unknown values remain unknown."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from evaltap.evaluator.analysis.estimates.turns import weighted_quantiles
from evaltap.evaluator.analysis.stats.rate import percentile
from evaltap.evaluator.cases.costs import cost_of
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.turn import FAILED_RUNS
from evaltap.evaluator.reports.model import Usage
from evaltap.evaluator.reports.scope import ReportedScores
from evaltap.evaluator.store.database import sql
from evaltap.schemas.data import CaseData
from evaltap.schemas.text import counted

Number = TypeVar("Number", int, float)


class TurnUse(NamedTuple):
    """The usage of one turn, or one call of a judge; None if it was not recorded."""

    key: CaseKey
    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    latency_ms: float | None
    run_failed: bool = False
    """Whether the run failed, never ended or was cut off."""
    weight: float = 1.0
    """The number of turns of the traffic that it represents."""


def turn_uses(key: CaseKey, case: CaseData) -> list[TurnUse]:
    turns = case.get("actualConversation") or case.get("conversation") or ()
    telemetry = [(turn or {}).get("telemetry") or {} for turn in turns]
    return [
        TurnUse(
            key,
            cost_of(one),
            one.get("inputTokens"),
            one.get("outputTokens"),
            one.get("latencyMs"),
            one.get("status") in FAILED_RUNS,
        )
        for one in telemetry
    ]


def usage_of(uses: Sequence[TurnUse]) -> Usage:
    """Return the sums, and the median and 95th percentile of the latencies."""
    costs = _known(use.cost_usd for use in uses)
    latencies = _known(use.latency_ms for use in uses)
    return Usage(
        len(uses),
        total(costs),
        len(costs),
        total(_known(use.input_tokens for use in uses)),
        total(_known(use.output_tokens for use in uses)),
        percentile(latencies, 0.5),
        percentile(latencies, 0.95),
        len(latencies),
        sum(use.input_tokens is not None and use.output_tokens is not None for use in uses),
    )


def usage_in(scored: ReportedScores, rows: str) -> Usage:
    """Return the same of the rows of a query, added up in the store."""
    ((count, cost, costs, tokens_in, tokens_out, latencies, known, with_tokens),) = scored.rows(
        "SELECT count(*), sum(cost_usd), count(cost_usd), sum(input_tokens), sum(output_tokens),"
        " quantile_cont(latency_ms, [0.5, 0.95]), count(latency_ms), count(input_tokens + output_tokens)"
        f" {rows}"
    )
    p50, p95 = latencies or (None, None)
    return Usage(
        count,
        cost,
        costs,
        None if tokens_in is None else int(tokens_in),
        None if tokens_out is None else int(tokens_out),
        p50,
        p95,
        known,
        with_tokens,
    )


def landed_usage(scored: ReportedScores) -> Usage:
    """Return what the landed turns of all scored cases used."""
    return usage_in(
        scored, "FROM latest_turns SEMI JOIN {scores} USING (app_name, eval_set_id, eval_id)"
    )


def landed_uses(scored: ReportedScores) -> list[TurnUse]:
    """Return the usage of each landed turn of the chosen cases."""
    rows = scored.rows(sql(__name__, "report_usage"))
    return [TurnUse((app, eval_set, eval_id), *use) for app, eval_set, eval_id, *use in rows]


def traffic_usage(scored: ReportedScores, recorded: Usage) -> Usage:
    """Return the usage of all traffic, of which the landed turns of the scored cases are a sample."""
    ((turns, cost, tokens_in, tokens_out),) = scored.rows(sql(__name__, "report_traffic"))
    p50, p95 = weighted_quantiles(
        scored.store,
        f"FROM latest_turns SEMI JOIN {scored.scores} USING (app_name, eval_set_id, eval_id)",
        "latency_ms",
        (0.5, 0.95),
    )
    return replace(
        recorded,
        cost_usd=cost,
        input_tokens=None if tokens_in is None else round(tokens_in),
        output_tokens=None if tokens_out is None else round(tokens_out),
        latency_p50_ms=p50,
        latency_p95_ms=p95,
        estimated_turns=turns,
        recorded=recorded,
    )


def total(values: Sequence[Number]) -> Number | None:
    """Return the sum; None without values, because unrecorded usage is not zero."""
    return sum(values[1:], values[0]) if values else None


def unknown(use: Usage, known: int, noun: str) -> str:
    """Say of how many turns or calls something was not recorded, which is in no sum; empty for none."""
    noun = noun if use.estimated_turns is None else f"recorded {noun}"
    return f"unknown for {counted(use.count - known, noun)}" if known < use.count else ""


def _known(values: Iterable[Number | None]) -> list[Number]:
    return [value for value in values if value is not None]
