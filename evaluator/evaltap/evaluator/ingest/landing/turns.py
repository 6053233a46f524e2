"""A turn of a record as rows of `turns` and `tool_calls`.

Rows are made at once, while the decoded record is in the processor's cache.  They are lists and tuples, which
take a third of the time of objects: there are a row for each turn and one for each of its calls.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from evaltap.evaluator.cases.costs import MARK, ModelUsage, computed_cost
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.ingest.landing.record_fields import CaseFields, empty, known
from evaltap.evaluator.store.queries import Row
from evaltap.schemas.formats.case import ErrorInfo, Telemetry

LARGEST_WHOLE: Final = (1 << 63) - 1
LARGEST_REVISION: Final = 100_000
"""Far beyond any real turn; the sum over a case's turns must fit its column."""
LEAST_PROBABILITY: Final = 1e-9
"""A turn that was kept by a smaller chance would outweigh all traffic, or overflow."""


class TurnOrigin(Struct, frozen=True, gc=False):
    """Names the turn of a record, and its producer."""

    key: CaseKey
    invocation_id: str
    revision: int
    event_id: str
    producer_id: str
    seq: int


class LandedTurn(Struct, frozen=True, gc=False):
    """A turn as rows, which replace its case data."""

    origin: TurnOrigin
    case: CaseFields
    started_at: datetime | None
    row: list[Any]  # of the types of the columns
    """The columns of `turns` in their order; the lander sets its position and the time."""
    calls: Sequence[Row]
    """The columns of `tool_calls` in their order, for each call."""
    line: bytes | None
    """The record's value, if it has an outline."""

    def landed(self, seq: int, now: datetime) -> Row:
        """Return the row of `turns`, with its place in the order of landing and the time."""
        self.row[_LANDED] = seq, now
        return self.row


def landed_turn(origin: TurnOrigin, case: CaseFields, turn: Any, line: bytes | None) -> LandedTurn:
    """Return the turn of a record; raise ValueError for a number that does not fit its column."""
    source = case.source
    telemetry = turn.telemetry or _NO_TELEMETRY
    error = telemetry.error or _NO_ERROR
    cost, capture = _cost_and_capture(telemetry, turn.capture, case.actual)
    started_at = _time(turn.creationTimestamp)
    named = (*origin.key, origin.invocation_id, _checked(origin.revision, LARGEST_REVISION))
    tools = turn.tools or ()
    row = [
        *named,
        started_at,
        telemetry.status,
        (turn.userContent.content or "") if turn.userContent else None,
        (turn.finalResponse.content or "") if turn.finalResponse else None,
        len(tools),
        telemetry.models,
        _whole(telemetry.inputTokens),
        _whole(telemetry.outputTokens),
        cost,
        telemetry.latencyMs,
        error.type,
        error.message,
        telemetry.traceId,
        telemetry.rootSpanId,
        source.closeReason,
        capture,
        case.actual,
        case.expected,
        origin.event_id,
        origin.producer_id,
        origin.seq,
        None,
        None,
        source.samplingReason,
        _probability(source.inclusionProbability),
        source.agentName or next(iter(telemetry.agents or ()), None),
        source.version,
        source.environment,
        source.tags,
        source.run,
    ]
    calls = [
        (
            *named,
            index,
            call.id,
            call.name or None,
            call.agent,
            call.parentId,
            known(call.arguments),
            known(call.result),
            call.error.type if call.error else None,
            call.error.message if call.error else None,
            _time(call.startTime),
            call.durationMs,
        )
        for index, call in enumerate(tools)
        if call is not None
    ]
    return LandedTurn(origin, case, started_at, row, calls, line)


def _cost_and_capture(
    telemetry: Any, captured: Any, actual: Raw
) -> tuple[float | None, str | None]:
    """Return the cost of a turn and its `capture`, which marks a cost that was computed from prices."""
    capture = str(_captured.decode(actual).capture, "utf-8") if captured else None
    if telemetry.costUsd is not None or not telemetry.models:
        return telemetry.costUsd, capture
    usage = [
        ModelUsage(
            one.model or "",
            one.inputTokens,
            one.outputTokens,
            one.cachedTokens,
            one.cacheWriteTokens,
        )
        for one in telemetry.usage or ()
    ]
    cost = computed_cost(usage, telemetry.models, telemetry.inputTokens, telemetry.outputTokens)
    if cost is None:
        return None, capture
    return cost, f"{{{MARK}}}" if capture is None else f"{capture.rstrip()[:-1]},{MARK}}}"


_LANDED: Final = slice(26, 28)
"""The places of `landed_seq` and `landed_at` in the columns of `turns`."""
_NO_TELEMETRY: Final = empty(Telemetry)
_NO_ERROR: Final = empty(ErrorInfo)
_captured: Final[Any] = msgspec.json.Decoder(msgspec.defstruct("Captured", [("capture", Raw)]))


def _checked(value: int, largest: int) -> int:
    """Return the number if it fits its column; raise ValueError otherwise."""
    if abs(value) > largest:
        raise ValueError(f"{value} is beyond {largest}")
    return value


def _whole(value: int | None) -> int | None:
    return None if value is None else _checked(value, LARGEST_WHOLE)


def _probability(value: float | None) -> float | None:
    """Return an inclusion probability, of which 0 weighs nothing; raise ValueError if it cannot be one."""
    if value is None or value == 0 or LEAST_PROBABILITY <= value <= 1:
        return value
    raise ValueError(
        f"inclusionProbability is {value:g}; expected at least {LEAST_PROBABILITY:g}, at most 1"
    )


# Go's zero time is -62135596800, in year 1; the last second of 9999 is what others call the greatest time.
_YEAR_9999: Final = 253_370_764_800


def _time(seconds: float | None) -> datetime | None:
    """Return Unix seconds as a UTC time; None for one that is no clock's: before 1970, or from 9999 on."""
    if seconds is None or not 0 < seconds < _YEAR_9999:
        return None
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
