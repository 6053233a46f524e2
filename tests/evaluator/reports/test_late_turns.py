"""Turns that land after others of their session, or feedback on it, have been scored."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.store.database import Store
from evaltap.experiments.replay.recorded import documents, recorded_sessions
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import WireRecord, encode_feedback
from support.builders.cases import NOON, write_log
from support.worlds.shop import POLITE, Asked, records

RUDE: dict[str, Any] = {
    **POLITE,
    "criterion": {"rules": {"rules": [{"id": "r", "type": "contains", "values": ["no"]}]}},
}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """The turns `first`, which passes, and `second`, landed and scored in the opposite order."""
    asked = [Asked("first", session="s"), Asked("second", answer="no", session="s")]
    (tmp_path / "metrics.json").write_text(json.dumps([POLITE]))
    for record in reversed(records(asked)):
        write_log(tmp_path / "log.db", [record])
        consume = ["consume", "--log", str(tmp_path / "log.db"), "--db", str(tmp_path / "x.duckdb")]
        main([*consume, "--metrics", str(tmp_path / "metrics.json"), "--until-idle", "--json"])
    return tmp_path / "x.duckdb"


def test_a_report_numbers_turns_as_they_were_said(database: Path) -> None:
    with Store(database) as store:
        (case,) = read_report(store).cases

    (cell,) = case.cells
    assert [(one.turn, one.status) for one in cell.turns] == [(1, "passed"), (2, "failed")]
    assert [one.user for one in case.evidence] == ["first", "second"]


def test_a_turn_has_one_verdict_when_the_metric_has_changed(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.json").write_text(json.dumps([RUDE]))
    main(["score", str(database), "--metrics", str(tmp_path / "metrics.json")])
    capsys.readouterr()

    main(["show", str(database), "s", "--json"])

    shown = json.loads(capsys.readouterr().out)["turn_scores"]
    assert {one["invocation_id"]: one["status"] for one in shown} == {
        "t-0": "failed",
        "t-1": "passed",
    }
    assert len(shown) == 2


def user_feedback(folder: Path, *landings: Sequence[WireRecord]) -> Path:
    """Land records one after the other, each scored by what users said; return the store."""
    metric = {"metricName": "user_feedback", "threshold": 1, "criterion": {"feedback": {}}}
    (folder / "metrics.json").write_text(json.dumps([metric]))
    for more in landings:
        write_log(folder / "log.db", more)
        consume = ["consume", "--log", str(folder / "log.db"), "--db", str(folder / "x.duckdb")]
        main([*consume, "--metrics", str(folder / "metrics.json"), "--until-idle", "--json"])
    return folder / "x.duckdb"


def thumb_down(feedback_id: str, *, seconds: float) -> WireRecord:
    at = NOON + timedelta(seconds=seconds)
    return encode_feedback(Feedback(feedback_id, "s", "s", at, positive=False), producer_id="q")


@pytest.mark.slow
def test_feedback_on_a_session_stays_with_the_turn_that_was_its_last(tmp_path: Path) -> None:
    first, second, third = records([Asked(one, session="s") for one in ("one", "two", "three")])
    said, early = thumb_down("f", seconds=1.5), thumb_down("g", seconds=-3600)

    with Store(user_feedback(tmp_path, [first, second, said], [third])) as store:
        verdicts = store.rows("SELECT invocation_id, status FROM latest_turn_scores ORDER BY 1")
    with Store(user_feedback(tmp_path, [early])) as store:
        about = store.rows("SELECT feedback_id, user_text FROM v_feedback ORDER BY 1")

    assert verdicts == [("t-0", "not_evaluated"), ("t-1", "failed"), ("t-2", "not_evaluated")]
    assert about == [("f", "two"), ("g", "three")], "of clocks that differ, the last turn"


def test_a_replay_counts_turns_of_one_time_as_they_landed_first(tmp_path: Path) -> None:
    asked = [Asked("first", session="s"), Asked("second", session="s")]
    first, second = records(asked)
    revised, _ = records([replace(asked[0], answer="again", source={"revision": 2}), asked[1]])
    write_log(tmp_path / "log.db", [first, second, revised])
    consume = ["consume", "--log", str(tmp_path / "log.db"), "--db", str(tmp_path / "x.duckdb")]
    main([*consume, "--until-idle", "--json"])

    with Store(tmp_path / "x.duckdb") as store:
        store.execute("UPDATE turns SET started_at = NULL")
        (session,) = recorded_sessions(store, Choice(), {})
        found = documents(store, [session])[session.key]

    assert [one.invocation_id for one in session.turns] == ["t-0", "t-1"]
    assert [one.invocation_id for one in found.turns] == ["t-0", "t-1"]
