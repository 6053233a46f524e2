"""What the assembler of traces (recorder) gives to the reader of their topic (evaluator)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evaltap.schemas.wire.record import WireRecord


@dataclass(frozen=True, slots=True)
class TraceReading:
    """One reading of a trace: the records of the turns that are new in it or have changed.

    `memory` is to be given back to the assembler when the trace is met after a restart;
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
