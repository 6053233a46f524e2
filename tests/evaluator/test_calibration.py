"""Calibration of a judge against people: statistics by oracles, the rule of trust, the command."""

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # an oracle without types

from cases import RUBRIC, make_case, make_turn
from evaltap.evaluator.calibration import (
    Table,
    Trust,
    calibrate,
    cohen_kappa,
    corrected_rate,
    kappa_error,
    kappa_interval,
    labels_needed,
    table_of,
)
from evaltap.evaluator.cli import main
from evaltap.evaluator.labels import LabelKey, read_labels
from evaltap.schemas.errors import FormatError
from judge_server import Answer, judge_server

TABLES = st.builds(Table, *[st.integers(0, 60)] * 4)
FULL_TABLES = st.builds(Table, *[st.integers(1, 60)] * 4)


# -- statistics ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.booleans(), st.booleans())))
def test_the_table_counts_each_pair_once(pairs: list[tuple[bool, bool]]) -> None:
    table = table_of(pairs)

    assert table.total == len(pairs)
    assert table.human_pass == sum(person for _, person in pairs)
    assert table.judge_pass == sum(judge for judge, _ in pairs)
    assert table.both_pass + table.both_fail == sum(judge == person for judge, person in pairs)


@given(TABLES)
def test_kappa_is_the_textbook_formula(table: Table) -> None:
    matrix = np.array(table, dtype=float).reshape(2, 2)
    total = matrix.sum()

    found = cohen_kappa(table)

    if total == 0:
        assert found is None
        return
    expected = np.outer(matrix.sum(1), matrix.sum(0)) / total
    if math.isclose(np.trace(expected), total):
        assert found is None
    else:
        agreeing, chance = np.trace(matrix), np.trace(expected)
        assert found == pytest.approx((agreeing - chance) / (total - chance))


def test_kappa_of_a_published_table() -> None:
    # 45 and 15, 25 and 15: kappa 0.1304 (the example of the article on Cohen's kappa in Wikipedia).
    assert cohen_kappa(Table(45, 15, 25, 15)) == pytest.approx(0.1304, abs=1e-4)


@given(FULL_TABLES)
def test_the_error_of_kappa_is_that_of_the_delta_method(table: Table) -> None:
    counts = np.array(table, dtype=float)
    shares, total = counts / counts.sum(), counts.sum()
    step = 1e-6
    slopes = np.array(
        [
            (_kappa(shares + step * one) - _kappa(shares - step * one)) / (2 * step)
            for one in np.eye(4)
        ]
    )
    covariance = (np.diag(shares) - np.outer(shares, shares)) / total

    assert kappa_error(table) == pytest.approx(
        math.sqrt(max(slopes @ covariance @ slopes, 0)), rel=1e-3, abs=1e-6
    )


def _kappa(shares: Any) -> float:
    # Not normalised: the slopes of the general function are wanted.
    agreeing = shares[0] + shares[3]
    chance = (shares[0] + shares[1]) * (shares[0] + shares[2]) + (shares[2] + shares[3]) * (
        shares[1] + shares[3]
    )
    return float((agreeing - chance) / (1 - chance))


def test_the_interval_of_kappa_is_near_that_of_the_bootstrap() -> None:
    table = Table(90, 12, 10, 88)
    pairs = np.repeat([[1, 1], [1, 0], [0, 1], [0, 0]], table, axis=0)

    def kappa(judge: Any, person: Any, axis: int = -1) -> float:
        return cohen_kappa(table_of([*zip(judge == 1, person == 1, strict=True)])) or 0.0

    oracle = stats.bootstrap(
        (pairs[:, 0], pairs[:, 1]), kappa, paired=True, vectorized=False, n_resamples=999,
        rng=np.random.default_rng(1), method="percentile",
    ).confidence_interval  # fmt: skip

    found = kappa_interval(table)

    assert found is not None
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high), abs=0.03)


def test_full_agreement_on_few_cases_proves_no_perfection() -> None:
    interval = kappa_interval(Table(5, 0, 0, 5))

    assert interval is not None
    assert interval.high == 1
    assert interval.low < 0.7


@given(TABLES)
def test_rates_have_the_wilson_intervals_of_scipy(table: Table) -> None:
    found = calibrate(table, 0, 0)
    for share, count, total in (
        (found.false_pass_rate, table.false_pass, table.human_fail),
        (found.false_fail_rate, table.false_fail, table.human_pass),
        (found.agreement, table.both_pass + table.both_fail, table.total),
    ):
        if not total:
            assert share == (None, None)
            continue
        oracle = stats.binomtest(count, total).proportion_ci(method="wilson")
        assert share.value == count / total
        assert share.interval == pytest.approx((oracle.low, oracle.high), abs=1e-9)


@given(FULL_TABLES)
def test_the_corrected_rate_of_the_labels_themselves_is_what_people_say(table: Table) -> None:
    found = corrected_rate(table, table.judge_pass, table.total)

    if found.value is not None:
        assert found.value == pytest.approx(table.human_pass / table.total)
        assert found.interval is not None
        assert 0 <= found.interval.low <= found.value <= found.interval.high <= 1


def test_the_corrected_rate_covers_the_truth_as_often_as_it_says() -> None:
    rng, covered, rounds = random.Random(5), 0, 400
    truth, right_passes, right_fails = 0.7, 0.9, 0.8

    def draw(count: int) -> list[tuple[bool, bool]]:
        pairs = []
        for _ in range(count):
            person = rng.random() < truth
            judge = rng.random() < (right_passes if person else 1 - right_fails)
            pairs.append((judge, person))
        return pairs

    for _ in range(rounds):
        passes = sum(judge for judge, _ in draw(1000))
        interval = corrected_rate(table_of(draw(150)), passes, 1000).interval
        covered += interval is not None and interval.low <= truth <= interval.high

    assert 0.92 <= covered / rounds <= 0.985


def test_a_correction_beyond_what_is_possible_is_cut_and_says_so() -> None:
    found = corrected_rate(Table(18, 2, 2, 18), 99, 100)

    assert (found.value, found.clipped) == (1.0, True)


def test_nothing_is_concluded_from_a_judge_that_is_no_better_than_chance() -> None:
    found = corrected_rate(Table(10, 10, 10, 10), 50, 100)

    assert (found.value, found.interval) == (None, None)


# -- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "trust", "says"),
    [
        (Table(150, 2, 5, 100), Trust.TRUST, "within their bounds"),
        (Table(60, 2, 5, 40), Trust.CARE, "may pass up to"),
        (Table(60, 12, 4, 40), Trust.CARE, "kappa may be as low as"),
        (Table(60, 30, 5, 20), Trust.DO_NOT, "of what people fail"),
        (Table(85, 15, 0, 0), Trust.DO_NOT, "no more than a judge that always says the same"),
        (Table(30, 15, 15, 30), Trust.DO_NOT, "kappa is 0.33"),
        (Table(20, 0, 0, 20), Trust.TOO_FEW, "40 labels, at least 50 are needed: 10 more"),
        (Table(90, 0, 0, 4), Trust.TOO_FEW, "4 labels of fails, at least 15 are needed: 11 more"),
        (Table(), Trust.TOO_FEW, "0 labels"),
    ],
)
def test_the_verdict_follows_the_rule_and_gives_its_reason(
    table: Table, trust: Trust, says: str
) -> None:
    found = calibrate(table, table.judge_pass, table.total)

    assert found.trust is trust
    assert says in "; ".join(found.reasons)


def test_how_many_labels_more_would_bound_the_false_passes() -> None:
    table = Table(50, 0, 0, 15)
    more = labels_needed(table)

    enough, one_less = (
        stats.binomtest(0, 15 + count).proportion_ci(method="wilson").high
        for count in (more, more - 1)
    )
    assert enough <= 0.1 < one_less
    assert labels_needed(Table(50, 5, 0, 15)) == 0


# -- labels ----------------------------------------------------------------------------------------


def test_labels_are_read_from_json_lines_and_csv(tmp_path: Path) -> None:
    lines, table = tmp_path / "l.jsonl", tmp_path / "l.csv"
    lines.write_text(
        '{"evalId": "a", "label": "pass"}\n\n{"evalId": "b", "rubricId": "1", "label": false}\n'
    )
    table.write_text("\ufeffevalId,rubricId,label\na,,PASS\nb,1,0\n")

    for path in (lines, table):
        assert [(label.key, label.passes) for label in read_labels(path)] == [
            (LabelKey("a"), True),
            (LabelKey("b", "", "1"), False),
        ]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "holds no label"),
        ('{"evalId": "a"}\n', "line 1: label is None"),
        ('{"evalId": "a", "label": "maybe"}\n', "label is 'maybe'; expected pass or fail"),
        ('{"label": "pass"}\n', "no evalId"),
        ('{"evalId": 1, "label": "pass"}\n', "an id that is no text"),
        ('{"evalId": "a", "lable": "pass"}\n', "found lable"),
        ("[]\n", "no JSON object"),
        ('{"evalId": \n', "no JSON"),
        (
            '{"evalId": "a", "label": 1}\n{"evalId": "a", "label": 0}\n',
            "line 2: labels what line 1",
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


def test_cases_can_be_scored_on_the_way_and_the_result_is_read_by_people(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with judge_server(by_words) as server:
        write(server.url, lambda n: {"evalId": f"c-{n}"})

        assert main([*COMMAND[:-1], "--cases", "c.jsonl"]) == 0

    shown = capsys.readouterr().out
    assert "verdict: with care" in shown
    assert "the judge passes, people fail: c-4" in shown


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ({"evalId": "c-999"}, "'c-999' has no score under metric"),
        ({"evalId": "c-1", "metricName": "other"}, "no label is about a metric that is here"),
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


def test_without_verdicts_there_is_nothing_to_compare(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("http://127.0.0.1:9/v1", lambda n: {"evalId": f"c-{n}"})

    assert main(COMMAND) == 2
    assert "give --db with scores, or --cases" in capsys.readouterr().err


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
