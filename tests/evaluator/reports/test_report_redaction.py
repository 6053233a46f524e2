"""Reports on files that were not redacted."""

import json
from contextlib import chdir
from pathlib import Path

import pytest

from evaltap.cli.main import main
from support.builders.cases import RESPONSE, make_case, make_turn
from support.worlds.once import made_once

MAIL = "bob@example.com"


@made_once
def scored_store(folder: Path) -> Path:
    turn = make_turn(
        userContent={"role": "user", "content": f"Mail me: {MAIL}"},
        tools=[{"name": "send", "arguments": {"to": MAIL}, "result": f"sent to {MAIL}"}],
        answer=f"I wrote to {MAIL}",
    )
    case = make_case("s-1", [turn], conversation=[make_turn(answer="No")])
    (folder / "c.jsonl").write_text(json.dumps(case))
    (folder / "m.json").write_text(json.dumps([RESPONSE]))
    with chdir(folder):
        main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb"])
    return folder / "x.duckdb"


@pytest.fixture
def scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store with the score of a case that holds a mail address everywhere."""
    monkeypatch.chdir(tmp_path)
    return scored_store(tmp_path).parent


@pytest.mark.parametrize("name", ["r.html", "r.json", "r.xml", "r.md"])
def test_no_personal_data_reaches_a_report(
    scored: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    command = ["report", "x.duckdb", "--cases", "c.jsonl", "--out", name]

    main([*command, "--no-redact"])
    assert MAIL in (scored / name).read_text()
    main(command)

    text = (scored / name).read_text()
    assert MAIL not in text
    assert "email:" in text
    assert "s-1" in text
    assert "redacted texts" in capsys.readouterr().err


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_nor_what_is_printed(
    scored: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    capsys.readouterr()
    main(["report", "x.duckdb", "--cases", "c.jsonl", *form])
    assert MAIL in capsys.readouterr().out

    code = main(["report", "x.duckdb", "--cases", "c.jsonl", "--redact", *form])

    printed = capsys.readouterr().out
    assert code == 1
    assert MAIL not in printed
    assert "s-1" in printed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["r.html", "r.json", "r.xml", "r.md"])
def test_score_writes_and_prints_without_personal_data_too(
    scored: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    capsys.readouterr()

    main(["score", "c.jsonl", "--metrics", "m.json", "--report", name])

    assert MAIL not in (scored / name).read_text()
    assert MAIL not in capsys.readouterr().out
    main(["score", "c.jsonl", "--metrics", "m.json", "--no-redact", "--report", name])
    assert MAIL in (scored / name).read_text()


def test_what_is_recorded_to_a_file_is_redacted_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces, out = tmp_path / "t.otlp.json", tmp_path / "x.evalset.json"
    given = Path(__file__).parents[2] / "data/spans/adk-v2span/parallel_tools.otlp.json"
    traces.write_text(given.read_text().replace("You are a support agent", f"You write to {MAIL}"))

    main(["record", "otlp", str(traces), "--out", str(out)])

    assert MAIL not in out.read_text()
    assert "redacted 1 case (--no-redaction keeps texts as they are)" in capsys.readouterr().err
    main(["record", "otlp", str(traces), "--no-redaction", "--out", str(out)])
    assert MAIL in out.read_text()
