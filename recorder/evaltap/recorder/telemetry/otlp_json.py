"""OTLP files of traces and logs, decoded into spans and log records.

A file holds one export request as JSON, JSON Lines of them (as written by a Collector's file
exporter), or protobuf; any of these may be gzipped. Beyond the specification this accepts what
occurs in practice: base64 ids, enum names instead of numbers, snake_case keys, 64-bit integers as
numbers or strings. Unknown fields and metrics are ignored. Unreadable data raises FormatError with
the file and the place; nothing is skipped silently.
"""

import base64
import binascii
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from evaltap.recorder.telemetry.containers import as_request, spans_together
from evaltap.recorder.telemetry.spans import STATUS_ERROR, LogRecord, Span, SpanEvent
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files.refused import refuse_device

_STATUS_NAMES = {"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": STATUS_ERROR}
_GZIP = b"\x1f\x8b"
_READ_AT_ONCE = 1 << 20
"""Bytes: a line of many spans is put together from few parts."""
_MOST_DIGITS = 20
"""Of a 64-bit integer."""
_SIGNALS = ("resourceSpans", "resourceLogs", "resourceMetrics")


def read_otlp_file(
    path: str | Path, skipped: list[str] | None = None
) -> Iterator[Span | LogRecord]:
    """Yield the spans and log records of one file, in file order.

    If `skipped` is given, a truncated last line and spans without a trace id are skipped and listed
    there. Raises InputError when the file cannot be opened and FormatError when it is neither OTLP
    nor one of the containers of `as_request`.
    """
    yield from items_of(read_documents(path, skipped), path=str(path), skipped=skipped)


def read_documents(
    path: str | Path, skipped: list[str] | None = None
) -> Iterator[tuple[str, object]]:
    """Yield the documents of a file with their places: JSON, JSON Lines or protobuf, also gzipped.

    JSON Lines and length-prefixed protobuf are read one document at a time.
    """
    name = str(path)
    with opened(path) as file:
        if file.peek(1)[:1] == b"\0":
            # Protobuf needs a library of its own, which only readers of such files should load.
            from evaltap.recorder.telemetry.otlp_protobuf import decode_any, messages_of

            yield from (("", decode_any(one, path=name)) for one in messages_of(file))
            return
        begun = []
        for line in file:
            begun.append(line)
            if line.strip():
                break
        if not begun or not _is_document(begun[-1]):
            yield from _whole_file(b"".join(begun) + file.read(), name)
            return
        lines = ((number, line) for number, line in enumerate(file, len(begun) + 1) if line.strip())
        second = next(lines, None)
        if second is None:
            yield "", orjson.loads(begun[-1])
        else:
            yield from _json_lines(chain(((len(begun), begun[-1]), second), lines), name, skipped)


@contextmanager
def opened(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open a file, decompressed; raise InputError or FormatError for one that cannot be read."""
    name = str(path)
    try:
        refuse_device(Path(path))
        raw: io.BufferedReader = io.BufferedReader(io.FileIO(name), _READ_AT_ONCE)
    except OSError as error:
        raise _unreadable(name, error) from None
    with raw:
        is_packed = False
        try:
            is_packed = raw.peek(2)[:2] == _GZIP
            yield io.BufferedReader(gzip.GzipFile(fileobj=raw)) if is_packed else raw
        except (OSError, EOFError, zlib.error) as error:
            if is_packed:
                raise FormatError(
                    f"not a whole gzip file ({error}); is it truncated?", path=name
                ) from None
            if isinstance(error, OSError):
                raise _unreadable(name, error) from None
            raise


def _unreadable(name: str, error: OSError) -> InputError:
    return InputError(f"{name}: cannot be read ({error.strerror}); check the path")


def _is_document(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def items_of(
    documents: Iterable[tuple[str, object]], *, path: str, skipped: list[str] | None = None
) -> Iterator[Span | LogRecord]:
    """Yield the spans and log records of the documents of a file; raise as `read_otlp_file` does."""
    for place, document in spans_together(documents):
        try:
            converted = as_request(document)
        except RecursionError:
            raise FormatError(
                "nested too deeply; expected at most 250 levels", path=path, place=place
            ) from None
        yield from decode_request(converted, path=path, place=place, skipped=skipped)


def decode_message(data: bytes) -> object:
    """Decode a message's single export request to its JSON form.

    JSON or protobuf, traces, logs or metrics: detected from the bytes. Raises FormatError for
    anything else.
    """
    if _is_protobuf(data):
        from evaltap.recorder.telemetry.otlp_protobuf import decode_any

        return decode_any(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        found = data[:16]
        raise FormatError(
            f"neither OTLP/JSON nor OTLP protobuf: begins with {found!r} ({error})"
        ) from None


def _is_protobuf(data: bytes) -> bool:
    """Return whether it is protobuf: a request starts with field 1 (0x0a), a framed one with its length.

    0x0a is also a line break, and a length of 0x7b looks like a brace.
    """
    if data[:1] == b"\0":
        return True
    if data[:1] != b"\n":
        return False
    text = data.lstrip()
    if text[:1] not in (b"{", b"["):
        return bool(text)
    try:
        next(_whole_file(text, ""))
    except FormatError:
        return True
    return False


def decode_request(
    document: object,
    *,
    path: str = "",
    place: str = "",
    skipped: list[str] | None = None,
    rejected: list[str] | None = None,
) -> Iterator[Span | LogRecord]:
    """Yield the spans and log records of one decoded export request.

    Spans without a trace id are listed in `skipped` if given, and whatever else is invalid in
    `rejected`; otherwise they raise FormatError, as do documents that are no request.
    """
    root = _Place(path, place)
    if not isinstance(document, dict):
        raise root.error(
            f"found {_kind(document)}; expected an object with resourceSpans or resourceLogs"
        )
    if document and not any(_get(document, key) is not None for key in _SIGNALS):
        found = ", ".join(sorted(map(str, document))[:5])
        raise root.error(
            f"found the keys {found}; expected resourceSpans or resourceLogs (OTLP/JSON)"
        )
    for resource, spans in _entries(document, root, "resourceSpans"):
        attributes = _resource(resource)
        for scope, at, item in _records(resource, spans, "scopeSpans", "spans"):
            if skipped is not None and _has_no_trace(item):
                skipped.append(str(at.error("a span whose trace id is all zeros")))
                continue
            try:
                span = _span(item, at, scope, attributes)
            except FormatError as error:
                _reject(error, rejected)
            else:
                yield span
    for resource, logs in _entries(document, root, "resourceLogs"):
        for scope, at, item in _records(resource, logs, "scopeLogs", "logRecords"):
            try:
                record = _log(item, at, scope)
            except FormatError as error:
                _reject(error, rejected)
            else:
                yield record


def _reject(error: FormatError, rejected: list[str] | None) -> None:
    if rejected is None:
        raise error
    rejected.append(str(error))


def _has_no_trace(item: Mapping[str, object]) -> bool:
    raw = _get(item, "traceId")
    return isinstance(raw, str) and bool(raw) and not raw.strip("0")


def _whole_file(data: bytes, path: str) -> Iterator[tuple[str, object]]:
    """Yield the documents of a file whose first line is none; raise FormatError for other contents."""
    if _is_protobuf(data):
        from evaltap.recorder.telemetry.otlp_protobuf import decode_any

        yield "", decode_any(data, path=path)
        return
    try:
        yield "", orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if not data.strip():
            raise FormatError("the file is empty; expected OTLP/JSON", path=path) from None
        lines = [line for line in data.splitlines() if line.strip()]
        if lines[0].strip() == b"{" and (several := _one_after_the_other(data)):
            yield from several
            return
        place = f"line {error.lineno}"
        if len(lines) == 1 or lines[0].strip() in (b"{", b"["):
            place += f", column {error.colno}"
        raise FormatError(
            f"not valid JSON ({error.msg.split(': line')[0]})", path=path, place=place
        ) from None


def _json_lines(
    lines: Iterator[tuple[int, bytes]], path: str, skipped: list[str] | None
) -> Iterator[tuple[str, object]]:
    for number, line in lines:
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            found = f"not valid JSON ({error.msg.split(': line')[0]})"
            if skipped is not None and next(lines, None) is None:
                # A file that a Collector is writing ends in the middle of a line.
                found = f"{found}, the last line: it is truncated"
                skipped.append(str(FormatError(found, path=path, place=f"line {number}")))
                return
            raise FormatError(found, path=path, place=f"line {number}") from None
        yield f"line {number}", document


def _one_after_the_other(data: bytes) -> list[tuple[str, object]]:
    """Return documents of several lines each, as printed by a console exporter; none for other files."""
    decoder = json.JSONDecoder()
    found: list[tuple[str, object]] = []
    try:
        text = data.decode().strip()
        end = 0
        while end < len(text):
            document, end = decoder.raw_decode(text, end)
            found.append((f"document {len(found) + 1}", document))
            while text[end : end + 1].isspace():
                end += 1
    except ValueError:
        return []
    return found


class _Place:
    """A location in a document, written out only in error messages."""

    __slots__ = ("path", "place", "steps")

    def __init__(self, path: str, place: str, steps: tuple[str | int, ...] = ()) -> None:
        self.path = path
        self.place = place
        self.steps = steps

    def __truediv__(self, step: str | int) -> "_Place":
        return _Place(self.path, self.place, (*self.steps, step))

    def error(self, message: str) -> FormatError:
        place = self.place
        for step in self.steps:
            if isinstance(step, int):
                place += f"[{step}]"
            else:
                place += ("" if not place else ": " if " " in place else ".") + step
        return FormatError(message, path=self.path, place=place)


def _entries(
    holder: Mapping[str, object], at: _Place, key: str
) -> Iterator[tuple[Mapping[str, object], _Place]]:
    if (items := _get(holder, key)) is None:
        return
    here = at / key
    if not isinstance(items, list):
        raise here.error(f"found {_kind(items)}; expected an array")
    for index, item in enumerate(items):
        place = here / index
        if not isinstance(item, dict):
            raise place.error(f"found {_kind(item)}; expected an object")
        yield item, place


def _records(
    resource: Mapping[str, object], at: _Place, scopes: str, records: str
) -> Iterator[tuple[str, _Place, Mapping[str, object]]]:
    for key in (scopes, "instrumentationLibrarySpans"):
        for scope, place in _entries(resource, at, key):
            name = _object(scope, "scope").get("name") or ""
            for item, where in _entries(scope, place, records):
                yield str(name), where, item


def _resource(resource: Mapping[str, object]) -> JsonObject:
    return _attributes(_object(resource, "resource").get("attributes"))


def _span(
    item: Mapping[str, object], at: _Place, scope: str, resource: Mapping[str, object]
) -> Span:
    status = _object(item, "status")
    code = status.get("code") or 0
    return Span(
        trace_id=_identifier(item, "traceId", 32, at),
        span_id=_identifier(item, "spanId", 16, at),
        parent_id=_identifier(item, "parentSpanId", 16, at, required=False) or None,
        name=str(item.get("name") or ""),
        start_ns=_integer(item, "startTimeUnixNano", at),
        end_ns=_integer(item, "endTimeUnixNano", at),
        attributes=_attributes(item.get("attributes")),
        events=() if item.get("events") in (None, []) else tuple(_events(item, at)),
        status_code=_STATUS_NAMES.get(code, 0) if isinstance(code, str) else _small(code),
        status_message=str(status.get("message") or ""),
        scope=scope,
        resource=resource,
    )


def _events(item: Mapping[str, object], at: _Place) -> Iterator[SpanEvent]:
    for event, place in _entries(item, at, "events"):
        yield SpanEvent(
            str(event.get("name") or ""),
            _integer(event, "timeUnixNano", place),
            _attributes(event.get("attributes")),
        )


def _log(item: Mapping[str, object], at: _Place, scope: str) -> LogRecord:
    attributes = _attributes(item.get("attributes"))
    time_ns = _integer(item, "timeUnixNano", at)
    observed = _integer(item, "observedTimeUnixNano", at)
    return LogRecord(
        trace_id=_identifier(item, "traceId", 32, at, required=False),
        span_id=_identifier(item, "spanId", 16, at, required=False),
        time_ns=time_ns or observed,
        event_name=str(_get(item, "eventName") or attributes.get("event.name") or ""),
        body=_any_value(item.get("body")),
        attributes=attributes,
        scope=scope,
    )


def _attributes(items: object) -> JsonObject:
    if not isinstance(items, list | tuple):
        return {}
    return {
        str(item["key"]): _any_value(item.get("value"))
        for item in items
        if isinstance(item, dict) and "key" in item
    }


def _any_value(value: object) -> object:
    if not isinstance(value, dict):
        return value
    for key, content in value.items():
        if key == "stringValue":  # as most are
            return content
        name = key.replace("_v", "V")
        if name == "intValue":
            return int(content) if _is_integer(content) else content
        if name == "arrayValue":
            return [_any_value(item) for item in _values(content)]
        if name in ("kvlistValue", "kvListValue"):
            return _attributes(_values(content))
        if name == "doubleValue":
            return _float(content)
        if name in ("stringValue", "boolValue", "bytesValue"):
            return content
    return None


def _get(item: Mapping[str, object], key: str) -> object:
    value = item.get(key)
    return item.get(_in_snake_case(key)) if value is None else value


@cache
def _in_snake_case(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def _object(item: Mapping[str, object], key: str) -> Mapping[str, object]:
    """Return an optional object of the message, empty for any other type."""
    value = _get(item, key)
    return value if isinstance(value, dict) else {}


def _values(content: object) -> Sequence[object]:
    values = content.get("values") if isinstance(content, dict) else None
    return values if isinstance(values, list) else ()


def _float(content: object) -> object:
    """Return a double; OTLP/JSON writes NaN and the infinities as text, which they stay."""
    return float(content) if isinstance(content, int | float) else content


def _small(code: Any) -> int:
    return int(code) if _is_integer(code) else 0


def _identifier(
    item: Mapping[str, object], key: str, digits: int, at: _Place, *, required: bool = True
) -> str:
    raw = _get(item, key)
    text = raw if isinstance(raw, str) else ""
    identifier = hexadecimal(text, digits)
    if identifier is None or (required and not identifier):
        expected = f"expected {digits} hex digits or the same in base64"
        raise (at / key).error(f"found {raw!r}; {expected}")
    return identifier


def hexadecimal(text: str, digits: int) -> str | None:
    """Return lower-case hex, an empty string for no id (absent or all zeros), None if invalid."""
    if not text.strip("0"):
        return ""
    if len(text) == digits:
        try:
            decoded = bytes.fromhex(text)
        except ValueError:
            return None
    else:
        try:
            decoded = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return None
    return decoded.hex() if len(decoded) * 2 == digits else None


def _integer(item: Mapping[str, object], key: str, at: _Place) -> int:
    value: Any = _get(item, key)
    if value is None or value == "":
        return 0
    if not _is_integer(value):
        raise (at / key).error(f"found {value!r}; expected a whole number of nanoseconds")
    return int(value)


def _is_integer(value: object) -> bool:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
