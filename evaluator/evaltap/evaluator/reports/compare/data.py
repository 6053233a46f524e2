"""A comparison as JSON data, with snake_case keys."""

import math
from dataclasses import asdict

from evaltap.evaluator.reports.compare.model import CaseChange, Comparison, MetricChange, Totals
from evaltap.schemas.formats.model import Json


def comparison_data(found: Comparison) -> dict[str, Json]:
    """Return the comparison as JSON data; the top-level figures are those of the leading metric."""
    lead = found.leading
    return {
        "verdict": found.verdict,
        "exit_code": found.exit_code,
        "reasons": list(found.reasons),
        "alpha": found.rules.alpha,
        "margin": found.rules.margin,
        "metric": lead.metric,
        "p_value": lead.p_value if lead.adjusted_p is None else lead.adjusted_p,
        "drop": _number(lead.drop),
        "low": _number(lead.interval.low),
        "high": _number(lead.interval.high),
        "minimal_detectable_drop": lead.detectable,
        "base": {"name": found.base_name, "runs": found.base_runs, **_totals(lead.base)},
        "head": {"name": found.head_name, "runs": found.head_runs, **_totals(lead.head)},
        "metrics": [_metric(one) for one in found.metrics],
        "cases": [_case(case, one.metric) for one in found.metrics for case in one.cases],
        "usage": [
            {
                "name": one.name,
                "unit": one.unit,
                "cases": one.ratio.n,
                "base": one.base,
                "head": one.head,
                "ratio": one.ratio.value,
                "low": one.ratio.interval.low if one.is_bounded else None,
                "high": one.ratio.interval.high if one.is_bounded else None,
                "p_value": one.p_value,
            }
            for one in found.usage
        ],
        "strata": [
            {"by": one.by, "value": one.value, **_metric(one.metric)} for one in found.strata
        ],
        "added": list(found.added),
        "removed": list(found.removed),
        "changed": list(found.changed),
        "differences": [asdict(one) for one in found.differences],
        "notes": list(found.notes),
    }


def _totals(side: Totals) -> dict[str, Json]:
    return {
        "cases": side.cases,
        "trials": side.trials,
        "rate": side.rate and _number(side.rate.value),
        "low": _number(side.rate.interval.low) if side.rate else 0.0,
        "high": _number(side.rate.interval.high) if side.rate else 1.0,
        "missing": side.missing,
        "mean_score": side.mean_score,
    }


def _metric(metric: MetricChange) -> dict[str, Json]:
    return {
        "metric": metric.metric,
        "kind": "score" if metric.graded else "verdict",
        "unit": metric.unit,
        "decides": metric.decides,
        "p_value": metric.p_value,
        "adjusted_p": metric.adjusted_p,
        "q_value": metric.q_value,
        "p_value_improvement": metric.p_improvement,
        "drop": _number(metric.drop),
        "low": _number(metric.interval.low),
        "high": _number(metric.interval.high),
        "minimal_detectable_drop": metric.detectable,
        "base": _totals(metric.base),
        "head": _totals(metric.head),
        "undecided": list(metric.undecided),
    }


def _case(case: CaseChange, metric: str) -> dict[str, Json]:
    app, eval_set, _ = case.key
    rate = case.rate
    return {
        "eval_id": case.key[2],
        "eval_set_id": eval_set,
        "app_name": app,
        "metric": metric,
        "base": list(case.base),
        "head": list(case.head),
        "p_value": case.p_value,
        "change": case.change,
        "outcome": case.outcome,
        **(
            {"rate": rate.value, "low": rate.interval.low, "high": rate.interval.high}
            if rate
            else {}
        ),
    }


def _number(value: float) -> float | None:
    """Return a number; None for NaN and infinity, which JSON cannot represent and which mean no data."""
    return value if math.isfinite(value) else None
