"""Terms of a filter as SQL: each is a query for the matching cases, with bound parameters only."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from evaltap.evaluator.analysis.filters.language import FIELDS, Filter, Term
from evaltap.evaluator.cases.identity import is_about
from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.errors import InputError

KEYS: Final = "app_name, eval_set_id, eval_id"


class Bound:
    """The values of a statement's parameters, by parameter name."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}

    def __call__(self, value: object) -> str:
        """Add a value, and return the name of its parameter."""
        name = f"f{len(self.values)}"
        self.values[name] = value
        return f"${name}"


def cases_of(term: Term, given: Filter, bound: Bound, now: datetime) -> str:
    """Return a query for the keys of the cases that match a term, ignoring its negation."""
    if not term.field:
        return _words(term, given, bound)
    if term.field in _TIMES:
        at = f"coalesce(started_at, landed_at) {_TIMES[term.field]} {bound(moment(term, now))}"
        return _turns(at)
    return _QUERIES[term.field](term, bound)


def _turns(condition: str) -> str:
    return f"SELECT {KEYS} FROM latest_turns WHERE {condition}"


def _summed(expression: str) -> Callable[[Term, Bound], str]:
    def query(term: Term, bound: Bound) -> str:
        comparison = f"{expression} {term.operator} {bound(term.number)}"
        return f"SELECT {KEYS} FROM latest_turns GROUP BY ALL HAVING {comparison}"

    return query


def _matching(expression: str, table: str = "latest_turns") -> Callable[[Term, Bound], str]:
    def query(term: Term, bound: Bound) -> str:
        return f"SELECT {KEYS} FROM {table} WHERE {matches(expression, term, bound)}"

    return query


def _any_of(values: str, table: str = "latest_turns") -> Callable[[Term, Bound], str]:
    return _matching("one", f"(SELECT {KEYS}, unnest({values}) AS one FROM {table})")


def has_wildcard(value: str) -> bool:
    """Return whether a value of a term contains a wildcard."""
    return "*" in value or "?" in value


def matches(expression: str, term: Term, bound: Bound) -> str:
    """Return the condition that the expression equals one of the values, with wildcards * and ?."""
    conditions = [
        f"{expression} GLOB {bound(value.replace('[', '[[]'))}"
        if has_wildcard(value)
        else f"{expression} = {bound(value)}"
        for value in term.values
    ]
    return f"({' OR '.join(conditions)})"


def _path(term: Term, bound: Bound) -> str:
    spaced = tuple(re.sub(r"\s*>\s*", " > ", value.strip()) for value in term.values)
    first = tuple(value.partition(" > ")[0] for value in spaced)
    begun = ""
    if not any(map(has_wildcard, first)):
        begun = f"""SEMI JOIN (
          SELECT {KEYS}, invocation_id FROM tool_calls
          WHERE call_index = 0 AND {matches("tool_name", Term("tool", first), bound)}
        ) USING ({KEYS}, invocation_id)"""
    return f"""SELECT {KEYS} FROM (
        SELECT {KEYS}, string_agg(coalesce(tool_name, ''), ' > ' ORDER BY call_index) AS path
        FROM latest_tool_calls {begun} GROUP BY {KEYS}, invocation_id
      ) WHERE {matches("path", Term("path", spaced), bound)}"""


def _error(term: Term, bound: Bound) -> str:
    # Types are recorded with their module; users search for the name that they raise.
    short = "regexp_extract(error_type, '[^.]*$')"
    condition = f"({matches('error_type', term, bound)} OR {matches(short, term, bound)})"
    # An error that is only a text may begin with the type: `TimeoutError: too slow`.
    told = (
        "coalesce(nullif(error_type, ''), regexp_extract(error_message, '^([A-Za-z0-9_.]+):', 1))"
    )
    in_tool = condition.replace("error_type", told)
    in_turn = condition.replace("error_type", f"coalesce({told}, if(status = 'error', '', NULL))")
    return f"{_turns(in_turn)} UNION ALL SELECT {KEYS} FROM latest_tool_calls WHERE {in_tool}"


def _gap(term: Term, bound: Bound) -> str:
    return _turns(f"list_has_any(json_keys(capture), {bound(list(term.values))}::VARCHAR[])")


def _feedback(term: Term, bound: Bound) -> str:
    conditions = {"up": "positive", "down": "NOT positive", "any": "TRUE"}
    chosen = " OR ".join(f"({conditions[value]})" for value in term.values)
    return f"""SELECT c.app_name, c.eval_set_id, c.eval_id
      FROM feedback f JOIN (SELECT DISTINCT {KEYS} FROM cases) c ON {is_about("f", "c")}
      WHERE {chosen}"""


def _status(term: Term, bound: Bound) -> str:
    parts = []
    for value in term.values:
        if value == "unscored":
            parts.append(f"SELECT {KEYS} FROM cases ANTI JOIN scores USING ({KEYS})")
        elif value == "passed":
            parts.append(
                f"SELECT {KEYS} FROM latest_scores GROUP BY ALL HAVING bool_or(status = 'passed')"
                " AND bool_and(status IN ('passed', 'not_evaluated'))"
            )
        else:
            statuses = bound(["error", "crashed"] if value == "error" else _meant(value))
            parts.append(_scored(f"status IN {statuses}::VARCHAR[]"))
        if value in ("crashed", "failed", "error"):
            parts.append(_turns("status IN ('error', 'incomplete')"))
    return " UNION ALL ".join(parts)


def _meant(status: str) -> list[str]:
    return ["failed", "crashed"] if status == "failed" else [status]


def _reviewed(term: Term, bound: Bound) -> str:
    decided = f"""SELECT {KEYS}, arg_max(action, reviewed_at) AS decision FROM v_review_decisions
      WHERE action <> 'skip' GROUP BY ALL"""
    parts = []
    for value in term.values:
        if value == "no":
            parts.append(f"SELECT {KEYS} FROM cases ANTI JOIN ({decided}) USING ({KEYS})")
        else:
            wanted = bound(DECISIONS[value])
            parts.append(f"SELECT {KEYS} FROM ({decided}) WHERE decision IN {wanted}::VARCHAR[]")
    return " UNION ALL ".join(parts)


def _metric(term: Term, bound: Bound) -> str:
    statuses = [one for value in term.values for one in _meant(value)]
    name = bound(term.name)
    return _scored(f"metric_name = {name} AND status IN {bound(statuses)}::VARCHAR[]")


def _score(term: Term, bound: Bound) -> str:
    return _scored(
        f"metric_name = {bound(term.name)} AND score {term.operator} {bound(term.number)}"
    )


def _reason(term: Term, bound: Bound) -> str:
    words = [f"contains(lower(reason), {_lower(value, bound)})" for value in term.values]
    return _scored(f"status <> 'passed' AND ({' OR '.join(words)})")


def _scored(condition: str) -> str:
    """Return a query over `latest_scores` that only compares cases that once met the condition."""
    return f"""SELECT {KEYS} FROM (
        FROM scores SEMI JOIN (SELECT {KEYS}, metric_name FROM scores WHERE {condition})
          USING ({KEYS}, metric_name)
        QUALIFY row_number() OVER (
          PARTITION BY {KEYS}, metric_name ORDER BY revision DESC, scored_at DESC
        ) = 1) WHERE {condition}"""


def _words(term: Term, given: Filter, bound: Bound) -> str:
    word = _lower(term.values[0], bound)
    found = _turns(f"contains(lower(user_text), {word}) OR contains(lower(final_text), {word})")
    if not given.everywhere:
        return found
    return f"""{found} UNION ALL SELECT {KEYS} FROM latest_tool_calls
      WHERE contains(lower(arguments::VARCHAR), {word}) OR contains(lower(result::VARCHAR), {word})
        OR contains(lower(error_message), {word})"""


def _lower(word: str, bound: Bound) -> str:
    # Python's lower() turns İ into two letters, and a last Σ into ς; that of the store does neither.
    return f"lower({bound(word)})"


DECISIONS: Final[Mapping[str, list[str]]] = {
    "yes": ["approve", "edit", "reject"],
    "approved": ["approve"],
    "edited": ["edit"],
    "rejected": ["reject"],
}
"""The actions of reviewers for each value of `reviewed`; `no` means no action."""

_TIMES: Final[Mapping[str, str]] = {"since": ">=", "from": ">=", "to": "<"}

_QUERIES: Final[Mapping[str, Callable[[Term, Bound], str]]] = {
    "status": _status,
    "metric": _metric,
    "score": _score,
    "tool": _matching("tool_name", "latest_tool_calls"),
    "path": _path,
    "error": _error,
    "gap": _gap,
    "feedback": _feedback,
    "cost": _summed("sum(cost_usd)"),
    "latency": _summed("max(latency_ms)"),
    "turns": _summed("count(*)"),
    "calls": _summed("sum(tool_count)"),
    "tokens": _summed(
        "sum(if(input_tokens IS NULL AND output_tokens IS NULL, NULL,"
        " coalesce(input_tokens, 0) + coalesce(output_tokens, 0)))"
    ),
    "app": _matching("app_name"),
    "user": _matching("user_id", "latest_cases"),
    "model": _any_of("models"),
    "set": _matching("eval_set_id"),
    "id": _matching("eval_id"),
    "service": _matching("service", "latest_cases"),
    "version": _matching("version"),
    "environment": _matching("environment"),
    "tag": _any_of("tags"),
    "run": _matching("run_id", "scores"),
    "reason": _reason,
    "reviewed": _reviewed,
    "label": _any_of("labels", "v_review_decisions"),
}


def moment(term: Term, now: datetime) -> datetime:
    """Return a time in the form of the tables; `now` is aware."""
    written = term.values[0]
    if ago := re.fullmatch(r"(\d{1,5})([mhdw])", written):
        unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[ago[2]]
        found = now - timedelta(**{unit: int(ago[1])})
    else:
        try:
            found = datetime.fromisoformat(written)
        except ValueError:
            raise InputError(
                f"filter: {term.field}:{written}; expected {FIELDS['since']}"
            ) from None
    return stored_time(found) if found.tzinfo else found
