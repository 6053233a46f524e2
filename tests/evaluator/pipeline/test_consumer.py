"""Consuming: landed cases are scored once, and a restart resumes from the state of the store."""

import itertools
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumed, Consumer, ConsumerLimits
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.log.local import open_log
from support.builders.cases import (
    RESPONSE,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)


def scorer(*metrics: dict[str, Any]) -> CaseScorer:
    return CaseScorer([EvalMetric.model_validate(metric) for metric in metrics or (TRAJECTORY,)])


def with_reference(case: dict[str, Any], arguments: dict[str, Any] | None = None) -> dict[str, Any]:
    tool = make_tool(arguments=arguments) if arguments else make_tool()
    turn = case["actualConversation"][0]
    return case | {"conversation": [turn | {"tools": [tool]}]}


def consume(
    log: Path,
    store: Store,
    metrics: Sequence[dict[str, Any]] = (TRAJECTORY,),
    limits: ConsumerLimits | None = None,
) -> Consumed:
    source = LocalLogSource(log)
    pending = PendingScorer(store, scorer(*metrics)) if metrics else None
    consumer = Consumer(source, store, scorer=pending, limits=limits)
    try:
        return consumer.run(until_idle=True, report=lambda _: None)
    finally:
        source.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    good = with_reference(make_case("good"))
    bad = with_reference(make_case("bad"), {"order_id": "other"})
    return write_log(tmp_path / "log.db", make_records([good, bad]))


def test_a_log_is_landed_and_each_case_scored_once(log: Path) -> None:
    with Store(":memory:") as store:
        consumed = consume(log, store)

        assert (consumed.landed.turns, consumed.cases_scored) == (2, 2)
        assert store.rows("SELECT eval_id, score, status FROM scores ORDER BY eval_id") == [
            ("bad", 0, "failed"),
            ("good", 1, "passed"),
        ]
        assert store.rows("SELECT count(*) FROM turn_scores") == [(2,)]


@pytest.mark.slow
def test_the_file_is_opened_anew_at_times_and_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ConsumerLimits(records_per_batch=10, reopen_after=30)
    cases = [with_reference(make_case(f"s-{number}")) for number in range(100)]
    path = write_log(tmp_path / "log.db", make_records(cases))
    opened: list[None] = []
    with Store(tmp_path / "x.duckdb") as store:
        reopen = store.reopen

        def noted() -> None:
            reopen()
            opened.append(None)

        monkeypatch.setattr(store, "reopen", noted)

        consumed = consume(path, store, limits=limits)

        assert len(opened) == 3
        assert (consumed.landed.turns, consumed.cases_scored) == (100, 100)
        assert store.rows("SELECT count(*), count(DISTINCT eval_id) FROM turns") == [(100, 100)]
        assert store.rows("SELECT count(*), count(DISTINCT eval_id) FROM scores") == [(100, 100)]
        # Three batches of ten came after the last time; what those before left has become one row.
        assert store.rows("SELECT count(*) FROM consumed_ranges") <= [(4,)]
        assert store.rows("SELECT count(*) FROM offsets") <= [(4,)]


def test_a_start_leaves_one_offset_of_a_log_and_numbers_without_gaps_as_one_range(
    tmp_path: Path,
) -> None:
    limits = ConsumerLimits(records_per_batch=10)
    cases = [with_reference(make_case(f"s-{number}")) for number in range(50)]
    path = write_log(tmp_path / "log.db", make_records(cases))

    with Store(tmp_path / "x.duckdb") as store:
        for _ in range(2):
            consume(path, store, limits=limits)

        assert store.rows("SELECT count(*) FROM offsets") == [(1,)]
        assert store.rows("SELECT first_seq, last_seq FROM consumed_ranges") == [(1, 50)]


def test_a_second_consumer_finds_nothing_to_do(log: Path, tmp_path: Path) -> None:
    for expected in (2, 0):
        with Store(tmp_path / "x.duckdb") as store:
            consumed = consume(log, store)

            assert (consumed.landed.turns, consumed.cases_scored) == (expected, expected)
            assert store.rows("SELECT count(*) FROM scores") == [(2,)]
            assert store.rows("SELECT count(*) FROM runs") == [(1,)]


def test_without_metrics_it_only_lands_and_scores_later(log: Path) -> None:
    with Store(":memory:") as store:
        consume(log, store, ())
        assert store.rows("SELECT count(*) FROM scores") == [(0,)]

        assert consume(log, store).cases_scored == 2


def test_new_records_land_while_a_backlog_is_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaltap.evaluator.pipeline.batch.scorer.CASES_PER_READ", 2)
    path = write_log(tmp_path / "log.db", make_records([make_case(f"old-{n}") for n in range(6)]))
    seen: list[tuple[int, int]] = []
    with Store(":memory:") as store:
        consume(path, store, ())
        write_log(path, make_records([make_case("new")], first_seq=7))
        source = LocalLogSource(path)
        pending = PendingScorer(store, scorer())
        consumer = Consumer(source, store, scorer=pending)
        consumer.run(
            until_idle=True, report=lambda done: seen.append((done.landed.turns, done.cases_scored))
        )
        source.close()

        assert any(landed == 1 and scored < 6 for landed, scored in seen)
        assert seen[-1] == (1, 7)
        assert store.rows("SELECT count(*), count(DISTINCT eval_id) FROM scores") == [(7, 7)]


def test_tasks_work_while_many_cases_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaltap.evaluator.scoring.batch.BATCH_SECONDS", 0.0)
    path = write_log(tmp_path / "log.db", make_records([make_case(f"s-{n}") for n in range(6)]))
    seconds, seen = itertools.count(), list[int]()
    with Store(":memory:") as store, closing(LocalLogSource(path)) as source:

        class Task:
            idle = True

            def begin(self) -> None:
                """Prepare nothing."""

            def step(self, changed: ChangedCases | None) -> bool:
                seen.append(store.rows("SELECT count(*) FROM scores")[0][0])
                if seen[-1] == 6:
                    consumer.stop()
                return False

            def close(self) -> None:
                """Close nothing."""

        consumer = Consumer(
            source,
            store,
            scorer=PendingScorer(store, scorer()),
            tasks=[Task()],
            clock=lambda: float(next(seconds)),
        )
        consumer.run(until_idle=False, report=lambda _: None)

    assert {1, 2, 3, 4, 5} & {*seen}


def test_a_session_that_goes_on_during_a_backlog_is_scored_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evaltap.evaluator.pipeline.batch.scorer.CASES_PER_READ", 2)
    log = Partition("topic")
    records = make_records(
        [*(make_case(f"old-{n}") for n in range(6)), make_case("old-5", [make_turn("t-2")])]
    )
    with Store(":memory:") as store:
        lander = Lander(store)
        lander.land(SourceBatch(tuple(SourceRecord(log, n, records[n]) for n in range(6))))
        lander.take_changed()
        pending = PendingScorer(store, scorer())
        backlog = pending.backlog("topic")
        next(backlog)

        lander.land(SourceBatch((SourceRecord(log, 6, records[6]),)))
        pending.score("live", "topic", changed=lander.take_changed())
        assert sum(backlog) == 3

        assert store.rows("SELECT revision FROM scores WHERE eval_id = 'old-5'") == [(2,)]


def test_a_new_metric_scores_only_what_lacks_it(log: Path) -> None:
    with Store(":memory:") as store:
        consume(log, store)
        consume(log, store, (TRAJECTORY, RESPONSE))

        assert store.rows("SELECT metric_name, count(*) FROM scores GROUP BY 1 ORDER BY 1") == [
            ("final_response_avg_score", 2),
            ("tool_trajectory_avg_score", 2),
        ]


def test_a_session_that_goes_on_gets_a_new_revision_and_its_old_turn_keeps_its_score(
    tmp_path: Path,
) -> None:
    cases = [with_reference(make_case("s", [make_turn(f"t-{i}")])) for i in (1, 2)]
    path = write_log(tmp_path / "log.db", make_records(cases[:1]))
    with Store(":memory:") as store:
        consume(path, store)
        write_log(path, make_records(cases[1:], first_seq=2))
        consume(path, store)

        assert store.rows("SELECT revision FROM scores ORDER BY 1") == [(1,), (2,)]
        assert store.rows("SELECT invocation_id FROM turn_scores ORDER BY 1") == [
            ("t-1",),
            ("t-2",),
        ]
        assert store.rows("SELECT revision, turn_count FROM latest_scores") == [(2, 2)]


def test_a_log_that_lost_unread_records_is_a_gap_that_is_named(log: Path) -> None:
    with Store(":memory:") as store:
        consume(log, store, ())
        write_log(log, make_records([make_case("c"), make_case("d")], first_seq=3))
        trimmed = open_log(log, mode="append")
        trimmed.trim(4)
        trimmed.close()

        consumed = consume(log, store, ())

        assert len(consumed.gaps) == 1
        assert "records 3 to 3 are gone" in consumed.gaps[0]
        assert consumed.landed.turns == 1


def test_a_gap_is_told_once_also_when_nothing_lies_behind_it(log: Path) -> None:
    with Store(":memory:") as store:
        consume(log, store, ())
        write_log(log, make_records([make_case("c")], first_seq=3))
        trimmed = open_log(log, mode="append")
        trimmed.trim(4)
        trimmed.close()

        assert [len(consume(log, store, ()).gaps) for _ in range(2)] == [1, 0]


def test_stop_ends_a_consumer_that_would_wait_for_more(log: Path) -> None:
    with Store(":memory:") as store:
        source = LocalLogSource(log)
        consumer = Consumer(source, store)

        consumed = consumer.run(until_idle=False, report=lambda _: consumer.stop())

        assert consumed.landed.turns == 2


def test_a_signal_stops_a_consumer_wherever_it_interrupts_its_rest(log: Path) -> None:
    source, ended = LocalLogSource(log), threading.Event()

    def consume_interrupted() -> None:
        with Store(":memory:") as store:
            consumer = Consumer(source, store)

            def interrupt(frame: FrameType, event: str, called: object) -> None:
                """Stop the consumer like the handler of a signal that arrives while it rests."""
                locked = frame.f_code is threading.Condition.wait.__code__
                if (event == "call" and locked) or called is time.sleep:
                    sys.setprofile(None)
                    consumer.stop()

            def report(consumed: Consumed) -> None:
                sys.setprofile(interrupt)

            consumer.run(until_idle=False, report=report)
            ended.set()

    threading.Thread(target=consume_interrupted, daemon=True).start()

    assert ended.wait(20)
    source.close()


def test_references_from_a_file_join_recorded_cases_by_eval_id(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.db", make_records([make_case("a"), make_case("b")]))
    references = tmp_path / "r.jsonl"
    references.write_text(
        '{"evalId": "a", "conversation": [{"tools": [{"name": "get_order",'
        ' "arguments": {"order_id": "A-100"}}]}]}\n'
    )
    with Store(":memory:") as store:
        consume(log, store, ())
        pending = PendingScorer(store, scorer(), references=References.of(iter_cases(references)))

        pending.score("landed", "test")

        assert store.rows("SELECT eval_id, status FROM scores ORDER BY 1") == [
            ("a", "passed"),
            ("b", "not_evaluated"),
        ]


def test_what_could_not_be_evaluated_is_retried_only_on_request(tmp_path: Path) -> None:
    turn = make_turn(answer=None, capture={"finalResponse": "missing"})
    log = write_log(tmp_path / "log.db", make_records([make_case(turns=[turn])]))
    with Store(":memory:") as store:
        consume(log, store, (RESPONSE,))
        pending = PendingScorer(store, scorer(RESPONSE))

        assert pending.score("landed", "test") == (None, 0)
        run, cases = pending.score("landed", "test", retry=True)

        assert run is not None
        assert cases == 1
        assert store.rows("SELECT status, score FROM scores") == [("not_evaluated", None)] * 2


@pytest.mark.parametrize(("captured", "again"), [(False, 1), (True, 0)])
def test_of_a_crashed_case_the_turns_that_could_not_be_evaluated_are_retried_too(
    tmp_path: Path, captured: bool, again: int
) -> None:
    missing: dict[str, Any] = (
        {} if captured else {"answer": None, "capture": {"finalResponse": "missing"}}
    )
    turns = [make_turn("t-1", **missing), make_turn("t-2", telemetry={"status": "error"})]
    cases = [with_reference(make_case("s", [turn])) for turn in turns]
    log = write_log(tmp_path / "log.db", make_records(cases))
    with Store(":memory:") as store:
        consume(log, store, (RESPONSE,))
        pending = PendingScorer(store, scorer(RESPONSE))

        _, cases_scored = pending.score("landed", "test", retry=True)

        assert cases_scored == again
        assert store.rows("SELECT status FROM scores") == [("crashed",)] * (1 + again)


def test_what_lies_before_a_broken_page_is_landed_before_the_error(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.db", make_records([make_case(f"s-{n}") for n in range(200)]))
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 4096 // 2 * 4096)
        file.write(b"\xee" * 4096)

    with Store(":memory:") as store:
        with pytest.raises(InputError, match="move it away"):
            consume(path, store, metrics=())
        landed = store.rows("SELECT eval_id FROM turns ORDER BY landed_seq")

    assert 0 < len(landed) < 200
    assert landed == [(f"s-{n}",) for n in range(len(landed))]
