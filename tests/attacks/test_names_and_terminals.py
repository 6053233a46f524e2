"""Hostile names in cases: they leave no folder, control no terminal, and protect nobody from erasure."""

import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.cli.main import main
from evaltap.evaluator.pipeline.maintenance.mentions import mentions
from evaltap.evaluator.scoring.results.result_file import LONGEST_NAME, one_segment
from evaltap.recorder import Recorder
from support.builders.cases import make_case, make_turn

HOSTILE = "\x1b[31mred\x1b]0;pwned\x07\u202egnp.exe\x9b2J\x7f\U000e0041"
HIDDEN = set("\x1b\x07\u202e\x9b\x7f\U000e0041")


METRIC = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {}}},
}
GATE = {"dimensions": [{"name": "answer", "threshold": 1, "metrics": [METRIC]}]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "m.json").write_text(json.dumps([METRIC]))
    (work / "g.json").write_text(json.dumps(GATE))
    return work


def write(case: dict[str, Any], path: str = "c.jsonl") -> None:
    Path(path).write_text(json.dumps(case) + "\n")


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../outside", "/tmp/outside", "a\0b", "..", ".", "a/../../b", "..\\b",
     "x" * 400, "\ud800", "n\n"]
)  # fmt: skip
def test_results_stay_in_their_folder(here: Path, name: str) -> None:
    case = make_case(sessionInput={"appName": name, "userId": "u"}, evalSetId=name)
    case["conversation"] = [make_turn("e-1", "else")]
    write(case)
    before = {*here.parent.rglob("*")}

    code = main(["score", "c.jsonl", "--metrics", "m.json", "--result", "out"])

    new = {*here.parent.rglob("*")} - before
    assert code in (0, 1, 2)
    assert all(path.is_relative_to(here / "out") for path in new), new
    if code != 2:
        assert len([path for path in new if path.is_file()]) == 1


@given(st.text(min_size=1, max_size=300))
@settings(max_examples=50)
def test_a_name_is_one_segment_of_a_path(name: str) -> None:
    segment = one_segment(name)

    assert "/" not in segment
    assert segment not in (".", "..")
    assert "\0" not in segment
    assert 0 < len(segment.encode()) <= LONGEST_NAME


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_two_names_are_two_segments(one: str, other: str) -> None:
    assert (one_segment(one) == one_segment(other)) == (one == other)


# -- terminals -------------------------------------------------------------------------------------

COMMANDS: dict[str, list[str]] = {
    "show": ["show", "x.duckdb", HOSTILE],
    "show an unknown case": ["show", "x.duckdb", "nosuch"],
    "why": ["why", "x.duckdb", HOSTILE],
    "gate": ["gate", "c.jsonl", "--gate", "g.json"],
    "gate as JSON": ["gate", "c.jsonl", "--gate", "g.json", "--json"],
    "runs": ["runs", "x.duckdb"],
    "runs as JSON": ["runs", "x.duckdb", "--json"],
    "score": ["score", "c.jsonl", "--metrics", "m.json"],
    "report": ["report", "x.duckdb"],
    "report as JSON": ["report", "x.duckdb", "--format", "json"],
    "report as Markdown": ["report", "x.duckdb", "--format", "markdown"],
    "a file that is not there": ["score", f"no{HOSTILE}.jsonl", "--metrics", "m.json"],
    "convert": ["convert", "bad.csv", "--out", "e.json"],
    "an unknown option": ["score", f"--{HOSTILE}"],
}


def scored(folder: Path, case: dict[str, Any], metric: dict[str, Any]) -> Path:
    """Return a folder with a case, its scores and a baseline, which commands only read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write({**case, "conversation": [make_turn("e-1", f"else {HOSTILE}")]})
        Path("m.json").write_text(json.dumps([metric]))
        Path("g.json").write_text(json.dumps(GATE))
        main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb"])
        main(["gate", "c.jsonl", "--gate", "g.json", "--write-baseline", "b.json"])
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    case = make_case(HOSTILE, turns=[make_turn(answer=HOSTILE)], evalSetId=HOSTILE)
    named = METRIC | {"metricName": HOSTILE, "evaluatorName": "final_response_avg_score"}
    folder = scored(tmp_path_factory.mktemp("hostile"), case, named)
    (folder / "bad.csv").write_text(f"{HOSTILE}\nx\n")
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_is_printed_steers_a_terminal(
    hostile: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)

    with suppress(SystemExit):  # of argparse
        main(COMMANDS[name])

    said = capsys.readouterr()
    assert said.out + said.err
    assert not HIDDEN & {*said.out, *said.err}


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scored(tmp_path_factory.mktemp("long"), make_case("Q" * 3_000_000), METRIC)


@pytest.mark.parametrize(
    "command",
    [
        ["gate", "c.jsonl", "--gate", "g.json"],
        ["gate", "c.jsonl", "--gate", "g.json", "--baseline", "b.json"],
        ["score", "c.jsonl", "--metrics", "m.json"],
        ["report", "x.duckdb"],
        ["compare", "x.duckdb", "x.duckdb"],
        ["why", "x.duckdb", "nosuch"],
        ["show", "x.duckdb", "nosuch"],
    ],
    ids=" ".join,
)
def test_an_id_of_megabytes_is_not_printed_in_full(
    long: Path,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(long)

    assert main(command) in (0, 1, 2, 3)

    said = capsys.readouterr()
    assert 0 < len(said.out + said.err) < 10_000


def test_a_suggested_command_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    case = make_case("x; touch pwned; $(touch pwned)")
    case["conversation"] = [make_turn("e-1", "else")]
    write(case)

    assert main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb"]) == 1

    (line,) = (one for one in capsys.readouterr().out.splitlines() if one.startswith("next: "))
    words = ["evaltap", "show", "x.duckdb", "x; touch pwned; $(touch pwned)"]
    assert shlex.split(line.removeprefix("next: ")) == words


def test_json_still_means_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    case = make_case(HOSTILE)
    case["conversation"] = [make_turn("e-1", "else")]
    write(case)
    main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb"])
    capsys.readouterr()

    assert main(["show", "x.duckdb", HOSTILE, "--json"]) in (0, 1)

    assert HOSTILE in json.dumps(json.loads(capsys.readouterr().out), ensure_ascii=False).replace(
        "\\u001b", "\x1b"
    ).replace("\\u0007", "\x07")


# -- erasing ---------------------------------------------------------------------------------------

NAME = 'zoë/o\'hara "z"@example.com'
SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda name: name,
    "JSON": json.dumps,
    "JSON in Unicode": lambda name: json.dumps(name, ensure_ascii=False),
    "JSON in JSON": lambda name: json.dumps({"a": json.dumps({"b": name})}),
    "every letter escaped": lambda name: "".join(f"\\u{ord(c):04x}" for c in name),
    "slashes escaped": lambda name: json.dumps(name).replace("/", "\\/"),
    "percent": lambda name: __import__("urllib.parse").parse.quote(name, safe=""),
    "upper case": str.upper,
    "decomposed": lambda name: __import__("unicodedata").normalize("NFD", name),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_mention_is_found_however_it_is_written(spelling: str) -> None:
    text = f'{{"to": {SPELLINGS[spelling](NAME)}}}'

    assert mentions(text.encode(), [NAME])
    assert not mentions(text.encode(), ["somebody.else@example.com"])


@pytest.mark.slow
def test_feedback_that_a_person_gave_on_anothers_session_goes_and_mentions_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorder = Recorder("log.db", redaction=False)
    with recorder.turn(session_id="s-1", user="hello", user_id="bob") as turn:
        turn.respond("hi")
        turn.feedback(positive=False, comment="rude, says Zoe", given_by="zoe-4711")
    with recorder.turn(session_id="s-2", user="hello", user_id="bob") as turn:
        turn.respond("ask zoe-4711")
    assert recorder.close()
    for path in ("x.duckdb", "y.duckdb"):
        main(["consume", "--log", "log.db", "--db", path, "--until-idle"])
    capsys.readouterr()

    code = main(["store", "erase", "--subject", "zoe-4711", "--log", "log.db", "--db", "x.duckdb",
                 "--db", "y.duckdb", "--json"])  # fmt: skip

    assert code == 0
    places = json.loads(capsys.readouterr().out)["places"]
    assert [one["removed"] for one in places[1:]] == [{"feedback": 1}, {"feedback": 1}]
    assert places[0]["removed"]["records"] == 1
    assert all(one["mentions"] == 1 for one in places)
    for path in ("log.db", "x.duckdb", "y.duckdb"):
        assert b"says Zoe" not in Path(path).read_bytes(), path


@pytest.mark.slow
def test_a_session_that_one_store_knows_is_erased_from_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorder = Recorder("log.db", redaction=False)
    with recorder.turn(session_id="s-1", user="hello", user_id="zoe-4711"):
        pass
    assert recorder.close()
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"])
    write(make_case("s-1", sessionInput={"appName": "app", "userId": ""}))
    main(["score", "c.jsonl", "--metrics", "m.json", "--db", "y.duckdb"])
    (Path() / "x.duckdb.wal.bad-20260101T000000").write_bytes(b"zoe")
    capsys.readouterr()

    main(
        [
            "store",
            "erase",
            "--subject",
            "zoe-4711",
            "--db",
            "y.duckdb",
            "--db",
            "x.duckdb",
            "--json",
        ]
    )

    found = json.loads(capsys.readouterr().out)
    assert found["places"][0]["removed"]["scores"] == 1
    assert any("x.duckdb.wal.bad-20260101T000000" in line for line in found["out_of_reach"])


# -- Arrow -----------------------------------------------------------------------------------------


def test_an_arrow_file_whose_offsets_lead_elsewhere_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pyarrow.table({"question": ["one", "two", "three"], "answer": ["a", "b", "c"]})
    with (
        pyarrow.OSFile("good.arrow", "wb") as sink,
        pyarrow.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    good = Path("good.arrow").read_bytes()
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 3, 6, 11))
    assert offsets in good
    for wrong in ((0, 3, 6, 2**30), (0, 3, -5, 11), (0, 100_000, 6, 11)):
        bad = b"".join(n.to_bytes(4, "little", signed=True) for n in wrong)
        Path("bad.arrow").write_bytes(good.replace(offsets, bad, 1))
        assert main(["convert", "bad.arrow", "--out", "e.evalset.json"]) == 2
        assert "not an Arrow file" in capsys.readouterr().err
    Path("bad.arrow").write_bytes(
        good.replace(b"onetwothree", b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8abc")
    )
    assert main(["convert", "bad.arrow", "--out", "e.evalset.json"]) == 2
