"""`evaltap store erase`: no byte of the subject remains, nobody else loses data, mentions are reported."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.page.changes import Change, write
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import Manifest, WireRecord, encode_feedback, encode_manifest
from support.builders.cases import TRAJECTORY, make_case, make_records, make_turn, write_log

CANARY = "Zanzibar4711"
USER = "alice-7"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALTAP_REDACTION_KEY", raising=False)


def case(session: str, user: str, words: str, turn_id: str = "t-1") -> dict[str, Any]:
    turn = make_turn(turn_id, answer=f"{words} " * 50)
    session_input = {"appName": "app", "userId": user}
    return make_case(session, [turn], conversation=[turn], sessionInput=session_input)


MINE = [case("a-1", USER, CANARY), case("a-1", USER, CANARY, "t-2"), case("a-2", USER, CANARY)]
OTHERS = [case(f"o-{n}", f"user-{n}", "other words") for n in range(300)]


def fill(*cases: dict[str, Any]) -> None:
    """Make a log, the store that consumed and scored it, an eval set and JSON Lines."""
    records = make_records(cases)
    broken = WireRecord(b"k", json.dumps({"user": USER, "w": CANARY}).encode(), records[0].headers)
    write_log(Path("log.db"), [*records, broken])
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle"])
    Path("s.evalset.json").write_text(json.dumps({"evalSetId": "s", "evalCases": list(cases)}))
    Path("c.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cases))


def erase(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    places = ["--log", "log.db", "--db", "x.duckdb", "s.evalset.json", "c.jsonl"]
    assert main(["store", "erase", "--json", *options, *places]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def holding(word: str) -> list[str]:
    return sorted(one.name for one in Path().iterdir() if word.encode() in one.read_bytes())


@pytest.mark.slow
def test_no_byte_of_the_subject_stays_and_the_others_keep_everything(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(*MINE[:2], *OTHERS, MINE[2])
    assert holding(CANARY) == ["c.jsonl", "log.db", "s.evalset.json", "x.duckdb"]

    told = erase(capsys, "--subject", USER)

    assert holding(CANARY) == holding(USER) == holding("a-2") == []
    assert told["sessions"] == 2
    removed = {one["place"]: one["removed"] for one in told["places"]}
    assert removed["log.db"] == {"records": 4}
    assert removed["s.evalset.json"] == removed["c.jsonl"] == {"cases": 3}
    assert removed["x.duckdb"]["turns"] == 3
    assert removed["x.duckdb"]["dead_letters"] == 1
    with duckdb.connect("x.duckdb") as connection:
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM latest_turns), (SELECT count(*) FROM v_worst_cases),"
            " (SELECT count(*) FROM scores), (SELECT list(seq ORDER BY seq) FROM erasures)"
        ).fetchone()
    assert counts == (300, 0, 300, [1, 2, 303])
    assert len(Path("c.jsonl").read_text().splitlines()) == 300


@pytest.mark.slow
def test_a_dead_letter_that_names_the_subject_in_a_header_of_any_bytes_goes() -> None:
    mine = WireRecord(b"k", b"{", (("who", b"\xff" + USER.encode()),))
    other = WireRecord(b"k", b"{", (("who", b"\xffbob"),))
    write_log(Path("log.db"), [mine, other])
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"])
    with duckdb.connect("x.duckdb") as connection:  # as a log that was made anew may have it
        connection.execute("UPDATE dead_letters SET record_offset = 1")

    assert main(["store", "erase", "--subject", USER, "--db", "x.duckdb"]) == 0

    with duckdb.connect("x.duckdb") as connection:
        left = connection.execute("SELECT record_headers::VARCHAR FROM dead_letters").fetchall()
    assert ["bob" in headers for (headers,) in left] == [True]


@pytest.mark.slow
def test_what_was_erased_can_be_written_and_consumed_on(capsys: pytest.CaptureFixture[str]) -> None:
    fill(*MINE, *OTHERS[:3])
    erase(capsys, "--subject", USER)

    write_log(Path("log.db"), make_records([case("new", "u", "hello")], first_seq=7))
    code = main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle", "--json"])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["turns_landed"] == 1


@pytest.mark.slow
def test_what_was_erased_is_not_lost_to_the_log_alone_or_to_a_new_store(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_log(Path("log.db"), make_records([*OTHERS[:2], MINE[0], *OTHERS[2:4]]))
    assert main(["store", "erase", "--subject", USER, "--log", "log.db"]) == 0
    main(["consume", "--log", "log.db", "--db", "new.duckdb", "--until-idle"])
    capsys.readouterr()

    for places in (["--log", "log.db"], ["--log", "log.db", "--db", "new.duckdb"]):
        main(["doctor", *places, "--json"])
        (producer,) = json.loads(capsys.readouterr().out)["producers"]
        assert (producer["recorded"], producer["lost"], producer["erased"]) == (5, 0, 1)
    with Store("new.duckdb") as store:
        assert store.rows("SELECT recorded, landed, missing FROM v_completeness") == [(5, 5, 0)]
        assert store.rows("SELECT seq FROM erasures") == [(3,)]


@pytest.mark.slow
def test_a_dry_run_tells_the_same_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    fill(*MINE, *OTHERS[:3])
    before = {path: path.read_bytes() for path in Path().iterdir() if path.suffix != ".duckdb"}

    dry = erase(capsys, "--subject", USER, "--dry-run")

    assert {path: path.read_bytes() for path in before} == before
    assert holding(CANARY) == ["c.jsonl", "log.db", "s.evalset.json", "x.duckdb"]
    real = erase(capsys, "--subject", USER)
    assert real["places"] == dry["places"]


@pytest.mark.slow
def test_a_session_id_takes_out_that_session_only(capsys: pytest.CaptureFixture[str]) -> None:
    fill(*MINE)

    told = erase(capsys, "--subject", "a-1")

    assert told["sessions"] == 1
    assert [one["removed"].get("cases") for one in told["places"]] == [None, 1, 2, 2]


@pytest.mark.parametrize("user", ["anonymous", USER, "bob"])
def test_a_session_of_several_users_goes_with_each_of_them(
    user: str, capsys: pytest.CaptureFixture[str]
) -> None:
    users = "anonymous", USER, USER, "bob"
    fill(*(case("a-1", one, CANARY, f"t-{place}") for place, one in enumerate(users)), OTHERS[0])
    Path("log.db").unlink()

    assert main(["store", "erase", "--subject", user, "--db", "x.duckdb"]) == 0

    with Store("x.duckdb") as store:
        assert store.rows("SELECT eval_id, revision, user_id FROM cases") == [("o-0", 1, "user-0")]
        assert store.column("SELECT eval_id FROM turns") == ["o-0"]


def test_a_session_of_somebody_else_in_another_application_stays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = case("a-1", "bob", "other words")
    theirs["sessionInput"]["appName"] = "another"
    curated = {**theirs, "evalId": "a-1#t-1", "sessionInput": {"appName": "another"}}
    fill(*MINE, theirs, curated)

    erase(capsys, "--subject", USER)

    with Store("x.duckdb") as store:
        for table in ("cases", "turns", "scores", "turn_scores"):
            kept = store.rows(f"SELECT DISTINCT app_name, eval_id FROM {table} ORDER BY ALL")
            assert kept == [("another", "a-1"), ("another", "a-1#t-1")], table
        assert store.rows("SELECT count(*) FROM erasures") == [(3,)]
    assert len(Path("c.jsonl").read_text().splitlines()) == 2
    assert len(json.loads(Path("s.evalset.json").read_text())["evalCases"]) == 2


@pytest.mark.slow
def test_what_was_made_of_a_session_goes_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    fill(MINE[0], OTHERS[0])
    curated = [case("a-1#t-1", "", "words"), case("o-0#t-1", "", "words")]
    Path("curated.jsonl").write_text("".join(json.dumps(one) + "\n" for one in curated))
    main(["score", "curated.jsonl", "--metrics", "m.json", "--db", "x.duckdb"])
    with Store("x.duckdb", create=False) as store:
        for added in (["a-1#t-1", "o-0#t-1"], ["o-0#t-1"]):
            change = Change("add_to_set", target=added[0][:1], detail={"cases": added})
            write(store, Person("ann", "admin"), [change])
        write(store, Person("ann", "admin"), [Change("export", detail={"cases": 2})])

    erase(capsys, "--subject", "a-1")

    assert holding("a-1") == ["curated.jsonl"]
    with duckdb.connect("x.duckdb") as connection:
        scored = connection.execute("SELECT DISTINCT eval_id FROM scores ORDER BY 1").fetchall()
        changed = connection.execute("SELECT action FROM changes ORDER BY 1").fetchall()
    assert scored == [("o-0",), ("o-0#t-1",)]
    assert changed == [("add_to_set",), ("export",)]


def test_the_account_of_a_producer_is_nobodys() -> None:
    manifest = Manifest("p", 4711, datetime(2026, 11, 7, tzinfo=UTC))
    write_log(Path("log.db"), [encode_manifest(manifest)])

    assert main(["store", "erase", "--subject", "4711", "--log", "log.db"]) == 0

    assert b"highestSeq" in Path("log.db").read_bytes()


def test_a_subject_is_known_by_its_pseudonym(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder("log.db", redaction_policy="userId=redact")
    hashed = Recorder("log.db", redaction_policy="userId=hash")
    for number, each in enumerate((recorder, hashed)):
        for user in ("alice@example.com", "bob@example.com"):
            with each.turn(user="hi", session_id=f"{user[0]}-{number}", user_id=user):
                pass
        assert each.close(10)

    main(["store", "erase", "--subject", "alice@example.com", "--log", "log.db", "--json"])

    assert json.loads(capsys.readouterr().out)["places"][0]["removed"] == {"records": 2}
    log = open_log(Path("log.db"), mode="read")
    keys = {record.key for _, record in log.read(0, 100)}
    log.close()
    assert {b"b-0", b"b-1"} <= keys
    assert not {b"a-0", b"a-1"} & keys


def test_without_the_key_of_the_log_it_says_that_pseudonyms_were_not_looked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        Recorder("log.db", redaction_policy="userId=redact") as recorder,
        recorder.turn(user="hi", session_id="s-1", user_id="alice@example.com"),
    ):
        pass
    command = ["store", "erase", "--subject", "alice@example.com", "--log", "log.db", "--dry-run"]
    main(command)
    with_key = capsys.readouterr().out
    Path("log.db.key").unlink()

    main(command)

    assert "log.db: 1 records would be removed" in with_key
    assert "pseudonyms" not in with_key
    assert "- pseudonyms: no key of log.db was found" in capsys.readouterr().out


@pytest.mark.slow
def test_scores_that_quote_the_subjects_feedback_go_and_the_cases_are_scored_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_log(Path("log.db"), make_records([case("o-1", "bob", "other words")]))
    metric = {"metricName": "user_feedback", "threshold": 1, "criterion": {"feedback": {}}}
    Path("m.json").write_text(json.dumps([metric, TRAJECTORY]))
    thought = Feedback(
        "f-1", "o-1", "o-1", datetime.now(UTC), app_name="app", invocation_id="t-1", positive=False,
        comment=f"I am {CANARY}", given_by=USER,
    )  # fmt: skip
    write_log(Path("log.db"), [encode_feedback(thought, producer_id="q")])
    consume = [
        "consume",
        "--log",
        "log.db",
        "--db",
        "x.duckdb",
        "--until-idle",
        "--metrics",
        "m.json",
    ]
    main(consume)
    main(["store", "archive", "x.duckdb", "--to", "arch"])
    read = "SELECT DISTINCT metric_name, status FROM turn_scores ORDER BY 1"
    with Store("x.duckdb") as store:
        before = store.rows(read)

    main(
        ["store", "erase", "--subject", USER, "--log", "log.db", "--db", "x.duckdb", "--db", "arch"]
    )
    files = [path for path in Path().rglob("*") if path.is_file()]
    left = [path.name for path in files if CANARY.encode() in path.read_bytes()]
    with Store("x.duckdb") as store:
        after = store.rows(read)
    main(consume)
    with Store("x.duckdb") as store:
        again = store.rows("SELECT metric_name, status FROM latest_turn_scores ORDER BY 1")

    assert before == [(TRAJECTORY["metricName"], "passed"), ("user_feedback", "failed")]
    assert left == []
    assert after == [(TRAJECTORY["metricName"], "passed")]
    assert again == [(TRAJECTORY["metricName"], "passed"), ("user_feedback", "not_evaluated")]


@pytest.mark.slow
def test_mentions_in_the_cases_of_others_are_told_not_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fill(*MINE, case("o", "bob", f"I talked to {USER}"))

    told = erase(capsys, "--subject", USER)

    assert [one["mentions"] for one in told["places"]] == [1, 1, 1, 1]
    assert "log.db: 1 cases of other people mention the subject" in told["out_of_reach"][0]


@pytest.mark.slow
def test_a_longer_id_is_no_mention(capsys: pytest.CaptureFixture[str]) -> None:
    others = [case(f"o-{user}", user, f"I am {user}") for user in ("user-170", "user-17x")]
    fill(case("m", "user-17", "I am user-17"), *others, case("b", "bob", "Ask (user-17)"))

    told = erase(capsys, "--subject", "user-17")

    assert [one["mentions"] for one in told["places"]] == [1, 1, 1, 1]


def test_results_and_adk_sets_are_erased_from_too(capsys: pytest.CaptureFixture[str]) -> None:
    results = {
        "evalSetResultId": "r",
        "evalCaseResults": [{"evalId": "x", "userId": USER}, {"evalId": "y"}],
    }
    adk = {"eval_set_id": "s", "eval_cases": [{"eval_id": "z", "session_input": {"user_id": USER}}]}
    Path("r.json").write_text(json.dumps(results))
    Path("a.json").write_text(json.dumps(adk))

    main(["store", "erase", "--subject", USER, "r.json", "a.json"])

    assert holding(USER) == []
    assert "1 cases removed" in capsys.readouterr().out
    assert json.loads(Path("r.json").read_text())["evalCaseResults"] == [{"evalId": "y"}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--subject", "alice"], "nothing to erase from"),
        (["--subject", "a", "--db", "x.duckdb"], "too short"),
        (
            ["--subject", "alice", "--log", "kafka://b/t"],
            "records cannot be removed from a Kafka topic",
        ),
        (["--subject", "alice", "--log", "none.db"], "no log at none.db"),
        (["--subject", "alice", "m.json"], "expected an eval set, a result file"),
    ],
)
def test_a_mistake_is_a_message(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_text("{}")

    assert main(["store", "erase", *arguments]) == 2

    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_log_that_is_being_read_is_not_called_erased(capsys: pytest.CaptureFixture[str]) -> None:
    write_log(Path("log.db"), make_records(MINE))
    reader = open_log(Path("log.db"), mode="read")
    reader.connection.execute("BEGIN")
    reader.read(0, 1)

    code = main(["store", "erase", "--subject", USER, "--log", "log.db"])

    reader.connection.execute("COMMIT")
    reader.close()
    assert code == 2
    assert "bytes may remain" in capsys.readouterr().err
    assert main(["store", "erase", "--subject", USER, "--log", "log.db"]) == 0
    assert holding(CANARY) == []
