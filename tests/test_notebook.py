"""The notebook of the docs runs from top to bottom, and shows what its text says."""

import atexit
import json
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

NOTEBOOK = Path(__file__).parents[1] / "docs/examples/notebook.ipynb"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17")  # rich takes it for a notebook
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    make: Any = InteractiveShell  # untyped
    shell = make()
    shell.history_manager.enabled = False
    shown = []
    try:
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                done = shell.run_cell("".join(cell["source"]))
                done.raise_error()
                formats, _ = shell.display_formatter.format(done.result)
                shown.append(formats.get("text/html") or formats["text/plain"])
    finally:
        shell.atexit_operations()
        atexit.unregister(shell.atexit_operations)

    _, base, head, compared, _, means, cases, tools = shown
    assert "100.0%" in base
    assert "- get_order(" in head
    assert "newly failing (5)" in compared
    written = capsys.readouterr().out
    assert "WORSE" in written
    assert "rich" not in written, "what a cell returns is shown once, by the notebook"
    assert "trajectory_exact    0.0" in means
    assert cases.count("order-") == 25
    assert "get_order" in tools
