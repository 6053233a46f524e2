"""Raw OTLP topics as a source: the right turns, once, regardless of order, speed and kills."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition
from evaltap.evaluator.store.database import Store
from evaltap.recorder.sources.otlp_files import read_cases
from evaltap.recorder.traces.buffer import TraceLimits
from support.builders.telemetry_log import (
    START_MS,
    MemoryTopics,
    Message,
    as_json,
    collector_messages,
    one_span_each,
)
from support.builders.telemetry_topics import SECOND, Process, consumed, on_topics, turns
from support.corpora.span_facts import captures, differences, files_of

SPANS = Partition("otlp_spans")


def landed_cases(store: Store) -> list[dict[str, Any]]:
    """Return the turns as cases of one turn, in order of start."""
    rows = store.rows(
        "SELECT c.case_json, t.actual_json FROM turns t JOIN cases c USING (app_name, eval_set_id,"
        " eval_id) QUALIFY row_number() OVER (PARTITION BY t.invocation_id, t.eval_id ORDER BY"
        " c.revision) = 1 ORDER BY t.started_at"
    )
    return [{**json.loads(case), "actualConversation": [json.loads(turn)]} for case, turn in rows]


def spans_of(case: str) -> list[Message]:
    """Return the spans of a capture, a message each, the root last."""
    parts = [
        one
        for message in collector_messages(case)
        if message.topic == "otlp_spans"
        for one in one_span_each(message)
    ]
    return sorted(parts, key=is_root)


def is_root(message: Message) -> bool:
    request = ExportTraceServiceRequest()
    request.ParseFromString(message.value or b"")
    return not request.resource_spans[0].scope_spans[0].spans[0].parent_span_id


def comparable(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case in the form that is compared: without what names the way it was recorded."""
    source = {k: v for k, v in case["source"].items() if k not in ("revision", "recorderVersion")}
    # When the session began is that of its first turn in the store, of each turn in files.
    # Turns of topics repeat the context of their session, as they may be read again alone.
    turns = [
        {key: value for key, value in turn.items() if key != "contextMessages"}
        for turn in case["actualConversation"]
    ]
    kept = {key: value for key, value in case.items() if key != "creationTimestamp"}
    return kept | {"source": source, "actualConversation": turns}


@pytest.fixture(scope="module")
def plain() -> list[tuple[Any, ...]]:
    """The turns of all captures, read in order from topics of protobuf."""
    with consumed(on_topics(collector_messages())) as store:
        return turns(store)


@pytest.fixture(scope="module")
def mingled() -> dict[str, list[dict[str, Any]]]:
    """The turns of each capture, of all captures on the same topics."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in captures()}
    with consumed(on_topics(collector_messages(), seed=1)) as store:
        capture = {one["evalId"]: name for name in found for one in read_cases(files_of(name))}
        for one in landed_cases(store):
            found[capture[one["evalId"]]].append(one)
    return found


class TestTurns:
    """What is recorded is what happened."""

    @pytest.mark.parametrize("name", captures())
    def test_a_collectors_records_give_the_turns_of_the_script_and_of_files(
        self, name: str, mingled: dict[str, list[dict[str, Any]]]
    ) -> None:
        landed = mingled[name]

        assert differences(name, landed) == []
        in_files = map(comparable, read_cases(files_of(name)))
        assert sorted(map(comparable, landed), key=str) == sorted(in_files, key=str)

    @pytest.mark.slow
    def test_json_and_protobuf_mixed_on_one_topic_are_told_apart(
        self, plain: list[tuple[Any, ...]]
    ) -> None:
        mixed = [as_json(m) if n % 2 else m for n, m in enumerate(collector_messages())]

        with consumed(on_topics(mixed)) as store:
            assert turns(store) == plain != []

    def test_topics_may_have_any_names_and_hold_anything(
        self, plain: list[tuple[Any, ...]]
    ) -> None:
        renamed = [Message("telemetry", m.value, m.key) for m in collector_messages()]

        with consumed(on_topics(renamed)) as store:
            assert turns(store) == plain

    @pytest.mark.slow
    @settings(max_examples=6)
    @given(seed=st.integers(0, 2**32))
    def test_one_span_a_record_anywhere_gives_the_same_turns(self, seed: int) -> None:
        whole = collector_messages()
        parts = [p for m in whole for p in (one_span_each(m) if "span" in m.topic else [m])]
        topics = on_topics(parts, seed=seed, step_ms=1)

        with consumed(on_topics(whole)) as plain, consumed(topics) as store:
            assert turns(store) == turns(plain)

    def test_metrics_and_the_logs_of_applications_are_skipped(self) -> None:
        metrics = ExportMetricsServiceRequest()
        scope = metrics.resource_metrics.add().scope_metrics.add()
        metric = scope.metrics.add(name="http.requests")
        metric.sum.data_points.add(as_int=3)
        spoken = (
            b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"hi"}}]}]}]}'
        )
        as_text = b'{"resourceMetrics":[]}'
        values = [metrics.SerializeToString(), spoken, as_text]
        topics = on_topics([Message("otlp_metrics", value) for value in values])

        with Store(":memory:") as store:
            process = Process(topics, store).run()

            assert turns(store) == []
            assert store.rows("SELECT count(*) FROM dead_letters") == [(0,)]
        assert process.assembler.counters.metrics_skipped == 2


class TestConfiguration:
    """What reaches the store has passed the recorder's redaction and sampling."""

    def test_personal_data_of_the_telemetry_does_not_reach_the_store(self) -> None:
        secret = "anna.berg@example.com"
        said = as_json(collector_messages("pydantic-ai-v5/single_tool")[0])
        value = (said.value or b"").replace(b"Where is order", b"I am " + secret.encode())
        assert secret.encode() in value
        topics = on_topics([Message(said.topic, value)])

        with consumed(topics, redaction=True, redaction_key="k" * 32) as store:
            everything = [
                str(store.rows(f"FROM {name}"))
                for (name,) in store.rows("SELECT table_name FROM duckdb_tables()")
            ]
        assert "<email:" in "".join(everything)
        assert secret not in "".join(everything)

    def test_what_sampling_leaves_out_is_counted_and_stays_out_after_a_restart(self) -> None:
        topics = on_topics(collector_messages())

        with Store(":memory:") as store:
            Process(topics, store, sample_rate=0.0).run()
            second = Process(topics, store, sample_rate=0.0).run()

            assert turns(store) == []
            assert store.rows("SELECT recorded, dropped FROM v_completeness") == [(68, 68)]
            assert second.assembler.counters.traces_read == 0

    @pytest.mark.slow
    def test_an_erased_session_leaves_no_name_behind_and_does_not_come_back(
        self, tmp_path: Path
    ) -> None:
        topics = on_topics(collector_messages("openai-agents-openinference/single_tool"))
        db = tmp_path / "x.duckdb"
        with Store(db) as store:
            Process(topics, store).run()
            ((session,),) = store.rows("SELECT eval_id FROM turns")
            assert session in store.rows("SELECT memory FROM read_traces")[0][0]

        assert main(["store", "erase", "--subject", session, "--db", str(db)]) == 0

        with Store(db) as store:
            Process(topics, store).run()
            assert turns(store) == []
            assert store.rows("SELECT DISTINCT memory FROM read_traces") == [("",)]


class TestOffsets:
    """Nothing that may still be needed is left behind."""

    def test_an_open_trace_holds_its_partition_back_and_no_other(self) -> None:
        (*children, root) = spans_of("strands-latest/single_tool")
        other = collector_messages("pydantic-ai-v5/single_tool")
        topics = MemoryTopics()
        topics.write(other[0], START_MS)
        for number, child in enumerate(children):
            topics.write(child, START_MS + number)
        topics.write(other[0], START_MS + 900 * SECOND, partition=1)
        limits = TraceLimits(idle_seconds=2_000)

        with Store(":memory:") as store:
            Process(topics, store, closes_at_end=False, limits=limits).run()
            held = Lander(store).offsets()
            topics.write(root, START_MS + 901 * SECOND)
            late = START_MS + 1_000 * SECOND
            topics.write(other[0], late)
            topics.write(other[0], late, partition=1)
            Process(topics, store, closes_at_end=False, limits=limits).run()

            assert held == {SPANS: 1, Partition("otlp_spans", 1): 0}
            assert Lander(store).offsets()[SPANS] == len(children) + 2
            assert len(turns(store)) == 2

    def test_a_trace_that_never_ends_is_closed_and_lets_the_offsets_go_on(self) -> None:
        (*children, _) = spans_of("pydantic-ai-v5/single_tool")
        other = collector_messages("strands-latest/single_tool")
        topics = MemoryTopics()
        for child in children:
            topics.write(child, START_MS)
        for minute in range(30):
            topics.write(other[0], START_MS + minute * 60 * SECOND)

        with Store(":memory:") as store:
            process = Process(topics, store, closes_at_end=False).run()

            closed = store.rows(
                "SELECT status, close_reason FROM turns WHERE close_reason <> 'root_span_ended'"
            )
            assert closed == [("incomplete", "idle_timeout")]
            assert Lander(store).offsets()[SPANS] > len(children)
            assert process.assembler.buffer.counters.traces_timed_out == 1

    @pytest.mark.slow
    def test_a_burst_of_open_traces_stays_within_the_limits(self) -> None:
        _check_burst(traces=4_000, held=500)

    @pytest.mark.slow
    @pytest.mark.timeout(1_200)
    def test_a_burst_of_thirty_thousand_open_traces_stays_within_the_limits(self) -> None:
        _check_burst(traces=30_000, held=10_000)

    @pytest.mark.slow
    def test_rows_about_traces_go_once_the_offsets_have_passed_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "evaltap.evaluator.ingest.landing.trace_progress.ROWS_BEFORE_CLEANING", 10
        )
        topics = on_topics(collector_messages(), step_ms=30 * SECOND)

        with Store(":memory:") as store:
            Process(topics, store).run(most=1)

            ((rows,),) = store.rows("SELECT count(*) FROM read_traces")
        assert rows < 30


def _check_burst(*, traces: int, held: int) -> None:
    """Open traces at one moment, every tenth of an agent, and see what is held and what comes out."""
    (template, *_) = spans_of("pydantic-ai-v5/single_tool")
    request = ExportTraceServiceRequest()
    request.ParseFromString(template.value or b"")
    (said,) = request.resource_spans[0].scope_spans[0].spans
    plain = ExportTraceServiceRequest()
    fetched = (
        plain.resource_spans.add()
        .scope_spans.add()
        .spans.add(name="GET /", span_id=b"\2" * 8, parent_span_id=b"\3" * 8)
    )
    topics = MemoryTopics()
    for number in range(1, traces + 1):
        one, span = (plain, fetched) if number % 10 else (request, said)
        span.trace_id = number.to_bytes(16, "big")
        topics.write(Message("otlp_spans", one.SerializeToString()), START_MS)

    with Store(":memory:") as store:
        limits = TraceLimits(max_traces=held)
        process = Process(topics, store, limits=limits, offsets_every_seconds=1)
        most = 0
        while (batch := process.step()).records or batch.more:
            most = max(most, process.source.open_traces)

        ((landed,),) = store.rows("SELECT count(DISTINCT trace_id) FROM turns")
    assert landed == traces / 10
    assert most <= held
    assert process.assembler.buffer.counters.traces_evicted == traces - held


class TestTime:
    """A trace is read when it is quiet, by the clock of the log and not by that of the reader."""

    def test_while_one_partition_lags_nothing_is_read_too_early(self) -> None:
        (*children, root) = spans_of("strands-latest/single_tool")
        topics = MemoryTopics()
        topics.write(root, START_MS)
        for minute in range(5):
            filler = collector_messages("pydantic-ai-v5/single_tool")[0]
            topics.write(filler, START_MS + minute * 60 * SECOND)
        for child in children:
            topics.write(child, START_MS + SECOND, partition=1, hidden=True)
        lagging = Partition("otlp_spans", 1)
        topics.behind = lambda: [lagging]  # type: ignore[method-assign]  # it cannot be read now

        with Store(":memory:") as store:
            process = Process(topics, store, closes_at_end=False)
            process.wait(3_000)
            early = turns(store)
            del topics.behind
            topics.visible[lagging] = len(children)
            process.run()

            whole = [
                case for case in landed_cases(store) if case["source"]["framework"] == "strands"
            ]
        assert early == []
        assert differences("strands-latest/single_tool", whole) == []

    def test_a_partition_that_runs_ahead_is_paused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("evaltap.evaluator.ingest.sources.otlp_topics.QUEUED_BYTES", 50_000)
        whole = collector_messages()
        topics = MemoryTopics(most=3)
        ahead, behind = (Partition("otlp_spans", number) for number in (0, 1))
        for number, message in enumerate(m for m in whole if m.topic == "otlp_spans"):
            # The second half of time lies on one partition, and is as easy to get as the first.
            topics.write(message, START_MS + number, partition=0 if number > 20 else 1)

        with Store(":memory:") as store:
            Process(topics, store).run()
            assert len(turns(store)) == 68
        assert ahead in topics.ever_paused
        assert behind not in topics.ever_paused

    def test_at_the_end_of_the_log_the_quiet_period_is_real_time(self) -> None:
        topics = on_topics(collector_messages("strands-latest/single_tool"), partitions=1)

        with Store(":memory:") as store:
            process = Process(topics, store, closes_at_end=False).run()
            at_once = len(turns(store))
            process.wait(1.9)
            soon = len(turns(store))
            process.wait(0.2)

            assert (at_once, soon, len(turns(store))) == (0, 0, 1)

    def test_a_writer_with_a_clock_in_the_future_closes_nobodys_trace(self) -> None:
        (*children, root) = spans_of("strands-latest/single_tool")
        topics = MemoryTopics()
        now_ms = START_MS + 1_000_000 * SECOND
        for child in children:
            topics.write(child, now_ms - SECOND)
        stray = collector_messages("pydantic-ai-v5/single_tool")[0]
        topics.write(stray, now_ms * 2, partition=1)

        with Store(":memory:") as store:
            process = Process(topics, store, closes_at_end=False).run()
            topics.write(root, now_ms)
            process.run()
            process.wait(10)
            ((revisions,),) = store.rows("SELECT max(turn_revision) FROM turns")
            whole = [
                case for case in landed_cases(store) if case["source"]["framework"] == "strands"
            ]
        assert revisions == 1
        assert differences("strands-latest/single_tool", whole) == []

    def test_records_without_a_time_are_read_as_they_come(
        self, plain: list[tuple[Any, ...]]
    ) -> None:
        topics = MemoryTopics()
        for message in collector_messages():
            topics.write(message, None)

        with consumed(topics) as store:
            assert turns(store) == plain


class TestLateSpans:
    """What comes after a trace was read revises its turns."""

    NAME = "strands-latest/single_tool"

    def _late(self, topics: MemoryTopics) -> tuple[Message, int]:
        """Write a trace without one of its spans; return that span and the time of the log."""
        (late, *rest) = spans_of(self.NAME)
        for message in rest:
            topics.write(message, START_MS)
        return late, START_MS + 10 * SECOND

    def _filler(self, topics: MemoryTopics, time_ms: int) -> None:
        topics.write(collector_messages("pydantic-ai-v5/single_tool")[0], time_ms)

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_late_span_makes_a_higher_revision(self, *, restart: bool) -> None:
        topics = MemoryTopics()
        late, then = self._late(topics)
        self._filler(topics, then)

        with Store(":memory:") as store:
            process = Process(topics, store, closes_at_end=False).run()
            before = store.rows("SELECT turn_revision FROM latest_turns WHERE status IS NOT NULL")
            topics.write(late, then + SECOND)
            self._filler(topics, then + 10 * SECOND)
            if restart:
                process = Process(topics, store, closes_at_end=False)
            process.run()

            revisions = store.rows(
                "SELECT turn_revision FROM turns WHERE trace_id = (SELECT trace_id FROM turns"
                " WHERE turn_revision = 2) ORDER BY ALL"
            )
            newest = [row for row in turns(store, latest=True) if row[2] == 2]
        assert (1,) in before
        assert revisions == [(1,), (2,)]
        with consumed(on_topics(collector_messages(self.NAME))) as plain:
            assert [row[3] for row in newest] == [row[3] for row in turns(plain)]

    def test_a_late_span_that_changes_nothing_makes_no_revision(self) -> None:
        topics = MemoryTopics()
        spans = spans_of(self.NAME)
        for message in spans:
            topics.write(message, START_MS)
        self._filler(topics, START_MS + 10 * SECOND)
        topics.write(spans[0], START_MS + 11 * SECOND)
        self._filler(topics, START_MS + 20 * SECOND)

        for process_count in (1, 2):
            with Store(":memory:") as store:
                for _ in range(process_count):
                    Process(topics, store).run(most=1)
                assert {row[2] for row in turns(store)} == {1}

    def test_what_comes_after_the_time_for_revising_never_takes_a_turns_place(self) -> None:
        topics = MemoryTopics()
        spans = spans_of(self.NAME)
        for message in spans:
            topics.write(message, START_MS)
        self._filler(topics, START_MS + 100 * SECOND)
        topics.write(spans[-1], START_MS + 200 * SECOND)  # the root, alone
        self._filler(topics, START_MS + 300 * SECOND)

        with consumed(topics) as store, consumed(on_topics(collector_messages(self.NAME))) as plain:
            assert set(turns(plain)) <= set(turns(store, latest=True))
            assert store.rows("SELECT missing FROM v_completeness") == [(0,)]

    def test_nor_after_a_restart_that_sees_only_a_part_of_the_trace_again(self) -> None:
        topics = MemoryTopics()
        (first, *rest, root) = spans_of(self.NAME)
        topics.write(first, START_MS)
        for message in (spans_of("pydantic-ai-v5/single_tool")[0], *rest, root):  # one stays open
            topics.write(message, START_MS + 1)
        filler = collector_messages("adk-v2span/single_tool")[0]
        for seconds in (10, 100):
            topics.write(filler, START_MS + seconds * SECOND)
        limits = TraceLimits(idle_seconds=2_000)

        with Store(":memory:") as store:
            Process(topics, store, closes_at_end=False, limits=limits).run()
            held = Lander(store).offsets()[SPANS]
            topics.write(root, START_MS + 200 * SECOND)
            topics.write(filler, START_MS + 300 * SECOND)
            Process(topics, store, closes_at_end=False, limits=limits).run()

            latest = turns(store, latest=True)
        assert held == 1
        with consumed(on_topics(collector_messages(self.NAME))) as plain:
            assert set(turns(plain)) <= set(latest)

    def test_a_trace_that_was_open_at_the_end_is_whole_in_the_next_run(self) -> None:
        (*children, root) = spans_of("pydantic-ai-v5/single_tool")
        topics = MemoryTopics()
        for child in children:
            topics.write(child, START_MS)

        with Store(":memory:") as store:
            Process(topics, store).run()
            first = store.rows("SELECT status, close_reason, turn_revision FROM latest_turns")
            topics.write(root, START_MS + 120 * SECOND)
            Process(topics, store).run()
            second = store.rows("SELECT status, close_reason, turn_revision FROM latest_turns")

        assert first == [("incomplete", "shutdown", 1)]
        assert second == [("ok", "root_span_ended", 2)]
