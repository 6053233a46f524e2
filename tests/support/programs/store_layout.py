"""Write the tables and views of a new DuckDB file, which `layout()` reads: after a change of the store's SQL.

python tests/support/programs/store_layout.py
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Final

import duckdb

from evaltap.evaluator.store.database import STORE, made_layout

PATH: Final = Path(str(files(STORE.rpartition(".")[0]).joinpath("sql", "layout.json")))


def text() -> str:
    """Return the content of the file."""
    made = made_layout()
    kept = {"duckdb": duckdb.__version__, "tables": sorted(made.tables), "views": {**made.views}}
    return json.dumps(kept, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
