"""Labels and verdicts that were drawn at random count for the turns that they were drawn from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.labels import reviewed_labels
from evaltap.evaluator.curation.review.queue import add_items, decide, draw_for_labels, items
from evaltap.evaluator.store.database import Store
from support.builders.cases import make_case, make_turn, write_log
from support.worlds.shop import POLITE, Asked, landed, records

Answers = Callable[..., Any]


@pytest.fixture
def answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Answers:
    """Return what a command says of the store, as data."""

    def run(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([*arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return run


def metric(folder: Path, word: str) -> str:
    """Write a metric that passes what contains a word; return its file."""
    rule = {"id": "r", "type": "contains", "values": [word]}
    path = folder / f"{word}.json"
    path.write_text(json.dumps([POLITE | {"criterion": {"rules": {"rules": [rule]}}}]))
    return str(path)


def review_all(database: Path) -> None:
    """Decide on all items: what says good is right."""
    with Store(database) as store:
        for one in items(store):
            said = one.turn["finalResponse"]["content"]
            decide(store, one, "ann", "approve" if "good" in said else "reject")


def labels_of(folder: Path, asked: list[Asked], numbers: list[int]) -> str:
    said = {n: "pass" if "good" in asked[n].answer else "fail" for n in numbers}
    rows = [{"evalId": f"s-{n}", "invocationId": f"t-{n}", "label": said[n]} for n in numbers]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return str(folder / "labels.jsonl")


def sampled(folder: Path) -> tuple[Path, list[Asked]]:
    """Land 600 turns; a rule scores all with two calls, half of the failures, and a tenth of the rest."""
    asked = [
        Asked(
            f"Question {n}",
            ("a", "b") if n % 10 == 0 and n % 20 else ("a",),
            f"{'good' if n % 10 else 'bad'} {n} {'please' if n % 10 else 'no'}",
        )
        for n in range(600)
    ]
    write_log(folder / "log.db", records(asked))
    rule = {"name": "r", "metrics": ["polite"], "rate": 0.1, "always": [{"moreStepsThan": 1}]}
    (folder / "rules.json").write_text(json.dumps({"score": [rule]}))
    database = folder / "x.duckdb"
    main(["consume", "--log", str(folder / "log.db"), "--db", str(database), "--until-idle",
          "--metrics", metric(folder, "please"), "--monitor", str(folder / "rules.json")])  # fmt: skip
    return database, asked


@pytest.mark.slow
def test_verdicts_that_a_score_rule_drew_count_for_those_it_left_out(
    tmp_path: Path, answers: Answers
) -> None:
    database, asked = sampled(tmp_path)
    with Store(database) as store:
        scored = [int(name[2:]) for name in store.column("SELECT eval_id FROM turn_scores")]
    labels = labels_of(tmp_path, asked, scored)
    rules = ["--metrics", metric(tmp_path, "please"), "--db", str(database)]

    (found,) = answers("calibrate", labels, *rules)["calibrations"]

    weights = {n: 1 if n % 10 == 0 and n % 20 else 10 for n in scored}
    passing = sum(w for n, w in weights.items() if n % 10) / sum(weights.values())
    assert sum(n % 10 > 0 for n in scored) / len(scored) < 0.8 < passing
    assert found["corrected_pass_rate"]["observed"] == pytest.approx(passing)
    assert found["corrected_pass_rate"]["value"] == pytest.approx(passing)
    (row,) = answers("estimate", str(database), "--labels", labels)
    assert row["rate"] == pytest.approx(passing)


@pytest.mark.slow
def test_a_review_of_a_turn_that_no_rule_chose_to_score_is_counted_apart(
    tmp_path: Path, answers: Answers
) -> None:
    database, _ = sampled(tmp_path)
    assert main(["review", "add", str(database), "--limit", "60"]) == 0
    review_all(database)
    rules = ["--metrics", metric(tmp_path, "please"), "--db", str(database)]

    (found,) = answers("calibrate", str(database), *rules, code=3)["calibrations"]

    with Store(database) as store:
        ((reviewed, scored),) = store.rows(
            "SELECT count(*), count(s.status) FROM v_review_items"
            " LEFT JOIN turn_scores s USING (eval_id, invocation_id)"
        )
    assert reviewed > scored > 0
    assert found["labels"] == found["picked"] == scored
    assert found["without_verdict"] == reviewed - scored


@pytest.mark.slow
def test_labels_drawn_by_the_verdicts_of_a_judge_hold_for_the_one_that_replaces_it(
    tmp_path: Path, answers: Answers
) -> None:
    # Of ten turns each judge fails one; the old one fails 20 of the 40 bad ones, the new one 30.
    asked = [
        Asked(
            f"Question {n}",
            answer=f"{'bad' if n < 40 else 'good'} {n}"
            f" {'old' if 20 <= n < 360 else ''} {'new' if 10 <= n < 20 or n >= 60 else ''}",
        )
        for n in range(400)
    ]
    old = json.loads(Path(metric(tmp_path, "old")).read_text())
    database = landed(tmp_path, asked, metrics=old)
    assert main(["review", "add", str(database), "--draw", "polite", "--limit", "100"]) == 0
    review_all(database)
    assert main(["score", str(database), "--metrics", metric(tmp_path, "new"), "--json"]) == 1
    labels = tmp_path / "labels.jsonl"
    exported = ["review", "export", str(database), "--labels", "--out", str(labels)]
    assert main(exported) == 0

    rules = ["--metrics", metric(tmp_path, "new"), "--db", str(database)]
    (found,) = answers("calibrate", str(database), *rules)["calibrations"]

    with Store(database) as store:
        drawn = {
            int(one.key.eval_id[2:]): one.weight or 0.0 for one in reviewed_labels(store)
        }  # each of 60 that the old judge fails for 60/50, each of 340 that it passes for 340/50
    assert sorted({round(weight, 3) for weight in drawn.values()}) == [1.2, 6.8]
    passed = {n: w for n, w in drawn.items() if 10 <= n < 20 or n >= 60}
    failed = {n: w for n, w in drawn.items() if n not in passed}
    share = [sum(w for n, w in of.items() if n >= 40) / sum(of.values()) for of in (passed, failed)]
    people = 350 / 400 * share[0] + 50 / 400 * share[1]
    assert found["corrected_pass_rate"]["value"] == pytest.approx(people)
    assert people == pytest.approx(0.9, abs=0.03)
    rows = answers("estimate", str(database), "--labels", str(labels))
    assert min(abs(row["rate"] - people) for row in rows) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("command", ["calibrate", "estimate"])
def test_turns_on_which_reviewers_disagree_are_said_to_have_no_label(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [Asked(f"Question {n}", answer=f"good {n} please") for n in range(4)]
    database = landed(tmp_path, asked)
    assert main(["review", "add", str(database), "--draw", "polite", "--limit", "4"]) == 0
    review_all(database)
    with Store(database) as store:
        decide(store, items(store)[0], "bob", "reject")
    given = {
        "calibrate": ["--metrics", metric(tmp_path, "please"), "--db", str(database)],
        "estimate": ["--labels", str(database)],
    }

    main([command, str(database), *given[command]])

    assert "disagree, the hard ones, have no label" in capsys.readouterr().err


@pytest.mark.slow
def test_a_larger_draw_takes_equal_turns_and_those_of_a_smaller_one_with_its_probability(
    tmp_path: Path,
) -> None:
    asked = [Asked("Hello", answer="No." if n < 4 else "Hi, please.") for n in range(24)]
    database = landed(tmp_path, asked)

    def draw(count: int) -> tuple[int, list[float]]:
        with Store(database) as store:
            added = add_items(store, draw_for_labels(store, "polite", count))
            drawn = "SELECT inclusion_probability FROM v_review_items ORDER BY 1"
            return added.new, [float(one) for one in store.column(drawn)]

    assert draw(4) == (4, [2 / 20] * 2 + [2 / 4] * 2)
    assert draw(14) == (10, [10 / 20] * 10 + [1.0] * 4)
    assert draw(14) == (0, [10 / 20] * 10 + [1.0] * 4)


@pytest.mark.parametrize("weight", [0.5, -1, "many", True, [2]])
def test_a_weight_is_a_number_of_turns(tmp_path: Path, weight: object) -> None:
    row = {"evalId": "c", "label": "pass", "weight": weight}
    (tmp_path / "labels.jsonl").write_text(json.dumps(row))
    metrics = metric(tmp_path, "please")
    landed(tmp_path, [Asked("Hello")])

    arguments = [str(tmp_path / "labels.jsonl"), "--metrics", metrics, "--db"]
    assert main(["calibrate", *arguments, str(tmp_path / "x.duckdb")]) == 2


@pytest.mark.slow
def test_labels_count_for_the_turns_of_their_application_whatever_its_name(
    tmp_path: Path, answers: Answers
) -> None:
    cases = [
        make_case(f"s-{n}", [make_turn("t", answer=f"{app} {n}")], sessionInput={"appName": app})
        for app in ("team/shop", "team/desk")
        for n in range(3)
    ]
    source, database = tmp_path / "s.jsonl", tmp_path / "x.duckdb"
    source.write_text("".join(json.dumps(case) + "\n" for case in cases))
    main(["record", "cases", str(source), "--log", str(tmp_path / "log.db")])
    shop = metric(tmp_path, "shop")
    main(["consume", "--log", str(tmp_path / "log.db"), "--db", str(database), "--until-idle",
          "--metrics", shop])  # fmt: skip
    assert main(["review", "add", str(database), "--draw", "polite"]) == 0
    with Store(database) as store:
        for one in items(store):
            decide(store, one, "ann", "approve" if one.app == "team/shop" else "reject")
    labels = tmp_path / "labels.jsonl"
    assert main(["review", "export", str(database), "--labels", "--out", str(labels)]) == 0

    for given in (database, labels):
        rules = [str(given), "--metrics", shop, "--db", str(database)]
        (found,) = answers("calibrate", *rules, code=3)["calibrations"]
        assert found["table"] == {"both_pass": 3, "false_pass": 0, "false_fail": 0, "both_fail": 3}
        (row,) = answers("estimate", str(database), "--labels", str(given))
        assert row["rate"] == pytest.approx(0.5)
