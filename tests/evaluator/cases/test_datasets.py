"""Data sets of other tools as eval cases."""

import json
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow
import pyarrow.parquet
import pytest

from evaltap.cli.main import main
from evaltap.cli.recognising import recognise
from evaltap.evaluator import CaseScorer, Status
from evaltap.evaluator.cases.datasets.cases import dataset_cases
from evaltap.evaluator.cases.datasets.columns import Columns, parse_columns
from evaltap.evaluator.cases.datasets.tables import read_rows
from evaltap.schemas import EvalMetric, iter_cases, read_metrics
from evaltap.schemas.errors import EvaltapError, FormatError, InputError
from support.builders.cases import RESPONSE, TRAJECTORY, make_case
from support.builders.datasets import DATA, converted, rows, turns

HF_COLUMNS = {"id", "question", "answer", "prediction", "level"}


@pytest.mark.parametrize(
    ("folder", "ids"),
    [
        ("hf-splits", ["q1", "q2"]),
        ("hf-shards", ["q1", "q2"] * 3),
        ("hf-parquet", ["q1", "q2"]),
    ],
)
def test_folders_of_hugging_face_datasets_are_read(folder: str, ids: list[str]) -> None:
    found = rows(DATA / folder)

    assert [row["id"] for row in found] == ids
    assert set(found[0]) == HF_COLUMNS


def test_one_split_may_be_chosen_and_places_name_it() -> None:
    assert [place for place, _ in read_rows(DATA / "hf-splits")] == [
        "row 0 of train",
        "row 0 of test",
    ]
    assert [row["id"] for row in rows(DATA / "hf-splits", split="test")] == ["q2"]
    with pytest.raises(InputError, match="has the splits train, test"):
        rows(DATA / "hf-splits", split="dev")
    with pytest.raises(InputError, match="has the splits none"):
        rows(DATA / "hf-shards", split="dev")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"", "unknown format; expected a file .jsonl"),
        ("a.csv", b"a,b\n1\n", "line 2: another number of cells"),
        ("a.csv", b"a\n\xff\n", "not CSV in UTF-8"),
        ("a.csv", b"a,b,a\n1,2,3\n", "several columns have the name 'a'"),
        ("a.json", b'{"a": 1, "b": 2}', "found an object; expected an array of rows"),
        (
            "a.json",
            b'{"eval_set_id": "s", "eval_cases": []}',
            "is an eval set, which every command",
        ),
        ("a.json", b"[1]", "[0]: found the number 1; expected an object with columns"),
        ("a.jsonl", b"[]\n", "line 1: found a list of 0"),
        ("a.parquet", b"no", "not a Parquet file"),
        ("a.arrow", b"no", "not an Arrow file"),
        ("b/none", b"", "contains no data set"),
        ("b/state.json", b"{}", "expected `_data_files` with file names"),
        ("b/state.json", b'{"_data_files": [{"filename": "../x.arrow"}]}', "with file names"),
        ("b/dataset_dict.json", b"[]", "expected an object with columns"),
        ("b/dataset_dict.json", b"{}", "expected `splits`"),
    ],
)
def test_what_is_no_table_is_told(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)

    with pytest.raises(EvaltapError) as caught:
        rows(path if path.parent == tmp_path else path.parent)
    assert told in str(caught.value)


def test_one_page_of_several_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"data": [{"input": "x"}], "meta": {"page": 1, "totalPages": 3}}')

    assert len(rows(path)) == 1
    assert "is page 1 of 3; read all of them" in caplog.text


def test_items_that_langfuse_has_archived_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "items.jsonl"
    items = [{"datasetName": "d", "input": "x", "status": one} for one in ("ACTIVE", "ARCHIVED")]
    path.write_text("\n".join(map(json.dumps, items)))

    assert [row["status"] for row in rows(path)] == ["ACTIVE"]
    assert "left out 1 item that Langfuse has archived" in caplog.text


def test_an_array_may_be_the_only_value_of_an_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"data": [{"input": "x"}]}')

    assert rows(path) == [{"input": "x"}]


# -- rows ------------------------------------------------------------------------------------------


def test_a_row_with_an_output_is_a_recorded_case_with_what_was_expected() -> None:
    case = converted(
        {"id": 7, "question": "Where?", "answer": "Bern", "output": "In Bern", "level": 2}
    )

    assert (case["evalId"], case["evalMode"]) == ("7", "trace")
    assert turns(case)[0]["userContent"] == {"role": "user", "content": "Where?"}
    assert turns(case)[0]["finalResponse"]["content"] == "In Bern"
    assert turns(case)[0]["capture"] == {"tools": "missing"}
    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Bern"
    assert case["sessionInput"] == {"appName": "app", "userId": "dataset", "state": {"level": 2}}


def test_a_row_with_an_output_but_no_expectation_has_no_reference() -> None:
    scorer = CaseScorer([EvalMetric.model_validate(RESPONSE)])

    (found,) = scorer.score(
        converted({"question": "Hello", "answer": None, "output": "Hi"})
    ).metrics

    assert (found.status.value, found.reason) == (
        "not_evaluated",
        "no reference: no expected turn was given for this one",
    )


def test_a_row_without_an_output_is_a_case_still_to_be_run() -> None:
    case = converted({"prompt": "Where?", "ideal": ["Bern", "In Bern"]})

    assert (case["evalId"], case.get("evalMode", "")) == ("row-1", "")
    assert "actualConversation" not in case
    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Bern"


def test_columns_may_be_mapped_and_a_mapped_one_is_nothing_else() -> None:
    row = {"text": "Where?", "input": "a system prompt", "gold": "Bern", "answer": "In Bern"}
    case = converted(row, input="text", expected="gold", output="answer")

    assert turns(case)[0]["userContent"]["content"] == "Where?"
    assert turns(case)[0]["finalResponse"]["content"] == "In Bern"
    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Bern"
    assert case["sessionInput"]["state"] == {"input": "a system prompt"}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"text": "Where?"},
            "no column for the input; found the columns text; expected one of input",
        ),
        (
            {"evalId": "c-1", "conversation": [{"userContent": {"content": "x"}}]},
            "is an eval case, which every command reads unchanged",
        ),
        ({"input": {"a": 1}}, "input: found an object; expected a text"),
        ({"input": "x", "output": True}, "the answer: found true; expected a text"),
        ({"input": "x", "tools_called": "none"}, "expected a list of tool calls"),
        ({"input": "x", "tools_called": [{}]}, "expected tool calls with a `name`"),
        ({"input": "x", "image": b"..."}, "column image: found bytes"),
        ({"messages": []}, "expected a list of messages"),
        ({"messages": [{"text": "hi"}]}, "an object with `role` and `content`"),
        ({"messages": [{"role": "system", "content": "x"}]}, "at least one message of the user"),
    ],
)
def test_a_row_that_makes_no_case_is_told_with_its_place(row: dict[str, Any], told: str) -> None:
    with pytest.raises(FormatError) as caught:
        converted(row)

    assert told in str(caught.value)
    assert "line 1" in str(caught.value)


@pytest.mark.parametrize("pair", ["input", "=x", "input=", "colour=x"])
def test_a_mapping_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(InputError, match="expected FIELD=COLUMN"):
        parse_columns([pair])


def test_any_of_several_right_answers_counts_and_tools_are_left_open(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(
        json.dumps({"question": "Where?", "output": "At home.", "answer": ["In Bern", "At home"],
                    "tools_called": ["locate"]})
    )  # fmt: skip
    case = converted(json.loads((tmp_path / "c.jsonl").read_text()))
    text = {"text": {"matchStrategy": "contains"}}
    metrics = [
        {"metricName": "final_response_avg_score", "threshold": 1,
         "criterion": {"finalResponse": text}},
        TRAJECTORY,
    ]  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps(metrics))

    answer, tools = CaseScorer(read_metrics(tmp_path / "m.json")).score(case).metrics

    assert answer.status is Status.PASSED
    assert tools.status is Status.NOT_EVALUATED
    assert "expects no particular calls" in tools.reason


# -- the command -----------------------------------------------------------------------------------


def test_a_folder_of_hugging_face_is_converted_and_scored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_text(
        '[{"metricName": "final_response_avg_score", "threshold": 1,'
        ' "criterion": {"finalResponse": {"text": {}}}}]'
    )

    assert main(["convert", str(DATA / "hf-splits"), "--out", "c.jsonl", "--app-name", "shop"]) == 0
    assert "2 cases -> c.jsonl" in capsys.readouterr().err
    assert main(["score", "c.jsonl", "--metrics", "m.json", "--json"]) == 1
    metric = json.loads(capsys.readouterr().out)["metrics"][0]
    assert (metric["passed"], metric["failed"]) == (1, 1)


@pytest.mark.slow
def test_a_data_set_may_be_scored_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_text(
        '[{"metricName": "final_response_avg_score", "threshold": 1,'
        ' "criterion": {"finalResponse": {"text": {}}}}]'
    )
    Path("rows.csv").write_text("Ticket,output,expected\nWhere?,Bern,Bern\nWhen?,now,then\n")
    command = ["score", "rows.csv", "--metrics", "m.json", "--db", "x.duckdb"]

    assert main(command) == 2
    assert (
        "no column for the input; found the columns Ticket, output, expected"
        in capsys.readouterr().err
    )
    assert main([*command, "--map", "input=Ticket"]) == 1
    assert main(["score", str(DATA / "hf-parquet"), "--metrics", "m.json", "--db", "x.duckdb"]) == 1
    with duckdb.connect("x.duckdb", read_only=True) as store:
        found = store.execute("SELECT eval_set_id, eval_id, score FROM scores ORDER BY ALL")
        assert found.fetchall() == [
            ("hf-parquet", "q1", 1), ("hf-parquet", "q2", 0), ("rows", "row-1", 1), ("rows", "row-2", 0)
        ]  # fmt: skip
        sources = store.execute("SELECT source FROM runs ORDER BY started_at").fetchall()
    assert sources == [("rows.csv",), ("rows.csv",), (str(DATA / "hf-parquet"),)]


def test_a_folder_of_json_lines_is_scored_as_it_is_and_a_list_of_rows_says_how(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_text('[{"metricName": "final_response_avg_score", "threshold": 1}]')
    row = {"input": "Where?", "actual_output": "Bern", "expected_output": "Bern"}
    Path("hf/data").mkdir(parents=True)
    Path("hf/data/test.jsonl").write_text(json.dumps(row))
    Path("rows.json").write_text(json.dumps([row]))

    assert main(["score", "hf", "--metrics", "m.json"]) == 0
    assert main(["score", "rows.json", "--metrics", "m.json"]) == 2
    assert "expected an object (EvalSet; `evaltap convert` makes one" in capsys.readouterr().err


def test_rows_that_are_no_cases_are_dead_letters_and_the_others_are_scored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.json").write_bytes(orjson.dumps([TRAJECTORY]))
    good = [orjson.dumps(make_case(f"s-{number}")).decode() for number in range(3)]
    cells = [good[0], None, good[1], '{"broken', good[2], ""]
    pyarrow.parquet.write_table(pyarrow.table({"eval_case": cells}), "p.parquet")
    Path("rows.csv").write_text("id,colour\n7,red\n")

    assert main(["score", "p.parquet", "rows.csv", "--metrics", "m.json", "--db", "x.duckdb"]) == 2

    said = capsys.readouterr().err
    assert "not scored because they are not eval cases: 4 lines" in said
    with duckdb.connect("x.duckdb", read_only=True) as store:
        scored = store.execute("SELECT eval_set_id, eval_id FROM scores ORDER BY ALL").fetchall()
        letters = store.execute(
            "SELECT topic, record_offset, reason, detail, record_value FROM dead_letters"
            " ORDER BY topic, record_offset"
        ).fetchall()
    assert scored == [("p", "s-0"), ("p", "s-1"), ("p", "s-2")]
    assert [(topic, offset, reason, value) for topic, offset, reason, _, value in letters] == [
        ("file:p.parquet", 1, "invalid_case", b'{"eval_case":null}'),
        ("file:p.parquet", 3, "invalid_case", b'{"eval_case":"{\\"broken"}'),
        ("file:p.parquet", 5, "invalid_case", b'{"eval_case":""}'),
        ("file:rows.csv", 0, "invalid_case", b'{"id":"7","colour":"red"}'),
    ]
    for place, (_, _, _, detail, _) in zip(
        ("p.parquet: row 1", "p.parquet: row 3", "p.parquet: row 5", "rows.csv: line 2"),
        letters,
        strict=True,
    ):
        assert detail.startswith(f"{place}: ")
        assert detail in said


def test_a_table_without_a_row_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.json").write_bytes(orjson.dumps([TRAJECTORY]))
    Path("rows.csv").write_text("id,input\n")

    assert main(["score", "rows.csv", "--metrics", "m.json", "--db", "x.duckdb"]) == 2
    assert "no rows found; expected at least one" in capsys.readouterr().err
    assert not Path("x.duckdb").exists()


def test_goldens_become_an_eval_set(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goldens = str(DATA / "goldens.json")

    assert main(["convert", goldens, goldens, "--out", "g.evalset.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"] == 4
    assert [case["evalId"] for case in iter_cases(Path("g.evalset.json"))] == [
        "order", "row-2", "order-2", "row-4"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "nothing to convert"),
        (["a.csv"], "data files and --out FILE: one is missing; give both"),
        (["a.csv", "--out", "c.jsonl"], "a.csv: no such file"),
        (["--openai-eval", "e.json"], "--openai-eval and --metrics-out: one is missing; give both"),
        (["empty.jsonl", "--out", "c.jsonl"], "no rows found; expected at least one"),
        (["empty.jsonl", "--out", "c.evalset.json"], "no rows found; expected at least one"),
        (["empty.jsonl", "--out", "c.jsonl", "--split", "test"], "splits are folders"),
    ],
)
def test_a_command_that_cannot_be_done_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    Path("empty.jsonl").touch()

    assert main(["convert", *arguments]) == 2
    assert told in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["empty.jsonl"]


def test_a_number_that_a_table_lacks_is_no_answer_and_whole_ones_have_no_point(
    tmp_path: Path,
) -> None:
    gaps = [7.0, float("nan")]
    columns = {"id": gaps, "question": ["a", "b"], "answer": gaps, "output": ["7", "8"]}
    pyarrow.parquet.write_table(pyarrow.table({**columns, "level": gaps}), tmp_path / "p.parquet")

    first, second = dataset_cases([tmp_path / "p.parquet"], Columns())

    assert (first["evalId"], second["evalId"]) == ("7", "row-2")
    assert first["conversation"][0]["finalResponse"]["content"] == "7"
    assert not second["conversation"]
    assert [case["sessionInput"]["state"] for case in (first, second)] == [{"level": 7.0}, {}]


@pytest.mark.parametrize("row", [{"input": "x", "level": [float("nan")]}, {"input": float("inf")}])
def test_a_number_that_json_cannot_hold_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=r"found the number (nan|inf)"):
        converted(row)


def test_an_id_that_is_made_is_no_other_row_s(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"id": "{name}", "input": "x"}}\n' for name in ("a", "a", "a-2")))

    found = [case["evalId"] for case in dataset_cases([path], Columns())]

    assert found == ["a", "a-2", "a-2-2"]


def test_a_row_of_objects_names_the_path_to_a_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"id": 1, "ask": {"q": "Where?"}, "outputs": {"a": "here"}}]))

    with pytest.raises(EvaltapError, match=r"or --map input=ask\.q$"):
        list(dataset_cases([path], Columns()))


def test_a_page_of_an_api_holds_rows(tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    path.write_text(json.dumps({"data": [{"input": "Where?"}], "meta": {"page": 1}}))

    assert [row for _, row in read_rows(path)] == [{"input": "Where?"}]


def test_yaml_of_pydantic_evals_is_read_like_its_json(tmp_path: Path) -> None:
    path = tmp_path / "capitals.yaml"
    path.write_text(
        """# yaml-language-server: $schema=capitals_schema.json
name: capitals
cases:
- name: '2024-01-01'
  inputs: &question Wo?
  metadata: {since: 2024-01-02, at: 2024-01-02 10:00:00, on: yes, 7: .nan}
  expected_output: '12:30'
  evaluators: []
- {name: twice, inputs: *question}
evaluators: []
"""
    )

    first, second = dataset_cases([path], Columns())

    assert first["evalId"] == "2024-01-01"
    assert first["sessionInput"]["state"]["metadata"] == {
        "since": "2024-01-02",
        "at": "2024-01-02T10:00:00",
        "true": True,
        "7": None,
    }
    assert first["conversation"][0]["finalResponse"]["content"] == "12:30"
    assert second["conversation"][0]["userContent"]["content"] == "Wo?"


def test_a_report_of_pydantic_evals_is_recorded_cases_with_their_repeats(tmp_path: Path) -> None:
    """As `EvaluationReportAdapter.dump_json` of version 2.62 writes it, for `repeat=2`."""
    again = {"source_case_name": "a", "inputs": {"q": "Wo?", "n": 1}, "expected_output": [1]}
    done = {"output": {"at": 1}, "task_duration": 0.25, "metrics": {"input_tokens": 7, "cost": 0.5}}
    report = {
        "name": "task",
        "cases": [
            {"name": "a [1/2]", **again, **done, "scores": {}},
            {"name": "b", "inputs": "Hi", "output": "Hello", "source_case_name": None},
        ],
        "failures": [{"name": "a [2/2]", **again, "error_message": "ValueError: boom"}],
        "analyses": [],
    }
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))

    first, plain, failed = dataset_cases([path], Columns())

    assert [case["evalId"] for case in (first, plain, failed)] == ["a", "b", "a"]
    assert [one["source"].get("run") for one in (first, failed)] == ["repeat-1", "repeat-2"]
    (turn,), (crashed,) = turns(first), turns(failed)
    assert turn["userContent"]["content"] == '{"q":"Wo?","n":1}'
    assert turn["finalResponse"]["content"] == '{"at":1}'
    assert turn["telemetry"] == {
        "status": "ok", "latencyMs": 250, "inputTokens": 7, "costUsd": 0.5,
    }  # fmt: skip
    assert first["conversation"][0]["finalResponse"]["content"] == "[1]"
    assert crashed["telemetry"]["error"] == {"message": "ValueError: boom"}
    assert turns(plain)[0]["finalResponse"]["content"] == "Hello"
    assert recognise([path]).files[0].format == "Pydantic Evals report"


def test_an_experiment_of_phoenix_is_recorded_cases_with_their_repeats(tmp_path: Path) -> None:
    """As `GET /v1/experiments/{id}/json` of Phoenix 20 writes it."""
    common = {"input": {"question": "Wo?"}, "reference_output": {"answer": "da"}, "annotations": []}
    usage = {"latency_ms": 12.5, "prompt_token_count": 7, "completion_token_count": None}
    done = {
        "example_id": "e",
        "repetition_number": 1,
        "output": {"text": "da", "n": 1},
        "error": None,
    }
    lost = {"example_id": "e", "repetition_number": 2, "output": None, "error": "boom"}
    path = tmp_path / "experiment.json"
    path.write_text(json.dumps([common | usage | done, common | usage | lost]))

    first, second = dataset_cases([path], Columns())

    assert [(case["evalId"], case["source"]["run"]) for case in (first, second)] == [
        ("e", "repetition-1"), ("e", "repetition-2"),
    ]  # fmt: skip
    (turn,), (crashed,) = turns(first), turns(second)
    assert turn["userContent"]["content"] == "Wo?"
    assert turn["finalResponse"]["content"] == '{"text":"da","n":1}'
    assert turn["telemetry"] == {"latencyMs": 12.5, "inputTokens": 7, "status": "ok"}
    assert first["conversation"][0]["finalResponse"]["content"] == "da"
    assert crashed["telemetry"]["error"] == {"message": "boom"}
    assert recognise([path]).files[0].format == "Phoenix experiment"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (0, "0"),
        (False, "false"),
        ([{"role": "assistant", "content": "da"}], '[{"role":"assistant","content":"da"}]'),
    ],
)
@pytest.mark.parametrize("tool", ["promptfoo", "Phoenix", "Pydantic Evals"])
def test_an_output_that_is_no_text_is_its_json_text(
    tool: str, output: Any, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    path.write_text(
        json.dumps(
            {
                "promptfoo": [
                    {
                        "prompt": {"raw": "Wo?"}, "promptIdx": 0, "provider": {}, "success": True,
                        "testIdx": 0, "vars": {}, "failureReason": 0, "response": {"output": output},
                    }
                ],
                "Phoenix": [
                    {
                        "example_id": "e", "repetition_number": 1, "input": {"q": "Wo?"},
                        "output": output, "reference_output": {}, "error": None,
                    }
                ],
                "Pydantic Evals": {
                    "cases": [{"name": "a", "inputs": "Wo?", "output": output}], "failures": [],
                },
            }[tool]
        )
    )  # fmt: skip

    (case,) = dataset_cases([path], Columns())

    assert [turn["finalResponse"]["content"] for turn in turns(case)] == [text]
    assert not case["conversation"], "nothing is expected"


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "--- 1\n--- 2\n",
        "x: &x [*x]",
        "x: !!binary aGk=",
        "x: !!python/none",
        "d: 2024-13-01",
        "[" * 1500,
        "\x00",
    ],
)
def test_yaml_that_is_no_json_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "set.yml"
    path.write_text(text)

    with pytest.raises(FormatError, match=r"set.yml: not YAML that JSON can express: .+"):
        rows(path)
