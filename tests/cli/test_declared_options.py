"""Options are declared once: the parser, variables and help follow, and help loads nothing heavy."""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, get_args

import pytest

from evaltap.cli.declared import configure, option, options_of, setting
from evaltap.cli.main import COMMANDS, GROUPS, every_command
from evaltap.cli.options.inspect import ReportFormat
from evaltap.cli.options.set import ExportFormat
from evaltap.cli.values import FAIL_ON
from evaltap.evaluator.cases.datasets.exports.forms import ENDINGS
from evaltap.evaluator.reports.exit_status import FailOn
from evaltap.evaluator.reports.formats import FORMATS
from evaltap.schemas.errors import ConfigurationError
from support.builders.commands import runner

HELPS = f"""
import contextlib, io, sys
from evaltap.cli.main import main
for command in {[*every_command()]}:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    assert out.getvalue().startswith("usage: evaltap " + command), command
    loaded = {{"duckdb", "pydantic"}} & set(sys.modules)
    assert not loaded, (command, loaded)
print("all")
"""


def test_help_of_no_command_loads_duckdb_or_pydantic() -> None:
    done = subprocess.run([sys.executable, "-c", HELPS], capture_output=True, text=True)

    assert (done.stdout, done.stderr) == ("all\n", "")


SCORE = """
import sys
from evaltap.cli.main import main
code = main(["score", sys.argv[1], "--metrics", sys.argv[2]])
unused = {"asyncio", "ssl", "http.client", "sqlite3", "multiprocessing", "jinja2", "numpy", "openai", "kafka"}
print(code, sorted(unused & set(sys.modules)))
"""


@pytest.mark.slow
def test_scoring_without_judges_loads_neither_network_nor_workers(tmp_path: Path) -> None:
    turn = {
        "userContent": {"role": "user", "content": "q"},
        "tools": [{"name": "a", "arguments": {}}],
    }
    case = {
        "evalId": "c", "evalMode": "trace", "sessionInput": {"appName": "a", "userId": "u"},
        "actualConversation": [turn], "conversation": [turn],
    }  # fmt: skip
    (tmp_path / "cases.jsonl").write_text(json.dumps(case))
    (tmp_path / "metrics.json").write_text('[{"metricName": "trajectory_exact", "threshold": 1}]')
    files = [str(tmp_path / name) for name in ("cases.jsonl", "metrics.json")]

    done = subprocess.run([sys.executable, "-c", SCORE, *files], capture_output=True, text=True)

    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


def test_every_command_is_in_one_group() -> None:
    listed = [name for names in GROUPS.values() for name in names]

    assert sorted(listed) == sorted(COMMANDS)


def test_the_formats_that_are_declared_are_those_that_can_be_written() -> None:
    assert get_args(ExportFormat) == tuple(ENDINGS)
    assert get_args(ReportFormat) == ("console", *FORMATS)
    assert list(FAIL_ON) == [one.value for one in FailOn]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baking:
    """How a cake is baked.

    example: bake --pan round
    """

    pan: Literal["round", "square"] = option("--pan", "the form", default="square")
    eggs: int | None = option("-e, --eggs N", "how many", variable="BAKE_EGGS")
    nuts: tuple[str, ...] = option(
        "--nuts NAME", "which", parse=str, many=True, variable="BAKE_NUTS"
    )
    spices: tuple[str, ...] = option(
        "--spice NAME", "which", parse=str, many=True, variable="BAKE_SPICES", adds=True
    )
    rest: timedelta = option("--rest AGE", "for how long", default=timedelta(0))
    glaze: bool = option("--glaze", "whether it shines")
    oven: Path | None = setting("BAKE_OVEN")
    cook: str = "ann"


def baked(*words: str) -> Baking:
    parser = argparse.ArgumentParser()
    configure(parser, Baking)
    return options_of(Baking, vars(parser.parse_args(words)))


def test_annotations_say_how_texts_become_values() -> None:
    found = baked(
        "--pan", "round", "-e", "3", "--rest", "2d", "--glaze", "--nuts", "a", "--nuts", "b"
    )

    assert (found.pan, found.eggs, found.rest, found.glaze) == ("round", 3, timedelta(days=2), True)
    assert found.nuts == ("a", "b")


def test_what_is_not_given_has_its_default() -> None:
    found = baked()

    assert (found.pan, found.eggs, found.nuts, found.glaze, found.oven) == (
        "square", None, (), False, None,
    )  # fmt: skip
    assert found.cook == "ann", "a field without a declaration is no option"


def test_a_variable_counts_where_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("EGGS", "4"), ("NUTS", "a, b"), ("SPICES", "x"), ("OVEN", "/o")):
        monkeypatch.setenv(f"BAKE_{name}", text)

    assert (baked().eggs, baked().nuts, baked().oven) == (4, ("a", "b"), Path("/o"))
    assert (baked("--eggs", "5").eggs, baked("--nuts", "c").nuts) == (5, ("c",))
    assert baked("--spice", "y").spices == ("x", "y"), "those of the variable come first"


def test_a_variable_that_is_no_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKE_EGGS", "some")

    with pytest.raises(
        ConfigurationError, match="BAKE_EGGS: found 'some'; expected a whole number"
    ):
        baked()
    assert baked("--eggs", "1").eggs == 1, "it is not read where the option is given"


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        ("EVALTAP_P95_MS", ["score", "c.jsonl", "--metrics", "m.json"]),
        ("EVALTAP_CASE_SECONDS", ["score", "c.jsonl", "--metrics", "m.json"]),
        ("EVALTAP_THRESHOLDS", ["consume", "--log", "l.db", "--db", "x.duckdb", "--metrics", "m.json"]),
        ("EVALTAP_JUDGE_BUDGET_CALLS", ["attack"]),
        ("EVALTAP_FAIL_ON", ["report", "x.duckdb"]),
        ("EVALTAP_KAFKA_CLIENT", ["consume", "--log", "l.db", "--db", "x.duckdb"]),
    ],
)  # fmt: skip
def test_a_bad_variable_is_a_message_of_the_command(
    variable: str,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, "soon")

    code, _, err = runner(capsys)(*command)

    assert code == 2
    assert err.startswith(f"evaltap {command[0]}: {variable}: found 'soon'; ")
