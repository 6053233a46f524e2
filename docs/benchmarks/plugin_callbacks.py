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
import asyncio
import importlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from evaltap.recorder import Recorder

TESTS = Path(__file__).parents[2] / "tests"
PLUGINS = (
    "adk",
    "claude_agent",
    "langchain",
    "openai_agents",
    "openai_run_hooks",
    "pydantic_ai",
    "strands",
)


def scripted_runs() -> dict[str, Callable[[Any], str | None]]:
    """Return by driver of the plugin contract how one run of its framework is made with a recorder."""
    sys.path.insert(0, str(TESTS))
    from plugin_drivers import DRIVERS
    from plugin_drivers.driver import AgentSpec, call, get_order, says

    def run(kind: Any, recorder: Any) -> str | None:
        driver = kind(recorder)
        steps = [says("", call("get_order", "c1", order_id="A")), says("Delivered.")]
        with driver.installed():
            return asyncio.run(driver.ask(driver.agent(AgentSpec(steps, [get_order])), "Where?"))

    return {kind.name: partial(run, kind) for kind in DRIVERS}


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
    run: Callable[[Any], str | None], runs: int, pause_seconds: float
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
    parser.add_argument("--only", help="one driver")
    options = parser.parse_args()
    print(
        f"{'callback, us':20}{'calls':>7}{'wall p50':>10}{'wall p99':>10}{'cpu p99':>9}{'share':>8}"
    )
    for name, run in scripted_runs().items():
        if options.only in (None, name):
            took, shares = measure(run, options.runs, options.pause_ms / 1e3)
            wall = sorted(one[0] / 1e3 for one in took)
            cpu = sorted(one[1] / 1e3 for one in took)
            high = len(took) * 99 // 100
            print(
                f"{name:20}{len(took):>7,}{statistics.median(wall):>10.0f}{wall[high]:>10.0f}"
                f"{cpu[high]:>9.0f}{statistics.median(shares):>8.1%}"
            )


if __name__ == "__main__":
    main()
