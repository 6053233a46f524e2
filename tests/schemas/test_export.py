"""The committed JSON Schemas are those of the models, and they accept what the models accept."""

import json
from pathlib import Path

import jsonschema
import pytest

from support.programs.json_schemas import FOLDER, schemas

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests/data/trpc-examples"


def test_the_committed_schemas_are_fresh() -> None:
    assert {path.name: path.read_bytes() for path in FOLDER.iterdir()} == schemas()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "name"),
    [("*.evalset.json", "eval_set"), ("*.evalset_result.json", "eval_set_result")],
)
def test_the_peers_files_satisfy_the_schemas(pattern: str, name: str) -> None:
    schema = json.loads(schemas()[f"{name}.v1.json"])
    jsonschema.Draft202012Validator.check_schema(schema)

    files = [*EXAMPLES.glob(f"*/{pattern}")]
    assert files
    for path in files:
        jsonschema.validate(json.loads(path.read_text()), schema)
