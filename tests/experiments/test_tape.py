"""Tool calls are answered from a recording, or the run knows that they were not."""

import asyncio
import io
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy
import orjson
import pytest
from PIL import Image

from evaltap.evaluator.analysis.forecast.fates import fates
from evaltap.experiments.agents.base import miss
from evaltap.experiments.mocks.declared import DeclaredMock
from evaltap.experiments.mocks.drift import drift_of, renamed, totals
from evaltap.experiments.mocks.invent import Invented, inventor
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import recording_of
from evaltap.experiments.mocks.tape import Missed, Tape
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.answering import RUN, RecordedError, ToolMiss
from evaltap.recorder.copying import freeze, thaw
from evaltap.schemas.files.canonical import dumps, loads
from support.servers.judge_server import Answer, judge_server


def call(name: str, arguments: Any = None, result: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "result": result, **more}


def tape(*calls: dict[str, Any], invent: Any = None, **policy: Any) -> Tape:
    made = Tape(
        recording_of({"actualConversation": [{"tools": [*calls]}]}),
        MockPolicy(**policy),
        invent=invent,
    )
    made.begin()
    return made


def test_a_call_with_equal_arguments_gets_its_recorded_result() -> None:
    made = tape(call("get", {"id": 1}, "one"), call("get", {"id": 2}, {"x": [2]}))

    assert made.answer("get", {"id": 2.0}) == {"x": [2]}
    assert made.answer("get", '{"id": 1}') == "one"


def test_equal_calls_get_successive_results_and_one_more_is_a_miss() -> None:
    made = tape(call("poll", {}, "running"), call("poll", {}, "done"))

    assert [made.answer("poll", None), made.answer("poll", {})] == ["running", "done"]
    with pytest.raises(ToolMiss, match="called more often than recorded"):
        made.answer("poll", {})


def test_of_equal_calls_that_of_the_same_agent_answers_first() -> None:
    made = tape(
        call("lookup", {"q": "x"}, "A", agent="main"), call("lookup", {"q": "x"}, "B", agent="sub")
    )

    assert made.answer("lookup", {"q": "x"}, agent="sub") == "B"
    assert made.answer("lookup", {"q": "x"}, agent="renamed") == "A"


@pytest.mark.parametrize("depth", [200, 300, 900])
def test_long_arguments_of_any_depth_match_or_miss(depth: int) -> None:
    nested: Any = [*range(2000)]
    for _ in range(depth):
        nested = [nested]
    made = tape(call("find", {"q": nested}))

    assert made.answer("find", {"q": nested}) == "ok"
    with pytest.raises(ToolMiss):
        made.answer("find", {"q": [nested]})


def test_true_is_not_one() -> None:
    with pytest.raises(ToolMiss):
        tape(call("set", {"on": 1})).answer("set", {"on": True})


def test_ignored_arguments_and_numbers_rounded_in_another_way_match() -> None:
    made = tape(
        call("quote", {"amount": 3, "meta": {"time": 5, "unit": "EUR"}}, 7),
        ignore={"quote": {"meta": {"time": True}}},
    )

    assert made.answer("quote", {"amount": 0.1 * 30, "meta": {"time": 9, "unit": "EUR"}}) == 7


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1141224209735405568, 1141224209735405571),
        (4915112345678.0, 4915112345679.0),
        (2e-7, 9e-7),
        (1, 1.0),
        (0.3, 0.1 * 3),
    ],
)
def test_a_call_gets_the_result_of_its_own_arguments_before_that_of_near_ones(
    one: float, other: float
) -> None:
    made = tape(call("profile", {"id": one}, "Ann"), call("profile", {"id": other}, "Bob"))

    assert made.answer("profile", {"id": other}) == "Bob"
    assert made.answer("profile", {"id": one}) == "Ann"


@pytest.mark.parametrize(
    ("recorded", "asked"),
    [
        (1141224209735405568, 1141224209735405571),
        (1141224209735405571, 1.1412242097354056e18),
        (4915112345678.0, 4915112345679),
        (2e-7, 9e-7),
        ([{"id": 2**53 + 1}], [{"id": 2**53}]),
    ],
)
def test_another_number_is_a_miss(recorded: Any, asked: Any) -> None:
    with pytest.raises(ToolMiss, match="no recorded result for these arguments"):
        tape(call("profile", {"id": recorded}, "Ann")).answer("profile", {"id": asked})


def test_an_integer_matches_the_double_that_an_eval_set_holds_of_it() -> None:
    case = {
        "actualConversation": [{"tools": [call("profile", {"id": 1141224209735405571}, "Bob")]}]
    }
    made = Tape(recording_of(loads(dumps(case))), MockPolicy())
    made.begin()

    assert made.answer("profile", {"id": 1141224209735405571}) == "Bob"


def test_fifo_takes_the_next_call_of_the_tool_whatever_its_arguments() -> None:
    made = tape(call("a", {"x": 1}, 1), call("b", {}, 2), call("a", {"x": 2}, 3), match="fifo")

    assert [made.answer("a", {"y": 0}), made.answer("a", {}), made.answer("b", {"z": 1})] == [
        1,
        3,
        2,
    ]


def test_order_takes_only_the_next_call_of_the_turn() -> None:
    made = tape(call("a"), call("b"), match="order")

    with pytest.raises(ToolMiss, match="recorded later"):
        made.answer("b", {})
    assert made.answer("a", {}) == "ok"


def test_a_recorded_error_is_raised_as_the_exception_that_it_was() -> None:
    made = tape(
        call("pay", {"n": 1}, error={"type": "TimeoutError", "message": "no answer"}),
        call("pay", {"n": 2}, error={"type": "shop.Declined", "message": "declined"}),
        call("pay", {"n": 3}, error={"type": "UnicodeDecodeError", "message": "bad byte"}),
    )

    with pytest.raises(TimeoutError, match="no answer") as caught:
        made.answer("pay", {"n": 1})
    assert isinstance(caught.value, RecordedError)
    assert type(caught.value).__name__ == "TimeoutError"
    for number, name in ((2, "Declined"), (3, "UnicodeDecodeError")):
        with pytest.raises(RecordedError) as other:
            made.answer("pay", {"n": number})
        assert type(other.value).__name__ == name


class Declined(Exception):
    def __init__(self, order: str, *, code: int) -> None:
        super().__init__(f"{order}: declined with {code}")


class Sorry(Exception):
    def __init__(self, order: str) -> None:
        super().__init__(f"sorry about {order}")


class Retry(Exception):
    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Declined, "A-1: declined with 7"),
        (Sorry, "sorry about A-1"),
        (Retry, "later"),
        (KeyError, "'A-1'"),
        (UnicodeDecodeError, "'utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_recorded_error_is_caught_as_the_live_one_was(kind: type[Exception], text: str) -> None:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    error = {"type": f"{module}{kind.__name__}", "message": text}

    with pytest.raises(kind) as caught:
        tape(call("pay", error=error)).answer("pay", {})

    assert str(caught.value) == text
    assert not isinstance(caught.value, Retry) or caught.value.message == text


@dataclass
class Parcel:
    weight: float


@pytest.mark.parametrize(
    "given",
    [2**70, float("nan"), b"\xff", "\ud800", Parcel(1.5), datetime(2026, 1, 2), {(1, 2): "x"}, {3}],
    ids=repr,
)
def test_arguments_match_as_the_recorder_keeps_them(given: object) -> None:
    sink = MemorySink()
    with Recorder(sink=sink) as recorder, recorder.turn(session_id="s", user="u") as turn:
        turn.tool("get", {"x": given}, result="ok")
    recorded = sink.cases[0]["actualConversation"][0]["tools"]

    assert tape(*recorded).answer("get", {"x": given}) == "ok"
    missing = tape(call("get", {"x": "another"}))
    with pytest.raises(ToolMiss):
        missing.answer("get", {"x": given})
    orjson.dumps(missing.data())  # can be stored


def test_arguments_of_any_length_are_likened_in_little_time() -> None:
    text = "y" * 300_000
    made = tape(call("put", {"x": text}), call("put", {"x": "z"}))
    with pytest.raises(ToolMiss):
        made.answer("put", {"x": text + "!"})
    with pytest.raises(ToolMiss):
        made.end()

    assert drift_of([made.data()])["put"].changed


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ({"result": "missing"}, "result of get was not recorded"),
        ({"result": "truncated"}, "result of get was cut"),
        ({"result": "redacted"}, "result of get was redacted"),
        ({}, "result of get was recorded as a hash"),
        ({"arguments": "missing"}, "arguments of get were not recorded"),
        ({"stateDelta": "truncated"}, "state written by get was cut"),
    ],
)
def test_a_call_that_was_not_recorded_whole_answers_nothing_and_says_why(
    lost: dict[str, str], why: str
) -> None:
    with pytest.raises(ToolMiss, match=why):
        tape(call("get", {"id": 1}, [{"v": "<hash:cf53b25b2929>"}], capture=lost)).answer(
            "get", {"id": 1}
        )


@dataclass
class Shot:
    name: str
    png: bytes


class Order:
    """An object without fields that can be seen."""


@pytest.mark.parametrize(
    "returned",
    [b"png", [Shot("a", b"png" * 9)], memoryview(b"x"), io.BytesIO(b"x"), Order(), {"orders": [Order()]},
     numpy.zeros((3, 4)), numpy.zeros(2), Image.new("RGB", (2, 3))],
    ids=lambda returned: type(returned).__name__,
)  # fmt: skip
def test_what_stands_for_bytes_or_an_object_is_no_result(returned: object) -> None:
    seen = thaw(freeze(returned, 1000)[0])

    with pytest.raises(ToolMiss, match=r"result of get was recorded as <.+>"):
        tape(call("get", {}, seen)).answer("get", {})


@pytest.mark.parametrize("returned", ["<br>", "<p>12 bytes</p>", "x <3 bytes>", "<none>", "<DIV>"])
def test_texts_in_angle_brackets_are_results(returned: str) -> None:
    assert tape(call("get", {}, [returned])).answer("get", {}) == [returned]


def test_the_lost_result_of_another_call_is_not_why_a_call_has_none() -> None:
    made = tape(call("get", {"id": 1}), call("get", {"id": 2}, capture={"result": "redacted"}))

    with pytest.raises(ToolMiss, match="no recorded result for these arguments"):
        made.answer("get", {"id": 3})


def test_the_result_of_a_later_equal_call_is_not_that_of_one_that_was_lost() -> None:
    made = tape(
        call("poll", {}, "running", capture={"result": "redacted"}),
        call("poll", {}, "done"),
        call("poll", {"id": 1}, "other"),
    )

    assert made.answer("poll", {"id": 1}) == "other"
    with pytest.raises(ToolMiss, match="result of poll was redacted"):
        made.answer("poll", {})


def test_a_tool_that_may_run_runs_only_without_a_recorded_result() -> None:
    made = tape(call("get", {"id": 1}, "recorded"), on_miss={"get": "real"})

    assert made.answer("get", {"id": 1}) == "recorded"
    assert made.answer("get", {"id": 2}) is RUN
    assert made.turns[0].real == [Missed("get", {"id": 2}, "ran for real")]


def test_the_closest_call_answers_where_that_is_wanted_and_is_marked() -> None:
    made = tape(
        call("find", {"city": "Berlin"}, 1),
        call("find", {"city": "Paris"}, 2),
        on_miss={"find": "closest"},
    )

    assert made.answer("find", {"city": "paris"}) == 2
    why = "got the result of the closest recorded call"
    assert made.turns[0].closest == [Missed("find", {"city": "paris"}, why)]
    assert (made.turns[0].invented, made.turns[0].is_recorded) == ([], False)


def test_a_model_invents_a_result_where_that_is_wanted_and_it_is_marked() -> None:
    made = tape(
        on_miss={"find": "llm"},
        invent=lambda tool, arguments, _: Invented({"of": [tool, arguments]}, 0.25),
    )

    assert made.answer("find", {"a": 1}) == {"of": ["find", {"a": 1}]}
    assert made.turns[0].invented == [Missed("find", {"a": 1}, "got an invented result")]
    assert made.invented_usd == 0.25


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ('{"city": "Bern"}', {"city": "Bern"}),
        ('```json\n{"city": "Bern"}\n```', {"city": "Bern"}),
        ('Sure!\n```json\n{"city": "Bern"}\n```\nAnything else?', {"city": "Bern"}),
        ("I cannot do that.", None),
    ],
)
def test_an_invented_result_is_json_as_the_recorded_ones_are(
    said: str, result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = recording_of(
        {"actualConversation": [{"tools": [call("find", {}, {"city": "Rome"})]}]}
    )
    policy = MockPolicy(on_miss={"find": "llm"})
    priced = {"MODEL": "m", "PRICE_INPUT": "1000", "PRICE_OUTPUT": "0"}
    with judge_server(lambda _: Answer(said)) as server:
        for name, value in {**priced, "BASE_URL": server.url}.items():
            monkeypatch.setenv(f"EVALTAP_JUDGE_{name}", value)
        made = Tape(recording, policy, invent=inventor(recording, policy, ()))
        made.begin()
        answer = None
        with (
            nullcontext() if result else pytest.raises(ToolMiss, match="recorded results are JSON")
        ):
            answer = made.answer("find", {"a": 1})

    assert answer == result
    assert made.invented_usd == pytest.approx(0.011)


def test_a_renamed_tool_is_answered_by_its_old_name() -> None:
    made = tape(call("get_order", {"id": 1}, "one"), renamed={"fetch_order": "get_order"})

    assert made.answer("fetch_order", {"id": 1}) == "one"


def test_a_simulated_users_turn_is_not_answered_by_an_earlier_one_and_says_so() -> None:
    turns = [{"tools": [call("get")]}, {"tools": []}]
    made = Tape(recording_of({"actualConversation": turns}), MockPolicy(), pool_from=1)
    made.begin()
    made.begin()

    with pytest.raises(ToolMiss, match="was not called in any recorded turn from turn 2 on"):
        made.answer("get", {})


def test_a_result_of_another_turn_answers_nothing() -> None:
    made = Tape(
        recording_of({"actualConversation": [{"tools": []}, {"tools": [call("get")]}]}),
        MockPolicy(),
    )
    made.begin()

    with pytest.raises(ToolMiss, match="was not called in the recorded turn"):
        made.answer("get", {})
    made.begin()
    assert made.answer("get", {}) == "ok"


def test_a_declared_mock_answers_alike_whatever_the_agent_does_to_a_result() -> None:
    mock = DeclaredMock("list", None, {"items": ["a", "b"]})
    made = Tape((), MockPolicy(), every_turn=(mock,))
    made.begin()

    made.answer("list", {})["items"].pop()
    assert made.answer("list", {}) == {"items": ["a", "b"]}
    made.begin()
    assert made.answer("list", {}) == {"items": ["a", "b"]}


def test_only_a_tool_that_is_no_longer_called_may_be_the_old_name() -> None:
    recorded = ["get_order", "refund"]

    (line,) = renamed(["fetch_order"], recorded, ["refund"])
    assert "--rename-tool fetch_order=get_order" in line
    assert [*renamed(["fetch_order"], recorded, ["get_order", "refund"])] == []
    assert [*renamed(["c"], ["a"], [])] == []


def test_the_drift_report_counts_by_tool_and_shows_how_arguments_changed() -> None:
    made = Tape(
        recording_of(
            {
                "actualConversation": [
                    {"tools": [call("get", {"id": "A"}, 1), call("pay")]},
                    {"tools": [call("get", {"id": "B"}, 2), call("pay")]},
                ]
            }
        ),
        MockPolicy(),
    )
    made.begin()
    made.answer("get", {"id": "A"})
    made.end()
    made.begin()
    with pytest.raises(ToolMiss):
        made.answer("get", {"id": "C"})
    with pytest.raises(ToolMiss):
        made.end()

    found = totals([made.data(), None])

    assert (found["hits"], found["misses"]) == (1, 1)
    assert found["by_tool"]["pay"]["unused"] == 1, "of the turn that was not cut short"
    [change] = found["by_tool"]["get"]["changed_arguments"]
    assert "id" in change["difference"]
    assert change["count"] == 1


def test_a_recorded_call_that_was_made_without_asking_is_not_missing() -> None:
    made = tape(call("escalate", {}), call("refund", {"order": "A"}))

    made.answer("refund", {"order": "A"})
    made.made("escalate", {})  # it handed over to another agent
    made.made("refund", {"order": "A"})
    made.end()

    assert made.turns[-1].unused == []


def test_a_tool_that_no_recording_can_answer_is_a_fork() -> None:
    made = tape(call("get", {}))
    made.answer("get", {})

    with pytest.raises(ToolMiss):
        miss(made, "its tool web_search is run by the provider", "web_search")
    with pytest.raises(ToolMiss):
        made.end()

    [fate] = fates("forked", made.data()["turns"], 1)
    assert (fate.fate, fate.fork and fate.fork.tool) == ("forked", "web_search")


def test_a_tool_whose_result_cannot_be_used_runs_only_if_it_may() -> None:
    refusing, running = tape(call("note", {})), tape(call("note", {}), on_miss={"note": "real"})
    for one in (refusing, running):
        assert one.answer("note", {}) == "ok"

    with pytest.raises(ToolMiss, match="returns a command"):
        refusing.unusable("note", {}, "returns a command")
    assert running.unusable("note", {}, "returns a command") is RUN
    assert [one.tool for one in running.turns[-1].real] == ["note"]
    assert refusing.turns[-1].hits == running.turns[-1].hits == {"note": 0}


def test_what_a_recorded_call_wrote_to_the_state_is_written_again() -> None:
    made = tape(call("login", {}, "hello", stateDelta={"tier": "gold"}), call("get", {}))
    state: dict[str, Any] = {}

    for name in ("login", "get"):
        asyncio.run(made.answer_later(name, {}, writes=state.update))

    assert state == {"tier": "gold"}


def test_a_call_is_not_said_to_be_repeated_if_only_others_of_its_tool_were_answered() -> None:
    made = tape(call("get", {"id": 1}))
    made.answer("get", {"id": 1})

    with pytest.raises(ToolMiss, match="has no recorded result for these arguments"):
        made.answer("get", {"id": 2})
    with pytest.raises(ToolMiss, match="was called more often than recorded"):
        made.answer("get", {"id": 1})
