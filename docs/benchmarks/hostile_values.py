"""What one recorded call costs the agent's thread, whatever is passed to it.

Each of the values is recorded as the result of a tool, again and again, by a real recorder.  Per value:

    p50, p99   processor time of the calling thread for one call, in microseconds
    worst      the slowest call of all
    memory     the most that was allocated during one call, traced in a round of its own

The promise is 500 us at p99, 5 ms at worst, 2 MB.  It is for `field_max_bytes` as it is by default.

    python docs/benchmarks/hostile_values.py [--calls 300]
"""

import argparse
import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import gc
import io
import ipaddress
import itertools
import mmap
import os
import pathlib
import threading
import time
import tracemalloc
import types
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy
from pydantic import BaseModel, create_model

from evaltap.recorder import MemorySink, Recorder

P99_US, WORST_US, MEMORY_BYTES = 500, 5_000, 2_000_000


class Item(BaseModel):
    """A model."""

    number: int = 1
    text: str = "x" * 50
    tags: list[str] = ["a", "b"]


class Folder(BaseModel):
    """A model of models."""

    items: list[Item]


@dataclasses.dataclass
class Row:
    """A dataclass."""

    number: int
    label: str = "row"


@dataclasses.dataclass(slots=True)
class SlotRow:
    """A dataclass with slots."""

    number: int


class Colour(enum.Enum):
    """An enum whose value is large."""

    RED = "r" * 1_000_000


class Sleeping:
    """Sleeps whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        time.sleep(1)

    def __repr__(self) -> str:
        time.sleep(1)
        return ""

    __str__ = __repr__

    def model_dump(self, mode: str) -> Any:
        time.sleep(1)

    tolist = shape = dtype = property(model_dump)


class Raising:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


class Endless(Mapping[str, int]):
    """Has no last key."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, itertools.count())

    def __len__(self) -> int:
        return 1


class LazyDict(dict[str, Any]):
    """Sleeps where its own methods are asked."""

    def items(self) -> Any:
        time.sleep(1)

    __iter__ = __len__ = keys = items


class SleepingMeta(type):
    """A class that sleeps where it is hashed."""

    def __hash__(cls) -> int:
        time.sleep(1)
        return 1


class Classed(metaclass=SleepingMeta):
    """An object of such a class."""


class Text(str):
    """A text that is not quite one."""

    __slots__ = ()


def cycle() -> Any:
    loop: dict[str, Any] = {"a": 1}
    loop["again"] = [loop, loop]
    return loop


def graph() -> Any:
    nodes: list[dict[str, Any]] = [{"name": n} for n in range(30)]
    for node in nodes:
        node["neighbours"] = nodes
    return nodes


def shared(base: int) -> Any:
    value: Any = ["text"] * base
    for _ in range(base):
        value = [value] * base
    return value


def deep(levels: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def mapped() -> Any:
    return mmap.mmap(-1, 50_000_000)


def files() -> Any:
    return open(os.devnull, "rb")


Wide = create_model("Wide", **{f"f{n}": (int, n) for n in range(1_000)})  # type: ignore[call-overload]
WideRow = dataclasses.make_dataclass("WideRow", [(f"f{n}", int, n) for n in range(1_000)])
Point = collections.namedtuple("Point", "x y")
KEPT = Item()


class Bag(BaseModel, extra="allow"):
    """A model that takes any field."""


def descendant(levels: int) -> Callable[[], Any]:
    kind = type("Ancestor", (), {})
    for _ in range(levels):
        kind = type("Descendant", (kind,), {})
    return kind


Descendant = descendant(700)


def closed_map() -> Any:
    mapped = mmap.mmap(-1, 4_096)
    mapped.close()
    return mapped


def released_view() -> Any:
    view = memoryview(b"abc")
    view.release()
    return view


VALUES: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "small dict": lambda: {"status": "shipped", "n": 3},
    "20 rows": lambda: {"rows": [{"id": n, "label": "row"} for n in range(20)]},
    "200 rows": lambda: [{"id": n, "label": "row", "price": n / 4} for n in range(200)],
    "text 60 KB": lambda: "word " * 12_000,
    "text 5 MB": lambda: "word " * 1_000_000,
    "text 200 MB": lambda: "x" * 200_000_000,
    "text 100 MB, not ASCII": lambda: "é" * 50_000_000,
    "text of emoji": lambda: "😀" * 5_000_000,
    "half surrogates": lambda: "\ud800" * 1_000_000,
    "control characters": lambda: "\x00" * 1_000_000,
    "text subclass": lambda: Text("x" * 50_000_000),
    "text in a dict": lambda: {"page": "x" * 50_000_000, "status": "ok"},
    "many texts": lambda: ["x" * 1_000 for _ in range(100_000)],
    "two long texts": lambda: {"a": "é" * 60_000, "b": "é" * 60_000},
    "large keys": lambda: {f"{n}" * 1_000: n for n in range(2_000)},
    "odd keys": lambda: {(n, (n, n)): n for n in range(5_000)},
    "keys of tuples": lambda: {tuple(range(n, n + 1_000)): 1 for n in range(1_000)},
    "a million keys": lambda: {str(n): n for n in range(1_000_000)},
    "a million numbers": lambda: list(range(1_000_000)),
    "20 million numbers": lambda: [1.5] * 20_000_000,
    "not a number": lambda: [float("nan")] * 100_000,
    "huge integers": lambda: [10**4_000] * 2_000,
    "an integer of a megabyte": lambda: 1 << 8_000_000,
    "a million dicts": lambda: [{"a": n} for n in range(1_000_000)],
    "wide and deep": lambda: {str(n): [{"a": [n, {"b": n}]}] for n in range(50_000)},
    "deep lists": lambda: deep(100_000, lambda value: [value]),
    "deep dicts": lambda: deep(100_000, lambda value: {"a": value}),
    "deep tuples, wide": lambda: deep(50, lambda value: (value,) * 10),
    "9 levels of 9": lambda: shared(9),
    "10 levels of 10": lambda: shared(10),
    "graph": graph,
    "cycle": cycle,
    "set": lambda: set(range(1_000_000)),
    "frozenset of texts": lambda: frozenset(str(n) for n in range(100_000)),
    "deque": lambda: collections.deque(range(1_000_000)),
    "ordered dict": lambda: collections.OrderedDict((str(n), n) for n in range(100_000)),
    "default dict": lambda: collections.defaultdict(list, {str(n): [n] for n in range(100_000)}),
    "chain map": lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    "read-only view": lambda: types.MappingProxyType({str(n): n for n in range(100_000)}),
    "endless mapping": Endless,
    "lazy dict": lambda: LazyDict({str(n): n for n in range(10)}),
    "generator": lambda: (n for n in itertools.count()),
    "range": lambda: range(1 << 62),
    "bytes 200 MB": lambda: bytes(200_000_000),
    "bytearray": lambda: bytearray(50_000_000),
    "memory view": lambda: memoryview(bytes(50_000_000)),
    "memory map": mapped,
    "array of the library": lambda: array.array("d", bytes(80_000_000)),
    "stream in memory": lambda: io.BytesIO(bytes(50_000_000)),
    "file": files,
    "image 1080p": lambda: numpy.zeros((1080, 1920, 3), "uint8"),
    "image 4K": lambda: numpy.zeros((2160, 3840, 3), "uint8"),
    "array 200 MB": lambda: numpy.zeros(25_000_000),
    "array of objects": lambda: numpy.full(1_000, object(), dtype=object),
    "masked array": lambda: numpy.ma.masked_array(numpy.zeros(1_000_000)),
    "numbers of numpy": lambda: list(numpy.arange(2_000)),
    "records of numpy": lambda: numpy.zeros(100_000, dtype=[("a", "i4"), ("b", "U100")]),
    "model": lambda: Item(text="x" * 5_000_000),
    "a thousand models": lambda: Folder(items=[Item(number=n) for n in range(1_000)]),
    "dataclasses": lambda: [Row(n) for n in range(10_000)],
    "dataclasses with slots": lambda: [SlotRow(n) for n in range(10_000)],
    "enum": lambda: [Colour.RED] * 1_000,
    "decimals": lambda: [decimal.Decimal("1." + "1" * 1_000)] * 5_000,
    "fractions": lambda: [fractions.Fraction(1, 3)] * 5_000,
    "identifiers and times": lambda: [uuid.uuid4(), datetime.datetime.now(datetime.UTC)] * 2_000,
    "paths": lambda: [pathlib.Path("/a" * 2_000)] * 5_000,
    "sleeping object": Sleeping,
    "a thousand sleeping objects": lambda: [Sleeping() for _ in range(1_000)],
    "raising object": Raising,
    "sleeping class": Classed,
    "class": lambda: Item,
    "function": lambda: VALUES,
    "module": lambda: os,
    "lock": threading.Lock,
    "error": lambda: ValueError("x" * 10_000_000),
    "integers just small enough": lambda: [(1 << 4095) + n for n in range(2_000)],
    "a path of a million parts": lambda: pathlib.PurePosixPath("a/" * 1_000_000),
    "models with 1,000 fields": lambda: [Wide() for _ in range(200)],
    "dataclasses with 1,000": lambda: [WideRow() for _ in range(200)],
    "model with 100,000 extras": lambda: Bag(**{f"k{n}": n for n in range(100_000)}),
    "700 base classes": lambda: [Descendant() for _ in range(200)],
    "short control texts": lambda: ["\x00" * 8_000 for _ in range(1_000)],
    "control characters in keys": lambda: {"\x00" * 500 + str(n): n for n in range(2_000)},
    "decimals of 4,000 digits": lambda: [decimal.Decimal("9" * 4_000)] * 500,
    "closed memory map": closed_map,
    "released memory view": released_view,
    "weak proxy": lambda: weakref.proxy(KEPT),
    "NaN as keys": lambda: {float("nan"): n for n in range(5_000)},
    "sets as keys": lambda: {frozenset((n, str(n))): n for n in range(5_000)},
    "errors": lambda: [ValueError("x" * 1_000)] * 2_000,
    "named tuples": lambda: [Point(n, n) for n in range(10_000)],
    "counters": lambda: [collections.Counter("abcdefgh" * 100)] * 2_000,
    "addresses": lambda: [ipaddress.ip_address("10.0.0.1")] * 2_000,
    "keys of accents": lambda: {"é" * 510 + str(n): n for n in range(2_000)},
    "texts of a line": lambda: ["word " * 10 for _ in range(50_000)],
    "JSON in JSON": lambda: {"a": '"' * 60_000, "b": "\\" * 60_000},
}


def times_of(recorder: Recorder, value: Any, calls: int) -> list[float]:
    """Return the microseconds of processor time of each call, sorted."""
    took = []
    with recorder.turn(session_id="s", user="u") as turn:
        call = turn.tool("t", {})
        turn.tool_result(call, value)  # the first one may build what Python keeps
        for _ in range(calls):
            began = time.thread_time_ns()
            turn.tool_result(call, value)
            took.append((time.thread_time_ns() - began) / 1e3)
    return sorted(took)


def memory_of(recorder: Recorder, value: Any) -> int:
    """Return the most bytes that one call held."""
    with recorder.turn(session_id="s", user="u") as turn:
        call = turn.tool("t", {})
        recorder.flush(5)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        turn.tool_result(call, value)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
    return peak


def main() -> None:
    """Print a line for each value; end with 1 when one is beyond a limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    beyond = []
    worst: list[float] = [0, 0, 0]
    print(f"{'value':28}{'p50 us':>9}{'p99 us':>9}{'worst us':>10}{'memory KB':>11}")
    for name, make in VALUES.items():
        value = make()
        gc.collect()
        gc.freeze()  # the agent's own objects are not what is measured
        recorder = Recorder(sink=MemorySink(limit=1))
        took = times_of(recorder, value, options.calls)
        peak = memory_of(recorder, value)
        recorder.close(5)
        p99 = took[len(took) * 99 // 100]
        print(
            f"{name:28}{took[len(took) // 2]:>9.0f}{p99:>9.0f}{took[-1]:>10.0f}{peak / 1e3:>11.0f}"
        )
        worst = [max(worst[0], p99), max(worst[1], took[-1]), max(worst[2], peak)]
        if p99 > P99_US or took[-1] > WORST_US or peak > MEMORY_BYTES:
            beyond.append(name)
        gc.unfreeze()
    print(
        f"\n{len(VALUES)} values, {len(beyond)} beyond a limit: {', '.join(beyond) or 'none'}\n"
        f"p99 {worst[0] / P99_US:.2f} of its limit, worst call {worst[1] / WORST_US:.2f},"
        f" memory {worst[2] / MEMORY_BYTES:.2f}"
    )
    raise SystemExit(bool(beyond))


if __name__ == "__main__":
    main()
