"""`collect` at any load: what it answered with 200 is written or counted, and it ends in ten seconds."""

import http.client
import json
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from attacks.collecting import PROTOBUF, Collect, collect
from support.builders.accounts import landed_and_dropped

BATCH, CONNECTIONS = 50, 8


def message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def batch() -> bytes:
    """Return a request of `BATCH` turns of two spans."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for _ in range(BATCH):
        trace_id, session = random.randbytes(16), random.randbytes(6).hex()
        agent, model = b"a" * 8, b"b" * 8
        for span_id, parent, operation in ((agent, b"", "invoke_agent"), (model, agent, "chat")):
            attributes = {
                "gen_ai.operation.name": operation,
                "gen_ai.agent.name": "shop",
                "gen_ai.conversation.id": session,
                "gen_ai.input.messages": message("user", "Where is it?"),
                "gen_ai.output.messages": message("assistant", "Here."),
            }  # fmt: skip
            spans.add(
                trace_id=trace_id, span_id=span_id, parent_span_id=parent, name=operation,
                start_time_unix_nano=1_700_000_000_000_000_000, end_time_unix_nano=1_700_000_001_000_000_000,
                attributes=[
                    KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()
                ],
            )  # fmt: skip
    body: bytes = request.SerializeToString()
    return body


def send(server: Collect, turns_per_second: float, seconds: float) -> int:
    """Send at a rate for so long; return how many turns were answered with 200."""

    def sender(number: int) -> int:
        accepted, connection = 0, http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        pause = CONNECTIONS * BATCH / turns_per_second
        due = time.monotonic() + pause * number / CONNECTIONS
        while due < until:
            body = batch()
            time.sleep(max(0.0, due - time.monotonic()))
            due += pause
            with suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/v1/traces", body, {"content-type": PROTOBUF})
                answer = connection.getresponse()
                answer.read()
                accepted += BATCH * (answer.status == 200)
                if answer.status == 200:
                    continue
            connection.close()
        connection.close()
        return accepted

    until = time.monotonic() + seconds
    with ThreadPoolExecutor(CONNECTIONS) as senders:
        return sum(senders.map(sender, range(CONNECTIONS)))


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "seconds"), [(300, 10), (1_000, 10), (3_000, 10)])
def test_what_it_accepted_is_written_or_counted_when_it_is_stopped(
    tmp_path: Path, rate: int, seconds: int
) -> None:
    with collect(tmp_path) as server:
        accepted = send(server, rate, seconds)
        peak = server.megabytes()
        took, said = server.stop()

    written, dropped = landed_and_dropped(tmp_path / "log.db")
    print(
        f"{rate}/s: accepted {accepted}, written {written}, counted {dropped}, {peak} MB, {took:.1f} s"
    )
    assert accepted > 0
    assert written + dropped == accepted
    assert took < 10, said
    assert dropped <= accepted / 2  # none, unless others take the CPU at the end


@pytest.mark.slow
def test_a_kill_costs_no_more_than_the_last_seconds(tmp_path: Path) -> None:
    with collect(tmp_path) as server:
        accepted = send(server, 1_000, 10)
        time.sleep(9)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()

    written, _ = landed_and_dropped(tmp_path / "log.db")
    assert written == accepted


@pytest.mark.slow
def test_it_refuses_before_it_has_accepted_more_than_it_can_write(tmp_path: Path) -> None:
    bodies = [batch() for _ in range(100)]
    with collect(tmp_path) as server:
        codes = [server.post(body, PROTOBUF) for body in bodies]
        took, said = server.stop()

    assert set(codes) == {200, 503}
    written, dropped = landed_and_dropped(tmp_path / "log.db")
    assert (written, dropped) == (codes.count(200) * BATCH, 0), said
    assert took < 10
