"""Which turns an estimate counts: drawn, grown, dropped, of files."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.analysis.estimates.scope import Scope, Signal, Unit
from evaltap.evaluator.analysis.estimates.turns import choose_turns, quantile
from evaltap.evaluator.store.database import Store
from evaltap.schemas.wire.record import Manifest, WireRecord, encode_case, encode_manifest
from support.builders.cases import make_case, make_records, make_turn, write_log
from support.builders.estimated import METRICS, START, Estimate, Kept, Traffic, consume, land
from support.proofs.estimate_oracle import Oracle


@pytest.mark.slow
def test_cases_are_drawn_with_the_largest_probability_of_their_turns(
    landed: Traffic, tmp_path: Path
) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        ((found,), _) = estimate_rates(store, unit=Unit.CASE)
        (view,) = store.records("FROM v_pass_rate")

    sessions: dict[str, list[Kept]] = {}
    for turn in landed.kept:
        sessions.setdefault(turn.session, []).append(turn)
    oracle = Oracle(
        list(sessions),
        [max(turn.probability for turn in turns) for turns in sessions.values()],
        [1.0] * len(sessions),
        [float(all(turn.passed for turn in turns)) for turns in sessions.values()],
    )
    one = found.estimate
    assert one is not None
    assert one.rate.value == pytest.approx(oracle.rate) == pytest.approx(view["pass_rate"])
    assert one.rate.interval == pytest.approx(oracle.process)
    assert one.rate.n == one.sessions == len(sessions)


def test_turns_of_scored_files_count_once_where_they_are_asked_for(tmp_path: Path) -> None:
    lines = [make_case(f"c-{n}", [make_turn(answer="yes" if n else "no")]) for n in range(20)]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    store_path = str(tmp_path / "x.duckdb")
    main(
        [
            "score",
            str(tmp_path / "c.jsonl"),
            "--metrics",
            str(tmp_path / "m.json"),
            "--db",
            store_path,
        ]
    )

    with Store(store_path) as store:
        assert estimate_rates(store).rates == ()
        ((run_id,),) = store.rows("SELECT run_id FROM runs")
        for unit in Unit:
            ((found,), _) = estimate_rates(store, Scope(run_id=run_id, files=True), unit=unit)
            one = found.estimate
            assert one is not None
            assert (one.rate.value, one.rate.n, one.estimated_turns) == (0.95, 20, 20.0)
            assert one.traffic == (0.95, 0.95)
        assert estimate_rates(store, Scope(run_id="another", files=True)).rates == ()


@pytest.mark.slow
def test_a_turn_that_has_grown_since_it_was_scored_is_not_scored_yet(tmp_path: Path) -> None:
    def revision(number: int, answer: str) -> dict[str, Any]:
        return make_case("s", [make_turn("t", answer=answer)], source={"revision": number})

    def records(*cases: dict[str, Any], first: int) -> list[WireRecord]:
        return make_records(cases, first_seq=first)

    write_log(tmp_path / "log.db", records(revision(1, "yes"), first=1))
    consume(tmp_path)
    with Store(tmp_path / "x.duckdb") as store:
        assert len(estimate_rates(store).rates) == 1

    write_log(tmp_path / "log.db", records(revision(2, "no"), first=2))
    log, path = str(tmp_path / "log.db"), str(tmp_path / "x.duckdb")
    main(["consume", "--log", log, "--db", path, "--until-idle"])
    with Store(path) as store:
        assert estimate_rates(store).rates == ()
        assert estimate_rates(store, Scope(files=True)).rates == ()


@pytest.mark.slow
def test_a_quantile_of_the_latency_is_weighted(landed: Traffic, tmp_path: Path) -> None:
    known = Signal("latency_ms", "latency_ms IS NOT NULL")
    with (
        Store(tmp_path / "x.duckdb") as store,
        choose_turns(store, Scope(), (), known) as turns,
        choose_turns(store, Scope(), (), Signal("cost_usd", "cost_usd IS NOT NULL")) as without,
    ):
        found = [quantile(turns, share) for share in (0.5, 0.95)]
        assert quantile(without, 0.5) is None

    weights = np.array([1 / turn.probability for turn in landed.kept])
    latency = np.array([turn.latency for turn in landed.kept])
    order = np.argsort(latency)
    shares = np.cumsum(weights[order]) / weights.sum()
    expected = [latency[order][np.searchsorted(shares, share)] for share in (0.5, 0.95)]
    assert found == pytest.approx(expected)


@pytest.mark.slow
def test_drops_count_in_the_hour_in_which_they_were_stated(
    tmp_path: Path, estimate: Estimate
) -> None:
    records = [
        encode_case(
            make_case(f"s-{n}", [make_turn(creationTimestamp=(START + timedelta(minutes=n)).timestamp())]),
            producer_id="p", seq=n + 1, time=START,
        )
        for n in range(120)
    ]  # fmt: skip
    for minutes, lost in ((30, 10), (70, 10), (110, 40)):
        stated = START + timedelta(minutes=minutes)
        records.append(encode_manifest(Manifest("p", 120, stated, {"queue_full": lost})))
    write_log(tmp_path / "log.db", records)
    consume(tmp_path)

    first, second = estimate("--by", "hour")
    (whole,) = estimate()

    assert first["covered"] == pytest.approx(60 / 70)
    assert second["covered"] == pytest.approx(60 / 90)
    assert whole["covered"] == pytest.approx(120 / 160)


@pytest.mark.slow
def test_the_drops_of_a_process_without_a_kept_turn_are_missing_from_the_whole(
    tmp_path: Path, estimate: Estimate
) -> None:
    records = make_records([make_case(f"s-{n}") for n in range(30)])
    for producer, drops in (
        ("p", {}),
        ("other", {"queue_full": 10}),
        ("third", {"sampled_out": 5}),
    ):
        records.append(encode_manifest(Manifest(producer, 30, START, drops)))
    write_log(tmp_path / "log.db", records)
    consume(tmp_path)

    (whole,) = estimate()
    (by_app,) = estimate("--by", "app")

    assert whole["covered"] == pytest.approx(30 / 40)
    assert by_app["covered"] == 1.0


@pytest.mark.slow
def test_the_language_of_the_user_is_a_slice_and_a_condition(
    tmp_path: Path, estimate: Estimate
) -> None:
    said = {
        "en": "I would like to return the shoes that I have ordered last week, please.",
        "de": "Ich möchte bitte die Schuhe zurückgeben, die ich letzte Woche bestellt habe.",
        "ja": "先週注文した靴を返品したいのですが。",
        "und": "A-100?",
    }
    cases = []
    for number in range(24):
        language = list(said)[number % 4]
        turn = make_turn(
            answer="no" if language == "de" and number > 8 else "yes",
            userContent={"role": "user", "content": said[language]},
        )
        cases.append(make_case(f"s-{number}", [turn]))
    land(tmp_path, Traffic(cases=cases))

    rates = {one["slice"]["language"]: one["rate"] for one in estimate("--by", "language")}

    assert rates == {"en": 1, "ja": 1, "und": 1, "de": pytest.approx(1 / 3)}
    (german,) = estimate("--where", "language = 'de'")
    assert (german["turns"], german["rate"]) == (6, pytest.approx(1 / 3))
