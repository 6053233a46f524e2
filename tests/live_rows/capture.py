"""`capture`: the events of one turn become an invocation."""

from evaltap.experiments.service import capture_turn
from live_rows.comparing import Row, same

USER = {"role": "user", "content": "q"}


def check(row: Row) -> None:
    found = capture_turn(row["input"]["events"], USER)

    assert bool(found.error) is bool(row["want"].get("error"))
    same(found.turn, row["want"]["invocation"])


def _keeps_the_partial_call(row: Row) -> None:
    found = capture_turn(row["input"]["events"], USER)

    assert not found.error
    assert found.turn["tools"] == [{"id": "c", "name": "t", "arguments": {}, "result": 1}]
    assert found.turn["finalResponse"]["content"] == "x"


DEVIATIONS = {"capture/partial_tool_call_is_lost": _keeps_the_partial_call}
