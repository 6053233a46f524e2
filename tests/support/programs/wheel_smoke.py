"""Build the wheel, install it in clean environments and use it as a new user would.

Not a pytest module: `./run wheel` calls it.  It needs a package index, but nothing from this checkout.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

RECORD = """
import pathlib, sys
from evaltap.recorder import Recorder
assert not {"duckdb", "kafka", "openai", "pydantic"} & set(sys.modules), "the recorder is too heavy"
recorder = Recorder(log="agent.log.db")
with recorder.turn(session_id="s-1", user="Where is order A-100?") as turn:
    turn.tool("get_order", {"order_id": "A-100"}, result={"status": "shipped"})
    turn.respond("Order A-100 has shipped.")
assert recorder.close(), recorder.counters()
"""

CASE = (
    '{"evalId": "c-1", "evalMode": "trace", "actualConversation": [{"invocationId": "i-1",'
    ' "userContent": {"role": "user", "content": "hi"}}]}\n'
)

METRICS = """[{"metricName": "rule_avg_score", "threshold": 1, "criterion": {"rules": {"rules": [
  {"id": "names-order", "type": "contains", "values": ["A-100"]}]}}}]"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        call(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(ROOT), cwd=work)
        (wheel,) = work.glob("*.whl")
        core = environment(work / "core", str(wheel))
        check_size(core, 36)
        check_core(core, work)
        full = environment(work / "full", f"{wheel}[all]")
        check_size(full, 370)
        check_evaluator(full, work)
        adapted = environment(work / "deepeval", f"{wheel}[deepeval,evaluator]")
        call(
            str(adapted / "python"), str(ROOT / "tests/support/proofs/deepeval_proof.py"), cwd=work
        )
        proof = str(ROOT / "tests/support/proofs/exports_proof.py")
        call(str(adapted / "python"), proof, "deepeval", cwd=work)
        loaders = environment(work / "loaders", f"{wheel}[evaluator]", "datasets", "langfuse")
        call(str(loaders / "python"), proof, "datasets", "langfuse", cwd=work)
    print("wheel: 4 passed, 0 failed")
    return 0


def environment(path: Path, *requirements: str) -> Path:
    """Return the bin folder of a new environment that holds nothing but the requirements."""
    venv.create(path)
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--compile-bytecode"]
    call(*uv, "--python", str(path / "bin/python"), *requirements, cwd=path.parent)
    return path / "bin"


def check_size(bin_: Path, most_mib: int) -> None:
    """What was installed takes no more of the disk than the README promises."""
    (packages,) = bin_.parent.glob("lib/python*/site-packages")
    blocks = sum(path.lstat().st_blocks for path in packages.rglob("*"))
    mib = blocks * 512 / 2**20
    print(f"installed: {mib:.0f} MiB, at most {most_mib}")
    assert mib <= most_mib, f"{mib:.0f} MiB, expected at most {most_mib}"


def check_core(bin_: Path, work: Path) -> None:
    """The recorder works alone, with its commands; one that needs the evaluator says so."""
    call(str(bin_ / "python"), "-c", RECORD, cwd=work)
    evaltap = str(bin_ / "evaltap")
    (work / "case.jsonl").write_text(CASE)
    call(evaltap, "doctor", "--log", "agent.log.db", cwd=work)
    call(evaltap, "redact", "--check", "agent.log.db", cwd=work)
    call(evaltap, "record", "cases", "case.jsonl", "--log", "replayed.log.db", cwd=work)
    said = subprocess.run(
        [bin_ / "evaltap", "report", "x.duckdb"],
        cwd=work,
        capture_output=True,
        text=True,
        env=clean(),
    )
    assert said.returncode == 2, said
    assert "evaltap[evaluator]" in said.stderr, said.stderr
    assert "Traceback" not in said.stderr, said.stderr


def check_evaluator(bin_: Path, work: Path) -> None:
    """What the recorder wrote is landed, scored and exported."""
    evaltap = str(bin_ / "evaltap")
    (work / "metrics.json").write_text(METRICS)
    call(evaltap, "--version", cwd=work)
    call(evaltap, "consume", "--log", "agent.log.db", "--db", "x.duckdb",
         "--metrics", "metrics.json", "--until-idle", cwd=work)  # fmt: skip
    call(evaltap, "set", "export", "x.duckdb", "--out", "x.evalset.json", cwd=work)
    call(evaltap, "set", "fmt", "--check", "x.evalset.json", cwd=work)
    call(evaltap, "report", "x.duckdb", "--out", "x.html", cwd=work)
    assert "The case passed" in (work / "x.html").read_text()
    assert "A-100" in (work / "x.evalset.json").read_text()


def call(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True, env=clean())


def clean() -> dict[str, str]:
    """Return the environment without what would let this checkout in."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    return {key: value for key, value in os.environ.items() if key not in hidden}


if __name__ == "__main__":
    raise SystemExit(main())
