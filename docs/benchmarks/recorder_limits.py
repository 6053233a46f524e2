"""What the recorder takes from a process in bad times: the event loop's patience, and memory.

stall    an event loop ticks every millisecond while an agent records turns with 1 MB results; how
         late the ticks are, beside the same agent without a recorder in the same run
memory   the log cannot be written and turns go on; how much the process grows after its first ten
         seconds, and where every turn went
garbage  turns of nine spans for as long as a read trace is kept; what a full garbage collection,
         which stops the whole process, takes then, against the same process before

python docs/benchmarks/recorder_limits.py stall [--seconds 20]
python docs/benchmarks/recorder_limits.py memory [--seconds 600] [--turns-per-second 200]
python docs/benchmarks/recorder_limits.py garbage [--seconds 60] [--turns-per-second 100]
"""

import argparse
import asyncio
import gc
import tempfile
import time
from pathlib import Path
from typing import Any

from recorder_overhead import spans
from resident import resident_mb

from evaltap.recorder import CaseSpanProcessor, Recorder

TICK_SECONDS = 0.001
BIG_TURNS_PER_SECOND = 5
WARM_SECONDS = 10
RESULT = {
    "rows": [{"id": n, "text": f"row {n} of an order, shipped on Friday"} for n in range(15_000)]
}
SMALL = {"rows": [{"id": n, "label": "row"} for n in range(20)]}


async def lateness(recorder: Recorder | None, seconds: float) -> list[float]:
    """Return by how many milliseconds each tick was late while the agent worked."""
    late: list[float] = []
    ends = time.perf_counter() + seconds

    async def tick() -> None:
        due = time.perf_counter()
        while due < ends:
            due = max(due + TICK_SECONDS, time.perf_counter())
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            late.append((time.perf_counter() - due) * 1e3)

    async def work() -> None:
        number = 0
        while time.perf_counter() < ends:
            number += 1
            # What handing the megabyte over costs is the agent's own step, so it is not in a tick.
            await asyncio.to_thread(record_turn, recorder, number, RESULT)
            await asyncio.sleep(1 / BIG_TURNS_PER_SECOND)

    await asyncio.gather(tick(), work())
    return sorted(late)


def record_turn(recorder: Recorder | None, number: int, result: Any) -> None:
    """Be the agent for one turn."""
    if recorder is None:
        return
    with recorder.turn(session_id=f"s-{number % 50}", user="Where is my order?") as turn:
        turn.tool("get_order", {"order_id": f"A-{number}"}, id=f"c-{number}", result=result)
        turn.respond("It ships on Friday.")


def stall(options: argparse.Namespace) -> None:
    """Print how late the event loop was, without and with a recorder."""
    with tempfile.TemporaryDirectory() as folder:
        without = asyncio.run(lateness(None, options.seconds))
        recorder = Recorder(Path(folder) / "turns.db")
        with_it = asyncio.run(lateness(recorder, options.seconds))
        recorder.close(30)
        print(f"{recorder.counters()}")
    for name, late in (("without", without), ("recorded", with_it)):
        p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
        print(f"{name:9} ticks {len(late):>7,}  late by p50 {p50:.2f} ms  p99 {p99:.2f} ms")


def memory(options: argparse.Namespace) -> None:
    """Print how much the process grows while nothing can be written."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "gone"
        place.mkdir()
        recorder = Recorder(place / "turns.db", redaction_key="a key for the benchmark")
        place.rmdir()
        place.write_text("a file where the folder was: no log can be made here")
        began, number, first, most = time.perf_counter(), 0, 0.0, 0.0
        while (passed := time.perf_counter() - began) < options.seconds:
            number += 1
            record_turn(recorder, number, SMALL)
            if number % options.turns_per_second == 0:
                if passed >= WARM_SECONDS and not first:
                    first = resident_mb()
                most = max(most, resident_mb())
            time.sleep(max(0.0, began + number / options.turns_per_second - time.perf_counter()))
        counters = recorder.counters()
        recorder.close(1)
        ended = recorder.counters()
    print(
        f"turns                 {number:,} in {options.seconds:g} s, the log unwritable throughout"
    )
    print(
        f"after {WARM_SECONDS} s, at most    {first:.0f} MB, {most:.0f} MB: grown by {most - first:.0f} MB"
    )
    print(f"waiting while running {counters.waiting:,}; faults {counters.faults:,}")
    print(f"at the end            recorded {ended.recorded:,}, dropped {dict(ended.dropped)}")


def collection() -> tuple[int, float]:
    """Return how many objects the garbage collector looks at, and how many milliseconds it takes."""
    gc.collect()
    began = time.perf_counter()
    gc.collect()
    return len(gc.get_objects()), (time.perf_counter() - began) * 1e3


def garbage(options: argparse.Namespace) -> None:
    """Print what a full garbage collection costs before and behind many recorded turns."""
    with tempfile.TemporaryDirectory() as folder:
        turn, shut_down = spans(processor := CaseSpanProcessor(str(Path(folder) / "turns.db")))
        turn(0)
        processor.force_flush()
        before = collection()
        began = time.perf_counter()
        for number in range(1, int(options.seconds * options.turns_per_second) + 1):
            turn(number)
            time.sleep(max(0.0, began + number / options.turns_per_second - time.perf_counter()))
        processor.force_flush()
        behind = collection()
        shut_down()
    print(f"{number:,} turns in {time.perf_counter() - began:.0f} s")
    for name, (objects, milliseconds) in (("before", before), ("behind", behind)):
        print(f"{name:7} {objects:>9,} objects, a full collection {milliseconds:.1f} ms")


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("stall")
    command.add_argument("--seconds", type=float, default=20)
    command.set_defaults(run=stall)
    command = commands.add_parser("memory")
    command.add_argument("--seconds", type=float, default=600)
    command.add_argument("--turns-per-second", type=int, default=200)
    command.set_defaults(run=memory)
    command = commands.add_parser("garbage")
    command.add_argument("--seconds", type=float, default=60)
    command.add_argument("--turns-per-second", type=int, default=100)
    command.set_defaults(run=garbage)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
