"""Review: a queue, decisions as rows, undo, two reviewers and their agreement."""

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.label_files import read_labels
from evaltap.evaluator.analysis.estimates.labels import reviewed_labels
from evaltap.evaluator.curation.review.queue import (
    LEASE,
    Item,
    Wanted,
    add_items,
    decide,
    decisions,
    draw_for_labels,
    item,
    items,
    next_item,
)
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import FormatError
from support.builders.cases import NOON, write_log
from support.builders.commands import runner
from support.worlds.shop import Asked, landed, records

ASKED = [
    Asked("Where is my order?", answer="In Bern, please wait."),
    Asked("I want a refund", ("refund",), "No.", thumb=False, correction="Yes, please wait."),
    Asked("Tell me a joke", (), "Knock knock, please."),
]

Review = Callable[..., Any]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return landed(tmp_path, ASKED)


@pytest.fixture
def review(database: Path, capsys: pytest.CaptureFixture[str]) -> Review:
    """Run the command with --json, and return what it prints as data."""

    def run(action: str, *arguments: str, who: str = "ann", code: int = 0) -> Any:
        capsys.readouterr()
        reviewer = [] if action in ("add", "list", "export") else ["--as", who]
        assert main(["review", action, str(database), *arguments, *reviewer, "--json"]) == code
        said = capsys.readouterr().out
        return json.loads(said) if said.startswith(("{", "[")) else said

    return run


@pytest.mark.slow
def test_a_filter_may_stand_behind_the_file(review: Review) -> None:
    review("add", "feedback:down")

    assert list(states(review)) == ["s-1"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("list", "feedback:down"), "unknown argument feedback:down"),
        (("approve", "1", "2"), "unknown argument 2"),
        (("list", "--filter", "tool:refund"), "--filter; only for `evaltap review add`"),
        (("next", "--answer", "Yes."), "--answer; only for `evaltap review edit`"),
        (("add", "--comment", "why"), "--comment; only for `evaltap review approve|edit|reject|skip`"),
        (("list", "--from", "x.jsonl"), "--from; only for `evaltap review import`"),
    ],
)  # fmt: skip
def test_what_an_action_does_not_look_at_is_refused(
    database: Path, arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    action, *more = arguments

    code, _, err = runner(capsys)("review", action, str(database), *more)

    assert code == 2
    assert says in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "code", "without", "queued"),
    [
        ([Asked("", answer=""), *ASKED], 0, 1, 3),
        ([Asked("", answer="")], 3, 1, 0),
        ([Asked("", (), "", error="ValueError"), Asked("Where?", answer="")], 0, 1, 1),
    ],
)  # fmt: skip
def test_turns_without_question_and_answer_are_not_queued_and_this_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    asked: list[Asked],
    code: int,
    without: int,
    queued: int,
) -> None:
    database = landed(tmp_path, asked)

    found, _, said = runner(capsys)("review", "add", str(database))
    _, data, _ = runner(capsys)("review", "add", str(database), "--json")

    assert found == code
    assert f"{without} left out because neither question nor answer was recorded" in said
    assert json.loads(data) == {"queued": 0, "already_queued": queued, "without_content": without}


def states(review: Review) -> dict[str, str]:
    return {one["eval_id"]: one["state"] for one in review("list")["items"]}


def ids(review: Review) -> dict[str, str]:
    return {one["eval_id"]: one["item_id"] for one in review("list")["items"]}


@pytest.mark.slow
def test_nothing_is_queued_twice(review: Review) -> None:
    review("add")
    review("add")
    review("add", "--filter", "feedback:down")

    assert states(review) == {"s-0": "open", "s-1": "open", "s-2": "open"}


@pytest.mark.slow
def test_decisions_are_rows_and_undo_is_another(review: Review, database: Path) -> None:
    review("add")
    item = ids(review)["s-0"]

    assert review("approve", item)["state"] == "approved"
    assert review("reject", item)["state"] == "rejected"
    assert review("undo")["state"] == "approved"
    assert review("undo")["state"] == "open"
    assert "has no decision to undo" not in str(review("undo", code=2))

    with Store(database) as store:
        rows = store.rows("SELECT action, reviewer FROM reviews ORDER BY reviewed_at")
    assert rows == [(one, "ann") for one in ("approve", "reject", "undo", "undo")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("later", "state"),
    [
        (replace(ASKED[0], answer="I do not know."), "outdated"),
        (replace(ASKED[0], tools=("refund",)), "outdated"),
        (replace(ASKED[0], telemetry={"costUsd": 5.0}), "approved"),
    ],
    ids=["another answer", "another call", "only its cost"],
)
def test_a_decision_holds_for_the_turn_as_it_was_and_not_for_what_it_became(
    review: Review, database: Path, later: Asked, state: str
) -> None:
    review("add")
    name = ids(review)["s-0"]
    review("approve", name)
    revised = replace(later, source={"revision": 2})
    write_log(database.with_name("later.db"), records([revised], producer_id="q"))
    main(["consume", "--log", str(database.with_name("later.db")), "--db", str(database),
          "--until-idle", "--json"])  # fmt: skip

    with Store(database) as store:
        ((found, verdict, waiting),) = store.rows(
            "SELECT state, verdict, waiting FROM v_review_items WHERE eval_id = 's-0'"
        )
        approved = decisions(store).approved
        labels = reviewed_labels(store)

    again = review("approve", name, who="bob", code=2 if state == "outdated" else 0)

    assert (found, waiting) == (state, False)
    assert ("state" in again) == (state == "approved"), "what has no effect is refused"
    assert verdict == ("good" if state == "approved" else None)
    assert bool(approved) == bool(labels) == (state == "approved")


def test_a_decision_is_later_than_all_others_though_the_clock_was_set_back(database: Path) -> None:
    noon = NOON.replace(tzinfo=None)
    with Store(database) as store:
        one, *_ = _queued(store)
        decide(store, one, "ann", "approve", now=noon)
        decide(store, one, "ann", "reject", now=noon - timedelta(minutes=5))

        assert item(store, one.item_id).state == "rejected"


def _queued(store: Store) -> list[Item]:
    add_items(store, [Wanted("shop", "live", f"s-{n}", f"t-{n}", "all") for n in range(len(ASKED))])
    return items(store)


@pytest.mark.slow
def test_two_reviewers_agree_disagree_and_a_third_settles(review: Review) -> None:
    review("add", "--needed", "2")
    found = ids(review)
    for name in found.values():
        assert review("approve", name)["state"] == "approved"
    review("approve", found["s-0"], who="bob")
    review("reject", found["s-1"], who="bob")

    assert states(review) == {"s-0": "agreed", "s-1": "disagreed", "s-2": "approved"}
    assert review("reject", found["s-1"], who="eve")["state"] == "settled"
    data = {one["eval_id"]: one for one in review("list")["items"]}
    assert (data["s-1"]["verdict"], data["s-0"]["verdict"]) == ("bad", "good")


@pytest.mark.slow
def test_a_third_settles_what_one_was_asked_and_two_decided(review: Review) -> None:
    review("add")
    name = ids(review)["s-0"]
    said = [review(verb, name, who=verb)["state"] for verb in ("approve", "reject")]
    settled = review("reject", name, who="eve")

    assert said == ["approved", "disagreed"]
    assert (settled["state"], settled["verdict"]) == ("settled", "bad")
    assert review("next", who="cid")["item_id"] != name


@pytest.mark.slow
def test_to_approve_what_another_edits_is_to_disagree(review: Review, database: Path) -> None:
    review("add", "--needed", "2")
    found = ids(review)
    for name in (found["s-0"], found["s-1"]):
        review("edit", name, "--answer", "Sorry, please.")
    review("approve", found["s-0"], who="bob")
    agreed = review("edit", found["s-1"], "--tools", "[]", who="bob")

    assert states(review) == {"s-0": "disagreed", "s-1": "agreed", "s-2": "open"}
    assert review("list")["agreement"]["share"] == 0.5
    assert agreed["after"]["finalResponse"]["content"] == "No.", "what ann edited is not bob's"
    with Store(database) as store:
        assert {one.key.eval_id: one.passes for one in reviewed_labels(store)} == {"s-1": False}
    review("edit", found["s-0"], "--tools", "[]")
    with Store(database) as store:
        (after,) = store.column(
            "SELECT after FROM v_review_decisions WHERE action = 'edit' AND eval_id = 's-0'"
        )
    assert json.loads(after)["finalResponse"]["content"] == "Sorry, please.", "ann's own edit stays"
    settled = review("approve", found["s-0"], who="eve")
    assert (settled["state"], settled["verdict"], settled["after"]) == ("settled", "good", None)


def test_an_item_is_held_for_who_took_it_until_the_lease_ends(
    review: Review, database: Path
) -> None:
    review("add")
    with Store(database) as store:
        now = NOON.replace(tzinfo=None)
        first = next_item(store, "ann", now=now)
        other = next_item(store, "bob", now=now)
        later = next_item(store, "bob", now=now + LEASE + timedelta(seconds=1))
    assert first is not None
    assert other is not None
    assert later is not None
    assert first.item_id != other.item_id
    assert later.item_id == first.item_id


@pytest.mark.slow
def test_a_reviewer_sees_nothing_of_what_others_said(review: Review) -> None:
    review("add", "--needed", "2")
    review("reject", ids(review)["s-0"])

    shown = review("next", who="bob")

    assert (shown["verdict"], shown["reviewers"], shown["after"]) == (None, [], None)


@pytest.mark.slow
def test_what_was_decided_is_not_handed_out_again(review: Review) -> None:
    review("add")
    for _ in range(3):
        review("approve", review("next")["item_id"])

    review("next", code=3)
    review("next", who="bob", code=3)


@pytest.mark.slow
def test_an_edit_becomes_the_expected_turn_and_a_rejected_one_no_case(
    review: Review, database: Path, tmp_path: Path
) -> None:
    review("add")
    found = ids(review)
    review("approve", found["s-0"])
    tools = json.dumps([{"name": "refund", "arguments": {"amount": 5}}])
    review("edit", found["s-1"], "--answer", "Yes, at once.", "--tools", tools)
    review("reject", found["s-2"])
    out = tmp_path / "g.evalset.json"

    assert main(["curate", str(database), "--as", "expected", "--out", str(out)]) == 0

    cases = {case["evalId"]: case for case in json.loads(out.read_text())["evalCases"]}
    assert sorted(cases) == ["s-0", "s-1"]
    turn = cases["s-1"]["conversation"][0]
    assert turn["finalResponse"]["content"] == "Yes, at once."
    assert [tool["name"] for tool in turn["tools"]] == ["refund"]
    stamp = cases["s-1"]["source"]["curation"]["review"]
    assert (stamp["state"], stamp["by"]) == ("edited", ["ann"])


@pytest.mark.slow
def test_the_provenance_of_a_case_is_the_decision_on_its_own_turns(tmp_path: Path) -> None:
    asked = [Asked("Where is A-1?", session="s"), Asked("A joke", (), "No.", session="s")]
    database, out = str(landed(tmp_path, asked)), tmp_path / "g.evalset.json"
    assert main(["review", "add", database]) == 0
    with Store(database) as store:
        names = {one.invocation_id: one.item_id for one in items(store)}
    for action, turn in (("approve", "t-0"), ("reject", "t-1")):
        assert main(["review", action, database, names[turn], "--as", "ann"]) == 0

    assert main(["curate", database, "--as", "expected", "--out", str(out)]) == 0

    (case,) = json.loads(out.read_text())["evalCases"]
    assert case["source"]["curation"]["review"]["state"] == "approved"


@pytest.mark.slow
def test_nothing_is_expected_of_a_turn_that_was_rejected_though_a_metric_passed_it(
    tmp_path: Path,
) -> None:
    asked = [Asked("Where is A-1?", session="s"), Asked("Send it to Bern", session="s")]
    database, out = str(landed(tmp_path, asked)), tmp_path / "g.evalset.json"
    assert main(["review", "add", database]) == 0
    with Store(database) as store:
        names = {one.invocation_id: one.item_id for one in items(store)}
    for action, turn in (("reject", "t-0"), ("approve", "t-1")):
        assert main(["review", action, database, names[turn], "--as", "ann"]) == 0

    expected = ["--like", "approved", "--metric", "polite", "--out", str(out)]
    assert main(["curate", database, *expected]) == 0

    (case,) = json.loads(out.read_text())["evalCases"]
    assert ["finalResponse" in turn for turn in case["conversation"]] == [False, True]


@pytest.mark.slow
def test_reviews_are_labels_for_judges(review: Review, database: Path, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nothing has been reviewed"):
        read_labels(database)
    review("add")
    found = ids(review)
    review("approve", found["s-0"])
    review("reject", found["s-1"])
    review("edit", found["s-2"], "--answer", "It is better so.")
    labels = tmp_path / "labels.jsonl"

    review("export", "--labels", "--out", str(labels))

    assert {(one.key.eval_id, one.passes) for one in read_labels(labels).labels} == {
        ("s-0", True), ("s-1", False), ("s-2", False),
    }  # fmt: skip
    assert {one[:2] for one in read_labels(database).labels} == {
        one[:2] for one in read_labels(labels).labels
    }


@pytest.mark.slow
def test_decisions_made_elsewhere_are_imported_as_one(
    review: Review, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    review("add")
    found = ids(review)
    rows = [{"item_id": found["s-0"], "action": "approve", "reviewer": "eve"},
            {"item_id": found["s-1"], "action": "edit", "answer": "Yes."},
            {"item_id": found["s-2"], "action": "aprove"}]  # fmt: skip
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    review("import", "--from", str(path), code=2)
    assert set(states(review).values()) == {"open"}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    review("import", "--from", str(path))

    assert states(review) == {"s-0": "approved", "s-1": "edited", "s-2": "open"}


@pytest.mark.slow
def test_erasing_a_person_takes_their_reviews_too(review: Review, database: Path) -> None:
    review("add")
    review("approve", ids(review)["s-0"])

    assert main(["store", "erase", "--subject", "u-0", "--db", str(database)]) == 0

    with Store(database) as store:
        left = {one.eval_id for one in items(store)}
        rows = store.rows("SELECT count(*) FROM reviews WHERE eval_id = 's-0'")
    assert "s-0" not in left
    assert rows == [(0,)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["aprove", "DB"], "did you mean 'approve'?"),
        (["approve", "DB"], "missing ITEM"),
        (["approve", "DB", "none"], "no item 'none'"),
        (["edit", "DB", "none"], "--answer TEXT"),
        (["undo", "DB"], "has no decision to undo"),
        (["add", "DB", "--needed", "4"], "1, 2 or 3"),
        (["import", "DB"], "missing --from"),
    ],
)
def test_what_cannot_be_done_is_said(
    database: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    given = [str(database) if one == "DB" else one for one in arguments]

    code, _, err = runner(capsys)("review", *given)

    assert code == 2
    assert said in err


@pytest.mark.slow
def test_a_draw_for_labels_takes_half_of_what_the_judge_fails(tmp_path: Path) -> None:
    asked = [Asked(f"Question {n} {'abcdefgh'[n % 8]}", answer="No." if n < 6 else "Yes, please.")
             for n in range(60)]  # fmt: skip
    database = landed(tmp_path, asked)

    with Store(database) as store:
        few = draw_for_labels(store, "polite", 8)
        many = draw_for_labels(store, "polite", 40)

    failed = {f"s-{n}" for n in range(6)}
    assert len(few) == 8
    assert len({one.eval_id for one in few} & failed) == 4
    assert len({one.eval_id for one in many} & failed) == 6
    assert {one.eval_id for one in few} <= {one.eval_id for one in many}
    assert {one.inclusion_probability for one in many} == {1.0, 34 / 54}
    assert [one.needed for one in few].count(2) == 2
    assert main(["review", "add", str(database), "--draw", "polte"]) == 2


# -- the terminal ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_keys_from_a_pipe_decide(
    database: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("z?a\nx u x c e\nBetter, please.\nq"))

    assert main(["review", str(database), "--as", "ann"]) == 0

    said = capsys.readouterr().out
    assert "3 left for ann" in said
    assert "no key 'z'" in said
    assert "user says  Yes, please wait." in said
    assert "polite" not in said  # what the judge says
    with Store(database) as store:
        found = store.rows("SELECT action FROM v_review_decisions ORDER BY reviewed_at")
    assert len(found) == 3


CRASHED = [
    Asked("I want a refund", ("refund",), "", error="ValueError", session="s"),
    Asked("Thanks!", (), "You are welcome, please.", session="s"),
]


@pytest.mark.slow
def test_the_turn_under_review_and_a_crash_are_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database = landed(tmp_path, CRASHED)
    monkeypatch.setattr(sys, "stdin", io.StringIO("ssq"))

    main(["review", str(database), "--as", "ann"])

    said = capsys.readouterr().out
    assert "> user       I want a refund" in said
    assert "> crashed    the run failed (ValueError" in said
    assert "    crashed    the run failed (ValueError" in said  # before the second turn
    assert "  to review:\n> user       Thanks!" in said


@pytest.mark.slow
def test_an_approved_turn_that_crashed_is_left_out_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    database, out = landed(tmp_path, CRASHED[:1]), tmp_path / "s.evalset.json"
    monkeypatch.setattr(sys, "stdin", io.StringIO("a"))
    main(["review", str(database), "--as", "ann"])
    capsys.readouterr()

    assert main(["curate", str(database), "--out", str(out), "--as", "expected"]) == 3

    assert "the run failed (ValueError" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
def test_among_equal_turns_one_of_a_session_without_a_crash_is_queued(tmp_path: Path) -> None:
    again = [Asked("Thanks!", (), "You are welcome, please.", session="t", hours=1)]
    database = landed(tmp_path, [*CRASHED, *again])

    main(["review", "add", str(database)])

    with Store(database) as store:
        thanks = [one for one in items(store) if "Thanks" in str(one.turn["userContent"])]
    assert [one.eval_id for one in thanks] == ["t"]


@contextmanager
def reviewing(database: Path) -> Iterator[tuple[int, "subprocess.Popen[bytes]"]]:
    """Run the command on a terminal; yield what writes its keys, and the process."""
    program = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", program, "review", str(database), "--as", "ann"]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, env={**os.environ, "TERM": "dumb"}
    ) as process:
        try:
            yield ours, process
        finally:
            process.kill()
    os.close(ours)
    os.close(theirs)


@pytest.mark.slow
def test_keys_on_a_terminal_need_no_return(database: Path) -> None:
    with reviewing(database) as (keys, process):
        os.write(keys, b"aaa")
        said, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert b"nothing left to review" in said
    assert b"3 decisions as ann" in said


@pytest.mark.slow
def test_what_is_undone_first_was_decided_in_an_earlier_session(database: Path) -> None:
    for typed, told in ((b"aq", b"1 decision as ann"), (b"uq", b"0 decisions as ann")):
        with reviewing(database) as (keys, process):
            os.write(keys, typed)
            said, _ = process.communicate(timeout=60)
        assert told in said


@pytest.mark.slow
def test_while_one_person_reads_another_reviews_and_turns_change(
    database: Path, review: Review
) -> None:
    review("add")
    with reviewing(database) as (keys, process):
        assert process.stdout is not None
        shown = b""
        while not shown.endswith(b"> "):
            shown += os.read(process.stdout.fileno(), 65536)
        with Store(database) as store:
            (claimed,) = store.column("SELECT item_id FROM reviews WHERE action = 'claim'")
        assert review("next", who="bob")["item_id"] != claimed
        later = [
            replace(one, source={"revision": 2}, answer="Changed.", session=f"s-{number}")
            for number, one in enumerate(ASKED)
        ]
        write_log(database.with_name("later.db"), records(later, producer_id="q"))
        main(["consume", "--log", str(database.with_name("later.db")), "--db", str(database),
              "--until-idle"])  # fmt: skip
        os.write(keys, b"aq")
        said, _ = process.communicate(timeout=60)

    assert f"item {claimed}: the turn has another answer" in said.decode()
    assert {one["state"] for one in review("list")["items"]} == {"outdated"}


@pytest.mark.slow
def test_reviewers_are_compared_by_the_list(review: Review) -> None:
    review("add", "--needed", "2")
    for place, name in enumerate(ids(review).values()):
        review("approve", name)
        review("reject" if place == 0 else "approve", name, who="bob")

    figures = review("list")["agreement"]

    assert figures["reviewers"] == ["ann", "bob"]
    assert figures["items"] == 3
    assert figures["share"] == pytest.approx(2 / 3)
    assert figures["kappa"] == 0

    settled = next(one["item_id"] for one in review("list")["items"] if one["state"] == "disagreed")
    review("approve", settled, who="cy")
    assert review("list")["agreement"] == figures
    review("add", "--queue", "other")
    assert review("list", "--queue", "other")["agreement"]["items"] == 0
