"""Context appears once in a session, even if the recorder was restarted between its turns."""

import json
from pathlib import Path
from typing import Any

from evaltap.cli.main import main
from evaltap.evaluator.cases.contexts import without_repeats
from evaltap.recorder import Recorder

KIND = {"role": "system", "content": "Be kind."}
BRIEF = {"role": "system", "content": "Be brief."}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def agent(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def turn(asked: str, answered: str, *context: dict[str, str]) -> dict[str, Any]:
    said = {"userContent": user(asked), "finalResponse": agent(answered)}
    return {**said, "contextMessages": [*context]} if context else said


def contexts(*turns: dict[str, Any]) -> list[Any]:
    return [one.get("contextMessages") for one in without_repeats(turns)]


def test_instructions_stand_where_they_begin_to_hold() -> None:
    turns = [
        turn("1", "a", KIND),
        turn("2", "b", KIND),
        turn("3", "c", BRIEF),
        turn("4", "d", KIND),
    ]

    assert contexts(*turns) == [[KIND], None, [BRIEF], [KIND]]


def test_earlier_turns_are_no_context_and_others_are() -> None:
    first = turn("1", "a", user("0"), agent("z"))
    second = turn("2", "b", user("0"), agent("z"), user("1"), agent("a "), user("1b"), agent("ab"))

    assert contexts(first, second) == [[user("0"), agent("z")], [user("1b"), agent("ab")]]


def test_a_recorder_that_was_started_anew_repeats_nothing_in_what_is_exported(
    tmp_path: Path,
) -> None:
    log, database, out = (str(tmp_path / name) for name in ("l.db", "x.duckdb", "s.evalset.json"))
    for number in range(3):
        recorder = Recorder(log)
        with recorder.turn(session_id="s", user=f"{number}") as one:
            one.context("Be kind.")
            one.respond("So.")
        assert recorder.close()

    assert main(["consume", "--log", log, "--db", database, "--until-idle"]) == 0
    assert main(["set", "export", database, "--out", out]) == 0

    (case,) = json.loads(Path(out).read_text())["evalCases"]
    found = [one.get("contextMessages") for one in case["actualConversation"]]
    assert found == [[KIND], None, None]
