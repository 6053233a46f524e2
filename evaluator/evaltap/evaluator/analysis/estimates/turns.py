"""`Turns`, a chosen, weighted set of turns: all rates, means and slices of traffic are computed from one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import duckdb

from evaltap.evaluator.analysis.estimates.scope import (
    CASE,
    DIMENSIONS,
    SESSION,
    Cluster,
    Join,
    Scope,
    Signal,
    Unit,
)
from evaltap.evaluator.analysis.filters.choice import fault_of
from evaltap.evaluator.analysis.stats.estimate import Cell, Profile
from evaltap.evaluator.analysis.traffic import without_runs
from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import Parameters, Rows, Scratch, StoreReader, newest_of
from evaltap.schemas.errors import InputError

COLUMNS: Final = (
    "app, eval_set_id, eval_id, invocation_id, revision, producer_id, started_at, status, user_text,"
    " final_text, tool_count, models, input_tokens, output_tokens, cost_usd, latency_ms, error_type,"
    " error_message, trace_id, sampling_reason, inclusion_probability, agent_name, version, environment,"
    " tags, run, service, framework, tools, failed_calls, complaints, language"
)
"""The columns that a condition may name."""

_JOINED: Final[Mapping[Join, tuple[str, str]]] = {
    Join.CASES: (
        "c.user_id, c.service, c.framework",
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
    Join.LANGUAGES: ("g.language", "LEFT JOIN {languages} g ON g.text = hash(t.user_text)"),
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
_TURN: Final = """app_name, eval_set_id, eval_id,
                 if(invocation_id = '', turn_index::VARCHAR, invocation_id), metric_digest"""
NEWEST_SCORES: Final = newest_of("turn_scores", _TURN, "turn_revision DESC, scored_at DESC")
"""The rows of `latest_turn_scores`, of the whole store."""
# Of landed turns the last score, which feedback may have changed; of files and gates all trials.
_LATEST_RUN_SCORES: Final = f"""(
  SELECT s.* FROM turn_scores s JOIN runs r USING (run_id) WHERE run_id = $run_id QUALIFY rank() OVER (
    PARTITION BY {_TURN}
    ORDER BY turn_revision DESC, CASE WHEN r.kind IN ('landed', 'live') THEN scored_at END DESC
  ) = 1
)"""
_VOTES: Final = """
JOIN (
  SELECT run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name,
         count(*) AS votes, count(*) FILTER (status = 'passed') AS votes_passed
  FROM judge_calls WHERE status IN ('passed', 'failed') GROUP BY ALL
) USING (run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name)"""


@dataclass(frozen=True, slots=True)
class Turns:
    """Chosen turns: a row for each turn, slice and metric version; they last as long as `choose_turns`.

    Columns: by_0, by_1, … (the slice, texts), metric, metric_digest, score, scored_at, session (of the
    cluster: 64 bits of a hash), app, eval_set_id, eval_id, invocation_id, producer_id, started_at, recorded,
    scored, by_turn (the probability that it was recorded, the probability that it was then scored, and
    whether by its own draw), probability (the product), has, counts, uncovered (a rule excluded it from the
    metric's sample).
    """

    store: StoreReader
    table: Scratch
    by: tuple[str, ...] = ()

    @property
    def columns(self) -> str:
        """The columns of the slice, as a prefix for more columns in SQL."""
        return "".join(f"by_{place}, " for place in range(len(self.by)))

    def rows(self, query: str, parameters: Parameters = None, **more: object) -> Rows:
        """Return the rows of a query that names `{turns}` and, as a prefix, the columns of `{slices}`."""
        return self.store.rows(
            query.format(turns=self.table, slices=self.columns, **more), parameters
        )

    def profiles(self) -> dict[tuple[object, ...], list[Profile]]:
        """Return the clusters as estimators need them, by slice, metric and digest."""
        found: dict[tuple[object, ...], list[Profile]] = {}
        for *key, cells, sessions in self.rows(sql(__name__, "profiles")):
            read = (
                Cell(p, int(turns), total, squares, q, bool(by_turn))
                for p, turns, total, squares, q, by_turn in cells
            )
            found.setdefault(tuple(key), []).append(Profile(tuple(read), sessions))
        return found


@contextmanager
def choose_turns(
    store: StoreReader,
    scope: Scope,
    by: Sequence[str],
    signal: Signal,
    unit: Unit = Unit.TURN,
    *,
    limit: float | None = None,
    cluster: Cluster = SESSION,
) -> Iterator[Turns]:
    """Yield the turns of a scope, with their slices, weights and the signal."""
    joins = {DIMENSIONS[name].join for name in by} | {signal.join, cluster.join}
    joins |= {join for join, names in _NAMES.items() if names.search(scope.where)}
    parameters: dict[str, object] = {**scope.window, "metric": scope.metric}
    parameters |= {"digests": list(scope.digests), "run_id": scope.run_id, "limit": limit}
    with ExitStack() as stack:
        languages = None
        if Join.LANGUAGES in joins:
            languages = stack.enter_context(_languages(store, scope))
        chosen = _chosen(scope, joins, unit, languages)
        if scope.traffic and (apart := without_runs(store, scope.where)):
            chosen = f"SELECT * FROM (\n{chosen}\n) WHERE {apart}"
        statement = _statement(chosen, scope, by, signal, unit, cluster)
        named = {key: value for key, value in parameters.items() if f"${key}" in statement}
        try:
            table = stack.enter_context(store.scratch(statement, named))
        except duckdb.Error as error:
            if not scope.where:
                raise
            raise _wrong(scope.where, str(error).splitlines()[0]) from None
        yield Turns(store, table, tuple(by))


def _statement(
    chosen: str, scope: Scope, by: Sequence[str], signal: Signal, unit: Unit, cluster: Cluster
) -> str:
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
    return f"""
        WITH landed AS ({chosen}), scored AS ({scores})
        SELECT {slices} {columns}, {cluster.key} AS session,
               app, eval_set_id, eval_id, invocation_id, producer_id, started_at,
               coalesce(inclusion_probability, 1)::DOUBLE AS recorded, {scored} AS scored,
               {by_turn} AS by_turn, recorded * {scored} AS probability,
               ({signal.has}) AS has, coalesce({signal.counts}, false) AND NOT {uncovered} AS counts,
               {uncovered} AS uncovered
        {source}{unnested}
    """


_LONGEST: Final = 1_000
"""The number of characters of a text of which the language is detected."""
_MOST_KNOWN: Final = 1_000_000
_known_languages: dict[int, str] = {}
"""Languages by the hash of a text, so that watches analyse each text once."""


@contextmanager
def _languages(store: StoreReader, scope: Scope) -> Iterator[Scratch]:
    """Yield the languages of the users' messages of a scope, by the hash of the text."""
    turns = "latest_turns" if scope.run_id is None else "turns"
    said = f"""
        FROM {turns} t WHERE user_text IS NOT NULL
          AND ($since::TIMESTAMP IS NULL OR t.started_at >= $since)
          AND ($until::TIMESTAMP IS NULL OR t.started_at < $until)"""
    texts = [
        text for (text,) in store.rows(f"SELECT DISTINCT hash(user_text) {said}", scope.window)
    ]
    languages = {one: known for one in texts if (known := _known_languages.get(one)) is not None}
    if new := [text for text in texts if text not in languages]:
        query = f"""
            SELECT hash(user_text), any_value(left(user_text, {_LONGEST})) {said}
              AND hash(user_text) IN (SELECT unnest($new::UBIGINT[])) GROUP BY 1"""
        found = store.rows(query, scope.window | {"new": new})
        languages |= {text: language_of(words) for text, words in found}
        if len(_known_languages) > _MOST_KNOWN:
            _known_languages.clear()
        _known_languages.update(languages)
    rows = list(languages.items())
    with store.scratch("SELECT 0::UBIGINT AS text, '' AS language LIMIT 0", rows=rows) as made:
        yield made


MOST_NEWEST: Final = 50_000
"""The number of rows of turn_scores that `newest_verdicts` reads; a search for those of a month would read
all."""


@contextmanager
def newest_verdicts(
    store: StoreReader, since: datetime, until: datetime, app: str = ""
) -> Iterator[Turns]:
    """Yield the newest verdicts on turns that started, or landed, within some stored times.

    These are all of them as long as there are few; a page cannot wait for all of a million.  Without slices
    and scores; otherwise like `choose_turns` for the pass rate of the traffic.
    """
    ((last,),) = store.rows("SELECT coalesce(max(rowid), 0) FROM turn_scores")
    query = sql(__name__, "newest_verdicts").format(
        first=max(0, last - MOST_NEWEST),
        session=CASE.key,
        apart=without_runs(store, app="app_name") or "TRUE",
    )
    with store.scratch(query, {"since": since, "until": until, "app": app}) as table:
        yield Turns(store, table)


def _chosen(scope: Scope, joins: set[Join | None], unit: Unit, languages: Scratch | None) -> str:
    wanted = [one for one in Join if one in joins]
    if unit is Unit.CASE:
        wanted = [one for one in wanted if one is Join.CASES]
    columns = "".join(f", {_JOINED[one][0]}" for one in wanted)
    query = sql(__name__, "turns" if unit is Unit.TURN else "cases").format(
        columns=columns,
        turns="latest_turns" if scope.run_id is None else "turns",
        joins="\n".join(_JOINED[one][1].format(languages=languages) for one in wanted),
    )
    if not scope.where:
        return query
    if why := fault_of(scope.where):
        raise _wrong(scope.where, why)
    return f"SELECT * FROM (\n{query}\n) WHERE (\n{scope.where}\n)"


def _wrong(where: str, why: str) -> InputError:
    return InputError(f"--where {where}: {why}; expected an SQL condition over {COLUMNS}")


def _scores(scope: Scope, signal: Signal, unit: Unit) -> str:
    if unit is Unit.CASE:
        of_run = "scores" if scope.run_id is None else "(FROM scores WHERE run_id = $run_id)"
        key = "app_name, eval_set_id, eval_id, metric_digest"
        scores = newest_of(of_run, key, "revision DESC, scored_at DESC")
        found = _SCORES[unit].format(scores=scores)
    else:
        found = _SCORES[unit].format(
            scores=NEWEST_SCORES if scope.run_id is None else _LATEST_RUN_SCORES,
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
            values, made = f"({dimension.expression})", f"u{place}(value_{place})"
            unnested += f", unnest(if(len({values}) > 0, {values}, [NULL])) AS {made}"
            columns += f"value_{place} AS by_{place}, "
        else:
            columns += f"{dimension.expression} AS by_{place}, "
    return columns, unnested


COMMON: Final = 0.95
MEDIAN: Final = 0.5


def quantile(turns: Turns, share: float, until: datetime = datetime.max) -> float | None:
    """Return a quantile of the signal of turns that count and started before a stored time; None without."""
    counted = f"""FROM (SELECT has, probability AS inclusion_probability FROM {turns.table}
      WHERE counts AND started_at < '{until}')"""
    (found,) = weighted_quantiles(turns.store, counted, "has", (share,))
    return found


def common_limit(store: StoreReader, column: str) -> float | None:
    """Return the weighted 95th percentile of a column over all stored turns; None if no value is known."""
    (found,) = weighted_quantiles(store, "FROM latest_turns", column, (COMMON,))
    return found


def weighted_quantiles(
    store: StoreReader, turns: str, column: str, shares: Sequence[float]
) -> list[float | None]:
    """Return quantiles of a column over the traffic, without intervals, in a single query.

    `turns` is SQL, `FROM …`, over rows with the column and their inclusion probability.  A quantile is None
    if no value is known.
    """
    rows = store.rows(
        f"""
        SELECT min(value) FILTER (share >= wanted - 1e-9)
        FROM (
          SELECT value, sum(weight) OVER (ORDER BY value) / sum(weight) OVER () AS share
          FROM (
            SELECT {column} AS value, 1 / coalesce(inclusion_probability, 1) AS weight
            {turns}
            WHERE {column} IS NOT NULL AND coalesce(inclusion_probability, 1) > 0
          )
        ) RIGHT JOIN (SELECT unnest($shares::DOUBLE[]) AS wanted) ON TRUE
        GROUP BY wanted ORDER BY wanted""",
        {"shares": sorted(shares)},
    )
    return [None if value is None else float(value) for (value,) in rows]
