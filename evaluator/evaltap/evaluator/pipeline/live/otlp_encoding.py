"""The encoding of OTLP/HTTP requests: protobuf, or JSON if configured or if the protobuf package is missing.

A request is built in OTLP's JSON form, then converted to the messages of `opentelemetry-proto`, a dependency
of `opentelemetry-exporter-otlp`.
"""

import base64
import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Final, NamedTuple

from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.model import Json
from evaltap.schemas.text import did_you_mean_one_of

PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_PROTOBUF, _JSON = "http/protobuf", "http/json"


class Encoding(NamedTuple):
    """The content type of a request and how its body is encoded."""

    content_type: str
    encode: Callable[[str, Json], bytes]
    """Takes the path of the endpoint and the request in its JSON form."""


def encoding_of(environ: Mapping[str, str]) -> Encoding:
    """Return the encoding that OTEL_EXPORTER_OTLP_PROTOCOL names, by default protobuf.

    Raises InputError for another protocol, and for protobuf without the package `opentelemetry-proto`.
    """
    asked = environ.get(PROTOCOL, "").strip()
    if asked not in ("", _PROTOBUF, _JSON):
        hint = did_you_mean_one_of(asked, (_PROTOBUF, _JSON))
        raise InputError(f"{PROTOCOL}: evaltap sends scores over HTTP, found {asked!r}; {hint}")
    has_package = find_spec("opentelemetry.proto") is not None
    if asked == _PROTOBUF and not has_package:
        raise InputError(
            f"{PROTOCOL}: {_PROTOBUF} needs opentelemetry-proto; pip install 'evaltap[collect]'"
        )
    if asked == _JSON or not has_package:
        return Encoding("application/json", _to_json)
    return Encoding("application/x-protobuf", _to_protobuf)


def _to_json(path: str, request: Json) -> bytes:
    return json.dumps(request).encode()


def _to_protobuf(path: str, request: Json) -> bytes:
    from google.protobuf.json_format import Parse
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
        ExportMetricsServiceRequest,
    )

    message = ExportLogsServiceRequest() if path == "/v1/logs" else ExportMetricsServiceRequest()
    Parse(json.dumps(_with_ids(request)), message)
    encoded: bytes = message.SerializeToString()
    return encoded


def _with_ids(value: Json) -> Json:
    """Return a request whose ids are base64, as protobuf's JSON mapping expects; OTLP's JSON uses hex."""
    if isinstance(value, list):
        return [_with_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(one)).decode()
        if key in ("traceId", "spanId") and isinstance(one, str)
        else _with_ids(one)
        for key, one in value.items()
    }
