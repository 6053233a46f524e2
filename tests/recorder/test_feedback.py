"""Feedback: given at any time, redacted like other data, counted, and never blocking the agent."""

from collections.abc import Iterator
from typing import Any

import pytest

from evaltap.recorder import MemorySink, Recorder
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import decode_record


@pytest.fixture
def recorder(sink: MemorySink) -> Iterator[Recorder]:
    made = Recorder(sink=sink)
    yield made
    made.close()


def given(recorder: Recorder, sink: MemorySink) -> list[Feedback]:
    assert recorder.close()
    decoded = [decode_record(record) for record in sink.records]
    return [one for one in decoded if isinstance(one, Feedback)]


def test_feedback_on_a_turn_is_written_behind_the_turn(
    recorder: Recorder, sink: MemorySink
) -> None:
    with recorder.turn(session_id="s", user="hi", app_name="shop", invocation_id="t-1") as turn:
        turn.feedback(
            positive=False, comment="Wrong order.", correction="It is A-2.", name="thumbs"
        )
        turn.respond("A-1")

    (found,) = given(recorder, sink)
    assert (found.eval_id, found.invocation_id, found.app_name) == ("s", "t-1", "shop")
    assert (found.positive, found.score, found.name) == (False, None, "thumbs")
    assert (found.comment, found.correction) == ("Wrong order.", "It is A-2.")
    types = [record.header("ce_type") for record in sink.records]
    assert types.index("evaltap.case") < types.index("evaltap.feedback")


def test_feedback_is_given_long_after_the_turn_by_session_turn_or_trace(
    recorder: Recorder, sink: MemorySink
) -> None:
    with recorder.turn(session_id="s", user="hi") as turn:
        turn.respond("done")
    assert recorder.flush()
    recorder.feedback("s", turn=turn.run_id, positive=True)
    recorder.feedback("s", trace_id="0af7", score=4, name="stars", given_by="reviewer")
    recorder.feedback("s", comment="A good talk.")

    by_turn, by_trace, on_session = given(recorder, sink)
    assert by_turn.invocation_id == turn.run_id
    assert (by_trace.trace_id, by_trace.score, by_trace.positive) == ("0af7", 4.0, None)
    assert (on_session.invocation_id, on_session.trace_id) == ("", "")


def test_a_turn_without_a_session_can_be_spoken_of_too(
    recorder: Recorder, sink: MemorySink
) -> None:
    with recorder.turn(user="hi") as turn:
        turn.respond("done")
    turn.feedback(positive=True)

    (found,) = given(recorder, sink)
    assert found.eval_id == sink.cases[0]["evalId"]
    assert found.invocation_id == sink.cases[0]["actualConversation"][0]["invocationId"]


def test_feedback_is_redacted_like_the_turn_that_it_speaks_of(
    recorder: Recorder, sink: MemorySink
) -> None:
    with recorder.turn(
        session_id="s", user="I am ann@example.com", user_id="ann@example.com"
    ) as turn:
        turn.respond("Hello")
        turn.feedback(comment="Write to ann@example.com", given_by="ann@example.com")

    (found,) = given(recorder, sink)
    said = sink.cases[0]["actualConversation"][0]["userContent"]["content"]
    assert "ann@example.com" not in found.comment + found.given_by
    assert found.comment.split()[-1] == said.split()[-1], "one person, one pseudonym"
    assert found.given_by == sink.cases[0]["sessionInput"]["userId"]


def test_ids_and_names_of_feedback_are_redacted_like_those_of_its_turn(
    recorder: Recorder, sink: MemorySink
) -> None:
    mail = "ann@example.com"
    with recorder.turn(session_id=mail, user="hi", invocation_id=f"turn-{mail}") as turn:
        turn.respond("Hello")
    recorder.feedback(
        mail,
        turn=f"turn-{mail}",
        trace_id=mail,
        name=f"stars by {mail}",
        feedback_id=f"id {mail}",
        score=1,
    )

    (found,) = given(recorder, sink)
    assert mail not in repr(found)
    assert found.invocation_id == sink.cases[0]["actualConversation"][0]["invocationId"]
    assert found.eval_id == sink.cases[0]["evalId"] == found.trace_id
    assert found.name.startswith("stars by <email:")


@pytest.mark.parametrize(
    "settings", [{"capture_content": False}, {"redaction_policy": "metadata"}], ids=str
)
def test_without_content_only_the_verdict_is_left(
    sink: MemorySink, settings: dict[str, Any]
) -> None:
    recorder = Recorder(sink=sink, **settings)
    recorder.feedback("s", positive=False, comment="secret", correction="secret", score=1)

    (found,) = given(recorder, sink)
    assert (found.positive, found.score, found.comment, found.correction) == (False, 1.0, "", "")


def test_negative_feedback_keeps_all_turns_of_its_session(sink: MemorySink) -> None:
    rules = '[{"name": "complaints", "keep": 1, "negativeFeedback": true}]'
    recorder = Recorder(sink=sink, sample_rate=0, sample_rules=rules)
    for number, session in enumerate(("calm", "angry", "calm", "angry")):
        with recorder.turn(session_id=session, user="hi") as turn:
            if session == "angry" and number == 3:
                turn.feedback(positive=False)
            turn.respond("done")

    found = given(recorder, sink)
    assert [case["evalId"] for case in sink.cases] == ["angry", "angry"]
    assert sink.cases[0]["source"]["samplingReason"] == "complaints"
    assert recorder.counters().dropped == {"sampled_out": 2}
    assert len(found) == 1


def test_feedback_is_counted_beside_the_turns(recorder: Recorder, sink: MemorySink) -> None:
    with recorder.turn(session_id="s", user="hi") as turn:
        turn.respond("done")
    turn.feedback(positive=True)
    recorder.close()

    counters = recorder.counters()
    assert (counters.recorded, counters.delivered) == (1, 1)
    assert (counters.feedback, counters.lost_feedback) == (1, 0)


def test_feedback_that_finds_no_room_is_counted_as_lost(sink: MemorySink) -> None:
    recorder = Recorder(sink=sink, queue_max_bytes=70_000, field_max_bytes=60_000)
    for _ in range(50):
        recorder.feedback("s", comment="x" * 50_000)
    recorder.close()

    counters = recorder.counters()
    assert counters.feedback + counters.lost_feedback == 50
    assert counters.lost_feedback > 0
    assert counters.recorded == 0


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("odd", [Hostile(), float("nan"), b"\xff", {"a": 1}, 10**400, object()])
def test_whatever_is_given_the_caller_notices_nothing(
    recorder: Recorder, sink: MemorySink, odd: Any
) -> None:
    recorder.feedback(odd, turn=odd, positive=odd, score=odd, comment=odd, name=odd, given_by=odd)
    recorder.feedback("s", positive=True)

    assert given(recorder, sink)[-1].positive is True


def test_a_closed_recorder_takes_no_feedback_and_says_nothing(recorder: Recorder) -> None:
    recorder.close()

    assert recorder.feedback("s", feedback_id="f-1") == "f-1"


def test_feedback_without_a_session_is_lost_with_a_reason_and_keeps_the_recorder_on(
    sink: MemorySink, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(sink=sink, max_internal_errors=2)
    for session in ("", "", ""):
        recorder.feedback(session, positive=True)
    recorder.feedback("s", positive=True)

    assert len(given(recorder, sink)) == 1
    counters = recorder.counters()
    assert (counters.feedback, counters.lost_feedback) == (1, 3)
    assert "feedback: no session id (3 times)" in caplog.text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, True),
        (0, False),
        (0.0, False),
        ("yes", None),
        (2, None),
        ([], None),
        (float("nan"), None),
    ],
)
def test_a_thumb_may_be_one_or_zero_and_nothing_else(
    recorder: Recorder,
    sink: MemorySink,
    caplog: pytest.LogCaptureFixture,
    value: Any,
    expected: bool | None,
) -> None:
    recorder.feedback("s", positive=value, comment="kept")

    (found,) = given(recorder, sink)
    assert (found.positive, found.comment) == (expected, "kept")
    assert ("positive is neither true nor false" in caplog.text) == (expected is None)


def test_a_score_that_is_no_number_is_left_out_and_logged(
    recorder: Recorder, sink: MemorySink, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.feedback("s", score="five", comment="kept")  # type: ignore[arg-type]

    (found,) = given(recorder, sink)
    assert (found.score, found.comment) == (None, "kept")
    assert "feedback: score is not a number" in caplog.text
