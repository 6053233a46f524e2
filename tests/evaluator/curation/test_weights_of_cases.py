"""Curated sets estimate the traffic: weights add up to the window, and scores are weighted by them."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.stats.estimate import estimate_items
from evaltap.evaluator.curation.choosing import choose
from evaltap.evaluator.curation.recipe import Pick, Recipe
from evaltap.evaluator.store.database import Store
from support.builders.cases import make_case, make_turn
from support.worlds.shop import POLITE, Asked, landed

TURNS = 600


def half_from_templates(seed: int = 1) -> list[Asked]:
    """Return turns of which half come from ten templates and pass 95 %, and half are unique and pass 60 %."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(3_000)]
    templates = [" ".join(rng.choices(words, k=8)) for _ in range(10)]
    made = []
    for number in range(TURNS):
        common = rng.random() < 0.5
        asked = (
            f"{rng.choice(templates)} A-{number}" if common else " ".join(rng.choices(words, k=9))
        )
        polite = rng.random() < (0.95 if common else 0.6)
        made.append(Asked(asked, answer="Yes, please." if polite else "No.", hours=number * 0.01))
    return made


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return landed(tmp_path_factory.mktemp("weights"), half_from_templates())


def polite_sessions(store: Store) -> dict[str, bool]:
    return {
        name: status == "passed"
        for name, status in store.rows("SELECT eval_id, status FROM latest_turn_scores")
    }


RANDOM = (Pick("random", count=60),)
FAILURES_FIRST = (Pick("failed", limit=20), Pick("slow", top=0.02), Pick("random", count=40))
STRATA = (Pick("stratified", by=("outcome",), per=30),)


@pytest.mark.slow
@pytest.mark.parametrize(
    "picks", [RANDOM, FAILURES_FIRST, STRATA], ids=["random", "mixed", "strata"]
)
def test_the_weighted_rate_of_a_curated_set_is_that_of_the_traffic(
    database: Path, picks: tuple[Pick, ...]
) -> None:
    with Store(database) as store:
        verdicts = polite_sessions(store)
        truth = sum(verdicts.values()) / TURNS
        inside, values, unweighted = 0, [], []
        for seed in range(30):
            chosen = choose(store, Recipe("r", picks, seed=str(seed))).chosen
            assert sum(one.weight for one in chosen) == pytest.approx(TURNS)
            passed = [verdicts[one.turn.key.eval_id] for one in chosen]
            weighted = estimate_items(
                (one.turn.key, 1 / one.weight, passes)
                for one, passes in zip(chosen, passed, strict=True)
            )
            assert weighted is not None
            low, high = weighted.rate.interval
            inside += low <= truth <= high
            values.append(weighted.rate.value)
            unweighted.append(sum(passed) / len(passed))

    assert inside >= 28
    assert sum(values) / 30 == pytest.approx(truth, abs=0.025)
    assert sum(unweighted) / 30 < truth - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("collapse", [{"radius": 0.5}, False])
def test_a_set_without_a_random_draw_says_how_much_it_covers(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], collapse: Any
) -> None:
    recipe = {"name": "r", "pick": [{"label": "failed"}], "collapse": collapse}
    (tmp_path / "r.json").write_text(json.dumps(recipe))
    out = tmp_path / "s.evalset.json"

    main(
        ["curate", str(database), "--recipe", str(tmp_path / "r.json"), "--out", str(out), "--json"]
    )

    report = json.loads(capsys.readouterr().out)
    with Store(database) as store:
        failed = list(polite_sessions(store).values()).count(False)
    assert (report["window"], report["covered"]) == (TURNS, pytest.approx(failed / TURNS))


@pytest.mark.slow
def test_score_and_report_print_the_weighted_rate_of_a_curated_set_beside_the_plain_one(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, scores = tmp_path / "s.evalset.json", tmp_path / "scores.duckdb"
    (tmp_path / "m.json").write_text(json.dumps([POLITE]))
    main(["curate", str(database), "--out", str(out)])
    assert "covered: 100.0% of the 600 turns of the window" in capsys.readouterr().out
    main(["score", str(out), "--metrics", str(tmp_path / "m.json"), "--db", str(scores), "--json"])

    (scored,) = json.loads(capsys.readouterr().out)["metrics"]
    with Store(database) as store:
        truth = sum(polite_sessions(store).values()) / TURNS
    low, high = scored["represented_interval"]
    assert scored["represented_turns"] == pytest.approx(TURNS, abs=0.01)
    assert low < truth < high
    assert scored["pass_rate"] < truth - 0.05 < scored["represented_pass_rate"]
    main(["report", str(scores), "--json"])
    (reported,) = json.loads(capsys.readouterr().out)["metrics"]
    assert reported == scored
    main(["report", str(scores)])
    shown = capsys.readouterr().out
    assert f"polite: {scored['represented_pass_rate']:.1%} (" in shown
    assert "of the traffic that these 100 curated cases represent" in shown


def test_a_session_stands_for_turns_like_its_last_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        make_case(
            name,
            [make_turn(f"t-{n}", answer=answer) for n, answer in enumerate(answers)],
            source={"curation": {"weight": weight}},
        )
        for name, answers, weight in (
            ("a", ("No.", "Yes, please."), 3),
            ("b", ("please", "No."), 1),
        )
    ]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cases))
    (tmp_path / "m.json").write_text(json.dumps([POLITE]))

    given = (str(tmp_path / "s.jsonl"), "--metrics", str(tmp_path / "m.json"))
    main(["score", *given, "--db", str(tmp_path / "s.duckdb"), "--json"])

    (scored,) = json.loads(capsys.readouterr().out)["metrics"]
    assert (scored["passed"], scored["represented_pass_rate"]) == (0, 0.75)


@pytest.mark.slow
def test_a_session_of_which_several_turns_were_picked_does_not_stand_for_turns_like_the_earlier_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        Asked("Where is it?", session="a"),
        Asked("I want my money", answer="No.", session="a"),
    ]
    store = landed(tmp_path, [*asked, *[Asked("Where is it?") for _ in range(8)]])
    capsys.readouterr()
    scores = {}
    for unit in ("session", "turn"):
        out = str(tmp_path / f"{unit}.evalset.json")
        main(["curate", str(store), "--out", out, "--unit", unit, "--json"])
        made = json.loads(capsys.readouterr().out)
        given = (out, "--metrics", str(tmp_path / "metrics.json"))
        main(["score", *given, "--db", str(tmp_path / f"{unit}.duckdb"), "--json"])
        (scored,) = json.loads(capsys.readouterr().out)["metrics"]
        scores[unit] = [
            *(made[name] for name in ("covered", "with_several_picked_turns")),
            *(scored[name] for name in ("represented_turns", "represented_pass_rate")),
        ]

    assert scores == {"session": [0.1, 1, 1, 0.0], "turn": [1.0, 0, 10, 0.9]}


@pytest.mark.slow
def test_a_case_that_its_recipe_no_longer_makes_represents_nothing(
    database: Path, tmp_path: Path
) -> None:
    out = tmp_path / "s.evalset.json"
    for seed in ("1", "2"):
        main(["curate", str(database), "--out", str(out), "--seed", seed, "--limit", "20"])

    weights = [
        case["source"]["curation"]["weight"] for case in json.loads(out.read_text())["evalCases"]
    ]
    assert sum(weights) == pytest.approx(TURNS, abs=0.01)
    assert 0 in weights
