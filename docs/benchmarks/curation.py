"""What near-duplicates of many texts cost, and filters and picks over many turns, against floors.

Near-duplicates: texts of some intents with fillers and typing errors, a fifth of them alone, all in one
block.  The floor makes the normal form and the shingles of every text once.

Filters and picks: a store with so many turns, two to a session, two metrics.  The floor is one pass of DuckDB
over the newest revision of every turn.

    python docs/benchmarks/curation.py [--texts 100000] [--turns 1000000]

A count of 0 leaves that part out.
"""

import argparse
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.language import parse_filter
from evaltap.evaluator.analysis.filters.listing import list_page
from evaltap.evaluator.curation.near import near_groups, normal, shingles
from evaltap.evaluator.curation.picks import offered
from evaltap.evaluator.curation.recipe import Pick, Recipe
from evaltap.evaluator.store.database import Store

LETTERS = "abcdefghijklmnopqrstuvwxyz"
FILLERS = ("please", "hello", "thanks", "hi there", "could you", "asap", "urgent")
FILTERS = (
    "", "tool:tool_3", "-tool:tool_3 status:failed", "status:failed sort:worst", "status:passed",
    'path:"tool_1"', 'late "topic 7"', "score:f1<0.5", "cost:>0.002 latency:>1s", "feedback:down",
    "since:2026-10-05", "sort:cost tokens:>1k turns:>=2 calls:>2",
)  # fmt: skip
PICKS = (
    "random",
    "failed",
    "errors",
    "thumbs_down",
    "rare_tool",
    "rare_path",
    "slow",
    "stratified",
)


def texts(count: int, intents: int) -> list[str]:
    """Return questions of so many intents, and some of none."""
    rng = random.Random(1)
    words = ["".join(rng.choices(LETTERS, k=rng.randint(3, 9))) for _ in range(4_000)]
    kernels = [rng.choices(words, k=rng.randint(8, 14)) for _ in range(intents)]
    made = []
    for _ in range(count):
        alone = rng.random() < 0.2
        said = rng.choices(words, k=rng.randint(6, 14)) if alone else list(rng.choice(kernels))
        if not alone:
            if rng.random() < 0.5:
                said.insert(0, rng.choice(FILLERS))
            if rng.random() < 0.5:
                at = rng.randrange(len(said))
                said[at] = said[at][1:]
            said.append(f"A-{rng.randrange(10_000)}")
        made.append(" ".join(said))
    return made


def seconds(step: Callable[[], Any]) -> float:
    """Return how long a step takes."""
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def near_duplicates(count: int, intents: int) -> None:
    """Print what grouping costs."""
    asked = texts(count, intents)
    floor = seconds(lambda: sum(len(shingles(normal(text))) for text in asked))
    counts: dict[str, float] = {}
    for text in map(normal, asked):
        counts[text] = counts.get(text, 0) + 1
    unique = sorted(counts)
    taken = seconds(lambda: near_groups(unique, [counts[text] for text in unique]))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"near-duplicates of {count:,} texts, {len(unique):,} of them different, {intents:,} intents:"
        f" {taken:.1f} s, {taken / floor:.1f} x the floor, {memory:,.0f} MB"
    )


_MAKE = """
CREATE TEMP TABLE made AS
SELECT i, 's-' || (i // 2) AS session, 't-' || i AS turn,
       TIMESTAMP '2026-10-01' + to_seconds(i) AS began, (i * 7919) % 30 AS intent, random() AS r
FROM range({turns}) t(i);
INSERT INTO turns BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, turn AS invocation_id,
       1 AS turn_revision, began AS started_at, if(r < 0.01, 'error', 'ok') AS status,
       'Hello, my order A-' || i || ' about topic ' || intent || ' is late, number ' || (i % 997)
         AS user_text,
       'I have looked at it: answer ' || intent AS final_text, intent % 4 AS tool_count,
       ['m-1'] AS models, 900 AS input_tokens, 140 AS output_tokens, 0.002 * r AS cost_usd,
       1000 * r + 200 AS latency_ms, if(r < 0.01, 'Timeout', NULL) AS error_type,
       'tr-' || i AS trace_id, '{{"invocationId": "' || turn || '"}}' AS actual_json,
       'e-' || i AS event_id, 'p' AS producer_id, i + 1 AS seq, i + 1 AS landed_seq, began AS landed_at
FROM made;
INSERT INTO cases BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, 2 AS revision, 2 AS turn_count,
       'u-' || (i % 1000) AS user_id, 'svc' AS service, '{{}}' AS case_json, began AS landed_at
FROM made WHERE i % 2 = 1;
INSERT INTO tool_calls BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, turn AS invocation_id,
       1 AS turn_revision, k AS call_index, 'tool_' || ((intent + k) % 25) AS tool_name
FROM made, range(intent % 4) u(k);
INSERT INTO turn_scores BY NAME
SELECT md5(turn || metric) AS score_id, 'run' AS run_id, 'shop' AS app_name, 'live' AS eval_set_id,
       session AS eval_id, turn AS invocation_id, i % 2 AS turn_index, 1 AS turn_revision,
       metric AS metric_name, if(r < 0.05, 0, 1) AS score, if(r < 0.05, 'failed', 'passed') AS status,
       1 AS threshold, metric AS metric_digest, began AS scored_at
FROM made, (VALUES ('f1'), ('helpful')) v(metric);
INSERT INTO scores BY NAME
SELECT md5(session || metric) AS score_id, 'run' AS run_id, 'shop' AS app_name, 'live' AS eval_set_id,
       session AS eval_id, 2 AS revision, metric AS metric_name, if(min(r) < 0.05, 0, 1) AS score,
       if(min(r) < 0.05, 'failed', 'passed') AS status, 1 AS threshold, 'e' AS evaluator_name,
       '1' AS evaluator_version, metric AS metric_digest, 2 AS turn_count, max(began) AS scored_at
FROM made, (VALUES ('f1'), ('helpful')) v(metric) GROUP BY session, metric;
INSERT INTO feedback BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, turn AS invocation_id,
       'f-' || i AS feedback_id, 'thumbs' AS name, r > 0.5 AS positive, 'p' AS producer_id,
       began AS given_at, began AS landed_at
FROM made WHERE i % 50 = 0;
CHECKPOINT;
"""


def filters_and_picks(turns: int) -> None:
    """Print what looking at a store costs."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "x.duckdb") as store:
        store.execute("SELECT setseed(0.4)")
        store.execute(_MAKE.format(turns=turns))
        floor = seconds(lambda: store.rows("SELECT count(*), max(latency_ms) FROM latest_turns"))
        found = {
            "filters": {
                text: seconds(lambda text=text: list_page(store, Choice(parse_filter(text)), 50))  # type: ignore[misc]
                for text in FILTERS
            }
        }
        recipe = Recipe("benchmark", (), seed="1")
        found["picks"] = {
            label: seconds(lambda label=label: offered(store, recipe, Pick(label, below=0.03)))  # type: ignore[misc]
            for label in PICKS
        }
    for name, took in found.items():
        median, slowest = statistics.median(took.values()), max(took, key=lambda one: took[one])
        print(
            f"{name} over {turns:,} turns: median {median:.2f} s, slowest {took[slowest]:.2f} s"
            f" ({slowest}); {median / floor:.1f} x and {took[slowest] / floor:.1f} x the floor"
        )
        print("  " + ", ".join(f"{one or 'all'} {taken:.2f}" for one, taken in took.items()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=1_000_000)
    options = parser.parse_args()
    if options.texts:
        near_duplicates(options.texts, 30)
        near_duplicates(options.texts, 2_000)
    if options.turns:
        filters_and_picks(options.turns)


if __name__ == "__main__":
    main()
