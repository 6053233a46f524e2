"""Poisoned records on topics of telemetry, and consumers that are killed."""

import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.ingest.sources.otlp_topics import OtlpSource
from evaltap.evaluator.store.database import Store
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.sources.otlp_topics import TopicTraces
from support.builders.telemetry_log import (
    START_MS,
    MemoryTopics,
    Message,
    collector_messages,
    one_span_each,
)
from support.builders.telemetry_topics import SECOND, Process, consumed, on_topics, turns
from support.corpora.span_facts import captures

KILLED_LOGS = int(os.environ.get("EVALTAP_TEST_KILLED_LOGS", "20"))


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
