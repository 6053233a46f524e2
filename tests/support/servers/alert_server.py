"""A web server for tests of receivers: it receives alerts and returns configured responses."""

import base64
import gzip
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from support.servers.quiet_http import Handler, serving


@dataclass
class Received:
    """What came: path, headers and body of each request in its JSON form, in order."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """Statuses of the next answers; then 200.  0: none within the time that clients wait."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of the answers."""

    @property
    def bodies(self) -> list[Any]:
        """The JSON bodies."""
        return [body for _, _, body in self.requests]


def _decoded(path: str, headers: dict[str, str], body: bytes) -> Any:
    if headers["content-type"] != "application/x-protobuf":
        return json.loads(body)
    kind = ExportLogsServiceRequest if path == "/v1/logs" else ExportMetricsServiceRequest
    text = json.dumps(MessageToDict(kind.FromString(body)))
    return json.loads(re.sub(r'"(traceId|spanId)": "([^"]+)"', _in_hex, text))


def _in_hex(found: re.Match[str]) -> str:
    return f'"{found[1]}": "{base64.b64decode(found[2]).hex()}"'


@contextmanager
def alert_server() -> Iterator[Received]:
    """Serve on this machine for the block."""
    received = Received()

    class Receiver(Handler):
        def do_POST(self) -> None:
            body = self.body()
            headers = {key.lower(): value for key, value in self.headers.items()}
            if headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.requests.append((self.path, headers, _decoded(self.path, headers, body)))
            status = received.answers.pop(0) if received.answers else 200
            if status == 0:
                time.sleep(1.0)
                return
            self.reply(status, b"", **received.headers)

    with serving(Receiver) as received.url:
        yield received
