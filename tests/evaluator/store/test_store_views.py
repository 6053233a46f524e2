"""Views that only compare rows with several revisions equal views that compare every row."""

import os
import subprocess
import sys
from collections.abc import Iterator
from random import Random

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.store.database import Store, layout, made_layout
from support.programs import store_layout

TURN = "app_name, eval_set_id, eval_id, invocation_id"
LATEST_TURNS = f"""
SELECT *, min(landed_seq) OVER (PARTITION BY {TURN}) AS first_landed_seq FROM turns
QUALIFY row_number() OVER (PARTITION BY {TURN} ORDER BY turn_revision DESC, landed_seq) = 1"""
SAME = {
    "latest_turns": LATEST_TURNS,
    "latest_tool_calls": f"FROM tool_calls SEMI JOIN ({LATEST_TURNS}) USING ({TURN}, turn_revision)",
    "v_turn_verdicts": f"""
SELECT {TURN}, turn_revision,
       list(DISTINCT metric_name ORDER BY metric_name) FILTER (status IN ('failed', 'crashed')),
       list(DISTINCT metric_name ORDER BY metric_name) FILTER (status = 'passed'),
       bool_or(status IN ('failed', 'crashed')), bool_or(status = 'passed')
FROM (
  FROM turn_scores QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id,
                 if(invocation_id = '', turn_index::VARCHAR, invocation_id), metric_name
    ORDER BY turn_revision DESC, scored_at DESC
  ) = 1
) GROUP BY ALL""",
}
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["shop", "desk"]),
        st.sampled_from(["s-1", "s-2"]),
        st.sampled_from(["t-1", "t-2", ""]),
        st.sets(st.integers(1, 4), min_size=1),
    ),
    max_size=8,
    unique_by=lambda turn: turn[:3],
)
SCORES = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.integers(1, 4),
        st.sampled_from(["f1", "polite"]),
        st.sampled_from(["d-1", "d-2"]),
        st.sampled_from(["passed", "failed", "crashed", "error"]),
    ),
    max_size=20,
)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


def _land(store: Store, app: str, case: str, turn: str, revision: int, seq: int) -> None:
    key = {"app": app, "case": case, "turn": turn, "revision": revision}
    store.execute(
        "INSERT INTO turns BY NAME SELECT $app AS app_name, 'live' AS eval_set_id, $case AS eval_id,"
        " $turn AS invocation_id, $revision AS turn_revision, 1 AS tool_count, '' AS actual_json,"
        " '' AS event_id, 'p' AS producer_id, $seq AS seq, $seq AS landed_seq,"
        " TIMESTAMP '2026-11-01' AS landed_at",
        {**key, "seq": seq},
    )
    store.execute(
        "INSERT INTO tool_calls BY NAME SELECT $app AS app_name, 'live' AS eval_set_id,"
        " $case AS eval_id, $turn AS invocation_id, $revision AS turn_revision, 0 AS call_index,"
        " 'tool-' || $revision AS tool_name",
        key,
    )


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(TURNS, SCORES, st.randoms(use_true_random=False))
def test_the_latest_are_those_that_comparing_every_row_finds(
    store: Store,
    turns: list[tuple[str, str, str, set[int]]],
    scores: list[tuple[int, int, str, str, str]],
    order: Random,
) -> None:
    for table in ("turns", "tool_calls", "turn_scores"):
        store.execute(f"DELETE FROM {table}")
    landed = [(*turn[:3], revision) for turn in turns for revision in turn[3]]
    order.shuffle(landed)
    for seq, row in enumerate(landed):
        _land(store, *row, seq)
    for number, (place, revision, metric, digest, status) in enumerate(scores if turns else []):
        app, case, turn, _ = turns[place % len(turns)]
        store.execute(
            "INSERT INTO turn_scores BY NAME SELECT 'x' AS score_id, 'r' AS run_id, $app AS app_name,"
            " 'live' AS eval_set_id, $case AS eval_id, $turn AS invocation_id, $index AS turn_index,"
            " $revision AS turn_revision, $metric AS metric_name, $status AS status, 1 AS threshold,"
            " $digest AS metric_digest, TIMESTAMP '2026-11-01' + to_seconds($number) AS scored_at",
            {"app": app, "case": case, "turn": turn, "index": place % 2, "revision": revision,
             "metric": metric, "status": status, "digest": digest, "number": number},
        )  # fmt: skip

    for view, query in SAME.items():
        assert sorted(store.rows(f"FROM {view}"), key=repr) == sorted(store.rows(query), key=repr)


def test_the_kept_layout_is_that_of_a_new_file() -> None:
    """When this fails: python tests/support/programs/store_layout.py."""
    kept = store_layout.PATH.read_text("utf-8")

    assert layout() == made_layout()
    if f'"duckdb": "{duckdb.__version__}"' in kept:
        assert kept == store_layout.text()


VIEWS = """
import duckdb
from evaltap.evaluator.store.database import TemporaryStore, layout
count = "SELECT count(*) FROM duckdb_views() WHERE NOT internal"
with TemporaryStore() as store:
    assert store.rows(count) == [(0,)]
    assert store.rows("SELECT * FROM v_pass_rate") == []
    assert store.rows(count) == [(len(layout().views),)]
    try:
        store.rows("FROM none")
    except duckdb.CatalogException:
        print("none")
"""


def test_a_temporary_store_makes_its_views_when_one_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", VIEWS], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("none\n", "")


NOW = """
from evaltap.evaluator.store.database import Store
with Store(":memory:") as store:
    ((age,),) = store.rows("SELECT now() - (now() AT TIME ZONE 'UTC')")
    print(age.total_seconds())
"""


def test_now_is_the_time_of_the_tables_in_every_time_zone() -> None:
    elsewhere = {**os.environ, "TZ": "America/New_York"}
    done = subprocess.run(
        [sys.executable, "-c", NOW], capture_output=True, text=True, env=elsewhere
    )

    assert (done.stdout, done.stderr) == ("0.0\n", "")
