"""From telemetry files to one eval set: `read_cases`, `eval_set_of` and `evaltap record otlp`."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.recorder.sources.otlp_files import ReadingReport, eval_set_of, read_cases
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import read_eval_set
from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import DecodedCase, Manifest, decode_record
from support.corpora.span_facts import files_of


def users(eval_set: dict[str, Any]) -> dict[str, list[str]]:
    return {
        case["evalId"]: [turn["userContent"]["content"] for turn in case["actualConversation"]]
        for case in eval_set["evalCases"]
    }


def test_the_turns_of_a_session_become_one_case_in_order_of_time() -> None:
    cases = list(read_cases(files_of("pydantic-ai-v5/multi_turn")))
    random.Random(1).shuffle(cases)

    eval_set = eval_set_of(cases, "support")

    assert users(eval_set) == {"sess-pyd-4": ["Hi, I need help", "It is B-7", "Refund 10 of it"]}
    assert eval_set["evalSetId"] == "support"
    assert eval_set["evalCases"][0]["evalMode"] == "trace"


def test_sessions_stay_apart() -> None:
    eval_set = eval_set_of(read_cases(files_of("adk-v2span/concurrent_sessions")), "x")

    assert len(eval_set["evalCases"]) == 2
    assert all(len(case["actualConversation"]) == 1 for case in eval_set["evalCases"])


def test_a_session_id_of_two_applications_or_versions_is_a_case_of_each() -> None:
    (case,) = read_cases(files_of("pydantic-ai-v5/single_tool"))
    desk = {**case, "sessionInput": {"appName": "desk"}}
    newer = {**desk, "source": {**case["source"], "version": "2"}}

    name = case["evalId"]
    assert [*users(eval_set_of([desk, desk], "x"))] == [name]
    assert [*users(eval_set_of([desk, newer], "x"))] == [name, f"{name}@2"]
    assert [*users(eval_set_of([case, desk], "x"))] == [f"{name}@pyd-demo", f"{name}@desk"]


def test_a_later_revision_takes_the_place_of_the_turn() -> None:
    (case,) = read_cases(files_of("pydantic-ai-v5/single_tool"))
    turn = {**case["actualConversation"][0], "finalResponse": {"role": "assistant", "content": "!"}}
    later = {**case, "actualConversation": [turn], "source": {**case["source"], "revision": 2}}

    (merged,) = eval_set_of([later, case], "x")["evalCases"]

    assert merged["actualConversation"] == [turn]


def test_one_trace_spread_over_several_files_is_one_turn(tmp_path: Path) -> None:
    (path,) = files_of("pydantic-ai-v5/single_tool")
    request = json.loads(path.read_text())
    scope = request["resourceSpans"][0]["scopeSpans"][0]
    spans, parts = scope["spans"], []
    for number, span in enumerate(spans):
        scope["spans"] = [span]
        parts.append(tmp_path / f"{number}.json")
        parts[-1].write_text(json.dumps(request))

    assert list(read_cases(reversed(parts))) == list(read_cases([path]))


def test_the_report_counts_what_was_read() -> None:
    report = ReadingReport()

    list(read_cases(files_of("adk-v2span/multi_turn"), report=report))

    assert (report.files, report.traces, report.turns) == (2, 3, 3)
    assert report.spans > report.log_records > 0


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"spans": []}')

    with pytest.raises(FormatError, match=r"x\.json.*expected resourceSpans"):
        list(read_cases([path]))


def test_the_command_writes_an_eval_set_in_canonical_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "support.evalset.json"
    files = [str(path) for path in files_of("adk-v2span/handoff")]

    code = main(["record", "otlp", *files, "--out", str(out)])

    eval_set = read_eval_set(out)
    shown = capsys.readouterr()
    assert code == 0
    assert (eval_set.eval_set_id, len(eval_set.eval_cases)) == ("support", 1)
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "1 turn in 1 session" in shown.err
    assert main(["set", "fmt", "--check", str(out)]) == 0


def test_the_command_appends_each_turn_to_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log.db"
    files = [str(path) for path in files_of("adk-v2span/multi_turn")]

    assert main(["record", "otlp", *files, "--log", str(log)]) == 0

    opened = open_log(log, mode="read")
    records = [decode_record(record) for _, record in opened.read(0, 100)]
    opened.close()
    turns = [record for record in records if isinstance(record, DecodedCase)]
    (manifest,) = [record for record in records if isinstance(record, Manifest)]
    assert [turn.eval_id for turn in turns] == ["sess-adk-4"] * 3
    assert len({turn.event_id for turn in turns}) == 3
    assert (manifest.highest_seq, manifest.closing) == (3, True)


def test_the_command_explains_what_is_missing_and_needs_no_target_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [str(path) for path in files_of("openai-agents-openinference/no_content")]

    code = main(["record", "otlp", *files, "--explain"])

    assert code == 0
    explained = capsys.readouterr().err.splitlines()[0]
    assert "read as openinference" in explained
    assert "finalResponse missing" in explained
    assert "get_order.arguments missing" in explained


def test_the_command_prints_its_summary_as_json_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(path) for path in files_of("pydantic-ai-v5/multi_turn")]

    main(["record", "otlp", *files, "--out", str(tmp_path / "x.json"), "--json"])

    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert (summary["turns"], summary["sessions"], shown.err) == (3, 1, "")


def test_a_command_without_a_target_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = files_of("pydantic-ai-v5/single_tool")

    assert main(["record", "otlp", str(path)]) == 2
    assert "--out FILE or --log LOG" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{", '{"evalCases": []}', "[1]"])
def test_a_users_mistake_is_a_message_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)

    code = main(["record", "otlp", str(path), "--out", str(tmp_path / "y.json")])

    assert code == 2
    assert "x.json" in capsys.readouterr().err
    assert not (tmp_path / "y.json").exists()
