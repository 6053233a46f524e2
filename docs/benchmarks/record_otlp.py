"""Memory and processor time of `evaltap record otlp`, for files of two lengths.

The files are JSON Lines as a Collector's file exporter writes them: a request of 100 spans a line, the spans
of 50 concurrent turns in the order in which they end, so that no trace is whole before hundreds of others
began. A turn has a root span, three model calls with growing conversations and three tool calls. The floor
decodes each line with orjson.

    python docs/benchmarks/record_otlp.py [--megabytes 30 122] [--rounds 3] [--against TREE]

`--against` also measures the command of another checkout.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from score_files import EVALTAP

CONCURRENT = 50
SPANS_A_REQUEST = 100
FLOOR = "import orjson, sys\nfor line in open(sys.argv[1], 'rb'): orjson.loads(line)"
WORDS = (
    "order",
    "return",
    "label",
    "parcel",
    "please",
    "track",
    "ship",
    "late",
    "refund",
    "store",
    "card",
)

Otlp = dict[str, object]


def text(chosen: random.Random, words: int) -> str:
    """Return words that no other turn has in the same order."""
    return " ".join(chosen.choices(WORDS, k=words)).capitalize() + f" {chosen.randrange(10**6)}."


def message(role: str, content: str) -> Otlp:
    """Return a message as the GenAI conventions write it."""
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def turn(number: int) -> Iterator[Otlp]:
    """Yield the spans of a turn as they end."""
    chosen = random.Random(number)
    trace, began = f"{number + 1:032x}", 1_760_000_000_000_000_000 + number * 40_000_000
    ids = iter(range(1, 100))
    root = f"{number + 1:015x}0"

    def span(name: str, parent: str, **attributes: object) -> Otlp:
        place = next(ids)
        return {
            "traceId": trace,
            "spanId": f"{number + 1:014x}{place:02x}" if parent else root,
            "parentSpanId": parent,
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(began + place * 1_000_000 if parent else began),
            "endTimeUnixNano": str(began + (place + 1) * 1_000_000),
            "attributes": [
                {"key": key.replace("__", "."), "value": {"stringValue": value}}
                for key, value in attributes.items()
            ],
            "status": {},
        }

    asked = message("user", text(chosen, 40))
    told = [message("system", "You are the support agent of a shop. " * 20), asked]
    for call in range(3):
        yield span(
            "chat m",
            root,
            gen_ai__operation__name="chat",
            gen_ai__request__model="m",
            gen_ai__input__messages=json.dumps(told),
        )
        found = {"rows": [{"id": n, "label": text(chosen, 2)} for n in range(10)]}
        arguments = json.dumps({"query": text(chosen, 4), "limit": 3})
        yield span(
            "execute_tool find",
            root,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="find",
            gen_ai__tool__call__id=f"call-{number}-{call}",
            gen_ai__tool__call__arguments=arguments,
            gen_ai__tool__call__result=json.dumps(found),
        )
        told = [*told, message("assistant", text(chosen, 20))]
    yield span(
        "invoke_agent shop",
        "",
        gen_ai__operation__name="invoke_agent",
        gen_ai__agent__name="shop",
        gen_ai__conversation__id=f"s-{number // 3}",
        gen_ai__input__messages=json.dumps([asked]),
        gen_ai__output__messages=json.dumps([message("assistant", text(chosen, 60))]),
    )


def spans() -> Iterator[Otlp]:
    """Yield the spans of turns without end; each of the concurrent turns takes its next step in turn."""
    running = [turn(number) for number in range(CONCURRENT)]
    begun = CONCURRENT
    while True:
        for place, steps in enumerate(running):
            step = next(steps, None)
            if step is None:
                running[place] = turn(begun)
                begun += 1
            else:
                yield step


def write(path: Path, megabytes: int) -> None:
    """Write a file of about so many megabytes."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    endless = spans()
    with path.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            scope = {
                "scope": {"name": "shop.agent"},
                "spans": [next(endless) for _ in range(SPANS_A_REQUEST)],
            }
            request = {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}
            file.write(json.dumps(request, separators=(",", ":")) + "\n")


def run(*arguments: str, tree: Path | None = None) -> tuple[float, float]:
    """Run a Python program; return its CPU seconds and its peak memory in megabytes."""
    environment = dict(os.environ)
    if tree is not None:
        parts = ("recorder", "evaluator", "schemas")
        environment["PYTHONPATH"] = os.pathsep.join(str(tree / part) for part in parts)
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments[:4]} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Write the files, run the command on each in turn with the floor, and print ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[30, 122])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="another checkout to measure")
    options = parser.parse_args()
    trees: dict[str, Path | None] = {"this": None}
    if options.against:
        trees["other"] = options.against
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "traces.jsonl")
        for megabytes in options.megabytes:
            write(file, megabytes)
            rounds: list[dict[str, tuple[float, float]]] = []
            for number in range(options.rounds):
                found = {"floor": run("-c", FLOOR, str(file))}
                for name, tree in trees.items():
                    log = f"{folder}/{name}-{megabytes}-{number}.db"
                    arguments = ("record", "otlp", str(file), "--log", log)
                    found[name] = run("-c", EVALTAP, *arguments, tree=tree)
                    Path(log).unlink()
                rounds.append(found)
            for name in trees:
                ratio = statistics.median(one[name][0] / one["floor"][0] for one in rounds)
                seconds = statistics.median(one[name][0] for one in rounds)
                memory = max(one[name][1] for one in rounds)
                print(
                    f"{megabytes} MB, {name}: {memory:.0f} MB at most, {seconds:.1f} s of CPU,"
                    f" {ratio:.1f} x of decoding with orjson"
                )


if __name__ == "__main__":
    main()
