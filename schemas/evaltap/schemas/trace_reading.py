"""What an assembler of traces hands to whoever reads telemetry for it: the two rooms' common words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaltap.schemas.record import WireRecord


@dataclass(frozen=True, slots=True)
class TraceReading:
    """One reading of a trace: the records of the turns that are new in it or have changed.

    `memory` is what the assembler wants to be told again when it meets the trace after a restart;
    None when nothing in the trace has to do with an agent.
    """

    trace_id: str
    records: tuple[WireRecord, ...]
    memory: str | None


@dataclass(frozen=True, slots=True)
class DueTraces:
    """The traces that are read now, one after the other as they are asked for.

    `forgotten` are traces that can no longer be revised: what comes of them later is read by itself.
    """

    readings: Iterator[TraceReading]
    forgotten: Sequence[str]
