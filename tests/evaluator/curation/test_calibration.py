"""Calibration of a judge against people: figures by verdict, the rule of trust, the command."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.label_files import read_labels
from evaltap.evaluator.analysis.estimates.labels import LabelKey
from evaltap.evaluator.analysis.stats.estimate import Cell, Profile, estimate, estimate_items
from evaltap.evaluator.analysis.stats.labelled import Judged, Labels
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.curation.calibration.verdicts import (
    Calibration,
    Labelled,
    Table,
    Trust,
    Verdicts,
    calibrate,
    labels_needed,
    table_of,
)
from evaltap.schemas.errors import FormatError
from support.builders.cases import RUBRIC, make_case, make_turn
from support.servers.judge_server import Answer, judge_server

FULL_TABLES = st.builds(Table, *[st.integers(1, 60)] * 4)


def labels_of(table: Table) -> list[Labelled]:
    """Return labels that make a table."""
    kinds = [(True, True), (True, False), (False, True), (False, False)]
    return [Labelled(*kind) for kind, count in zip(kinds, table, strict=True) for _ in range(count)]


def all_verdicts(passes: int, fails: int) -> Verdicts:
    """Return the verdicts of a judge on one-turn sessions."""
    kinds = [(1.0, passes), (0.0, fails)]
    found = estimate(Profile((Cell(1, 1, y, y),), count) for y, count in kinds if count)
    assert found is not None
    return Verdicts(
        passes, fails, found.rate.value, (found.rate.interval.high - found.rate.interval.low) / 2
    )


def calibrated(table: Table, passes: int = 0, fails: int = 0) -> Calibration:
    """Return what a table says of a judge that gave these verdicts, or else just those of the table."""
    if not passes + fails:
        passes, fails = table.both_pass + table.false_pass, table.false_fail + table.both_fail
    return calibrate(labels_of(table), all_verdicts(passes, fails))


# -- statistics ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_the_table_counts_each_label_once(pairs: list[tuple[bool, bool]]) -> None:
    table = table_of([Labelled(*pair) for pair in pairs])

    assert table.total == len(pairs)
    assert table.human_pass == sum(person for _, person in pairs)
    assert table.both_pass + table.both_fail == sum(judge == person for judge, person in pairs)


@given(FULL_TABLES, st.integers(1, 20), st.integers(1, 20))
def test_figures_are_those_of_the_table_with_each_verdict_weighed_by_its_share(
    table: Table, more_passes: int, more_fails: int
) -> None:
    passes = (table.both_pass + table.false_pass) * more_passes
    fails = (table.false_fail + table.both_fail) * more_fails

    found = calibrated(table, passes, fails)

    both_pass, false_pass = table.both_pass * more_passes, table.false_pass * more_passes
    false_fail, both_fail = table.false_fail * more_fails, table.both_fail * more_fails
    total = passes + fails
    matrix = np.array([[both_pass, false_pass], [false_fail, both_fail]]) / total
    chance = float((matrix.sum(0) * matrix.sum(1)).sum())
    assert value(found.agreement) == pytest.approx((both_pass + both_fail) / total)
    assert value(found.kappa) == pytest.approx((np.trace(matrix) - chance) / (1 - chance))
    assert value(found.false_pass_rate) == pytest.approx(false_pass / (false_pass + both_fail))
    assert value(found.false_fail_rate) == pytest.approx(false_fail / (false_fail + both_pass))
    assert value(found.corrected.rate) == pytest.approx((both_pass + false_fail) / total)
    for share in (
        found.agreement,
        found.false_pass_rate,
        found.false_fail_rate,
        found.corrected.rate,
    ):
        assert share is not None
        assert 0 <= share.interval.low <= share.value <= share.interval.high <= 1


def test_kappa_of_a_published_table() -> None:
    # 45 and 15, 25 and 15: kappa 0.1304 (the example of the article on Cohen's kappa in Wikipedia).
    assert value(calibrated(Table(45, 15, 25, 15)).kappa) == pytest.approx(0.1304, abs=1e-4)


def test_kappa_is_undefined_where_one_verdict_is_all_there_is() -> None:
    assert calibrated(Table(60, 0, 0, 0)).kappa is None


def test_full_agreement_on_few_labels_proves_no_perfection() -> None:
    found = calibrated(Table(5, 0, 0, 5))

    assert found.kappa is not None
    assert value(found.kappa) == 1
    assert found.kappa.interval.high == 1
    assert found.kappa.interval.low < 0.7


def test_what_a_judge_gave_and_nobody_labelled_is_not_guessed() -> None:
    found = calibrate(labels_of(Table(60, 0, 0, 0)), all_verdicts(900, 100))

    assert found.agreement == found.kappa == found.false_pass_rate is None
    assert found.trust is Trust.TOO_FEW
    assert found.corrected.rate is not None
    assert found.corrected.rate.interval.high - found.corrected.rate.interval.low > 0.09, (
        "the fails are open"
    )


def draw(rng: np.random.Generator, lenient: float, labels: tuple[int, int]) -> Calibration:
    """Return the calibration of a judge that passes a share of the bad tenth of 2,000 answers."""
    good = rng.random(2000) < 0.9
    passes = np.where(good, rng.random(2000) < 0.97, rng.random(2000) < lenient)
    chosen = [
        Labelled(verdict, bool(good[at]))
        for verdict, count in zip((True, False), labels, strict=True)
        for at in rng.permutation(np.flatnonzero(passes == verdict))[:count]
    ]
    return calibrate(chosen, all_verdicts(int(passes.sum()), int((~passes).sum())))


def labelled_sessions(
    rng: np.random.Generator, sessions: int, turns: int, alike: float
) -> tuple[list[Labelled], list[tuple[int, float]]]:
    """Return the labels of all turns of some sessions, and the judge's verdicts on those and 200 others.

    The turns of a session resemble each other: `alike` is the correlation of its verdicts and of its labels.
    """

    def shares(mean: float, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        both = (1 - alike) / alike
        return rng.beta(mean * both, (1 - mean) * both, count)[:, None]

    judged = rng.random((sessions + 200, turns)) < shares(0.7, sessions + 200)
    labelled = judged[:sessions]
    passes = np.where(labelled, shares(0.92, sessions), shares(0.25, sessions))
    people = rng.random((sessions, turns)) < passes
    labels = [
        Labelled(bool(labelled[at]), bool(people[at]), session=at[0])
        for at in np.ndindex(sessions, turns)
    ]
    return labels, [(at[0], float(judged[at])) for at in np.ndindex(*judged.shape)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sessions", "turns", "alike"), [(20, 5, 0.3), (30, 10, 0.3), (15, 8, 0.5)]
)
def test_labels_of_one_session_are_a_cluster(sessions: int, turns: int, alike: float) -> None:
    rng, rounds = np.random.default_rng(3), 150
    truth = {"base_rate": 0.719, "kappa": 0.682, "false_pass_rate": 0.199}
    covered, as_if_independent = dict.fromkeys(truth, 0), 0

    for _ in range(rounds):
        labels, verdicts = labelled_sessions(rng, sessions, turns, alike)
        found = estimate_items((session, 1.0, passes) for session, passes in verdicts)
        assert found is not None
        low, high = found.rate.interval
        passed = int(sum(passes for _, passes in verdicts))
        judge = Verdicts(passed, len(verdicts) - passed, found.rate.value, (high - low) / 2)
        calibration = calibrate(labels, judge)
        for name, value_ in truth.items():
            rate = getattr(calibration, name)
            covered[name] += rate is None or rate.interval.low <= value_ <= rate.interval.high
        alone = calibrate([one._replace(session=None) for one in labels], judge).base_rate
        assert alone is not None
        as_if_independent += alone.interval.low <= truth["base_rate"] <= alone.interval.high

    assert all(count >= 0.92 * rounds for count in covered.values()), covered
    assert as_if_independent < 0.92 * rounds


@pytest.mark.parametrize("labels", [(75, 75), (20, 100), (140, 20)])
def test_intervals_hold_and_a_lenient_judge_is_not_trusted_however_labels_were_chosen(
    labels: tuple[int, int],
) -> None:
    rng, lenient, rounds = np.random.default_rng(7), 0.35, 200
    truth = {"corrected": 0.9, "false_pass_rate": lenient, "false_fail_rate": 0.03}
    covered, trusted = dict.fromkeys(truth, 0), 0

    for _ in range(rounds):
        found = draw(rng, lenient, labels)
        trusted += found.trust is Trust.TRUST
        figures = {
            "corrected": found.corrected.rate,
            "false_pass_rate": found.false_pass_rate,
            "false_fail_rate": found.false_fail_rate,
        }
        for name, rate in figures.items():
            assert rate is not None
            covered[name] += rate.interval.low <= truth[name] <= rate.interval.high

    assert trusted == 0
    # 200 rounds at 95 %: fewer than 180 have a chance of 1 in 1,000.
    assert all(count >= 180 for count in covered.values()), covered


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "verdicts", "trust", "says"),
    [
        (Table(150, 2, 5, 100), (0, 0), Trust.TRUST, "within their bounds"),
        (Table(60, 2, 5, 40), (0, 0), Trust.CARE, "may pass up to"),
        (Table(60, 12, 4, 40), (0, 0), Trust.CARE, "kappa may be as low as"),
        (Table(60, 30, 5, 20), (0, 0), Trust.DO_NOT, "of what people fail"),
        (Table(85, 15, 0, 0), (0, 0), Trust.DO_NOT, "no more than a judge that always says the same"),
        (Table(30, 15, 15, 30), (0, 0), Trust.DO_NOT, "kappa is 0.33"),
        (Table(20, 0, 0, 20), (0, 0), Trust.TOO_FEW, "40 labels, at least 50 are needed: 10 more"),
        (
            Table(90, 1, 0, 4), (900, 80), Trust.TOO_FEW,
            "4 labels of what the judge fails, at least 15 are needed: 11 more",
        ),
        (
            Table(13, 1, 0, 80), (900, 80), Trust.TOO_FEW,
            "14 labels of what the judge passes, at least 15 are needed: 1 more",
        ),
        (Table(200, 0, 0, 12), (200, 12), Trust.CARE, "the judge fails only 12 of what it judged"),
        (Table(60, 0, 3, 0), (60, 3), Trust.TOO_FEW, "0 labels that are fail, at least 1 is needed"),
        (Table(), (10, 5), Trust.TOO_FEW, "0 labels"),
    ],
)  # fmt: skip
def test_the_verdict_follows_the_rule_and_gives_its_reason(
    table: Table, verdicts: tuple[int, int], trust: Trust, says: str
) -> None:
    found = calibrated(table, *verdicts)

    assert found.trust is trust
    assert says in "; ".join(found.reasons)


def test_how_many_labels_more_of_which_verdict_would_bound_the_false_passes() -> None:
    # What it passes is 95 %, so that is where false passes hide.
    judged = Judged(0.95, 0.01, Labels(40, 40, 40, 40), Labels(100, 100, 100, 4))

    needed = labels_needed(judged)

    assert needed is not None
    verdict, more = needed
    assert verdict == "passes"
    highs = []
    for count in (40 + more - 1, 40 + more):
        grown = replace(judged, passed=Labels(count, count, count, count))
        bad = grown.derive(lambda q, g1, g0: q * (1 - g1) / (q * (1 - g1) + (1 - q) * (1 - g0)))
        assert bad is not None
        highs.append(bad[1].high)
    assert highs[1] <= 0.1 < highs[0]


def test_no_number_of_labels_bounds_false_passes_that_are_many() -> None:
    assert labels_needed(Judged(0.5, 0.01, Labels(50, 50, 50, 40), Labels(50, 50, 50, 5))) is None


# -- labels ----------------------------------------------------------------------------------------


def test_labels_are_read_from_json_lines_and_csv(tmp_path: Path) -> None:
    lines, table = tmp_path / "l.jsonl", tmp_path / "l.csv"
    lines.write_text(
        '{"evalId": "a", "label": "pass"}\n\n{"evalId": "b", "rubricId": "1", "label": false}\n'
    )
    table.write_text("\ufeffevalId,rubricId,label\na,,PASS\nb,1,0\n")

    for path in (lines, table):
        assert [(label.key, label.passes) for label in read_labels(path).labels] == [
            (LabelKey("a"), True),
            (LabelKey("b", "", "1"), False),
        ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "contains no labels"),
        ('{"evalId": "a"}\n', "line 1: label is None"),
        ('{"evalId": "a", "label": "maybe"}\n', "label is 'maybe'; expected pass or fail"),
        ('{"label": "pass"}\n', "no evalId"),
        ('{"evalId": 1, "label": "pass"}\n', "an id is not a string"),
        ('{"evalId": "a", "lable": "pass"}\n', "found lable"),
        ("[]\n", "not a JSON object"),
        ('{"evalId": \n', "not JSON"),
        (
            '{"evalId": "a", "label": 1}\n{"evalId": "a", "label": 0}\n',
            "line 2: repeats the ids of line 1",
        ),
    ],
)
def test_a_label_that_makes_no_sense_is_named_by_its_line(
    tmp_path: Path, content: str, says: str
) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text(content)

    with pytest.raises(FormatError, match=says):
        read_labels(path)


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 120 cases, every second good, and a judge that passes two of the bad ones."""
    monkeypatch.chdir(tmp_path)
    cases = [
        make_case(f"c-{n}", [make_turn("t-1", answer=f"{'good' if n % 2 else 'bad'} {n} .")])
        for n in range(120)
    ]
    Path("c.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    return tmp_path


def by_words(body: dict[str, Any]) -> Answer:
    text = str(body["messages"])
    score = int("good" in text or "bad 4 ." in text or "bad 8 ." in text)
    return Answer(json.dumps({"rubricScores": [{"id": "1", "score": score, "reason": "r"}]}))


def write(url: str, label: Callable[[int], dict[str, Any]]) -> None:
    metric = json.loads(json.dumps(RUBRIC))
    metric["criterion"]["llmJudge"]["judgeModel"] = {
        "modelName": "m",
        "baseURL": url,
        "apiKey": "k",
    }
    Path("m.json").write_text(json.dumps([metric]))
    lines = [json.dumps({"label": "pass" if n % 2 else "fail", **label(n)}) for n in range(120)]
    Path("labels.jsonl").write_text("\n".join(lines))


COMMAND = ["calibrate", "labels.jsonl", "--metrics", "m.json", "--json"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "label"),
    [
        ("cases", lambda n: {"evalId": f"c-{n}"}),
        ("turns", lambda n: {"evalId": f"c-{n}", "invocationId": "t-1"}),
        ("rubrics", lambda n: {"evalId": f"c-{n}", "rubricId": "1"}),
    ],
)
def test_labels_of_cases_turns_and_rubrics_are_compared(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    level: str,
    label: Callable[[int], dict[str, Any]],
) -> None:
    with judge_server(by_words) as server:
        write(server.url, label)
        main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb"])
        capsys.readouterr()

        code = main([*COMMAND, "--db", "x.duckdb"])

    (found,) = json.loads(capsys.readouterr().out)["calibrations"]
    assert code == 0
    assert (found["level"], found["trust"]) == (level, "with care")
    assert found["table"] == {"both_pass": 60, "false_pass": 2, "false_fail": 0, "both_fail": 58}
    assert found["kappa"]["value"] == pytest.approx(1 - 2 / 60, abs=0.01)
    assert found["corrected_pass_rate"]["value"] == pytest.approx(0.5)
    assert [row["evalId"] for row in found["disagreements"]] == ["c-4", "c-8"]


def test_a_rubric_that_a_panel_judged_passes_by_the_majority_of_judges_not_of_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.jsonl").write_text(json.dumps(make_case("c-1", [make_turn("t-1")])))
    grades = {"m-0": [0, 0, 0], "m-1": [1, 0, 1], "m-2": [1, 0, 1]}

    def divided(body: dict[str, Any]) -> Answer:
        row = {"id": "1", "score": grades[body["model"]].pop(), "reason": "r"}
        return Answer(json.dumps({"rubricScores": [row]}))

    with judge_server(divided) as server:
        models = [
            {"modelName": name, "baseURL": server.url, "apiKey": "k", "numSamples": 3}
            for name in grades
        ]
        metric = json.loads(json.dumps(RUBRIC))
        metric["criterion"]["llmJudge"] |= {"judgeModel": models[0], "panel": models[1:]}
        Path("m.json").write_text(json.dumps([metric]))
        Path("labels.jsonl").write_text('{"evalId": "c-1", "rubricId": "1", "label": "pass"}')
        main([*COMMAND, "--cases", "c.jsonl"])

    (found,) = json.loads(capsys.readouterr().out)["calibrations"]
    assert found["table"]["both_pass"] == 1


def test_cases_can_be_scored_on_the_way_and_the_result_is_read_by_people(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with judge_server(by_words) as server:
        write(server.url, lambda n: {"evalId": f"c-{n}"})

        assert main([*COMMAND[:-1], "--cases", "c.jsonl"]) == 0

    shown = capsys.readouterr().out
    assert "verdict: with care" in shown
    assert "the judge passes, people fail: c-4" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "says"),
    [
        ({"evalId": "c-999"}, "'c-999' has no score under metric"),
        ({"evalId": "c-1", "metricName": "other"}, "no label is for one of these metrics"),
    ],
)
def test_labels_that_match_nothing_are_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], label: dict[str, Any], says: str
) -> None:
    with judge_server(by_words) as server:
        write(server.url, lambda n: {"evalId": f"c-{n}"})
        Path("labels.jsonl").write_text(json.dumps({"label": "pass", **label}))

        assert main([*COMMAND, "--cases", "c.jsonl"]) == 2

    assert says in capsys.readouterr().err


def test_two_labels_of_one_verdict_are_not_counted_as_two(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with judge_server(by_words) as server:
        write(server.url, lambda n: {"evalId": f"c-{n}"})
        with Path("labels.jsonl").open("a") as file:
            name = {"metricName": "llm_rubric_response"}
            file.write("\n" + json.dumps({"label": "pass", "evalId": "c-4", **name}))

        assert main([*COMMAND, "--cases", "c.jsonl"]) == 2

    assert "line 121: labels the same as line 5" in capsys.readouterr().err


def test_without_verdicts_there_is_nothing_to_compare(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("http://127.0.0.1:9/v1", lambda n: {"evalId": f"c-{n}"})

    assert main(COMMAND) == 2
    assert "give a scored file with --db, or cases to score with --cases" in capsys.readouterr().err


def test_labels_of_what_could_not_be_judged_are_counted_apart(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with judge_server(
        lambda body: Answer("garbage") if "good" in str(body) else by_words(body)
    ) as server:
        write(server.url, lambda n: {"evalId": f"c-{n}"})

        assert main([*COMMAND, "--cases", "c.jsonl"]) == 3

    (found,) = json.loads(capsys.readouterr().out)["calibrations"]
    assert (found["labels"], found["without_verdict"]) == (60, 60)
    assert found["trust"] == "too few labels"


def value(rate: Rate | None) -> float:
    """Return the value of a figure that is defined."""
    assert rate is not None
    return rate.value
