"""Sessions with more or fewer turns than their reference hide nothing: their turns are in every figure."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer, evaluate_case
from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import case as case_page
from evaltap.evaluator.page.views import overview
from evaltap.evaluator.reports.evidence import Comparison, evidence_of
from evaltap.evaluator.reports.model import Limits
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import NOON, RESPONSE, make_case, make_records, make_turn, write_log
from support.builders.commands import Evaltap

EXACT = {"metricName": "trajectory_exact", "threshold": 1, "criterion": {"trajectory": {}}}
SUCCEEDED = {"metricName": "run_succeeded", "threshold": 1}
METRICS = [SUCCEEDED, EXACT, RESPONSE]
CRASH = {"status": "error", "error": {"type": "TimeoutError", "message": "no answer"}}


def turn(number: int, **given: Any) -> dict[str, Any]:
    at = 1_790_000_000 + number
    return make_turn(
        f"t-{number}", **{"creationTimestamp": at, "telemetry": {"status": "ok"}, **given}
    )


def session(name: str, kind: str, version: str = "1") -> dict[str, Any]:
    turns = [turn(1)]
    if kind == "longer":
        turns.append(turn(2, tools=[]))
    elif kind == "crashed":
        turns.append(turn(2, finalResponse=None, telemetry=CRASH))
    return make_case(name, turns, source={"service": "shop", "version": version})


def ten(prefix: str = "s", version: str = "1") -> list[dict[str, Any]]:
    """Ten sessions of 15 turns, of which 13 succeeded: 86.7 %."""
    kinds = ["alike"] * 5 + ["longer"] * 3 + ["crashed"] * 2
    return [session(f"{prefix}{n}", kind, version) for n, kind in enumerate(kinds)]


def consumed(evaltap: Evaltap, db: str, cases: list[dict[str, Any]], *options: str) -> str:
    recorded = [
        case | {"actualConversation": [one]} for case in cases for one in case["actualConversation"]
    ]
    write_log(Path(f"{db}.log.db"), make_records(recorded))
    Path("m.json").write_text(json.dumps(METRICS))
    expected = {
        one["evalId"]: make_case(one["evalId"], conversation=[make_turn()]) for one in cases
    }
    Path("r.jsonl").write_text("".join(json.dumps(one) + "\n" for one in expected.values()))
    _, out, error = evaltap(
        "consume", "--log", f"{db}.log.db", "--db", db, "--metrics", "m.json", "--until-idle", *options
    )  # fmt: skip
    return out + error


ANN = Person("ann", "admin")
WITH = ("--references", "r.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("options", [WITH, ()], ids=["with references", "without"])
def test_runs_succeed_at_the_same_rate_with_references_and_without(
    evaltap: Evaltap, options: tuple[str, ...]
) -> None:
    said = consumed(evaltap, "x.duckdb", ten(), *options)

    assert ("5 with more or fewer turns than the reference" in said) == bool(options)
    _, out, _ = evaltap("estimate", "x.duckdb", "--metric", "run_succeeded", "--json")
    (rate,) = json.loads(out)
    assert (rate["turns"], rate["sessions"]) == (15, 10)
    assert rate["rate"] == pytest.approx(13 / 15)
    with Store("x.duckdb") as store:
        rows: dict[str, int] = dict(
            store.rows(
                "SELECT status, count(*) FROM latest_turn_scores"
                " WHERE metric_name = 'run_succeeded' GROUP BY 1"
            )
        )
        assert rows == {"passed": 13, "crashed": 2}
        Summaries(store).refresh()
        with Readers(store).reading() as reader:
            page = overview.read(reader, PageRequest({}, ANN, Path("x.duckdb"), now=NOON))
        rates = {line.rate.metric: line.rate.rate for line in page.metrics}
        assert rates["run_succeeded"] is not None
        assert rates["run_succeeded"].value == pytest.approx(13 / 15)


@pytest.mark.slow
def test_turns_that_only_the_session_has_are_not_compared_and_the_common_ones_are(
    evaltap: Evaltap,
) -> None:
    consumed(evaltap, "x.duckdb", ten(), *WITH)

    with Store("x.duckdb") as store:
        rows = store.rows(
            "SELECT invocation_id, status, count(*) FROM latest_turn_scores"
            " WHERE metric_name = 'trajectory_exact' GROUP BY ALL ORDER BY ALL"
        )
    assert rows == [("t-1", "passed", 10), ("t-2", "crashed", 2), ("t-2", "not_evaluated", 3)]


@pytest.mark.slow
def test_versions_compared_by_name_show_the_crashes(evaltap: Evaltap) -> None:
    kinds = ["alike"] * 7 + ["longer"] * 3
    better = [session(f"n{place}", kind, "2") for place, kind in enumerate(kinds)]
    consumed(evaltap, "x.duckdb", [*ten(), *better], *WITH)

    _, out, _ = evaltap("compare", "x.duckdb@version=1", "x.duckdb@version=2")

    assert re.search(r"^run_succeeded\n  86\.7% -> 100\.0%", out, re.MULTILINE)


@pytest.mark.slow
def test_the_page_and_show_have_the_whole_conversation_and_say_what_is_not_compared(
    evaltap: Evaltap,
) -> None:
    consumed(evaltap, "x.duckdb", ten(), *WITH)

    with Store("x.duckdb") as store, Readers(store).reading() as reader:
        (key,) = reader.rows(
            "SELECT DISTINCT app_name, eval_set_id, eval_id FROM cases WHERE eval_id = 's5'"
        )
        named: dict[str, str] = {"app": key[0], "set": key[1], "id": key[2]}
        page = case_page.read(reader, PageRequest(named, ANN, Path("x.duckdb")), key)
    assert page is not None
    assert [one.evidence.answer for one in page.turns] == ["done", "done"]
    note = "1 later turn not compared: the reference has only 1 turn"
    assert page.report.evidence_note == note
    assert not page.notes


def test_what_a_session_lacks_of_its_reference_is_said_too() -> None:
    case = session("s", "alike") | {"conversation": [make_turn("t-1"), make_turn("t-2")]}

    evidence, note = evidence_of(case, Comparison(), Limits())

    assert len(evidence) == 1
    assert note == "1 expected turn not compared: the session has only 1 turn"
    assert evaluate_case(case, METRICS).final_eval_status == "passed"


def test_in_the_peers_files_another_number_of_turns_stays_an_error_but_the_turns_are_shown() -> (
    None
):
    case = make_case("s", [turn(1), turn(2)], conversation=[make_turn()])

    found = evaluate_case(case, METRICS)
    evidence, note = evidence_of(case, Comparison(), Limits())

    assert (found.final_eval_status, found.overall_eval_metric_results) == ("failed", [])
    assert "does not match" in (found.error_message or "")
    assert len(evidence) == 2
    assert note.startswith("not compared with a reference: ")


def test_a_metric_without_a_criterion_has_its_default_in_every_door() -> None:
    metric = {"metricName": "tool_trajectory_avg_score", "threshold": 1}
    case = make_case(conversation=[make_turn()])

    found = evaluate_case(case, [metric])

    scored = CaseScorer([EvalMetric.model_validate(metric)]).score(case)
    assert found.final_eval_status == scored.status == "passed"
