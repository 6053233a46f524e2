"""However a file is divided into parts, each of its lines is read once."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.pipeline.batch.files import part_cases, parts
from support.builders.cases import make_case

LINES = st.lists(
    st.one_of(
        st.integers(1, 99).map(lambda n: json.dumps(make_case(evalId=f"größe-{n}" * n)).encode()),
        st.sampled_from([b"", b"  ", b"{", b'{"evalId": ""}', b"\xff"]),
    ),
    max_size=8,
)


def read(path: Path, range_bytes: int, *, lazy: bool) -> tuple[list[str], list[BadLine]]:
    names: list[str] = []
    bad_lines: list[BadLine] = []
    for part in parts([path], range_bytes):
        names += [name.eval_id for name, _ in part_cases(part, bad_lines, lazy=lazy)]
    return names, bad_lines


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES, ended=st.booleans(), range_bytes=st.integers(1, 3_000), lazy=st.booleans())
def test_parts_hold_each_line_once(
    tmp_path: Path, lines: list[bytes], ended: bool, range_bytes: int, lazy: bool
) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n" * ended)

    names, bad_lines = read(path, range_bytes, lazy=lazy)

    assert names == [json.loads(line)["evalId"] for line in lines if len(line) > 20]
    assert (names, bad_lines) == read(path, 1 << 30, lazy=lazy)
    assert all(path.read_bytes()[bad.offset :].startswith(bad.raw) for bad in bad_lines)


@pytest.mark.parametrize("range_bytes", [1, 1 << 30])
def test_a_bad_line_is_named_by_its_number_in_the_file(tmp_path: Path, range_bytes: int) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(json.dumps(make_case()).encode() + b"\n\n{\n")

    _, (bad,) = read(path, range_bytes, lazy=True)

    assert "line 3" in bad.message
