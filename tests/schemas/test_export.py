"""The committed JSON Schemas are those of the models, and they accept what the models accept."""

import json
from pathlib import Path

import jsonschema
import pytest

from evaltap.schemas.files.json_schemas import main, schemas

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "tests/data/trpc-examples"


def test_the_committed_schemas_are_fresh() -> None:
    assert main([str(ROOT / "schemas/json"), "--check"]) == 0


def test_drift_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    (tmp_path / "metric.v1.json").write_text("{}")

    assert main([str(tmp_path), "--check"]) == 1
    assert "metric.v1.json" in capsys.readouterr().err


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
