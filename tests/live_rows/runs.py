"""`runs`: what several runs of the cases add up to."""

from typing import Any

from evaltap.evaluator.scoring.results.result_file import summary
from evaltap.evaluator.stats import pass_at_k, pass_hat_k
from evaltap.experiments.service import cases_over_runs, set_status
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.result import EvalCaseResult
from live_rows.comparing import Row, same


def check(row: Row) -> None:
    given = row["input"]
    try:
        found = _over_runs(given)
    except InputError:
        found = {"error": True}

    same(found, {key: one for key, one in row["want"].items() if key != "peer_error"})


def _over_runs(given: Row) -> dict[str, Any]:
    results = [
        EvalCaseResult.model_validate({**one, "runId": number})
        for number, run in enumerate(given["runs"], 1)
        for one in run
    ]
    stored = summary(results, len(given["runs"]))
    cases = cases_over_runs(results, given["evalSetOrder"])
    n, c = stored.num_runs, stored.run_status_counts.passed if stored.run_status_counts else 0
    return {
        "overallStatus": set_status(cases),
        "evalCases": [
            {name: one.data()[name] for name in ("evalId", "overallStatus", "metricResults")}
            for one in cases
        ],
        "summary": stored.model_dump(by_alias=True),
        "n": n,
        "c": c,
        "pass": {
            str(k): {
                "pass_at_k": _or_error(pass_at_k, n, c, k),
                "pass_hat_k": _or_error(pass_hat_k, n, c, k),
            }
            for k in given["k"]
        },
    }


def _or_error(estimate: Any, n: int, c: int, k: int) -> float | str:
    try:
        return float(estimate(n, c, k))
    except ValueError:
        return "error"


DEVIATIONS = {
    # The numbers are the same; our report says more, which other tests check.
    "runs/errored_run_without_metrics": check,
    "runs/pass_counts_need_the_whole_set": check,
}
