"""How many judged cells a second one process does while a judge takes 200 ms for each answer.

A cell is one turn under one judged metric, asked once over HTTP.  The judge is a scripted server in a
process of its own, on the same machine; nothing is in the cache, and every answer is put there.  The
whole command runs, start-up and DuckDB file and all; the last column takes the start-up off.  The floor, in
the same run, is a client that sends as many requests of that size over as many connections and decodes the
answers, on one event loop.

    python docs/benchmarks/judge_load.py [--cells 20000] [--concurrency 8 100 500] [--seconds 0.2]
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from judged_cells import METRIC, write_cases
from resident import resident_mb
from score_files import EVALTAP

ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 0,
    "model": "scripted",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": json.dumps(
                    {"rubricScores": [{"id": one, "score": 1, "reason": "met"} for one in "12"]}
                ),
            },
        }
    ],
    "usage": {"prompt_tokens": 400, "completion_tokens": 60, "total_tokens": 460},
}


class ScriptedServer(asyncio.Protocol):
    """Answers every request of a connection alike, some time after it was sent."""

    def __init__(self, seconds: float) -> None:
        body = json.dumps(ANSWER).encode()
        self._response = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        self._seconds = seconds
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        size = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(rest) >= size:
            self._received = rest[size:]
            loop = asyncio.get_running_loop()
            loop.call_later(self._seconds, self._transport.write, self._response)


class Client(asyncio.Protocol):
    """Asks the next question when the last one is answered."""

    left = 0
    request = b""

    def __init__(self, over: asyncio.Future[None]) -> None:
        self._over = over
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        if Client.left == 0:
            self._over.set_result(None)
            return
        Client.left -= 1
        self._transport.write(Client.request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        if head and len(body) >= int(head.rpartition(b" ")[2]):
            json.loads(json.loads(body)["choices"][0]["message"]["content"])
            self._received = b""
            self._ask()


async def floor(port: int, concurrency: int, count: int) -> float:
    """Return the answers a second that a client gets which does nothing else."""
    prompt = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
    Client.left = count
    Client.request = b"POST /v1 HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(prompt), prompt)
    loop = asyncio.get_running_loop()
    began, ends = time.perf_counter(), [loop.create_future() for _ in range(concurrency)]
    await asyncio.gather(
        *(loop.create_connection(partial(Client, end), "127.0.0.1", port) for end in ends)
    )
    await asyncio.gather(*ends)
    return count / (time.perf_counter() - began)


async def serve(seconds: float) -> None:
    """Serve until the process is ended; print the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ScriptedServer(seconds), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def judge(seconds: float) -> Iterator[str]:
    """Give the address of a judge that answers so much later, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", "--seconds", str(seconds)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def score(cases: Path, metrics: Path, url: str, concurrency: int) -> tuple[float, float, float]:
    """Score with nothing in the cache; return seconds, processor seconds and the largest memory in MB."""
    environ = {name: value for name, value in os.environ.items() if "EVALTAP" not in name}
    environ |= {"EVALTAP_JUDGE_BASE_URL": url, "EVALTAP_JUDGE_MODEL": "scripted"}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", EVALTAP, "score", cases, "--metrics", metrics, "--db",
             f"{folder}/x.duckdb", "--judge-cache", f"{folder}/cache.db", "--concurrency",
             str(concurrency)],
            stdout=subprocess.DEVNULL, env=environ,
        )  # fmt: skip
        largest = 0.0
        while process.poll() is None:
            largest = max(largest, resident_mb(process.pid))
            time.sleep(0.1)
        usage = os.times()
    if process.returncode:
        sys.exit(f"exit code {process.returncode}")
    return time.perf_counter() - began, usage.children_user + usage.children_system, largest


def main() -> None:
    """Start the judge, then score with each concurrency in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[8, 100, 500])
    parser.add_argument("--seconds", type=float, default=0.2, help="how long an answer takes")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.seconds))
    with tempfile.TemporaryDirectory() as folder, judge(options.seconds) as url:
        cases, metrics, one = (Path(folder, name) for name in ("c.jsonl", "m.json", "1.jsonl"))
        metrics.write_text(json.dumps([METRIC]))
        write_cases(one, 1)
        for concurrency in options.concurrency:
            # Few cells where few are asked at a time: it would take an hour.
            count = min(options.cells, int(concurrency / options.seconds * 20))
            write_cases(cases, count)
            start_up, before, _ = score(one, metrics, url, concurrency)
            seconds, processor, largest = score(cases, metrics, url, concurrency)
            port = int(url.rpartition(":")[2].partition("/")[0])
            bare = asyncio.run(floor(port, concurrency, count))
            rate = count / (seconds - start_up + options.seconds)
            print(
                f"{concurrency:>4} in flight: {count:,} cells in {seconds:.1f} s,"
                f" {count / seconds:,.0f} a second, {largest:.0f} MB,"
                f" {(processor - before) / count * 1e6:.0f} us of processor a cell;"
                f" without the start-up {rate:,.0f} a second, {rate / bare:.2f} of the floor ({bare:,.0f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
