"""Write the JSON Schemas of the file formats, for readers in other languages."""

from pathlib import Path
from typing import Any

from evaltap.schemas.files import canonical
from evaltap.schemas.formats.baseline import BaselineFile
from evaltap.schemas.formats.case import EvalCase, EvalSet
from evaltap.schemas.formats.gate import GateFile
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.model import WireModel
from evaltap.schemas.formats.monitor import MonitorFile
from evaltap.schemas.formats.result import EvalSetResult

FOLDER = Path(__file__).parents[3] / "schemas/json"
MODELS: dict[str, type[WireModel]] = {
    "baseline": BaselineFile,
    "eval_case": EvalCase,
    "eval_set": EvalSet,
    "gate": GateFile,
    "metric": EvalMetric,
    "monitor": MonitorFile,
    "eval_set_result": EvalSetResult,
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, bytes]:
    """Return the text of each schema file by its name."""
    found = {f"{name}.v1.json": _text(model) for name, model in MODELS.items()}
    metrics = {"$schema": DIALECT, "title": "Metrics", "type": "array"}
    found["metrics.v1.json"] = canonical.dumps(metrics | {"items": {"$ref": "metric.v1.json"}})
    return found


def _text(model: type[WireModel]) -> bytes:
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return canonical.dumps({"$schema": DIALECT, **_without_titles(schema)})


def _without_titles(value: object) -> Any:
    """Remove the titles that pydantic derives from field names; they add nothing."""
    if isinstance(value, dict):
        return {
            key: _without_titles(item)
            for key, item in value.items()
            if not (key == "title" and isinstance(item, str) and "properties" not in value)
        }
    return [_without_titles(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    for file_name, text in schemas().items():
        (FOLDER / file_name).write_bytes(text)
