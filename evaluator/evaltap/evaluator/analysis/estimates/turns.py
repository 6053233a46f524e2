"""The turns of an estimate as a table: slices, session, probability, and whether they have the signal."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import duckdb

from evaltap.evaluator.analysis.estimates import languages
from evaltap.evaluator.analysis.estimates.scope import DIMENSIONS, Join, Scope, Signal, Unit
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

COLUMNS: Final = (
    "app", "eval_set_id", "eval_id", "invocation_id", "revision", "producer_id", "started_at", "status",
    "user_text", "final_text", "tool_count", "models", "input_tokens", "output_tokens", "cost_usd",
    "latency_ms", "error_type", "error_message", "trace_id", "sampling_reason", "inclusion_probability",
    "agent_name", "version", "environment", "tags", "run",
    "service", "framework", "tools", "failed_calls", "complaints", "language",
)  # fmt: skip
"""The columns that a condition may name."""

_JOINED: Final[Mapping[Join, tuple[str, str]]] = {
    Join.CASES: (
        "c.service, c.framework",
        "LEFT JOIN latest_cases c USING (app_name, eval_set_id, eval_id)",
    ),
    Join.CALLS: (
        "coalesce(k.tools, []) AS tools, k.failed_calls",
        """LEFT JOIN (
          SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
                 list(tool_name ORDER BY call_index) AS tools,
                 count(*) FILTER (error_type IS NOT NULL OR error_message IS NOT NULL) AS failed_calls
          FROM latest_tool_calls GROUP BY ALL
        ) k USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)""",
    ),
    Join.FEEDBACK: (
        "f.complaints",
        "LEFT JOIN v_turn_feedback f USING (app_name, eval_set_id, eval_id, invocation_id)",
    ),
    Join.LANGUAGES: ("g.language", languages.JOIN),
}

_NAMES: Final[Mapping[Join, re.Pattern[str]]] = {
    join: re.compile(rf"\b(?:{names})\b", re.IGNORECASE)
    for join, names in {
        Join.CASES: "service|framework",
        Join.CALLS: "tools|failed_calls",
        Join.FEEDBACK: "complaints",
        Join.LANGUAGES: "language",
    }.items()
}
"""The names in a condition that require a join; each join reads another table."""

_SCORES: Final[Mapping[Unit, str]] = {
    Unit.TURN: """
        SELECT app_name AS app, eval_set_id, eval_id, invocation_id, turn_revision AS revision,
               metric_name AS metric, metric_digest, status AS verdict, score, scored_at,
               coalesce(d.probability, 1) AS scored_probability, d.unit = 'turn' AS drawn_by_turn
               {columns}
        FROM {scores} {joins}
        LEFT JOIN latest_decisions d
          USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name,
                 metric_digest)""",
    Unit.CASE: """
        SELECT app_name AS app, eval_set_id, eval_id, '' AS invocation_id,
               metric_name AS metric, metric_digest, status AS verdict, score, scored_at,
               1 AS scored_probability, false AS drawn_by_turn
        FROM {scores}""",
}
_NO_CHANCE: Final = """
        UNION ALL BY NAME
        SELECT app_name AS app, eval_set_id, eval_id, invocation_id, turn_revision AS revision,
               metric_name AS metric, metric_digest, 'uncovered' AS verdict, decided_at AS scored_at,
               1 AS scored_probability, false AS drawn_by_turn
        FROM latest_decisions WHERE decision = 'uncovered'"""
_KEYS: Final[Mapping[Unit, str]] = {
    Unit.TURN: "app, eval_set_id, eval_id, invocation_id, revision",
    Unit.CASE: "app, eval_set_id, eval_id, invocation_id",
}
_WITH_FILES: Final = """FROM (
  SELECT * FROM scored LEFT JOIN landed USING ({keys})
  WHERE inclusion_probability IS NOT NULL
     OR (app, eval_set_id, eval_id) NOT IN (SELECT (app_name, eval_set_id, eval_id) FROM cases)
)"""
_METRIC_COLUMNS: Final = "metric, metric_digest, score, scored_at"
_NO_METRIC_COLUMNS: Final = """NULL::VARCHAR AS metric, NULL::VARCHAR AS metric_digest,
               NULL::DOUBLE AS score, NULL::TIMESTAMP AS scored_at"""
_LATEST_CASE_SCORES: Final = """(
  SELECT * FROM scores WHERE {chosen} QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, metric_digest ORDER BY revision DESC, scored_at DESC
  ) = 1
)"""
_LATEST_RUN_SCORES: Final = """(
  SELECT * FROM turn_scores WHERE run_id = $run_id QUALIFY rank() OVER (
    PARTITION BY app_name, eval_set_id, eval_id,
                 if(invocation_id = '', turn_index::VARCHAR, invocation_id), metric_digest
    ORDER BY turn_revision DESC
  ) = 1
)"""
_VOTES: Final = """
JOIN (
  SELECT run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name,
         count(*) AS votes, count(*) FILTER (status = 'passed') AS votes_passed
  FROM judge_calls WHERE status IN ('passed', 'failed') GROUP BY ALL
) USING (run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name)"""


def choose_turns(
    store: StoreReader,
    scope: Scope,
    by: Sequence[str],
    signal: Signal,
    unit: Unit = Unit.TURN,
    limit: float | None = None,
) -> None:
    """Write the temporary table `estimate_turns`: a row for each turn, slice and metric version.

    Columns: by_0, by_1, … (the slice, texts), metric, metric_digest, score, scored_at, session (64 bits of a
    hash), eval_set_id, eval_id, invocation_id, producer_id, started_at, recorded, scored, by_turn (the
    probability that it was recorded, the probability that it was then scored, and whether by its own draw),
    probability (the product), has, counts, uncovered (a rule excluded it from the metric's sample).
    """
    joins = _joins(scope, by, signal)
    if Join.LANGUAGES in joins:
        languages.write_languages(store, scope)
    chosen = _chosen(scope, joins, unit)
    parameters: dict[str, object] = {**scope.window, "metric": scope.metric}
    parameters |= {"digests": list(scope.digests), "run_id": scope.run_id}
    if limit is not None:
        parameters["limit"] = limit
    if signal.of_metric:
        columns, scores = _METRIC_COLUMNS, _scores(scope, signal, unit)
        scored = "scored_probability::DOUBLE"
        by_turn = "coalesce(drawn_by_turn AND scored_probability < 1, false)"
        uncovered = "(verdict = 'uncovered')"
        source = f"FROM scored JOIN landed USING ({_KEYS[unit]})"
        if scope.with_files:
            source = _WITH_FILES.format(keys=_KEYS[unit])
    else:
        columns, scores, source = _NO_METRIC_COLUMNS, "SELECT NULL", "FROM landed"
        scored, by_turn, uncovered = "1.0::DOUBLE", "false", "false"
    slices, unnested = _slices(by)
    statement = f"""
        CREATE OR REPLACE TEMP TABLE estimate_turns AS
        WITH landed AS ({chosen}), scored AS ({scores})
        SELECT {slices} {columns}, hash(app, eval_set_id, eval_id) AS session,
               eval_set_id, eval_id, invocation_id, producer_id, started_at,
               coalesce(inclusion_probability, 1)::DOUBLE AS recorded, {scored} AS scored,
               {by_turn} AS by_turn, recorded * {scored} AS probability,
               ({signal.has}) AS has, coalesce({signal.counts}, false) AND NOT {uncovered} AS counts,
               {uncovered} AS uncovered
        {source}{unnested}
    """
    named = {key: value for key, value in parameters.items() if f"${key}" in statement}
    try:
        store.execute(statement, named)
    except duckdb.Error as error:
        if not scope.where:
            raise
        raise InputError(
            f"--where {scope.where}: {str(error).splitlines()[0]}; expected an SQL condition over"
            f" {', '.join(COLUMNS)}"
        ) from None


def _joins(scope: Scope, by: Sequence[str], signal: Signal) -> set[Join | None]:
    """Return the joins that slices, the signal and the condition need."""
    found = {DIMENSIONS[name].join for name in by} | {signal.join}
    return found | {join for join, names in _NAMES.items() if names.search(scope.where)}


def _chosen(scope: Scope, joins: set[Join | None], unit: Unit) -> str:
    wanted = [one for one in Join if one in joins]
    if unit is Unit.CASE:
        wanted = [one for one in wanted if one is Join.CASES]
    columns = "".join(f", {_JOINED[one][0]}" for one in wanted)
    query = sql(__name__, "turns" if unit is Unit.TURN else "cases").format(
        columns=columns,
        turns="latest_turns" if scope.run_id is None else "turns",
        joins="\n".join(_JOINED[one][1] for one in wanted),
    )
    if not scope.where:
        return query
    _check_condition(scope.where)
    return f"SELECT * FROM (\n{query}\n) WHERE (\n{scope.where}\n)"


def _check_condition(where: str) -> None:
    """Raise InputError unless the text is a single condition, which can only read data."""
    text = f"SELECT 1 WHERE (\n{where}\n)"
    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise InputError(f"--where {where}: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
        raise InputError(f"--where {where}: expected one SQL condition")


def _scores(scope: Scope, signal: Signal, unit: Unit) -> str:
    if unit is Unit.CASE:
        chosen = "TRUE" if scope.run_id is None else "run_id = $run_id"
        found = _SCORES[unit].format(scores=_LATEST_CASE_SCORES.format(chosen=chosen))
    else:
        found = _SCORES[unit].format(
            scores="latest_turn_scores" if scope.run_id is None else _LATEST_RUN_SCORES,
            columns=", votes, votes_passed" if signal.votes else "",
            joins=_VOTES if signal.votes else "",
        )
    conditions = []
    if scope.metric:
        conditions.append("metric_name = $metric")
    if scope.digests:
        conditions.append("metric_digest IN $digests::VARCHAR[]")
    chosen = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    if unit is Unit.CASE or scope.run_id is not None or signal.votes:
        return found + chosen
    return found + chosen + _NO_CHANCE + chosen.replace("WHERE", "AND", 1)


def _slices(by: Sequence[str]) -> tuple[str, str]:
    """Return the columns of a slice, and the SQL that creates a row for each of several values."""
    columns, unnested = "", ""
    for place, name in enumerate(by):
        dimension = DIMENSIONS[name]
        if dimension.many:
            values = f"({dimension.expression})"
            unnested += (
                f", unnest(if(len({values}) > 0, {values}, [NULL])) AS u{place}(value_{place})"
            )
            columns += f"value_{place} AS by_{place}, "
        else:
            columns += f"{dimension.expression} AS by_{place}, "
    return columns, unnested
