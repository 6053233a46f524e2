"""The recorder: every turn ends in one counted place, and bounds hold."""

import _thread
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.recorder import MemorySink, Recorder, SinkError
from evaltap.recorder.observation import (
    Observation,
    Responded,
    RunEnded,
    RunStarted,
    ToolCalled,
    UserMessage,
)
from evaltap.schemas.wire.record import DecodedCase, Manifest, WireRecord, decode_record
from support.builders.recorded_turns import record_turn
from support.builders.waiting import wait_for


def assert_balanced(recorder: Recorder) -> None:
    counters = recorder.counters()
    assert counters.recorded == counters.delivered + counters.spooled + sum(
        counters.dropped.values()
    ), counters


class GatedSink(MemorySink):
    """A sink that fails, or stands still, until told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = False
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Event()

    def append(self, records: Sequence[WireRecord]) -> None:
        self.entered.set()
        self.open.wait(60)
        if self.failing:
            raise SinkError("the disk is away")
        super().append(records)


def hold(recorder: Recorder, sink: GatedSink) -> None:
    """Record a turn and return once the background thread stands still in the sink with it."""
    sink.open.clear()
    record_turn(recorder)
    assert sink.entered.wait(20)


def test_a_turn_is_on_the_log_after_flush_and_reads_back(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "log.db", app_name="shop", service="api")

    record_turn(recorder)

    assert recorder.flush(10)
    source = LocalLogSource(tmp_path / "log.db")
    (item,) = source.poll(10, 0).records
    decoded = decode_record(item.record)
    assert isinstance(decoded, DecodedCase)
    turn = decoded.case["actualConversation"][0]
    assert (decoded.eval_id, decoded.app_name, decoded.seq) == ("s-1", "shop", 1)
    assert decoded.case["source"]["service"] == "api"
    assert turn["userContent"] == {"role": "user", "content": "Where is A-100?"}
    assert turn["tools"][0]["result"] == {"status": "shipped"}
    assert turn["telemetry"]["status"] == "ok"
    assert recorder.close()
    source.close()


def test_nothing_is_opened_or_started_before_the_first_event(tmp_path: Path) -> None:
    before = _thread._count()

    recorder = Recorder(tmp_path / "log.db")

    assert _thread._count() == before
    assert list(tmp_path.iterdir()) == []
    assert recorder.close()
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_dense_and_the_last_manifest_proves_it() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    for n in range(250):
        record_turn(recorder, f"s-{n % 7}")
    recorder.close()

    decoded = [decode_record(record) for record in sink.records]
    cases = [item for item in decoded if isinstance(item, DecodedCase)]
    manifest = decoded[-1]
    assert [case.seq for case in cases] == list(range(1, 251))
    assert isinstance(manifest, Manifest)
    assert (manifest.highest_seq, manifest.closing, manifest.drops) == (250, True, {})
    assert {case.producer_id for case in cases} == {manifest.producer_id}
    assert recorder.counters().delivered == 250


def test_a_manifest_comes_by_itself_when_there_is_something_new() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, manifest_interval_seconds=0.01)

    record_turn(recorder)
    wait_for(lambda: bool(sink.manifests))
    said = len(sink.manifests)
    recorder.flush(10)
    recorder.flush(10)

    assert sink.manifests[0].highest_seq == 1
    assert not sink.manifests[0].closing
    assert len(sink.manifests) == said == 1
    recorder.close()


def test_close_writes_open_turns_as_incomplete() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    turn = recorder.turn(session_id="s", user="hi")
    turn.__enter__()
    turn.tool("search", {})

    assert recorder.close()

    (case,) = sink.cases
    assert case["source"]["closeReason"] == "shutdown"
    assert case["actualConversation"][0]["telemetry"]["status"] == "incomplete"


def test_what_comes_after_close_is_counted_and_closing_again_is_fine() -> None:
    recorder = Recorder(sink=MemorySink())
    record_turn(recorder)
    assert recorder.close()

    record_turn(recorder)
    record_turn(recorder)

    assert recorder.close()
    assert recorder.counters().dropped == {"closed": 2}
    assert_balanced(recorder)


def test_an_idle_turn_is_closed_as_incomplete_without_anybody_asking() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink, idle_timeout_seconds=0.01)
    recorder.turn(session_id="s", user="hi").__enter__()

    wait_for(lambda: bool(sink.cases))

    assert sink.cases[0]["source"]["closeReason"] == "idle_timeout"
    recorder.close()


def test_a_late_result_revises_the_turn() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(session_id="s", user="hi") as turn:
        call = turn.tool("slow", {"n": 1})
        turn.respond("started")
    recorder.flush(10)

    call.returned({"ok": True})
    recorder.close()

    first, second = sink.cases
    assert [case["source"]["revision"] for case in (first, second)] == [1, 2]
    assert "result" not in first["actualConversation"][0]["tools"][0]
    assert second["actualConversation"][0]["tools"][0]["result"] == {"ok": True}


class TestSampling:
    """Whole sessions are kept or left out."""

    def test_the_probability_is_recorded_only_when_it_is_below_one(self) -> None:
        for rate, expected in ((1.0, None), (0.5, 0.5)):
            sink = MemorySink()
            recorder = Recorder(sink=sink, sample_rate=rate)
            for n in range(40):
                record_turn(recorder, f"s-{n}")
            recorder.close()
            assert {case["source"].get("inclusionProbability") for case in sink.cases} == {expected}

    def test_turns_of_a_session_share_their_fate_and_each_is_counted(self) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink, sample_rate=0.5)

        for _ in range(3):
            for n in range(40):
                record_turn(recorder, f"s-{n}")
        recorder.close()

        kept = [case["evalId"] for case in sink.cases]
        counters = recorder.counters()
        assert all(kept.count(session) == 3 for session in kept)
        assert 0 < counters.delivered == len(kept) < 120
        assert counters.dropped == {"sampled_out": 120 - len(kept)}
        assert_balanced(recorder)


class TestBounds:
    """What does not fit is dropped as a whole turn, and counted."""

    @pytest.mark.parametrize(
        "bound", [{"queue_max_events": 40}, {"queue_max_bytes": 64 * 1024}], ids=["events", "bytes"]
    )
    def test_a_full_queue_drops_whole_turns(self, bound: dict[str, Any]) -> None:
        sink = GatedSink()
        recorder = Recorder(sink=sink, **bound)
        hold(recorder, sink)

        for n in range(300):
            with recorder.turn(session_id=f"load-{n}", user="x" * 200) as turn:
                for step in range(5):
                    turn.tool("t", {"step": step}, id=f"c-{step}", result="y" * 200)
                turn.respond("done")
        held = len(recorder._pipeline._events)  # how much is held is what this test is about
        sink.open.set()
        recorder.close(30)

        counters = recorder.counters()
        assert counters.dropped["queue_full"] > 200
        assert counters.recorded == 301
        assert held < 300
        assert_balanced(recorder)
        for case in sink.cases:
            if case["evalId"].startswith("load-"):
                turn_data = case["actualConversation"][0]
                assert [tool["id"] for tool in turn_data["tools"]] == [f"c-{n}" for n in range(5)]
                assert turn_data["telemetry"]["status"] == "ok"

    def test_what_the_log_does_not_take_is_kept_and_written_later(self) -> None:
        sink = GatedSink()
        recorder = Recorder(sink=sink)
        sink.failing = True

        for n in range(20):
            record_turn(recorder, f"s-{n}")
        assert not recorder.flush(0.2)
        waiting = recorder.counters()
        sink.failing = False
        assert recorder.flush(10)

        assert (waiting.recorded, waiting.waiting) == (0, 20)
        assert [case["evalId"] for case in sink.cases] == [f"s-{n}" for n in range(20)]
        assert recorder.counters().delivered == 20
        recorder.close()

    def test_what_waits_for_the_log_is_bounded_and_numbers_stay_dense(self) -> None:
        sink = GatedSink()
        recorder = Recorder(sink=sink, queue_max_bytes=64 * 1024)
        sink.failing = True

        for n in range(120):
            record_turn(recorder, f"s-{n}", state={"pad": "x" * 2000})
            recorder.flush(0.0)
            wait_for(lambda: len(recorder._pipeline._events) == 0)
        sink.failing = False
        recorder.close(30)

        counters = recorder.counters()
        decoded = [decode_record(record) for record in sink.records]
        cases = [item for item in decoded if isinstance(item, DecodedCase)]
        assert counters.dropped["log_unavailable"] > 20
        assert counters.recorded == 120
        assert_balanced(recorder)
        assert [case.seq for case in cases] == list(range(1, counters.delivered + 1))
        assert sink.manifests[-1].drops == counters.dropped

    def test_close_gives_up_in_time_and_counts_what_is_left(self) -> None:
        sink = GatedSink()
        recorder = Recorder(sink=sink)
        sink.failing = True
        record_turn(recorder)

        began = time.monotonic()
        complete = recorder.close(0.3)

        assert not complete
        assert time.monotonic() - began < 10
        assert recorder.counters().dropped == {"log_unavailable": 1}

    def test_close_does_not_wait_for_a_sink_that_hangs(self) -> None:
        sink = GatedSink()
        recorder = Recorder(sink=sink)
        hold(recorder, sink)

        began = time.monotonic()
        complete = recorder.close(0.2)

        assert not complete
        assert time.monotonic() - began < 10
        sink.open.set()

    @pytest.mark.parametrize("where", ["arguments", "result", "user", "answer"])
    def test_a_huge_field_is_cut_and_marked(self, where: str) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink, field_max_bytes=1000)
        huge = (
            {"rows": ["word " * 20_000], "n": 1}
            if where in ("arguments", "result")
            else "word " * 20_000
        )
        given: dict[str, Any] = {
            "arguments": {},
            "result": 1,
            "user": "u",
            "answer": "a",
            where: huge,
        }

        with recorder.turn(session_id="s", user=given["user"]) as turn:
            turn.tool("t", given["arguments"], result=given["result"])
            turn.respond(given["answer"])
        recorder.close()

        (turn_data,) = sink.cases[0]["actualConversation"]
        tool = turn_data["tools"][0]
        captures = {**turn_data.get("capture", {}), **tool.get("capture", {})}
        field = {"user": "userContent", "answer": "finalResponse"}.get(where, where)
        assert captures == {field: "truncated"}
        written = orjson.dumps(sink.cases[0]).decode()
        assert len(written) < 3000
        is_text = where in ("user", "answer")
        assert f"truncated: {'100000 characters' if is_text else 'beyond 1000 bytes'}" in written

    def test_a_turn_of_many_fields_is_cut_until_it_fits_the_wire(self) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink, case_max_bytes=50_000)
        with recorder.turn(session_id="s", user="u") as turn:
            for _ in range(50):
                turn.tool("t", {}, result="x y " * 2000)
        recorder.close()

        assert len(sink.records[0].value or b"") <= 50_000
        tools = sink.cases[0]["actualConversation"][0]["tools"]
        assert len(tools) == 50
        assert {tool["capture"]["result"] for tool in tools} == {"truncated"}

    def test_a_turn_that_no_cutting_makes_fit_is_dropped_and_counted(self) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink, case_max_bytes=1024)
        with recorder.turn(session_id="s", user="u") as turn:
            for n in range(50):
                turn.tool(f"tool-number-{n}", {}, result=n)
        recorder.close()

        assert sink.cases == []
        assert recorder.counters().dropped == {"too_large": 1}


class TestPrivacy:
    """Nothing is written that was not redacted."""

    def test_redaction_is_on_by_default_and_the_key_of_the_record_is_hidden_too(
        self, tmp_path: Path
    ) -> None:
        recorder = Recorder(tmp_path / "log.db")
        with recorder.turn(session_id="eve@example.com", user="I am eve@example.com") as turn:
            turn.tool(
                "login", {"password": "hunter2"}, error=ValueError("bad hunter2 password=hunter2")
            )
            turn.respond("card 4111 1111 1111 1111 of eve@example.com")
        recorder.close()

        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        for canary in (b"eve@example.com", b"4111 1111", b'"hunter2"', b"password=hunter2"):
            assert canary not in stored
        assert (tmp_path / "log.db.key").stat().st_mode & 0o777 == 0o600

    def test_two_recorders_of_one_log_give_the_same_pseudonyms(self, tmp_path: Path) -> None:
        for _ in range(2):
            recorder = Recorder(tmp_path / "log.db")
            record_turn(recorder, "eve@example.com")
            recorder.close()

        source = LocalLogSource(tmp_path / "log.db")
        decoded = [decode_record(item.record) for item in source.poll(10, 0).records]
        source.close()
        assert len({item.eval_id for item in decoded if isinstance(item, DecodedCase)}) == 1

    def test_it_can_be_switched_off(self) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink, redaction=False)
        record_turn(recorder, "eve@example.com")
        recorder.close()

        assert sink.cases[0]["evalId"] == "eve@example.com"

    def test_content_can_be_withheld(self) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink, capture_content=False)
        record_turn(recorder)
        recorder.close()

        written = orjson.dumps(sink.cases[0])
        assert b"A-100" not in written
        assert b"shipped" not in written
        assert b"get_order" in written

    def test_a_redactor_that_fails_drops_the_turn_and_one_that_says_none_too(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(case: dict[str, Any]) -> Any:
            raise RuntimeError("hunter2")

        def silent(case: dict[str, Any]) -> Any:
            return None

        def bare(case: dict[str, Any]) -> Any:
            return case

        failed = "redaction_failed"
        for redactor, reason in ((broken, failed), (bare, failed), (silent, "redactor")):
            sink = MemorySink()
            recorder = Recorder(sink=sink, redactor=redactor)
            record_turn(recorder)
            recorder.close()
            assert sink.cases == []
            assert recorder.counters().dropped == {reason: 1}
            assert_balanced(recorder)
        raised, returned = caplog.messages
        assert raised.endswith("redaction_failed: RuntimeError (1 time)")
        assert returned.endswith("redaction_failed: KeyError (1 time)")


class ListSource:
    """A source whose items are observations; errors and endings can be planted."""

    def __init__(self) -> None:
        self.left: list[Observation] = []

    def process(self, item: Any) -> Iterable[Observation]:
        if item == "poison":
            raise ValueError("cannot read this item")
        return [item]

    def tick(self, now_ns: int) -> Iterable[Observation]:
        return ()

    def close(self) -> Iterable[Observation]:
        return self.left

    def abandon(self, items: Sequence[object]) -> int:
        return len(items)


def run_of(run_id: str) -> list[Observation]:
    return [
        RunStarted(run_id, 1, session_id=run_id),
        UserMessage(run_id, 2, "hi"),
        ToolCalled(run_id, 3, "c", "t", {"a": 1}),
        Responded(run_id, 4, "yo"),
        RunEnded(run_id, 5),
    ]


class TestSources:
    """Readers of raw items, as the span processor is one."""

    def test_items_are_read_in_the_background_and_an_odd_one_harms_no_other(self) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink)
        source = ListSource()
        recorder.register(source)

        for item in (*run_of("a"), "poison", *run_of("b")):
            recorder.submit(source, item)
        recorder.close()

        assert [case["evalId"] for case in sink.cases] == ["a", "b"]
        assert recorder.counters().faults == 1

    def test_a_span_that_did_not_fit_costs_the_whole_turn_of_its_trace(self) -> None:
        @dataclass
        class Context:
            trace_id: int

        @dataclass
        class Span:
            context: Context

        @dataclass
        class Item:
            span: Span
            observation: Observation | None

        class SpanSource(ListSource):
            def process(self, item: Any) -> Iterable[Observation]:
                return [item.observation] if item.observation else []

        def item(trace: int, observation: Observation | None) -> Item:
            return Item(Span(Context(trace)), observation)

        sink = GatedSink()
        recorder = Recorder(sink=sink, queue_max_events=10)
        source = SpanSource()
        recorder.register(source)
        hold(recorder, sink)

        whole: list[Observation] = [
            RunStarted("a", 1, session_id="a", trace_id=f"{7:032x}"),
            RunEnded("a", 5),
        ]
        broken: list[Observation] = [
            RunStarted("b", 1, session_id="b", trace_id=f"{8:032x}"),
            RunEnded("b", 5),
        ]
        for observation in (*whole, *broken):
            assert recorder.submit(source, item(7 if observation in whole else 8, observation))
        while recorder.submit(source, item(8, None)):
            pass
        sink.open.set()
        recorder.close(30)

        assert [case["evalId"] for case in sink.cases] == ["s-1", "a"]
        counters = recorder.counters()
        assert (counters.dropped, counters.lost_items) == ({"queue_full": 1}, 1)
        assert_balanced(recorder)

    def test_what_a_source_still_holds_is_written_at_close(self) -> None:
        sink = MemorySink()
        recorder = Recorder(sink=sink)
        source = ListSource()
        recorder.register(source)
        source.left = run_of("held")
        recorder.submit(source, run_of("other")[0])

        recorder.close()

        assert sorted(case["evalId"] for case in sink.cases) == ["held", "other"]
