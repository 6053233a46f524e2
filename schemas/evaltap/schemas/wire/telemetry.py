"""Passed from the assembler of traces (recorder) to the reader of their topic (evaluator)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaltap.schemas.wire.record import WireRecord


@dataclass(frozen=True, slots=True)
class TraceReading:
    """One reading of a trace: the records of its new or changed turns.

    Pass `memory` back to the assembler when the trace reappears after a restart; None when nothing
    in the trace belongs to an agent.
    """

    trace_id: str
    records: tuple[WireRecord, ...]
    memory: str | None


@dataclass(frozen=True, slots=True)
class DueTraces:
    """The traces to read now, one after the other, lazily.

    `forgotten` are traces that can no longer be revised: later items are read as separate traces.
    """

    readings: Iterator[TraceReading]
    forgotten: Sequence[str]
