"""What the plugins' callbacks cost the agent's thread, with the real frameworks and a real recorder.

Each framework runs one turn with one tool call, again and again, on a scripted model; every step of
its plugin is timed on the calling thread, while the recorder's own thread works beside it.

    wall     time of one callback, as the agent waits for it
    cpu      what the calling thread itself worked for it
    share    all callbacks of a run together, of the framework's own time for the run

The share is the ratio to look at: both sides are measured in the same run.  Needs the development
installation, as the frameworks are driven by the scripts of the tests.

    python docs/benchmarks/plugin_callbacks.py [--runs 150] [--pause-ms 2] [--only langchain]
"""

import argparse
import importlib.util
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evaltap.recorder import Recorder

TESTS = Path(__file__).parents[2] / "tests"
PLUGINS = ("adk", "claude_agent", "langchain", "openai_agents", "pydantic_ai", "strands")


def scripted_runs() -> dict[str, Callable[[Any], str]]:
    """Return by framework how one run of it is made with a recorder."""
    sys.path.insert(0, str(TESTS))
    path = TESTS / "recorder/test_plugins_harmless.py"
    spec = importlib.util.spec_from_file_location("plugin_runs", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be read; run this from a checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {run.__name__.removeprefix("run_"): run for run in module.RUNS}


def plugin_modules() -> list[Any]:
    """Return the plugins, all of which take their steps through `guarded`."""
    return [
        importlib.import_module(f"evaltap.recorder.plugins.{name}")
        for name in PLUGINS
        if hasattr(importlib.import_module(f"evaltap.recorder.plugins.{name}"), "guarded")
    ]


@contextmanager
def timed(took: list[tuple[int, int]]) -> Iterator[None]:
    """Have every step of every plugin add its wall and CPU time in nanoseconds."""
    modules: list[Any] = plugin_modules()
    plain = modules[0].guarded

    def guarded(plugin: Any, step: Any, *args: Any, **kwargs: Any) -> Any:
        began, worked = time.perf_counter_ns(), time.thread_time_ns()
        try:
            return plain(plugin, step, *args, **kwargs)
        finally:
            took.append((time.perf_counter_ns() - began, time.thread_time_ns() - worked))

    for module in modules:
        module.guarded = guarded
    try:
        yield
    finally:
        for module in modules:
            module.guarded = plain


def measure(
    run: Callable[[Any], str], runs: int, pause_seconds: float
) -> tuple[list[tuple[int, int]], list[float]]:
    """Return the times of all callbacks, and of each run the share that they made up."""
    took: list[tuple[int, int]] = []
    shares = []
    with tempfile.TemporaryDirectory() as folder, timed(took):
        recorder = Recorder(Path(folder) / "turns.db")
        for number in range(runs + 20):
            before, began = len(took), time.perf_counter_ns()
            run(recorder)
            lasted = time.perf_counter_ns() - began
            own = sum(wall for wall, _ in took[before:])
            shares.append(own / max(1, lasted - own))
            if number == 19:  # the first runs build what the framework keeps
                took.clear()
                shares.clear()
            time.sleep(pause_seconds)
        recorder.close(30)
        if recorder.counters().faults:
            raise SystemExit(f"the recorder had faults: {recorder.counters()}")
    return took, shares


def main() -> None:
    """Run the frameworks one after the other and print their callbacks' times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=150)
    parser.add_argument("--pause-ms", type=float, default=2)
    parser.add_argument("--only", help="one framework")
    options = parser.parse_args()
    print(
        f"{'callback, us':16}{'calls':>7}{'wall p50':>10}{'wall p99':>10}{'cpu p99':>9}{'share':>8}"
    )
    for name, run in scripted_runs().items():
        if options.only in (None, name):
            took, shares = measure(run, options.runs, options.pause_ms / 1e3)
            wall = sorted(one[0] / 1e3 for one in took)
            cpu = sorted(one[1] / 1e3 for one in took)
            high = len(took) * 99 // 100
            print(
                f"{name:16}{len(took):>7,}{statistics.median(wall):>10.0f}{wall[high]:>10.0f}"
                f"{cpu[high]:>9.0f}{statistics.median(shares):>8.1%}"
            )


if __name__ == "__main__":
    main()
