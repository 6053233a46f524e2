"""Summaries equal a query over the rows, even if rows were late, grew, were rescored or deleted."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.language import parse_filter
from evaltap.evaluator.analysis.filters.listing import list_page
from evaltap.evaluator.analysis.filters.restricted import restricted_to_case
from evaltap.evaluator.analysis.summaries.summaries import Summaries, current_marks, indexed_case
from evaltap.evaluator.cases.identity import CASE_KEY
from evaltap.evaluator.pipeline.live.summary_keeper import SummaryKeeper, Ticks
from evaltap.evaluator.pipeline.maintenance.erasure import Subject, erase_from_store, find_in_store
from evaltap.evaluator.pipeline.maintenance.pruning import prune
from evaltap.evaluator.store.database import Store

NOON: Final = datetime(2026, 11, 23, 12)
TABLES: Final = (
    "case_index",
    *(f"{unit}_by_{bucket}" for unit in ("turns", "scores", "latency", "tools")
      for bucket in ("minute", "hour")),
)  # fmt: skip
STATUSES: Final = ("passed", "failed", "error", "not_evaluated", "crashed")
SEVERITIES: Final = ("passed", "unscored", "not_evaluated", "error", "failed", "crashed")


class Rows:
    """Writes rows as landing, scoring and reviewing do: in order, each later than the one before."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.summaries = Summaries(store)
        self.revisions: dict[tuple[str, str], int] = {}
        self.seq = int(store.rows("SELECT coalesce(max(landed_seq), 0) FROM turns")[0][0])

    def insert(self, table: str, **values: Any) -> None:
        names = ", ".join(values)
        given = ", ".join(f"${name}" for name in values)
        self.store.execute(f"INSERT INTO {table} ({names}) VALUES ({given})", values)

    def turn(self, case: str, turn: str, minute: int | None = 0, **more: Any) -> None:
        """Land the next revision of a turn, with two calls."""
        revision = self.revisions[case, turn] = self.revisions.get((case, turn), 0) + 1
        self.seq += 1
        key = {"app_name": app_of(case), "eval_set_id": "live", "eval_id": case}
        now = self.store.now()
        started = None if minute is None else NOON + timedelta(minutes=minute)
        values: dict[str, Any] = {
            "status": "ok", "user_text": f"{case} {turn} {revision}", "models": ["a", f"m{revision % 2}"],
            "input_tokens": 100, "cost_usd": 0.25, "latency_ms": 100.0 * revision,
            "capture": '{"finalResponse": "missing"}' if revision % 2 else None,
            "inclusion_probability": None,
        }  # fmt: skip
        with self.store.transaction():
            self.insert(
                "turns", **key, invocation_id=turn, turn_revision=revision, started_at=started,
                tool_count=2, actual_json="{}", event_id="e", producer_id="p", seq=self.seq,
                landed_seq=self.seq, landed_at=now, **(values | more),
            )  # fmt: skip
            for index, tool in enumerate(("get_order", "refund" if revision % 2 else None)):
                self.insert(
                    "tool_calls", **key, invocation_id=turn, turn_revision=revision, call_index=index,
                    tool_name=tool, error_type="Timeout" if index == revision % 3 else None,
                    duration_ms=None if index else 50.0 * revision,
                )  # fmt: skip
            self.insert(
                "cases", **key, revision=sum(n for (c, _), n in self.revisions.items() if c == case),
                turn_count=1, user_id=f"user-{case}", case_json="{}", landed_at=now,
            )  # fmt: skip

    def score(
        self, case: str, turn: str, status: str, metric: str = "m", digest: str = "d"
    ) -> None:
        """Score the newest revision of a turn, and its case."""
        key = {"app_name": app_of(case), "eval_set_id": "live", "eval_id": case}
        value = {"passed": 1.0, "failed": 0.25}.get(status)
        same = {
            "score_id": "x", "run_id": "r", "metric_name": metric, "score": value, "status": status,
            "threshold": 0.5, "metric_digest": digest, "scored_at": self.store.now(),
        }  # fmt: skip
        revision = self.revisions.get((case, turn), 1)
        with self.store.transaction():
            self.insert("scores", **key, **same, revision=revision, evaluator_name="m",
                        evaluator_version="1", turn_count=1)  # fmt: skip
            self.insert("turn_scores", **key, **same, invocation_id=turn, turn_index=0,
                        turn_revision=revision)  # fmt: skip

    def decide(self, case: str, turn: str, probability: float, digest: str = "d") -> None:
        """Let a rule decide on the newest revision of a turn."""
        self.insert("sampling_decisions", app_name=app_of(case), eval_set_id="live", eval_id=case,
                    invocation_id=turn, turn_revision=self.revisions.get((case, turn), 1), metric_name="m",
                    metric_digest=digest, unit="turn", probability=probability, draw=0.0,
                    decision="score", reason="rate", decided_at=self.store.now())  # fmt: skip

    def feedback(
        self, case: str, *, positive: bool, given_by: str = "user-x", of_session: bool = False
    ) -> None:
        now = self.store.now()
        self.insert("feedback", app_name="", eval_set_id=case if of_session else "live", eval_id=case,
                    feedback_id="f", name="thumbs", positive=positive, given_by=given_by,
                    producer_id="p", given_at=now, landed_at=now)  # fmt: skip

    def review(self, case: str, action: str, labels: list[str] | None = None) -> None:
        """Decide on the newest revision of the turn `t`, as an item of its own."""
        revision = self.revisions.get((case, "t"), 1)
        turn = {"item_id": f"{case} {revision}", "app_name": app_of(case), "eval_set_id": "live",
                "eval_id": case, "invocation_id": "t"}  # fmt: skip
        self.insert("review_items", **turn, queue="q", turn_revision=revision, reason="all",
                    priority=0.0, needed=1, added_at=self.store.now())  # fmt: skip
        self.insert("reviews", review_id=f"r{self.store.now()}", **turn, reviewer="ann",
                    action=action, labels=labels, reviewed_at=self.store.now())  # fmt: skip


def app_of(case: str) -> str:
    return "shop" if case < "b" else "desk"


def content(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    return {table: sorted(store.rows(f"FROM {table}"), key=repr) for table in TABLES}


def assert_true(store: Store) -> None:
    """Compare the summaries with those of all rows, and these with the views that people read."""
    kept = content(store)
    summaries = Summaries(store)
    summaries.make()
    assert kept == content(store)
    assert store.rows(
        "SELECT bucket, metric_name, metric_digest, sum(n) FILTER (status = 'passed'),"
        " sum(w) FILTER (status = 'passed') / sum(w) FILTER (status IN ('passed', 'failed', 'crashed')),"
        " sum(score_sum) / sum(scored_w), sum(w) FILTER (status IN ('passed', 'failed', 'crashed'))"
        " FROM scores_by_hour GROUP BY ALL ORDER BY ALL"
    ) == store.rows(
        "SELECT hour, metric_name, metric_digest, nullif(passed, 0), nullif(pass_rate, 0), mean_score,"
        " estimated_turns FROM v_pass_rate_by_hour ORDER BY ALL"
    ) or store.rows("SELECT 1 FROM turns WHERE started_at IS NULL LIMIT 1")
    assert store.rows("SELECT sum(turns), sum(cost_usd) FROM turns_by_hour") == store.rows(
        "SELECT nullif(count(*), 0), sum(cost_usd) FROM latest_turns"
    )
    assert store.rows(
        "SELECT tool_name, sum(calls), sum(errors) FROM tools_by_hour GROUP BY ALL ORDER BY ALL"
    ) == store.rows("SELECT tool_name, calls, errors FROM v_tools ORDER BY ALL")
    listed = {(c.app, c.eval_set_id, c.eval_id): c for c in list_page(store, Choice(), 1_000).cases}
    for row in store.records("FROM case_index WHERE turns > 0"):
        case = listed.pop((row["app_name"], row["eval_set_id"], row["eval_id"]))
        assert SEVERITIES[row["severity"]] == case.outcome
        assert row["tools"] == list(case.tools)
        assert row["turns"] == case.turns
        assert row["failed"] == list(case.failed)
    assert not listed
    assert_same_choices(store)


FILTERS: Final = (
    "sort:worst", "sort:score", "sort:oldest", *(f"status:{one}" for one in (*STATUSES, "unscored")),
    "-status:failed sort:cost", "metric:m=failed", "-metric:n=passed", "metric:m=error,not_evaluated",
    "metric:m=crashed", "tool:refund", "-tool:re*", "path:*refund", "gap:finalResponse", "feedback:down",
    "-feedback:up", "feedback:any", "cost:>0.3", "latency:<150ms", "turns:>=2", "calls:4", "tokens:<150",
    "app:shop", "user:user-b", "-model:m1", "id:a", "reviewed:no", "reviewed:yes", "-reviewed:approved",
    "reviewed:rejected,no", "label:app*", "since:2026-11-23T12:00", "to:2026-11-23T12:01", "error:*",
)  # fmt: skip


def assert_same_choices(store: Store) -> None:
    """Compare what filters choose by the summaries, and what is listed, with the same by the rows."""

    ((rows,),) = store.rows("SELECT count(*) FROM turns")
    texts = random.Random(rows).sample(FILTERS, 4)

    def listings() -> list[Any]:
        return [list_page(store, Choice(parse_filter(text)), 1_000) for text in texts]

    assert current_marks(store) is not None
    indexed = listings()
    store.execute("BEGIN")
    try:
        store.execute("DELETE FROM page_marks")
        assert current_marks(store) is None
        for text, found, expected in zip(texts, indexed, listings(), strict=True):
            assert found == expected, text
    finally:
        store.execute("ROLLBACK")


CASES: Final = st.sampled_from(("a", "b", "c"))
TURNS: Final = st.sampled_from(("t", "u", ""))
LAND: Final = st.builds(
    lambda case, turn, minute, status, probability: lambda rows: rows.turn(
        case, turn, minute, status=status, inclusion_probability=probability
    ),
    CASES, TURNS, st.sampled_from((None, 0, 0, 1, 90, -3000)),
    st.sampled_from(("ok", "error", "incomplete", None)), st.sampled_from((None, 0.5, 0.25, 0.0)),
)  # fmt: skip
SCORE: Final = st.builds(
    lambda *given: lambda rows: rows.score(*given),
    CASES, TURNS, st.sampled_from(STATUSES), st.sampled_from(("m", "n")), st.sampled_from(("d", "e")),
)  # fmt: skip
DECIDE: Final = st.builds(
    lambda *given: lambda rows: rows.decide(*given),
    CASES, TURNS, st.sampled_from((1.0, 0.5, 0.0)), st.sampled_from(("d", "e")),
)  # fmt: skip
THUMB: Final = st.builds(
    lambda case, positive, of_session: lambda rows: rows.feedback(
        case, positive=positive, of_session=of_session
    ),
    CASES, st.booleans(), st.booleans(),
)  # fmt: skip
REVIEW: Final = st.builds(
    lambda case, action: lambda rows: rows.review(case, action, [action]),
    CASES, st.sampled_from(("approve", "reject", "claim", "skip")),
)  # fmt: skip
REFRESH: Final = st.builds(
    lambda most: lambda rows: rows.summaries.refresh(most_cases=most),
    st.sampled_from((1, 2, 1_000)),
)
STEPS: Final = st.lists(
    st.one_of(LAND, LAND, SCORE, SCORE, DECIDE, THUMB, REVIEW, REFRESH), max_size=25
)


@pytest.mark.slow
@given(before=STEPS, after=STEPS, going=st.sampled_from(("a", "user-b", "user-x", "old", "")))
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_summaries_are_what_a_query_over_the_rows_gives(
    before: list[Callable[[Rows], None]], after: list[Callable[[Rows], None]], going: str
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.duckdb"
        with Store(path) as store:
            rows = Rows(store)
            rows.summaries.make()
            for step in before:
                step(rows)
            assert_kept(rows)
        remove(path, going)
        with Store(path) as store:
            again = Rows(store)
            again.revisions = rows.revisions
            assert_kept(again)
            for step in after:
                step(again)
            assert_kept(again)


def remove(path: Path, going: str) -> None:
    if going == "old":
        prune(path, (NOON + timedelta(minutes=30)).replace(tzinfo=UTC))
    elif going:
        subject = Subject(frozenset({going}))
        find_in_store(path, subject)
        erase_from_store(path, subject, dry_run=False)


def assert_kept(rows: Rows) -> None:
    while rows.summaries.refresh(most_cases=3).behind:
        pass
    assert_true(rows.store)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with Store(tmp_path / "x.duckdb") as opened:
        yield opened


def test_the_index_says_what_a_list_shows(store: Store) -> None:
    rows = Rows(store)
    rows.turn("a", "t", 1, user_text="Where is my order?" + "x" * 200)
    rows.turn("a", "u", 2)
    rows.score("a", "t", "failed")
    rows.score("a", "u", "passed", "n")
    rows.feedback("a", positive=False)
    rows.review("a", "approve", ["flaky"])
    rows.score("file", "t", "passed")

    Summaries(store).make()

    (case, scored) = store.records("FROM case_index ORDER BY eval_id")
    assert case["opening"] == ("Where is my order?" + "x" * 200)[:160]
    assert case["path"] == "get_order > refund | get_order > refund"
    assert (case["failed"], case["passed"], case["severity"]) == (["m"], ["n"], 4)
    assert (case["feedback"], case["reviewed"], case["labels"]) == (-1, "approve", ["flaky"])
    assert (case["first_seq"], case["last_seq"]) == (1, 2)
    assert case["gaps"] == ["finalResponse"]
    assert (scored["turns"], scored["opening"], scored["severity"]) == (0, None, 0)
    assert store.rows(f"SELECT DISTINCT {CASE_KEY} = case_key FROM case_index") == [(True,)]


@pytest.mark.parametrize("has_summaries", [False, True])
def test_a_cost_that_leaves_turns_out_says_so(store: Store, has_summaries: bool) -> None:
    rows = Rows(store)
    rows.turn("a", "t", cost_usd=None)
    rows.turn("a", "t")
    for turn in ("t", "u"):
        rows.turn("b", turn, cost_usd=0.25 if turn == "t" else None)
    rows.turn("c", "t", cost_usd=None)
    if has_summaries:
        Summaries(store).make()

    found = {one.eval_id: one for one in list_page(store, Choice(), 9).cases}

    costs = {name: (one.cost_usd, one.unpriced) for name, one in found.items()}
    assert costs == {"a": (0.25, 0), "b": (0.25, 1), "c": (None, 1)}


@pytest.mark.slow
def test_a_step_takes_a_part_and_says_that_more_is_left(store: Store) -> None:
    rows = Rows(store)
    for number in range(50):
        rows.turn(f"a{number}", "t", number)
    summaries = Summaries(store, clock=lambda: 0.0)
    summaries.make()
    for number in range(8):
        rows.turn(f"b{number}", "t", number)

    first = summaries.refresh(most_cases=5)
    second = summaries.refresh(most_cases=5)

    assert (first.cases, first.behind) == (5, True)
    assert (second.cases, second.behind) == (3, False)
    assert summaries.refresh() == (0, 0, False)
    assert_true(store)


def test_they_are_made_anew_when_much_is_new(store: Store) -> None:
    rows = Rows(store)
    for number in range(5):
        rows.turn(f"a{number}", "t", number)
    summaries = Summaries(store)

    assert summaries.marks() is None
    summaries.refresh(most_cases=2)

    assert_true(store)


def test_strange_numbers_do_not_stop_them(store: Store) -> None:
    rows = Rows(store)
    rows.turn("a", "t", latency_ms=float("inf"), input_tokens=2**63 - 1, output_tokens=2**63 - 1)
    rows.turn("a", "u", latency_ms=-5.0, input_tokens=2**63 - 1)
    rows.turn("a", "v", latency_ms=float("nan"))
    rows.turn("a", "w", latency_ms=None)

    Summaries(store).make()

    assert store.rows("SELECT sum(n) FROM latency_by_hour") == [(3,)]
    assert store.rows("SELECT tokens > 2 * 9e18 FROM case_index") == [(True,)]


@pytest.mark.slow
def test_a_person_leaves_nothing_in_the_summaries(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with Store(path) as store:
        rows = Rows(store)
        rows.turn("a", "t", user_text="my name is Zorbas")
        rows.turn("b", "t")
        Summaries(store).make()
    assert b"Zorbas" in path.read_bytes()

    remove(path, "user-a")

    assert b"Zorbas" not in path.read_bytes()
    with Store(path) as store:
        assert store.rows("SELECT eval_id FROM case_index") == [("b",)]
        assert store.rows("SELECT sum(turns) FROM turns_by_hour") == [(1,)]


@pytest.mark.slow
def test_the_consumer_keeps_them_once_a_second_and_tells_what_is_new(store: Store) -> None:
    now = [100.0]
    ticks = Ticks()
    keeper = SummaryKeeper(store, ticks, clock=lambda: now[0])
    rows = Rows(store)
    rows.turn("a", "t")
    keeper.begin()
    assert ticks.version == 1

    keeper.step(None)
    assert (keeper.idle, ticks.version) == (True, 1)
    rows.turn("a", "u")
    keeper.step(None)
    assert (keeper.idle, ticks.version) == (False, 1)
    now[0] += 1
    keeper.step(None)
    assert (keeper.idle, ticks.version) == (True, 2)
    rows.turn("a", "v")
    keeper.close()

    assert_true(store)


def test_the_rows_of_one_case_are_those_of_the_file_whatever_the_summaries_know(
    store: Store,
) -> None:
    traffic = Rows(store)
    for turn in ("t-1", "t-2"):
        for case in ("a-1", "a-2", "b-1"):
            traffic.turn(case, turn)
            traffic.score(case, turn, "failed")
    Summaries(store).refresh()
    traffic.turn("a-1", "t-1")  # a revision that the summaries do not know, of a case that they do
    traffic.turn("a-3", "t-1")
    traffic.score("a-1", "t-1", "passed")
    tables = ("turns", "cases", "scores", "turn_scores")
    for case in ("a-1", "a-2", "a-3", "b-1", "none"):
        expected = {t: store.rows(f"FROM {t} WHERE eval_id = $id", {"id": case}) for t in tables}

        key = app_of(case), "live", case
        with restricted_to_case(store, key, indexed_case(store, key)):
            assert {table: store.rows(f"FROM {table}") for table in tables} == expected

    assert store.rows("SELECT count(DISTINCT eval_id) FROM turns") == [(4,)]
