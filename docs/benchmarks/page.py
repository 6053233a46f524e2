"""What the page costs with many turns in the store, while turns land and are scored, and while none do.

`evaltap consume --ui` over a store of a million turns answers six requests a second, in turn for the
overview, the list under some filters and a case; first with nothing to read, then while a recorder writes 200
turns a second.  Prints latencies, processor and memory of each phase.  With --backlog it also consumes so
many turns at full speed, with the page and those requests and without, for what the page costs the consumer.

    python docs/benchmarks/page.py [--turns 1000000] [--seconds 60] [--rate 200] [--backlog 30000]
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import duckdb
from kafka_throughput import records
from million import METRICS, make_store
from resident import processor_seconds, resident_mb
from score_files import EVALTAP

from evaltap.recorder import Recorder
from evaltap.schemas.log.local import open_log

REQUESTS_A_SECOND = 6
FILTERS = (
    "",
    "status:failed",
    "tool:tool_3 -feedback:up",
    "since:24h cost:>0.001",
    "status:failed sort:worst",
)


@dataclass
class Page:
    """A page that is served, by a process that consumes."""

    process: subprocess.Popen[str]
    host: str = ""
    port: int = 0
    cookie: str = ""
    cases: list[str] = field(default_factory=list)
    took: dict[str, list[float]] = field(default_factory=dict)
    peak_mb: float = 0.0

    def log_in(self, link: str) -> None:
        """Follow the link that the command prints."""
        parts = urlsplit(link)
        self.host, self.port = parts.netloc, parts.port or 80
        answer = self._send("POST", "/login", urlencode({"code": parts.fragment}))
        self.cookie = (answer.getheader("Set-Cookie") or "").partition(";")[0]
        assert answer.status == 303, answer.status

    def _send(self, method: str, path: str, body: str = "") -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {
            "Host": self.host, "Cookie": self.cookie, "Sec-Fetch-Site": "same-origin",
            "Content-Type": "application/x-www-form-urlencoded",
        }  # fmt: skip
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    def ask(self, kind: str, path: str) -> None:
        """Ask for a page and note how long it took."""
        began = time.perf_counter()
        status = self._send("GET", path).status
        self.took.setdefault(kind, []).append(1e3 * (time.perf_counter() - began))
        if status != 200:
            raise SystemExit(f"{path}: {status}")

    def _ask_while_it_runs(self, kind: str, path: str) -> None:
        try:
            self.ask(kind, path)
        except (OSError, http.client.HTTPException):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            if self.process.poll() is None:
                raise

    def ask_for(self, seconds: float) -> None:
        """Send the requests of some seconds, each when it is due; late ones are not left out."""
        rng, began = random.Random(3), time.monotonic()
        askers = []
        for number in range(int(REQUESTS_A_SECOND * seconds)):
            time.sleep(max(0.0, began + number / REQUESTS_A_SECOND - time.monotonic()))
            if self.process.poll() is not None:
                break
            asker = threading.Thread(
                target=self._ask_while_it_runs, args=self._request(number, rng)
            )
            asker.start()
            askers.append(asker)
            with suppress(OSError):  # it may have ended
                self.peak_mb = max(self.peak_mb, resident_mb(self.process.pid))
        for asker in askers:
            asker.join()

    def _request(self, number: int, rng: random.Random) -> tuple[str, str]:
        if number % 3 == 0:
            return "overview", "/?range=" + ("24h", "7d")[number % 2]
        if number % 3 == 1:
            return "list", "/cases?" + urlencode({"q": rng.choice(FILTERS)})
        return "case", "/case?" + urlencode(
            {"app": "shop", "set": "live", "id": rng.choice(self.cases)}
        )

    def processor(self) -> float:
        """Return the processor seconds of the process so far."""
        return processor_seconds(self.process.pid)


@contextmanager
def consuming(work: Path, *more: str) -> Iterator[Page]:
    """Run `evaltap consume --ui`, and end it in order."""
    process = subprocess.Popen(
        [sys.executable, "-c", EVALTAP, "consume", "--log", str(work / "log.db"),
         "--db", str(work / "x.duckdb"), "--metrics", str(work / "metrics.json"),
         "--ui", "127.0.0.1:0", *more],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "XDG_STATE_HOME": str(work / "state")},
    )  # fmt: skip
    try:
        page = Page(process)
        assert process.stdout is not None
        for line in process.stdout:
            if "/login#" in line:
                page.log_in(line.split()[-1])
                break
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield page
        process.send_signal(signal.SIGTERM)
        process.wait()
    finally:
        process.kill()


def quantiles(took: list[float]) -> tuple[float, float]:
    """Return the median and the 95th percentile."""
    cuts = statistics.quantiles(took, n=20)
    return cuts[9], cuts[18]


def record(log: str, rate: int, seconds: float) -> None:
    """Record turns at a rate, two to a session."""
    began = time.monotonic()
    with closing(Recorder(log, app_name="shop")) as recorder:
        for number in range(int(rate * seconds)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            with recorder.turn(
                session_id=f"new-{number // 40 * 20 + number % 20}", user=f"Where is {number}?"
            ) as turn:
                for tool in ("get_order", "track_parcel"):
                    turn.tool(tool, {"order": number}, result={"ok": True, "state": "on its way"})
                turn.respond(f"Order {number} is on its way.")


def phase(page: Page, name: str, seconds: float) -> dict[str, float]:
    """Ask for some seconds and print what it took; return the 95th percentiles."""
    page.took.clear()
    before, began = page.processor(), time.monotonic()
    page.ask_for(seconds)
    core = (page.processor() - before) / (time.monotonic() - began)
    found = {}
    for kind in ("overview", "list", "case"):
        median, found[kind] = quantiles(page.took[kind])
        print(f"{name:<10} {kind:<9} p50 {median:5.0f} ms, p95 {found[kind]:5.0f} ms")
    print(f"{name:<10} {core:.2f} cores, {page.peak_mb:.0f} MB at most", flush=True)
    return found


def sample(work: Path) -> list[str]:
    """Return the ids of some cases."""
    with duckdb.connect(str(work / "x.duckdb"), read_only=True) as store:
        rows = store.execute(
            "SELECT eval_id FROM turns USING SAMPLE 500 ROWS (reservoir, 1)"
        ).fetchall()
    return [row[0] for row in rows]


def latencies(work: Path, options: argparse.Namespace) -> None:
    """Print both phases and their ratio."""
    open_log(work / "log.db", mode="append").close()
    cases = sample(work)
    with consuming(work) as page:
        page.cases = cases
        for kind in range(REQUESTS_A_SECOND):  # what is made once
            page.ask("warm", page._request(kind, random.Random(1))[1])
        quiet = phase(page, "quiet", options.seconds)
        recorder = subprocess.Popen(
            [sys.executable, __file__, "--record", str(work / "log.db"), "--rate", str(options.rate),
             "--seconds", str(options.seconds + 6)]
        )  # fmt: skip
        time.sleep(5)
        busy = phase(page, "ingesting", options.seconds)
        recorder.wait()
    for kind, late in busy.items():
        print(f"{kind:<9} p95 while turns land: {late / quiet[kind]:.1f} x quiet")
    with duckdb.connect(str(work / "x.duckdb"), read_only=True) as store:
        ((landed, scored),) = store.execute(
            "SELECT count(*), count(*) FILTER (eval_id IN (SELECT eval_id FROM scores))"
            " FROM turns WHERE eval_id LIKE 'new-%'"
        ).fetchall()
    print(f"{landed:,} turns landed meanwhile, {scored:,} of them scored")


def consume_all(work: Path, *, cases: list[str]) -> None:
    """Consume the log to its end; with `cases`, with the page and its readers."""
    if not cases:
        subprocess.run(
            [sys.executable, "-c", EVALTAP, "consume", "--log", str(work / "log.db"),
             "--db", str(work / "x.duckdb"), "--metrics", str(work / "metrics.json"), "--until-idle"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        return
    with consuming(work, "--until-idle") as page:
        page.cases = cases
        while page.process.poll() is None:
            page.ask_for(1)


def backlog(work: Path, turns: int) -> None:
    """Print how fast a backlog is consumed with the page and its readers, and without.

    Counted from the first turn that landed to the last score, as the store has them, without the start.
    Without the page it is run before and after, as the order counts, too.
    """
    rates: dict[bool, list[float]] = {False: [], True: []}
    for place, page in enumerate((False, True, False)):
        log = open_log(work / "log.db", mode="append")
        made = [*records(10_000_000 + place * turns, turns)]
        for start in range(0, turns, 1_000):
            log.append(made[start : start + 1_000])
        log.close()
        with duckdb.connect(str(work / "x.duckdb"), read_only=True) as store:
            ((before,),) = store.execute("SELECT max(landed_seq) FROM turns").fetchall()
        consume_all(work, cases=sample(work) if page else [])
        with duckdb.connect(str(work / "x.duckdb"), read_only=True) as store:
            ((landed, seconds),) = store.execute(
                "SELECT count(*), epoch((SELECT max(scored_at) FROM turn_scores) - min(landed_at))"
                " FROM turns WHERE landed_seq > $before",
                {"before": before},
            ).fetchall()
        rate = landed / seconds
        rates[page].append(rate)
        name = "with the page and its readers" if page else "without a page"
        print(f"a backlog of {landed:,} turns {name}: {rate:,.0f} a second", flush=True)
    without, with_page = statistics.mean(rates[False]), statistics.mean(rates[True])
    print(f"the page costs {1 - with_page / without:.0%} of the throughput")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--store", type=Path, help="made by million.py before; it is copied")
    parser.add_argument("--record", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.record:
        record(options.record, options.rate, options.seconds)
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "metrics.json").write_text(json.dumps(METRICS))
        if options.store:
            shutil.copy(options.store, work / "x.duckdb")
        else:
            make_store(work / "x.duckdb", options.turns)
        latencies(work, options)
        if options.backlog:
            backlog(work, options.backlog)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
