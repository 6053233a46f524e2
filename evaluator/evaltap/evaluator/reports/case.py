"""One case as text: its turns with feedback, scores and reasons, read from the store."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from rich.console import Console
from rich.text import Text

from evaltap.evaluator.analysis.filters.listing import IS_CASE, NAMES, full_name, nearest
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.cases.turn import gaps_of, run_failure
from evaltap.evaluator.reports.figures import money
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.wording import readable
from evaltap.evaluator.scoring.results.references import attach_kept
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

TEXT_WIDTH = 400

LABEL_WIDTH = 10

_LONGEST_TEXT = 20_000
"""Longer texts are cut: wrapping a long word takes time quadratic in its length."""

Row = Mapping[str, Any]  # Any: of the type of its column

_TIME = "%Y-%m-%dT%H:%M:%S.%gZ"

TURNS = f"""
SELECT invocation_id, turn_revision, strftime(started_at, '{_TIME}') AS started_at,
       status, latency_ms, input_tokens, output_tokens, cost_usd, trace_id, models, agent_name,
       version, environment, tags, close_reason, capture::VARCHAR AS capture, actual_json, expected_json
FROM latest_turns WHERE app_name = $app_name AND eval_id = $eval_id AND eval_set_id = $eval_set_id
ORDER BY latest_turns.started_at NULLS FIRST, first_landed_seq
"""

_TELEMETRY: Final = {
    "status": "status",
    "latency_ms": "latencyMs",
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cost_usd": "costUsd",
    "trace_id": "traceId",
    "models": "models",
}
"""The columns of a turn that its telemetry in a file has."""
_LANDED_ONLY: Final = dict.fromkeys(
    ("turn_revision", "started_at", "agent_name", "version", "environment", "tags", "close_reason")
)
"""The other columns."""

SCORES = """
SELECT metric_name, score, status, threshold, reason, run_id, revision FROM latest_scores
WHERE app_name = $app_name AND eval_id = $eval_id AND eval_set_id = $eval_set_id ORDER BY metric_name
"""

TURN_SCORES = """
SELECT t.invocation_id, t.turn_index, t.metric_name, t.score, t.status, t.reason, s.threshold
FROM latest_turn_scores t
LEFT JOIN latest_scores s USING (app_name, eval_set_id, eval_id, metric_digest)
WHERE t.app_name = $app_name AND t.eval_id = $eval_id AND t.eval_set_id = $eval_set_id
QUALIFY rank() OVER (
  PARTITION BY if(t.invocation_id = '', t.turn_index::VARCHAR, t.invocation_id), t.metric_name
  ORDER BY t.scored_at DESC
) = 1
ORDER BY t.turn_index, t.metric_name
"""

FEEDBACK = f"""
SELECT invocation_id, name, positive, score, comment, correction, given_by,
       strftime(given_at, '{_TIME}') AS given_at
FROM v_feedback
WHERE app_name IN ('', $app_name) AND eval_id = $eval_id AND eval_set_id = $eval_set_id
ORDER BY given_at
"""

ATTEMPTS = f"""
SELECT r.run_id, r.trial, r.attempt, r.status, r.passed, r.feedback_given, r.feedback, r.case_json,
       strftime(r.judged_at, '{_TIME}') AS judged_at,
       (SELECT list({{'name': d.name, 'status': d.status, 'score': d.score, 'threshold': d.threshold,
                     'reason': d.reason, 'metrics': d.metrics::VARCHAR}} ORDER BY d.dimension_index)
        FROM gate_dimensions d
        WHERE d.run_id = r.run_id AND d.app_name = r.app_name AND d.eval_set_id = r.eval_set_id
          AND d.eval_id = r.eval_id AND d.revision = r.revision) AS dimensions
FROM gate_results r
WHERE r.app_name = $app_name AND r.eval_id = $eval_id AND r.eval_set_id = $eval_set_id
QUALIFY r.run_id = arg_max(r.run_id, r.revision) OVER ()
ORDER BY r.trial, r.attempt
"""


def find_case(store: StoreReader, case: str, app: str | None) -> dict[str, object]:
    """Return the key of the case with this name; raise InputError if none or several have it."""
    case = full_name(store, case)
    found = store.records(f"{NAMES} WHERE {IS_CASE}", {"case": case})
    if not found:
        near = nearest(store, case)
        raise InputError(f"no case {case!r} in {store.path}; similar ids: {near}")
    if app is not None:
        apps = ", ".join(sorted({row["app_name"] for row in found}))
        if not (found := [row for row in found if row["app_name"] == app]):
            raise InputError(
                f"--app {app}: has no case {case!r}; these applications have it: {apps}"
            )
    if len({row["eval_set_id"] for row in found}) > 1:
        names = ", ".join(sorted({f"{row['eval_set_id']}/{row['eval_id']}" for row in found}))
        raise InputError(f"{len(found)} cases match {case!r}; name one of: {names}")
    if len(found) > 1:
        apps = ", ".join(sorted(row["app_name"] for row in found))
        raise InputError(f"{len(found)} applications have a case {case!r}; give --app: {apps}")
    return found[0]


def read_case(store: StoreReader, key: dict[str, object]) -> dict[str, Any]:  # JSON
    """Return the turns, feedback, scores and gate attempts of a case, as JSON data.

    The turns of a case that was scored from a file are read from there, unless it has changed since.
    """
    turns = store.records(TURNS, key)
    for turn in turns:
        expected = turn.pop("expected_json")
        turn["actual"] = orjson.loads(turn.pop("actual_json"))
        turn["expected"] = orjson.loads(expected) if expected else None
        turn["capture"] = orjson.loads(turn["capture"]) if turn["capture"] else {}
    _expect(store, key, turns)
    attempts = store.records(ATTEMPTS, key)
    scores = store.records(SCORES, key)
    if scores and not turns and not attempts:
        turns = _turns_of_file(store, key, max(one["run_id"] for one in scores))
    for attempt in attempts:
        attempt["case"] = orjson.loads(attempt.pop("case_json"))
        for one in attempt["dimensions"]:
            one["metrics"] = orjson.loads(one["metrics"])
    return {
        **key,
        "turns": turns,
        "feedback": store.records(FEEDBACK, key),
        "scores": scores,
        "turn_scores": store.records(TURN_SCORES, key),
        "attempts": attempts,
    }


def _expect(store: StoreReader, key: Row, turns: Sequence[dict[str, object]]) -> None:
    """Attach the references of the scores to turns that landed without an expected turn."""
    if any(turn["expected"] for turn in turns):
        return
    case: CaseData = {
        "evalId": key["eval_id"],
        "actualConversation": [turn["actual"] for turn in turns],
    }
    attach_kept(store, {(key["app_name"], key["eval_set_id"], key["eval_id"]): case})
    for turn, one in zip(turns, case.get("conversation") or (), strict=False):
        turn["expected"] = one


def _turns_of_file(store: StoreReader, key: Row, run: str) -> list[dict[str, Any]]:
    """Return the turns of a case as a run scored them, without what only landed turns have."""
    # With models of cases, which most do not need.
    from evaltap.evaluator.reports.case_files import scored_turns

    case = key["app_name"], key["eval_set_id"], key["eval_id"]
    return [
        _LANDED_ONLY
        | {
            column: (turn.data.get("telemetry") or {}).get(name)
            for column, name in _TELEMETRY.items()
        }
        | {
            "invocation_id": turn.invocation_id,
            "capture": turn.capture,
            "actual": turn.data,
            "expected": expected,
        }
        for turn, expected in scored_turns(store, case, run)
    ]


class _Line(NamedTuple):
    """A label and its text, or a title."""

    label: str
    text: str
    indent: int = 2
    style: str = ""


_STATUS_STYLES = {"passed": "green", "failed": "red", "crashed": "red", "error": "yellow"}


def print_line(line: _Line, out: Console) -> None:
    """Print a line, wrapped to the width of the console."""
    if not line.label:
        out.print(Text(line.text, style="bold"), soft_wrap=True)
        return
    head = f"{' ' * line.indent}{line.label:<{LABEL_WIDTH}} "
    width = max(40, out.width - len(head))
    text = line.text
    if (rest := len(text) - _LONGEST_TEXT) > 0:
        text = f"{text[:_LONGEST_TEXT]}… ({rest:,} more characters, see --json)"
    for number, piece in enumerate(textwrap.wrap(text, width) or [""]):
        start = head if number == 0 else " " * len(head)
        out.print(Text(f"{start}{piece}", style=line.style), soft_wrap=True)


def case_lines(data: Row) -> Iterator[_Line]:
    names = dict.fromkeys((data["eval_set_id"], data["eval_id"]))
    yield _Line("", visible("/".join(filter(None, names))))
    if data["app_name"]:
        yield _Line("app", visible(data["app_name"]))
    turns = data["turns"]
    if not [*turns, *data["attempts"]]:
        yield _Line(
            "turns", "none here; the case was scored from a file that has changed since, or is gone"
        )
    shown: set[str] = set()
    for number, turn in enumerate(turns, start=1):
        shown.add(_name(turn, number))
        yield from _turn_lines(number, turn, data)
    for score in data["turn_scores"]:
        if _name(score, score["turn_index"] + 1) not in shown:
            yield _score_line(score, f"turn {score['turn_index'] + 1} ")
    for given in data["feedback"]:
        if given["invocation_id"] not in shown:
            yield _feedback_line(given)
    for attempt in data["attempts"]:
        yield from _attempt_lines(attempt, data["attempts"])
    gated = {one["run_id"] for one in data["attempts"]}
    # For a case with one turn, the scores were already shown under that turn.
    shown_metrics = {one["metric_name"] for one in data["turn_scores"] if len(turns) == 1}
    for score in data["scores"]:
        if score["run_id"] not in gated and score["metric_name"] not in shown_metrics:
            yield _score_line(score, "", "case")


def _attempt_lines(attempt: Row, attempts: Sequence[Row]) -> Iterator[_Line]:
    """Yield an answer that a gate checked, and the verdict."""
    names = ["gate"]
    if attempts[-1]["trial"] > 1:
        names.append(f"trial {attempt['trial']}")
    if any(one["attempt"] > 1 for one in attempts):
        names.append(f"attempt {attempt['attempt']}")
    yield _Line("", f"{', '.join(names)}: {attempt['status']}")
    if attempt["feedback_given"]:
        yield _Line("told", _one_line(attempt["feedback_given"]))
    for turn in attempt["case"].get("actualConversation") or ():
        yield from _content(turn or {})
    for one in attempt["dimensions"]:
        threshold = None if one["status"] == "informs" else one["threshold"]
        yield _score_line({**one, "metric_name": one["name"], "threshold": threshold})


def _turn_lines(number: int, turn: Row, data: Row) -> Iterator[_Line]:
    status = "paused" if turn["close_reason"] == "paused" else turn["status"] or ""
    facts = [f"turn {number}", turn["invocation_id"], status, *_figures(turn)]
    yield _Line("", visible("  ".join(filter(None, facts))))
    if agent := _agent(turn):
        yield _Line("agent", visible(agent))
    yield from _content(turn["actual"])
    if failure := run_failure(turn["actual"]):
        yield _Line("error", _one_line(failure), style="red")
    for gap in gaps_of(turn["actual"]):
        yield _Line("capture", gap)
    for given in data["feedback"]:
        if given["invocation_id"] == turn["invocation_id"]:
            yield _feedback_line(given)
    if turn["expected"]:
        yield _Line("expected", "")
        yield from _content(turn["expected"], 4)
        for gap in gaps_of(turn["expected"]):
            yield _Line("capture", gap, 4)
    for score in data["turn_scores"]:
        if _name(score, score["turn_index"] + 1) == _name(turn, number):
            yield _score_line(score)


def _name(row: Row, number: int) -> str:
    """Return the id of a turn, or its number if it has none."""
    return row["invocation_id"] or str(number)


def _agent(turn: Row) -> str:
    version = f"version {turn['version']}" if turn["version"] else None
    parts = (turn["agent_name"], version, turn["environment"], *(turn["tags"] or ()))
    return ", ".join(filter(None, parts))


def _figures(turn: Row) -> Iterator[str]:
    if turn["latency_ms"] is not None:
        milliseconds = turn["latency_ms"]
        yield f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"
    if turn["input_tokens"] is not None or turn["output_tokens"] is not None:
        used = (turn["input_tokens"], turn["output_tokens"])
        into, out = ("?" if count is None else f"{count:,}" for count in used)
        yield f"{into} tokens in, {out} out"
    if turn["cost_usd"] is not None:
        computed = (turn["capture"] or {}).get("costUsd") == "synthesized"
        yield money(turn["cost_usd"]) + (" (from list prices)" if computed else "")


def _content(turn: Row, indent: int = 2) -> Iterator[_Line]:
    if user := turn.get("userContent"):
        yield _Line("user", _one_line(user.get("content") or ""), indent)
    for tool in turn.get("tools") or ():
        if tool is None:
            continue
        made = f"{tool.get('name')}({_compact(tool.get('arguments'))}) -> {_outcome(tool)}"
        yield _Line("tool", _one_line(made), indent)
    if final := turn.get("finalResponse"):
        yield _Line("answer", _one_line(final.get("content") or ""), indent)


def _outcome(tool: Row) -> str:
    if error := tool.get("error"):
        return f"error {_compact(error)}"
    returned_nothing = tool.get("result") is None and "result" not in (tool.get("capture") or {})
    return "nothing" if returned_nothing else _compact(tool.get("result"))


def _feedback_line(given: Row) -> _Line:
    verdict = {True: "positive", False: "negative"}.get(given["positive"], "")
    score = "" if given["score"] is None else f"{given['score']:g}"
    by = f"by {given['given_by']}" if given["given_by"] else ""
    parts: Iterable[str] = filter(None, (given["name"], verdict, score, by))
    text = " ".join(parts)
    for name in ("comment", "correction"):
        if given[name]:
            text += f"; {name}: {given[name]}"
    style = {True: "green", False: "red"}.get(given["positive"], "")
    return _Line("feedback", _one_line(text), style=style)


def _score_line(score: Row, before: str = "", label: str = "score") -> _Line:
    value = "" if score["score"] is None else f" {score['score']:.3g}"
    if value and score["threshold"] is not None:
        value += f" of {score['threshold']:.3g}"
    why = f": {_one_line(readable(score['reason']))}" if score["reason"] else ""
    text = f"{before}{score['metric_name']} {score['status']}{value}{why}"
    return _Line(label, visible(text), style=_STATUS_STYLES.get(score["status"], ""))


def _compact(value: object) -> str:
    return "not captured" if value is None else orjson.dumps(value).decode()


def _one_line(text: str) -> str:
    return one_line(visible(text), TEXT_WIDTH)
