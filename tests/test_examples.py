"""The example programs run unchanged and print the output shown on their page."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "docs/examples"
PAGE = (EXAMPLES / "README.md").read_text("utf-8")


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_prints_what_its_page_says(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    section = PAGE.partition(f"]({program.name})")[2]
    shown = re.search(r"```text\n(.*?)```", section, re.DOTALL)

    runpy.run_path(str(program), run_name="__main__")

    assert shown is not None
    assert capsys.readouterr().out == shown[1]


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_uses_only_the_public_interface(program: Path) -> None:
    imported = re.findall(r"^from (evaltap\S*) import", program.read_text("utf-8"), re.MULTILINE)

    assert set(imported) <= {"evaltap.evaluator", "evaltap.schemas", "evaltap.recorder"}
    assert imported
