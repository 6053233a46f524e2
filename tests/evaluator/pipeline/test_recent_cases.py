"""Cases scored from memory as they land: their rows equal those of cases read back from the store."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.ingest.landing.cases import assemble
from evaltap.evaluator.ingest.landing.recent_cases import RecentCases, RecentLimits
from evaltap.evaluator.ingest.sources.base import SourceBatch
from evaltap.evaluator.pipeline.batch.pending import LAST
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer, ConsumerLimits
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.wire.record import WireRecord, encode_case
from support.builders.cases import (
    RESPONSE,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)
from support.builders.memory_source import MemorySource

SCORES = """
SELECT app_name, eval_set_id, eval_id, revision, metric_name, score, status, reason, turn_count
FROM scores ORDER BY ALL
"""
TURN_SCORES = """
SELECT app_name, eval_set_id, eval_id, invocation_id, turn_index, turn_revision, metric_name, score,
       status, reason
FROM turn_scores ORDER BY ALL
"""


def scorer(*more: str) -> CaseScorer:
    """Return a scorer for whose metrics the outline of a case suffices, unless there are `more`."""
    alone = [
        {"metricName": f"trajectory_{name}", "threshold": 1} for name in ("f1", "exact", *more)
    ]
    return CaseScorer([EvalMetric.model_validate(one) for one in (TRAJECTORY, RESPONSE, *alone)])


@st.composite
def records(draw: st.DrawFn) -> list[WireRecord]:
    """Return turns of a few sessions: revised, out of order, with a reference or without, odd ones too."""
    made = []
    for seq in range(1, draw(st.integers(1, 12)) + 1):
        actual: dict[str, Any] = make_turn(f"t-{draw(st.integers(1, 3))}")
        if draw(st.booleans()):
            actual["creationTimestamp"] = draw(st.integers(1, 4)) * 100.0
        actual["tools"] = [make_tool(arguments={"order_id": draw(st.sampled_from("AB"))})]
        case: dict[str, Any] = make_case(draw(st.sampled_from("xyz")), [actual])
        if draw(st.booleans()):
            wanted = [make_tool(arguments={"order_id": draw(st.sampled_from("AB"))})]
            case["conversation"] = [actual | {"tools": wanted}]
        if draw(st.integers(0, 5)) == 0:
            case["hypothesis"] = None  # unknown to the outline: such a case is read as a whole
        if draw(st.integers(0, 7)) == 0:
            actual["telemetry"] = {"status": "error"}
        if draw(st.integers(0, 5)) == 0:
            case["evalSetId"] = "set"
        case["source"] = {**(case.get("source") or {}), "revision": draw(st.integers(1, 2))}
        made.append(encode_case(case, producer_id="p", seq=seq, time=datetime.now(UTC)))
    return made


class ImpatientSource(MemorySource):
    """Does not wait for what nobody will append."""

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return what there is."""
        return super().poll(max_records, 0)


@pytest.mark.slow
@settings(max_examples=12)
@given(
    records(),
    st.integers(1, 12),
    st.sampled_from([1_000, 4 << 20]),
    st.sampled_from([(), ("no_loop", "args_score")]),
)
def test_scores_from_memory_are_those_of_what_is_read_back(
    given_records: list[WireRecord], records_at_a_time: int, most_bytes: int, more: Sequence[str]
) -> None:
    rows = []
    limits = ConsumerLimits(records_per_batch=records_at_a_time, most_changed=1)
    recent = RecentLimits(scored_bytes=most_bytes)
    for from_memory, long_session in ((True, LAST), (False, LAST), (True, 2)):
        with Store(":memory:") as store:
            pending = PendingScorer(store, scorer(*more), long_session=long_session)
            assert pending.takes_recent
            pending.takes_recent = from_memory
            source = ImpatientSource(given_records)
            landing = Consumer(source, store, scorer=pending, limits=limits, recent_limits=recent)
            landing.run(until_idle=True, report=lambda _: None)
            rows.append((store.rows(SCORES), store.rows(TURN_SCORES)))

    assert rows[0] == rows[1] == rows[2]


def test_only_the_new_turn_of_a_long_session_is_read_and_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = [make_case("s", [make_turn(f"t-{number}")]) for number in range(4)]
    read: list[int] = []

    def counted(header: str, actual: Sequence[str], expected: Sequence[str | None]) -> Any:
        read.append(len(actual))
        return assemble(header, actual, expected)

    monkeypatch.setattr("evaltap.evaluator.pipeline.batch.pending.assemble", counted)
    with Store(":memory:") as store:
        source = ImpatientSource(make_records(turns))
        pending = PendingScorer(store, scorer(), long_session=2)
        limits = ConsumerLimits(records_per_batch=1, most_changed=1)
        Consumer(source, store, scorer=pending, limits=limits).run(
            until_idle=True, report=lambda _: None
        )

        assert read == [1, 1, 1]
        assert store.rows("SELECT DISTINCT revision, turn_count FROM scores ORDER BY 1") == [
            (1, 1), (2, 2), (3, 3), (4, 4)
        ]  # fmt: skip


def test_a_session_that_goes_on_is_scored_without_reading_it_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = [make_case("s", [make_turn(f"t-{number}")]) for number in range(3)]
    limits = ConsumerLimits(records_per_batch=1, most_changed=1)

    def never(*parts: object) -> None:
        raise AssertionError("a case was read back")

    monkeypatch.setattr("evaltap.evaluator.pipeline.batch.pending.assemble", never)
    with Store(":memory:") as store:
        source = ImpatientSource(make_records(turns))
        consumer = Consumer(source, store, scorer=PendingScorer(store, scorer()), limits=limits)

        assert consumer.run(until_idle=True, report=lambda _: None).cases_scored == 3
        assert store.rows("SELECT DISTINCT revision, turn_count FROM scores ORDER BY 1") == [
            (1, 1), (2, 2), (3, 3)
        ]  # fmt: skip


@pytest.mark.parametrize("more", [(), ("no_loop",)])
def test_a_new_session_is_scored_without_reading_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: Sequence[str]
) -> None:
    turns = [make_case("s", [make_turn(f"t-{number}")]) for number in range(3)]

    def never(*parts: object) -> None:
        raise AssertionError("a case was read back")

    monkeypatch.setattr("evaltap.evaluator.pipeline.batch.pending.assemble", never)
    with Store(tmp_path / "x.duckdb") as store:
        source = MemorySource(make_records(turns))
        consumer = Consumer(source, store, scorer=PendingScorer(store, scorer(*more)))

        assert consumer.run(until_idle=True, report=lambda _: None).cases_scored == 1


@pytest.mark.slow
def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limits = ConsumerLimits(records_per_batch=10)
    recent = RecentLimits(waiting_bytes=2_000, scored_bytes=4_000)
    waiting: list[int] = []
    kept: list[int] = []
    take = RecentCases.take

    def counted(recent: RecentCases) -> Any:
        taken = take(recent)
        waiting.append(len(taken))
        kept.append(len(recent._taken))
        return taken

    monkeypatch.setattr(RecentCases, "take", counted)
    with Store(":memory:") as store:
        source = MemorySource(make_records([make_case(f"c-{n}") for n in range(200)]))
        pending = PendingScorer(store, scorer())
        consumer = Consumer(source, store, scorer=pending, limits=limits, recent_limits=recent)

        assert consumer.run(until_idle=True, report=lambda _: None).cases_scored == 200
        assert max(waiting) < 50
        assert 0 < max(kept) < 50


def test_a_case_that_was_scored_in_a_file_before_it_landed_is_not_scored_again(
    tmp_path: Path,
) -> None:
    from evaltap.cli.main import main

    case = make_case("a")
    lines, metrics, db = tmp_path / "c.jsonl", tmp_path / "m.json", tmp_path / "x.duckdb"
    lines.write_text(json.dumps({**case, "evalSetId": "a"}) + "\n")
    metrics.write_text(json.dumps([RESPONSE]))
    log = write_log(tmp_path / "log.db", make_records([case]))
    main(["score", str(lines), "--metrics", str(metrics), "--db", str(db)])

    main(["consume", "--log", str(log), "--db", str(db), "--metrics", str(metrics), "--until-idle"])

    with Store(db) as store:
        assert store.rows("SELECT count(*) FROM scores") == [(1,)]
