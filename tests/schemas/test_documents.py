"""Files: read strictly, written canonically, unknown fields preserved, mistakes reported with their
position."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import content
from evaltap.schemas.files.documents import (
    READERS,
    canonical_bytes,
    case_data,
    document_kind,
    iter_cases,
    read_case,
    read_eval_set,
    read_gate,
    read_metrics,
    read_result,
    write_document,
)
from evaltap.schemas.files.fast_check import is_case_data
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalCase, EvalSet
from evaltap.schemas.formats.metric import EvalMetric

EXAMPLES = Path(__file__).parents[1] / "data" / "trpc-examples"
METRIC: dict[str, Any] = {"metricName": "m", "criterion": {"toolTrajectory": {}}}


def files(pattern: str) -> list[Any]:
    return [pytest.param(path, id=path.name[:40]) for path in sorted(EXAMPLES.glob(pattern))]


def write(path: Path, data: object) -> Path:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def rewritten(path: Path) -> bytes:
    kind = document_kind(json.loads(path.read_text()))
    return canonical_bytes(READERS[kind](path))


@pytest.mark.parametrize("path", files("*/*.evalset_result.json"))
def test_a_result_that_the_peer_wrote_is_rewritten_byte_for_byte(path: Path) -> None:
    assert rewritten(path) == path.read_bytes()


@pytest.mark.parametrize("path", files("*/*.json"))
def test_canonical_form_is_a_fixed_point(path: Path, tmp_path: Path) -> None:
    once = rewritten(path)

    copy = tmp_path / path.name
    copy.write_bytes(once)

    assert rewritten(copy) == once


def test_hand_written_keys_are_put_in_the_formats_order_and_zeros_left_out() -> None:
    metric = parse(
        EvalMetric,
        {
            "criterion": {
                "toolTrajectory": {"orderSensitive": False, "toolStrategy": {"b": {}, "a": {}}}
            },
            "threshold": 0,
            "metricName": "m",
        },
    )

    assert json.loads(canonical_bytes([metric]), object_pairs_hook=list) == [
        [
            ("metricName", "m"),
            ("criterion", [("toolTrajectory", [("toolStrategy", [("a", []), ("b", [])])])]),
        ]
    ]


@pytest.mark.parametrize("kept", [{}, "", 0, False, []])
def test_a_tools_arguments_are_left_out_only_when_null(kept: object) -> None:
    case = {"evalId": "c", "actualConversation": [{"tools": [{"name": "t", "arguments": kept}]}]}

    written = EvalCase.model_validate(case).model_dump(by_alias=True)

    assert written["actualConversation"][0]["tools"][0]["arguments"] == kept


def test_pointers_to_zero_are_kept_and_rouge_always_has_a_threshold() -> None:
    criterion = {
        "finalResponse": {
            "json": {"numberTolerance": 0},
            "text": {"length": {"min": 0, "max": 0}},
            "rouge": {"rougeType": "rouge1"},
        }
    }

    written = parse(EvalMetric, METRIC | {"criterion": criterion}).model_dump(by_alias=True)

    assert written["criterion"]["finalResponse"] == {
        "text": {"length": {"min": 0, "max": 0}},
        "json": {"numberTolerance": 0},
        "rouge": {"rougeType": "rouge1", "threshold": {}},
    }


def test_unknown_fields_survive_at_every_depth() -> None:
    case = {
        "evalId": "c",
        "x-top": {"b": 1, "a": [None]},
        "actualConversation": [{"userContent": {"role": "user", "mood": 1}, "x": None}],
    }

    written = EvalCase.model_validate(case).model_dump(by_alias=True)

    assert written == case


def test_keys_match_without_regard_to_case_and_null_means_not_given() -> None:
    case = EvalCase.model_validate({"EVALID": "c", "evalmode": "trace", "rubrics": None})

    assert (case.eval_id, case.eval_mode, case.rubrics) == ("c", "trace", [])
    assert case.model_dump(by_alias=True) == {"evalId": "c", "evalMode": "trace"}


def test_an_exact_key_beats_one_in_another_case() -> None:
    assert EvalCase.model_validate({"EVALID": "other", "evalId": "c"}).eval_id == "c"


@pytest.mark.parametrize(
    ("seconds", "written"), [(1761134484.9804401, 1761134484.9804401), (0, 0), (12.5, 12.5)]
)
def test_times_keep_whole_nanoseconds(seconds: float, written: float) -> None:
    case = EvalCase.model_validate({"evalId": "c", "creationTimestamp": seconds})

    assert case.model_dump(by_alias=True)["creationTimestamp"] == written


# -- judge settings --------------------------------------------------------------------------------


def judged(**model: object) -> dict[str, Any]:
    return METRIC | {"criterion": {"llmJudge": {"judgeModel": model}}}


def test_an_api_key_is_never_written(tmp_path: Path) -> None:
    path = write(tmp_path / "m.json", [judged(apiKey="sk-secret-1", modelName="m")])

    metrics = read_metrics(path)

    assert b"sk-secret-1" not in canonical_bytes(metrics)
    assert "sk-secret-1" not in repr(metrics)
    assert "sk-secret-1" not in metrics[0].model_dump_json()


def test_references_in_judge_settings_survive_a_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_URL", "https://expanded.example")
    path = write(tmp_path / "m.json", [judged(apiKey="${JUDGE_KEY}", baseURL="${JUDGE_URL}/v1")])

    written = json.loads(canonical_bytes(read_metrics(path)))

    assert written[0]["criterion"]["llmJudge"]["judgeModel"] == {
        "baseURL": "${JUDGE_URL}/v1",
        "apiKey": "${JUDGE_KEY}",
    }


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "place", "expected"),
    [
        ({"evalSetId": 7, "evalCases": []}, "evalSetId", "expected a string"),
        ({"evalCases": [{"evalId": "c"}, {"evalId": 3}]}, "evalCases[1].evalId", "expected a string"),
        ({"evalSetId": "s", "evalCases": {}}, "evalCases", "expected a list"),
        ({"evalSetId": "s", "evalCases": [None]}, "evalCases[0]", "expected an object"),
        ({"evalSetId": "s", "creationTimestamp": "yesterday"}, "creationTimestamp", "expected a number"),
        ({"evalSetId": "s", "evalCases": [{"evalId": "c", "conversation": [{"feedback": [{"score": "4"}]}]}]},
         "evalCases[0].conversation[0].feedback[0].score", "expected a number"),
        ({"a": 1}, "", "expected an eval set"),
        ([], "", "expected an object"),
        ('{"evalSetId": "s", "evalCases": [', "line 1", "ends too early"),
    ],
)  # fmt: skip
def test_a_wrong_eval_set_is_explained_with_file_place_and_expectation(
    tmp_path: Path, content: object, place: str, expected: str
) -> None:
    path = write(tmp_path / "s.evalset.json", content)

    with pytest.raises(FormatError) as error:
        read_eval_set(path)

    assert str(error.value).startswith(f"{path}: {place}")
    assert expected in str(error.value)


def test_a_time_beyond_every_calendar_is_refused_in_lines_too() -> None:
    turn = {"userContent": {"role": "user", "content": "q"}, "creationTimestamp": 1e308}

    with pytest.raises(FormatError, match="beyond every calendar") as error:
        case_data({"evalId": "c", "conversation": [turn]})

    assert error.value.place == "conversation[0].creationTimestamp"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"metricName": "m"}, "expected a JSON array"),
        ([{"criterion": {}}], "without `metricName`"),
        ([METRIC, METRIC], "occurs twice"),
        ([METRIC | {"threshold": "1"}], "found the string '1'; expected a number"),
        ([METRIC | {"threshold": True}], "found true; expected a number"),
    ],
)
def test_a_wrong_metrics_file_is_explained(tmp_path: Path, content: object, expected: str) -> None:
    path = write(tmp_path / "m.json", content)

    with pytest.raises(FormatError, match=r"m\.json") as error:
        read_metrics(path)

    assert expected in str(error.value)


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"no such file|is a folder"):
        read_eval_set(tmp_path / name)


def test_a_result_wrapped_in_a_json_string_is_read(tmp_path: Path) -> None:
    inner = json.dumps({"evalSetResultId": "r", "evalSetId": "s"})

    assert read_result(write(tmp_path / "r.json", json.dumps(inner))).eval_set_result_id == "r"


# -- cases -----------------------------------------------------------------------------------------


def test_cases_come_from_json_lines_and_from_eval_sets_alike(tmp_path: Path) -> None:
    case = {"evalId": "c", "evalMode": "trace"}
    lines = write(tmp_path / "c.jsonl", "\n" + json.dumps(case) + "\n\n")
    eval_set = write(tmp_path / "c.evalset.json", {"evalSetId": "s", "evalCases": [case]})

    assert list(iter_cases(lines)) == [case]
    assert list(iter_cases(eval_set)) == [case | {"evalSetId": "s"}]


def test_a_bad_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", '{"evalId": "c"}\n\n{"evalId": NaN}\n')

    with pytest.raises(FormatError, match="line 3"):
        list(iter_cases(path))


def test_writing_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "s.evalset.json"

    write_document(path, EvalSet(eval_set_id="s"))

    assert [file.name for file in path.parent.iterdir()] == ["s.evalset.json"]
    assert path.read_bytes() == b'{\n  "evalSetId": "s"\n}\n'


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    content.write_bytes(pipe, b"{}")

    assert os.read(reader, 10) == b"{}"
    assert pipe.is_fifo()
    os.close(reader)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    blocked = write(tmp_path / "file", "x")

    with pytest.raises(InputError, match="cannot be written"):
        content.write_bytes(blocked / "s.json", b"")


# -- the fast look ---------------------------------------------------------------------------------

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", 1.5, [], {}])
TOOLS = st.fixed_dictionaries(
    {}, optional={"id": VALUES, "name": VALUES, "arguments": VALUES, "error": VALUES, "x": VALUES}
)
TURNS = st.fixed_dictionaries(
    {},
    optional={
        "invocationId": VALUES,
        "tools": st.lists(TOOLS | st.none(), max_size=2) | VALUES,
        "userContent": st.fixed_dictionaries({}, optional={"role": VALUES, "content": VALUES}),
        "capture": st.dictionaries(st.just("user"), st.sampled_from(["missing", "odd"])) | VALUES,
        "telemetry": st.fixed_dictionaries({}, optional={"models": VALUES, "costUsd": VALUES}),
    },
)
CASES = st.fixed_dictionaries(
    {"evalId": st.just("c")},
    optional={
        "evalMode": VALUES,
        "EVALMODE": VALUES,
        "actualConversation": st.lists(TURNS, max_size=2) | VALUES,
        "sessionInput": st.fixed_dictionaries({}, optional={"userId": VALUES, "state": VALUES}),
        "creationTimestamp": VALUES,
        "source": st.fixed_dictionaries({}, optional={"revision": VALUES}) | VALUES,
    },
)


@given(CASES)
def test_the_fast_look_vouches_only_for_what_the_models_read_the_same_way(
    case: dict[str, Any],
) -> None:
    if is_case_data(case):
        model = EvalCase.model_validate(case)
        assert EvalCase.model_validate(model.model_dump(by_alias=True)) == model
        assert not model.model_extra


@given(CASES)
def test_case_data_is_accepted_whatever_way_it_was_read(case: dict[str, Any]) -> None:
    try:
        read = case_data(case)
    except FormatError:
        return

    assert case_data(read) == read


def test_ordinary_cases_take_the_fast_way() -> None:
    turn = {
        "invocationId": "t",
        "userContent": {"role": "user", "content": "hi"},
        "finalResponse": {"role": "assistant", "content": "yes"},
        "tools": [
            {"id": "1", "name": "t", "arguments": {"a": [1, None]}, "result": 1, "durationMs": 3}
        ],
        "telemetry": {"status": "ok", "models": ["m"], "inputTokens": 3, "latencyMs": 1.5},
        "capture": {"sessionId": "synthesized"},
        "creationTimestamp": 1.5,
    }

    assert is_case_data(
        {
            "evalId": "c",
            "evalMode": "trace",
            "actualConversation": [turn],
            "sessionInput": {"appName": "a", "userId": "u", "state": {"x": None}},
            "source": {"framework": "f", "revision": 1, "inclusionProbability": 0.5},
        }
    )


@pytest.mark.parametrize("read", [lambda path: list(iter_cases(path)), read_gate])
def test_a_metrics_file_in_the_place_of_another_is_called_so(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "m.json"
    path.write_text('[{"metricName": "run_succeeded", "threshold": 1}]')

    with pytest.raises(FormatError, match=r"m\.json: is a metrics file; expected"):
        read(path)


def test_a_misspelt_file_of_lines_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "main-1.jsonl").write_text("{}")

    with pytest.raises(InputError, match=r"no such file; did you mean '.*main-1\.jsonl'"):
        list(iter_cases(tmp_path / "main-9.jsonl"))


def test_an_interrupt_while_a_case_is_read_is_not_taken_for_depth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evaltap.schemas.formats.model._rules", interrupted)

    with pytest.raises(KeyboardInterrupt):  # Ctrl-C while pydantic writes
        read_case(b'{"evalId": "c", "note": 1}')
