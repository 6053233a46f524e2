"""A turn that paused, and that another process continued, is no turn of an eval set."""

import json
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.sessions import Session, read_sessions, recorded_case
from evaltap.evaluator.store.database import Store
from evaltap.experiments.replay.replaying import draw
from support.builders.requests_of_agents import ASKED, Service, calls, result
from support.builders.span_builders import words
from support.builders.spans_of_agents import says

DONE = [*ASKED, result("c1", "done")]


def session_of(tmp_path: Path, *services: Service) -> Session:
    """Return the only session of what services recorded, each in a process of its own."""
    log, db = str(tmp_path / "l.db"), str(tmp_path / "x.duckdb")
    for number, service in enumerate(services):
        file = service.written(tmp_path / f"{number}.pb")
        assert main(["record", "otlp", str(file), "--log", log]) == 0
    assert main(["consume", "--log", log, "--db", db, "--until-idle"]) == 0
    with Store(Path(db)) as store:
        keys = store.rows("SELECT app_name, eval_set_id, eval_id, invocation_id FROM latest_turns")
        (session,) = read_sessions(store, [TurnKey(*key) for key in keys]).values()
    assert len(keys) == len(services)
    return session


def requested(*steps: object) -> Service:
    service = Service()
    service.request(*steps)  # type: ignore[arg-type]
    return service


@pytest.mark.slow
def test_the_question_is_asked_once(tmp_path: Path) -> None:
    paused = requested((ASKED[:1], ASKED[1]))
    again = requested((DONE, calls("c2", amount=7)))
    done = requested(([*DONE, calls("c2", amount=7), result("c2", "done")], says("Refunded.")))

    session = session_of(tmp_path, paused, again, done).whole()

    case = recorded_case(session, "session")
    (turn,) = case["actualConversation"]
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Refund A", "Refunded.")
    (kept,) = session.turns
    assert [len(session.until([one]).turns) for one in (*kept.earlier, kept.invocation_id)] == [
        1
    ] * 3


@pytest.mark.slow
def test_a_curated_set_asks_once_and_a_replay_leaves_the_session_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paused, done = requested((ASKED[:1], ASKED[1])), requested((DONE, says("Refunded.")))
    session_of(tmp_path, paused, done)
    db, out = str(tmp_path / "x.duckdb"), tmp_path / "s.evalset.json"

    assert main(["curate", db, "--out", str(out)]) == 0

    (case,) = json.loads(out.read_text())["evalCases"]
    asked = case.get("conversation") or case["actualConversation"]
    assert [words(turn, "userContent") for turn in asked] == ["Refund A"]
    with Store(Path(db)) as store:
        drawn = draw(store, Choice(), {}, None)
    (why,) = drawn.lost.values()
    assert why.startswith("a turn paused")


@pytest.mark.slow
def test_a_user_who_asks_again_is_heard_twice(tmp_path: Path) -> None:
    paused = requested((ASKED[:1], ASKED[1]))
    again = requested(([*ASKED, ASKED[0]], says("Which order?")))

    session = session_of(tmp_path, paused, again)

    assert len(session.whole().turns) == 2
