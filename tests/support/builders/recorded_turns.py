"""Turns recorded by the plain API."""

from typing import Any

from evaltap.recorder import Recorder


def record_turn(recorder: Recorder, session: str = "s-1", **given: Any) -> None:
    with recorder.turn(session_id=session, user="Where is A-100?", **given) as turn:
        turn.tool("get_order", {"id": "A-100"}, id="call-1", result={"status": "shipped"})
        turn.respond("It has shipped.")
