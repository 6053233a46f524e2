"""`evaltap redact`: leaks are listed, and the written file leaks nothing and can still be scored."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import evaluate_case
from evaltap.recorder import Recorder
from evaltap.schemas.files.documents import iter_cases
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import (
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)

CARD = "4111 1111 1111 1111"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVALTAP_REDACTION_KEY", raising=False)


def leaky_case() -> dict[str, Any]:
    tool = make_tool(
        arguments={"to": "bob@example.com", "api_key": ["tulip"], "n": 5},
        result=json.dumps({"note": f"card {CARD}"}),
        error={"type": "E", "message": "password=hunter2 refused"},
    )
    return make_case(turns=[make_turn(answer="mail bob@example.com", tools=[tool])])


def check(capsys: pytest.CaptureFixture[str], *files: str) -> tuple[int, list[dict[str, str]]]:
    code = main(["redact", "--check", "--json", *files])
    return code, json.loads(capsys.readouterr().out)


def write_set(path: str, case: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps({"evalSetId": "s", "evalCases": [case]}))


def test_a_leak_is_told_by_place_and_kind_and_is_itself_masked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_set("s.evalset.json", leaky_case())

    code, found = check(capsys, "s.evalset.json")

    turn = "$.evalCases[0].actualConversation[0]"
    assert code == 1
    assert {(leak["place"], leak["kind"]) for leak in found} == {
        (f"{turn}.finalResponse.content", "email"),
        (f"{turn}.tools[0].arguments.to", "email"),
        (f"{turn}.tools[0].arguments.api_key", "secret"),
        (f"{turn}.tools[0].result", "card"),
        (f"{turn}.tools[0].error.message", "secret"),
    }
    said = json.dumps(found)
    assert not any(secret in said for secret in ("bob@", "tulip", "4111", "hunter2"))
    assert "mail <email>" in said


@pytest.mark.parametrize("form", ["jsonl", "log", "text"])
def test_lines_logs_and_plain_text_are_read_too(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if form == "jsonl":
        Path("f").write_text(f"{json.dumps(make_case())}\n\n{json.dumps(leaky_case())}\n")
    elif form == "log":
        write_log(Path("f"), make_records([make_case("clean"), leaky_case()]))
    else:
        Path("f").write_text("started\n\nERROR: user bob@example.com unknown\n")

    code, found = check(capsys, "f")

    place = {"jsonl": "line 3: $", "log": "record 2: $", "text": "line 3: $"}[form]
    assert code == 1
    assert all(leak["place"].startswith(place) for leak in found)


def test_a_sensitive_key_is_masked_in_the_place_as_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("f.json").write_text(json.dumps({"bob@example.com": {"x": "eve@example.com"}}))

    code, found = check(capsys, "f.json")

    assert code == 1
    assert [leak["place"].split("<")[0] for leak in found] == ["$ (key)", '$["']
    assert "@" not in json.dumps(found)


def test_a_redacted_file_has_no_leak_and_keeps_its_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_set("s.evalset.json", leaky_case())
    Path("c.jsonl").write_text(f"{json.dumps(leaky_case())}\n")
    Path("t.log").write_text("user bob@example.com\nno one\n")

    for name in ("s.evalset.json", "c.jsonl", "t.log"):
        assert main(["redact", name, "--out", f"clean-{name}"]) == 0

    capsys.readouterr()
    code, found = check(capsys, "clean-s.evalset.json", "clean-c.jsonl", "clean-t.log")
    assert (code, found) == (0, [])
    assert len(list(iter_cases(Path("clean-s.evalset.json")))) == 1
    assert len(list(iter_cases(Path("clean-c.jsonl")))) == 1
    assert Path("clean-t.log").read_text().splitlines()[1] == "no one"


def test_trajectories_are_scored_on_hashed_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder("agent.log.db", redaction_policy="metadata")
    for session, order in (("right", "A-1"), ("wrong", "A-2")):
        with recorder.turn(user="Where is it?", session_id=session) as turn:
            turn.tool("get_order", {"order_id": order}, result="here")
            turn.respond("There.")
    assert recorder.close(10)
    expected = make_turn(tools=[make_tool(arguments={"order_id": "A-1"})])
    write_set("r.evalset.json", make_case("r", [expected], conversation=[expected]))

    arguments = ["--policy", "metadata", "--log", "agent.log.db", "--out", "h.evalset.json"]
    assert main(["redact", "r.evalset.json", *arguments]) == 0

    (reference,) = iter_cases(Path("h.evalset.json"))
    scores = {}
    for case in recorded(Path("agent.log.db")):
        case["conversation"] = reference["conversation"]
        result = evaluate_case(case, [EvalMetric.model_validate(TRAJECTORY)])
        scores[case["evalId"]] = result.overall_eval_metric_results[0].score
    assert scores == {"right": 1.0, "wrong": 0.0}


def recorded(log: Path) -> list[dict[str, Any]]:
    from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
    from evaltap.schemas.wire.record import DecodedCase, decode_record

    source = LocalLogSource(log)
    decoded = [decode_record(item.record) for item in source.poll(100, 0).records]
    source.close()
    return [item.case for item in decoded if isinstance(item, DecodedCase)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--check", "none.json"], "none.json: cannot be read"),
        (["s.json", "--out", "o", "--log", "no.db"], "cannot read the key of the log no.db"),
        (["s.json", "s.json", "--out", "o"], "takes one FILE"),
        (["s.json", "--out", "o", "--policy", "x=y"], "'x=y' is invalid"),
        (["log.db", "--out", "o"], "evaltap store erase"),
    ],
)
def test_a_mistake_is_a_message(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("s.json").write_text("{}")
    write_log(Path("log.db"), make_records([make_case()]))

    assert main(["redact", *arguments]) == 2

    assert said in capsys.readouterr().err


@pytest.mark.parametrize("way", [["--check"], ["--out", "clean.json"]])
def test_a_topic_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], way: list[str]
) -> None:
    code = main(["redact", "kafka://127.0.0.1:9/cases", *way])

    assert code == 2
    assert "kafka://127.0.0.1:9/cases: topics cannot be checked" in capsys.readouterr().err


def test_the_check_says_what_it_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Path("names.txt").write_text("Jane Smith, 4 Rue de Rivoli, Paris")

    code = main(["redact", "--check", "names.txt"])

    assert code == 0
    said = "0 found (keys, email, phone, card, IBAN, SSN). Names and postal addresses are not detected.\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("name", "part"), [("s.evalset.json", "the file"), ("f.db", "record 2")])
def test_the_check_says_what_it_searched_only_as_text(
    name: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.endswith(".json"):
        Path(name).write_text('{"evalSetId": "s", "evalCases": [')
    else:
        first, second = make_records([make_case("a"), make_case("b")])[:2]
        write_log(Path(name), [first, second._replace(value=b"{broken")])

    code = main(["redact", "--check", name])

    assert code == 0
    said = f"{name}: {part} is not valid JSON and was only searched as text\n"
    assert capsys.readouterr().err.startswith(said)


def test_the_check_names_a_few_records_that_are_not_json_and_counts_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    records = make_records([make_case(f"c{number}") for number in range(9)])
    write_log(Path("f.db"), [record._replace(value=b"{broken") for record in records])

    main(["redact", "--check", "f.db"])

    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "searched as text" in line] == [
        f"f.db: record {number} is not valid JSON and was only searched as text"
        for number in (1, 2, 3)
    ]
    assert f"f.db: {len(records) - 3} more are not valid JSON either" in said


def test_what_is_written_can_be_read_by_its_owner_only() -> None:
    write_set("s.evalset.json", leaky_case())

    main(["redact", "s.evalset.json", "--out", "clean.evalset.json"])

    assert Path("clean.evalset.json").stat().st_mode & 0o777 == 0o600
