"""How much faster two workers are than one, where a judge takes its time.

A scripted judge answers every call after 200 ms.  One sink, the broker and the workers share one machine;
every worker has the same number of threads.  Measured is the time from the first job to the last score,
with the workers already in their group.

    python docs/benchmarks/scale_out.py [--cases 400] [--threads 4] [--judge-ms 200]

The broker is Apache Kafka (needs Java 17 and Maven), or the cluster of EVALTAP_TEST_KAFKA=host:port: groups
of two members are not in the development dependency noida-db what they are in Kafka.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
from kafka_throughput import broker, fill
from score_files import EVALTAP

from evaltap.schemas.log_location import KafkaLocation

ANSWER = {"rubricScores": [{"id": "1", "score": 1, "reason": "because"}]}


def judge(seconds: float) -> ThreadingHTTPServer:
    """Serve a judge that answers after so many seconds."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(seconds)
            said = {"role": "assistant", "content": json.dumps(ANSWER)}
            body = json.dumps(
                {"id": "1", "object": "chat.completion", "created": 0, "model": "m",
                 "choices": [{"index": 0, "finish_reason": "stop", "message": said}]}
            ).encode()  # fmt: skip
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def metric(port: int) -> dict[str, object]:
    """Return a judged metric whose judge listens on a port of this machine."""
    model = {
        "providerName": "openai",
        "modelName": "judge",
        "baseURL": f"http://127.0.0.1:{port}/v1",
        "apiKey": "k",
        "numSamples": 1,
    }
    rubrics = [{"id": "1", "content": {"text": "The request is handled."}}]
    judged = {"llmJudge": {"judgeModel": model, "rubrics": rubrics}}
    return {"metricName": "llm_rubric_response", "threshold": 1, "criterion": judged}


def measure(workers: int, options: argparse.Namespace, port: int) -> tuple[float, int]:
    """Return the seconds that so many workers take, and the rows that are there twice."""
    with (
        tempfile.TemporaryDirectory() as folder,
        broker(Path(folder) / "broker", apache=True) as address,
    ):
        work = Path(folder)
        (work / "metrics.json").write_text(json.dumps([metric(port)]))
        location = KafkaLocation((address,), (f"bench-{workers}-{os.getpid()}",))
        shared = ["--log", str(location), "--group", f"bench-{os.getpid()}-{workers}"]
        environ = {**os.environ, "EVALTAP_JUDGE_API_KEY": "k", "EVALTAP_JUDGE_CACHE": "off"}
        running = []
        for number in range(workers):
            out = work / f"worker-{number}.out"
            with out.open("wb") as file:
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-c", EVALTAP, "work", *shared, "--threads", str(options.threads)],
                        stdout=file, stderr=subprocess.STDOUT, env=environ,
                    )
                )  # fmt: skip
            while "joined the group" not in (said := out.read_text()):
                if running[-1].poll() is not None:
                    raise SystemExit(f"a worker ended:\n{said}")
                time.sleep(0.1)
        fill(location, 0, 2 * options.cases)
        sink = [sys.executable, "-c", EVALTAP, "sink", *shared, "--db", work / "x.duckdb",
                "--metrics", work / "metrics.json", "--until-idle"]  # fmt: skip
        subprocess.run(sink, stdout=subprocess.DEVNULL, env=environ, check=True)
        for process in running:
            process.terminate()
            process.wait()
        with duckdb.connect(str(work / "x.duckdb"), read_only=True) as store:
            row = store.execute(
                "SELECT epoch(max(s.scored_at) - (SELECT min(asked_at) FROM jobs)),"
                " count(*) - count(DISTINCT (eval_id, revision)), count(*) FROM scores s"
            ).fetchone()
        assert row is not None
        assert row[2] >= options.cases, "not everything was scored"
        return float(row[0]), int(row[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="One worker and two on judged load.")
    parser.add_argument("--cases", type=int, default=400, help="cases of two judged turns each")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--judge-ms", type=float, default=200)
    options = parser.parse_args()
    server = judge(options.judge_ms / 1000)
    one, twice = measure(1, options, server.server_address[1])
    two, also = measure(2, options, server.server_address[1])
    server.shutdown()
    print(
        f"cases                 {options.cases} of two turns, a call of {options.judge_ms:.0f} ms each"
    )
    print(f"one worker            {one:.1f} s")
    print(f"two workers           {two:.1f} s")
    print(f"one / two             {one / two:.2f}")
    print(f"rows that are double  {twice + also}")


if __name__ == "__main__":
    main()
