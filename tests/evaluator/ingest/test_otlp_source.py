"""Raw OTLP topics as a source: the right turns, once, regardless of order, speed and kills."""

import itertools
import json
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.landing.trace_progress import progress
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch
from evaltap.evaluator.ingest.sources.otlp_topics import OtlpSource
from evaltap.evaluator.store.database import Store
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.sources.otlp_files import read_cases
from evaltap.recorder.sources.otlp_topics import TopicTraces
from evaltap.recorder.traces.buffer import TraceLimits
from support.builders.telemetry_log import (
    START_MS,
    MemoryTopics,
    Message,
    as_json,
    collector_messages,
    one_span_each,
    spread,
)
from support.corpora.span_facts import captures, differences, files_of

SPANS = Partition("otlp_spans")
KILLED_LOGS = int(os.environ.get("EVALTAP_TEST_KILLED_LOGS", "50"))
"""Logs whose consumer the slow test kills several times each."""
SECOND = 1_000
_producers = itertools.count(1)


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Process:
    """One life of a consumer of `topics` that lands in `store`; being dropped is being killed."""

    def __init__(
        self,
        topics: MemoryTopics,
        store: Store,
        *,
        closes_at_end: bool = True,
        limits: TraceLimits | None = None,
        clock: Clock | None = None,
        offsets_every_seconds: float = 0,
        **settings: Any,
    ) -> None:
        config = RecorderConfig(log="unused.db", **{"redaction": False, **settings})
        self.clock = clock or Clock()
        self.assembler = TopicTraces(config, producer_id=f"p-{next(_producers)}", limits=limits)
        self.source = OtlpSource(
            topics,
            self.assembler,
            progress=lambda: progress(store),
            closes_at_end=closes_at_end,
            clock=self.clock,
            wall_clock=lambda: START_MS / 1000 + 1_000_000,
            offsets_every_seconds=offsets_every_seconds,
        )
        self.lander = Lander(store)
        self.source.seek(self.lander.offsets())

    def poll(self, most: int = 1_000) -> SourceBatch:
        return self.source.poll(most, 0)

    def step(self, most: int = 1_000) -> SourceBatch:
        """Read and land one batch."""
        batch = self.poll(most)
        self.lander.land(batch)
        return batch

    def run(self, most: int = 1_000) -> "Process":
        """Consume until the log has nothing new."""
        while (batch := self.step(most)).records or batch.more:
            pass
        return self

    def wait(self, seconds: float) -> SourceBatch:
        """Let time pass at the end of the log, then read and land."""
        self.clock.seconds += seconds
        return self.step()


def turns(store: Store, *, latest: bool = False) -> list[tuple[Any, ...]]:
    """Return what was landed, without what differs from life to life."""
    table = "latest_turns" if latest else "turns"
    return store.rows(
        f"SELECT eval_id, invocation_id, turn_revision, actual_json FROM {table} ORDER BY ALL"
    )


def landed_cases(store: Store) -> list[dict[str, Any]]:
    """Return the turns as cases of one turn, in order of start."""
    rows = store.rows(
        "SELECT c.case_json, t.actual_json FROM turns t JOIN cases c USING (app_name, eval_set_id,"
        " eval_id) QUALIFY row_number() OVER (PARTITION BY t.invocation_id, t.eval_id ORDER BY"
        " c.revision) = 1 ORDER BY t.started_at"
    )
    return [{**json.loads(case), "actualConversation": [json.loads(turn)]} for case, turn in rows]


def consumed(topics: MemoryTopics, **settings: Any) -> Store:
    store = Store(":memory:")
    Process(topics, store, **settings).run()
    return store


def on_topics(messages: Iterable[Message], *, seed: int | None = None, **how: Any) -> MemoryTopics:
    """Put messages on topics: by key, or anywhere and read at odd speeds with a seed."""
    chance = random.Random(seed) if seed is not None else None
    topics = MemoryTopics(chance, most=5)
    spread(topics, messages, chance=chance, **how)
    return topics


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


class TestTurns:
    """What is recorded is what happened."""

    @pytest.mark.parametrize("name", captures())
    def test_a_collectors_records_give_the_turns_of_the_script(self, name: str) -> None:
        messages = collector_messages(name)

        with consumed(on_topics(messages)) as store:
            assert differences(name, landed_cases(store)) == []

    @pytest.mark.parametrize("name", captures())
    def test_they_are_the_turns_that_files_of_the_same_spans_give(self, name: str) -> None:
        messages = collector_messages(name)

        with consumed(on_topics(messages, seed=1)) as store:
            cases = [comparable(case) for case in landed_cases(store)]
        assert sorted(cases, key=str) == sorted(
            map(comparable, read_cases(files_of(name))), key=str
        )

    def test_json_and_protobuf_mixed_on_one_topic_are_told_apart(self) -> None:
        messages = collector_messages()
        mixed = [as_json(m) if n % 2 else m for n, m in enumerate(messages)]

        with consumed(on_topics(messages)) as plain, consumed(on_topics(mixed)) as store:
            assert turns(store) == turns(plain) != []

    def test_topics_may_have_any_names_and_hold_anything(self) -> None:
        messages = collector_messages()
        renamed = [Message("telemetry", m.value, m.key) for m in messages]

        with consumed(on_topics(messages)) as plain, consumed(on_topics(renamed)) as store:
            assert turns(store) == turns(plain)

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

    def test_a_burst_of_open_traces_stays_within_the_limits(self) -> None:
        _check_burst(traces=4_000, held=500)

    @pytest.mark.slow
    @pytest.mark.timeout(1_200)
    def test_a_burst_of_a_hundred_thousand_open_traces_stays_within_the_limits(self) -> None:
        _check_burst(traces=100_000, held=10_000)

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
        monkeypatch.setattr("evaltap.evaluator.ingest.sources.log_time.QUEUED_BYTES", 50_000)
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

    def test_records_without_a_time_are_read_as_they_come(self) -> None:
        topics = MemoryTopics()
        for message in collector_messages():
            topics.write(message, None)

        with consumed(topics) as store, consumed(on_topics(collector_messages())) as plain:
            assert turns(store) == turns(plain)


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


class TestPoison:
    """What cannot be read is set aside and stops nobody."""

    BAD = (b"\x00\xffnonsense", b'{"resourceSpans": [{', b'{"no": "otlp"}', b"", None)

    def test_poison_becomes_dead_letters_once_and_the_rest_is_read(self) -> None:
        good = collector_messages("adk-v2span/single_tool")
        bad = [Message("otlp_spans", value, b"k") for value in self.BAD]
        topics = on_topics([m for pair in itertools.zip_longest(good, bad) for m in pair if m])

        with Store(":memory:") as store:
            for _ in range(3):
                Process(topics, store).run()

            letters = store.rows("SELECT reason, record_value FROM dead_letters ORDER BY ALL")
            assert len(turns(store)) == 1
        assert sorted(letters, key=str) == sorted(
            [("undecodable" if value else "empty", value) for value in self.BAD], key=str
        )

    @pytest.mark.parametrize(
        ("told", "value", "kept"),
        [
            ({}, b'{"resourceSpans": [{"who": "bob@example.com", "n": 1', b'"n": 1'),
            ({}, b"\xff\x00bob@example.com", b"[REDACTED:content] 17 bytes, sha256 "),
            (
                {"capture_content": False},
                b'{"who": "bob@example.com"',
                b"[REDACTED:content] 25 bytes",
            ),
            (
                {"redaction_policy": "metadata"},
                b'{"who": "bob@example.com"',
                b"[REDACTED:content] 25",
            ),
        ],
    )
    def test_poison_is_kept_without_what_is_private(
        self, told: dict[str, Any], value: bytes, kept: bytes
    ) -> None:
        message = Message("otlp_spans", value, b"bob@example.com")

        with Store(":memory:") as store:
            Process(
                on_topics([message]), store, redaction=True, redaction_key="k" * 32, **told
            ).run()

            ((written, key, detail),) = store.rows(
                "SELECT record_value, record_key, detail FROM dead_letters"
            )
        assert kept in written
        assert b"bob@example.com" not in written + (key or b"")
        assert "bob@" not in detail

    @settings(max_examples=200)
    @given(value=st.binary(min_size=1), head=st.sampled_from([b"", b"\n", b"\n\x80", b'{"a":']))
    def test_no_bytes_whatsoever_stop_the_source(
        self, tmp_path_factory: pytest.TempPathFactory, value: bytes, head: bytes
    ) -> None:
        topics = on_topics([Message("otlp_spans", head + value)])
        log = tmp_path_factory.getbasetemp() / "unused.db"  # its key lies beside it
        assembler = TopicTraces(RecorderConfig(log=str(log)), producer_id="p")
        source = OtlpSource(topics, assembler, closes_at_end=True)
        source.seek({})

        found = [record for record in source.poll(10, 0).records]

        assert all(record.error is None or record.record.value for record in found)


class TestKills:
    """A process may die at any moment: the store ends as if none had."""

    @pytest.mark.slow
    @pytest.mark.parametrize("landed", [True, False])
    def test_a_kill_at_any_record_changes_nothing(self, *, landed: bool) -> None:
        messages = _overlapping(random.Random(5), count=5)
        with consumed(_timed(messages)) as plain:
            expected = _everything(plain)

        for steps in range(60):
            with Store(":memory:") as store:
                first = Process(_timed(messages), store)
                ended = _steps(first, steps)
                if not landed:
                    first.poll(1)
                Process(_timed(messages), store).run()
                assert _everything(store) == expected, steps
            if ended:
                break
        else:
            raise AssertionError("the first process never came to its end")

    @pytest.mark.slow
    @settings(max_examples=8)
    @given(seed=st.integers(0, 2**32))
    def test_many_kills_at_odd_moments_change_nothing(self, seed: int) -> None:
        _check_kills(seed)

    @pytest.mark.chaos
    @pytest.mark.timeout(1_200)
    def test_logs_with_many_kills_each_change_nothing(self) -> None:
        for seed in range(KILLED_LOGS):
            _check_kills(seed)


def _check_kills(seed: int) -> None:
    chance = random.Random(seed)
    messages = _overlapping(chance, count=chance.randint(2, 15))
    with consumed(_timed(messages)) as plain:
        expected = _everything(plain)

    with Store(":memory:") as store:
        for _ in range(chance.randint(1, 8)):
            killed = Process(_timed(messages, chance), store, closes_at_end=False)
            _steps(killed, chance.randint(0, 6), most=chance.randint(1, 5))
        Process(_timed(messages), store).run()

        assert _latest(store) == _latest_of(expected), seed
        assert store.rows("SELECT sum(missing) FROM v_completeness") in ([(0,)], [(None,)]), seed


def _steps(process: Process, count: int, most: int = 1) -> bool:
    """Land `count` batches; return whether that was all."""
    for _ in range(count):
        batch = process.step(most)
        if not batch.records and not batch.more:
            return True
    return False


def _overlapping(chance: random.Random, count: int) -> list[tuple[Message, int, int]]:
    """Return messages of traces that overlap in time, with time and partition, poison among them."""
    cases = chance.sample(captures(), count)
    found: list[tuple[Message, int, int]] = []
    for case in cases:
        begin = START_MS + chance.randint(0, 120 * SECOND)
        for message in collector_messages(case):
            parts = one_span_each(message) if message.topic == "otlp_spans" else [message]
            for part in parts:
                # Less than the quiet period apart: when it is read does not depend on the kills.
                found.append((part, begin + chance.randint(0, 1_900), chance.randrange(3)))
    for _ in range(3):
        when = START_MS + chance.randint(0, 120 * SECOND)
        found.append((Message("otlp_spans", b"\xffpoison"), when, chance.randrange(3)))
    return sorted(found, key=lambda item: item[1])


def _timed(
    messages: Sequence[tuple[Message, int, int]], chance: random.Random | None = None
) -> MemoryTopics:
    topics = MemoryTopics(chance, most=7)
    for message, time_ms, partition in messages:
        topics.write(message, time_ms, partition=partition)
    return topics


def _everything(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    letters = "SELECT topic, partition_number, record_offset FROM dead_letters ORDER BY ALL"
    tools = "SELECT invocation_id, call_index, turn_revision FROM tool_calls ORDER BY ALL"
    return {"turns": turns(store), "letters": store.rows(letters), "tools": store.rows(tools)}


def _latest(store: Store) -> dict[str, Any]:
    return _latest_of(_everything(store))


def _latest_of(everything: dict[str, list[tuple[Any, ...]]]) -> dict[str, Any]:
    newest = {(row[0], row[1]): row[3] for row in sorted(everything["turns"])}
    return {"turns": newest, "letters": everything["letters"]}
