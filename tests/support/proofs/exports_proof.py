"""Prove exports with the real DeepEval, Hugging Face `datasets` and Langfuse, offline.

Not a pytest module: `./run wheel` calls it in an environment with the wheel and these packages, which are too
large, or too restrictive, for the development environment.
"""

import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
    "HF_DATASETS_OFFLINE": "1",
}

sys.path.insert(0, str(Path(__file__).parents[2]))

from evaltap.cli.main import main
from evaltap.evaluator.cases.evalsets.files import set_bytes
from support.builders.exported import CASES


def exported(folder: Path, form: str, name: str) -> Path:
    source, out = folder / "golden.evalset.json", folder / name
    source.write_bytes(set_bytes("golden", CASES))
    assert main(["set", "export", str(source), "--format", form, "--out", str(out)]) == 0
    return out


def prove_deepeval(folder: Path) -> None:
    EvaluationDataset = import_module("deepeval.dataset").EvaluationDataset

    single = exported(folder, "deepeval", "goldens.json")
    several = Path(f"{single}.conversations.json")
    dataset = EvaluationDataset()
    dataset.add_goldens_from_json_file(str(single))
    first = next(golden for golden in dataset.goldens if golden.name == "a/ü 1")
    assert first.expected_output == "It's in Bern & \u2028 on its way.", first
    assert first.expected_tools[0].name == "get_order"
    assert first.expected_tools[0].input_parameters["id"] == "A-7"
    turns = EvaluationDataset()
    turns.add_goldens_from_json_file(str(several))
    assert [turn.content for turn in turns.goldens[0].turns] == ["One?", "1", "Two?", "2"]


def prove_datasets(folder: Path) -> None:
    load_dataset = import_module("datasets").load_dataset

    path = exported(folder, "huggingface", "hub")
    rows = load_dataset(str(path), split="test", cache_dir=str(folder / "cache"))
    assert rows["id"] == ["a/ü 1", "b", "c/1", "c/2"] or list(rows["id"]) == [
        "a/ü 1",
        "b",
        "c/1",
        "c/2",
    ]
    assert json.loads(rows[0]["expected_tools"])[0]["name"] == "get_order"


def prove_langfuse(folder: Path) -> None:
    item_type = import_module("langfuse.api").CreateDatasetItemRequest
    parsed = import_module("langfuse.api.core.pydantic_utilities").parse_obj_as

    lines = exported(folder, "langfuse", "items.jsonl").read_text().splitlines()
    for line in lines:
        item = parsed(item_type, json.loads(line))
        assert item.dataset_name == "golden"
        assert len(item.id or "") <= 255


if __name__ == "__main__":
    proofs = {"deepeval": prove_deepeval, "datasets": prove_datasets, "langfuse": prove_langfuse}
    for name in sys.argv[1:] or proofs:
        with tempfile.TemporaryDirectory() as made:
            proofs[name](Path(made))
        print(f"{name}: reads what evaltap exports")
