"""Find the turns that a recipe's picks may take, each in its order, in the database."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from evaltap.evaluator.analysis.filters.choice import turns_with
from evaltap.evaluator.analysis.traffic import without_runs
from evaltap.evaluator.curation.recipe import DIMENSIONS, Pick, Recipe
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import stored_time

OFFERED: Final = 5_000
"""The maximum number of turns offered to one pick; near-duplicates among them are removed afterwards."""
STRATIFIED: Final = ("stratified", "uncovered")
"""The picks that take a few turns of each stratum, which their labels name."""


class TurnKey(NamedTuple):
    """A landed turn."""

    app: str
    eval_set_id: str
    eval_id: str
    invocation_id: str

    @property
    def name(self) -> str:
        """The name in reports: `<eval id>#<invocation id>`."""
        return f"{self.eval_id}#{self.invocation_id}"


class Offer(NamedTuple):
    """A turn that a pick may take, and its label."""

    key: TurnKey
    label: str
    draw: float | None = None
    """The number by which a sample of the traffic is ordered; None if a measure orders the turns."""


class _Parts(NamedTuple):
    condition: str
    value: str = "''"
    measure: str = ""
    extra: str = ""
    joins: str = ""
    parameters: Mapping[str, object] = {}
    columns: str = ""
    """Columns of the view, separated by commas; other columns are not computed."""


def offered(store: StoreReader, recipe: Recipe, pick: Pick) -> list[Offer]:
    """Return the turns that a pick may take, the best first."""
    parts = _PARTS[pick.label](pick)
    statement = sql(__name__, "picked").format(
        source=source_of(store, recipe),
        turns=turns_with(recipe.where, parts.columns),
        columns=f", {parts.columns}" if parts.columns else "",
        extra=parts.extra,
        condition=parts.condition,
        value=parts.value,
        measure=f"{parts.measure}," if parts.measure else "",
        joins=parts.joins,
    )
    parameters = {**scope_of(recipe), "seed": recipe.seed, "most": OFFERED, **parts.parameters}
    drawn = not parts.measure or pick.label in STRATIFIED
    return [
        Offer(
            TurnKey(*key), f"{pick.label}:{value}" if value else pick.label, draw if drawn else None
        )
        for *key, value, draw in store.rows(statement, parameters)
    ]


def source_of(store: StoreReader, recipe: Recipe) -> str:
    """Return the conditions on the turns of a recipe's window, besides the parameters."""
    conditions = (recipe.where and f"(\n{recipe.where}\n)", without_runs(store, recipe.where))
    return "".join(f"AND {one} " for one in conditions if one)


def scope_of(recipe: Recipe) -> dict[str, Any]:
    """Return the parameters of a recipe's window."""
    return {
        "since": recipe.since and stored_time(recipe.since),
        "until": recipe.until and stored_time(recipe.until),
        "app": recipe.app,
    }


def _failed(pick: Pick) -> _Parts:
    if pick.metric:
        return _Parts(
            "list_contains(failed_metrics, $metric)",
            "$metric",
            parameters={"metric": pick.metric},
            columns="failed_metrics",
        )
    value = "array_to_string(failed_metrics, ',')"
    return _Parts("len(failed_metrics) > 0", value, columns="failed_metrics")


def _errors(_: Pick) -> _Parts:
    condition = "(status IN ('error', 'incomplete') OR failed_calls > 0)"
    value = "coalesce(error_type, if(failed_calls > 0, 'tool', status))"
    return _Parts(condition, value, columns="status, failed_calls, error_type")


def _disagreement(pick: Pick) -> _Parts:
    named = "AND metric_name = $metric" if pick.metric else ""
    extra = f""", votes AS (
      SELECT app_name AS app, eval_set_id, eval_id, invocation_id, turn_revision AS revision,
             arg_max(metric_name, split) AS disputed, max(split) AS split
      FROM (
        SELECT run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name,
               least(count(*) FILTER (status = 'passed'), count(*) FILTER (status = 'failed'))
                 / count(*) AS split
        FROM judge_calls WHERE status IN ('passed', 'failed') {named} GROUP BY ALL
      ) WHERE split > 0 GROUP BY ALL
    )"""
    joins = "JOIN votes USING (app, eval_set_id, eval_id, invocation_id, revision)"
    parameters = {"metric": pick.metric} if pick.metric else {}
    return _Parts("TRUE", "disputed", "split DESC", extra, joins, parameters)


def _rare(values: str, columns: str, pick: Pick) -> _Parts:
    """Return the parts for turns with a value whose weighted share of turns is small."""
    extra = f""", rare AS (
      SELECT one, sum(weight) AS of_one FROM (
        SELECT weight, unnest({values}) AS one FROM chosen
      ) GROUP BY ALL HAVING of_one < $below * (SELECT sum(weight) FROM chosen)
    ), of_turns AS (
      SELECT app, eval_set_id, eval_id, invocation_id, arg_min(one, of_one) AS rarest,
             min(of_one) AS of_rarest
      FROM (SELECT app, eval_set_id, eval_id, invocation_id, unnest({values}) AS one FROM chosen)
      JOIN rare USING (one) GROUP BY ALL
    )"""
    joins = "JOIN of_turns USING (app, eval_set_id, eval_id, invocation_id)"
    shown = "if(rarest = '', '(none)', rarest)"
    return _Parts("TRUE", shown, "of_rarest", extra, joins, {"below": pick.below}, columns)


def _top(column: str, pick: Pick) -> _Parts:
    """Return the parts for the turns with the highest values of a column, up to a share of the traffic."""
    extra = f""", ranked AS (
      SELECT app, eval_set_id, eval_id, invocation_id,
             sum(weight) OVER (ORDER BY {column} DESC) - weight AS above, sum(weight) OVER () AS whole
      FROM chosen WHERE {column} IS NOT NULL
    )"""
    joins = "JOIN ranked USING (app, eval_set_id, eval_id, invocation_id)"
    condition = "above < $top * whole"
    value, measure = f"round({column}, 6)", f"{column} DESC"
    return _Parts(condition, value, measure, extra, joins, {"top": pick.top}, column)


def _stratified(pick: Pick) -> _Parts:
    """Return the parts for a draw that takes turns evenly from strata: first one of each, then a second, …"""
    if not (names := [DIMENSIONS[name] for name in pick.by if name in DIMENSIONS]):
        return _Parts("TRUE")
    stratum = ", ".join(names)
    value = (
        "concat_ws(', ', " + ", ".join(f"if({one} = '', '(none)', {one})" for one in names) + ")"
    )
    measure = f"row_number() OVER (PARTITION BY {stratum} ORDER BY draw)"
    columns = {"tool_path", "service", "models", "version", "outcome", "started_at"}
    used = [one for one in sorted(columns) if one in stratum]
    return _Parts("TRUE", value, measure, columns=", ".join(used))


_APPROVED: Final = """SEMI JOIN (
  SELECT app_name AS app, eval_set_id, eval_id, invocation_id FROM v_review_items WHERE verdict = 'good'
) USING (app, eval_set_id, eval_id, invocation_id)"""

_PARTS: Final[Mapping[str, Callable[[Pick], _Parts]]] = {
    "failed": _failed,
    "errors": _errors,
    "thumbs_down": lambda pick: _Parts(
        "complaints > 0", measure="complaints DESC", columns="complaints"
    ),
    "thumbs_up": lambda pick: _Parts("praises > 0", measure="praises DESC", columns="praises"),
    "disagreement": _disagreement,
    "rare_tool": lambda pick: _rare("list_distinct(tools)", "tools", pick),
    "rare_path": lambda pick: _rare("[tool_path]", "tool_path", pick),
    "slow": lambda pick: _top("latency_ms", pick),
    "costly": lambda pick: _top("cost_usd", pick),
    "long": lambda pick: _top("tool_count", pick),
    "uncovered": _stratified,
    "new": lambda pick: _Parts("TRUE"),
    "stratified": _stratified,
    "approved": lambda pick: _Parts("TRUE", joins=_APPROVED),
    "random": lambda pick: _Parts("TRUE"),
}
"""The parts of each label."""
