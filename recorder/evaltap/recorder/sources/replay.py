"""Appends eval cases to a log as if they were recorded now, one record per turn.

For cases from files and not from a running agent, so it works in the calling thread and raises.
Redaction is the recorder's own and on by default.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.delivery.record_writer import RecordWriter
from evaltap.recorder.delivery.redaction_key import configured_redactor
from evaltap.recorder.delivery.sinks.factory import log_sink
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.recorder.faults import DropCaseError, SinkError
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.text import counted, cut_text
from evaltap.schemas.wire.record import WireRecord

RECORDS_PER_APPEND = 200
ACKNOWLEDGED_EVERY_SECONDS = 5.0


@dataclass(slots=True)
class ReplayCounts:
    """What was appended, and by file the turns that a broker permanently refused."""

    cases: int = 0
    turns: int = 0
    refused: Mapping[Path, int] = field(default_factory=dict)


class Replay:
    """Appends cases to the log at `log`; use it in a `with` statement.

    Exit waits until a broker has acknowledged everything, however long that takes; `counts` then
    has what it refused, possibly including turns that ended processes left. When interrupted, the
    rest stays in the spool for the next process, as the message of the KeyboardInterrupt says.
    Raises ConfigurationError for an invalid log URL and for settings that the broker's client
    rejects, InputError for a case that cannot be recorded and for a log that cannot be written.
    What was appended before stays: it consists of whole turns.
    """

    def __init__(self, log: str, *, redaction: bool = True) -> None:
        config = RecorderConfig(
            log=log,
            sample_rate=1.0,
            sample_rules="",
            sample_max_per_minute=0.0,
            capture_content=True,
            redaction=redaction,
        )
        self._sink = log_sink(config)
        self._writer = RecordWriter(
            CaseProcessor(config, lambda: configured_redactor(config)),
            self._append,
            batch_records=RECORDS_PER_APPEND,
        )
        self.counts = ReplayCounts()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
        try:
            if kind is None:
                self._finish()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self._close()
        if interrupted:
            raise KeyboardInterrupt(*self._unsent()) from None

    def add(self, cases: Iterable[CaseData]) -> None:
        """Append every turn of the cases."""
        for case in cases:
            self.counts.cases += 1
            for turn_case in one_turn_cases(case):
                self._add(turn_case)

    def _add(self, case: CaseData) -> None:
        try:
            self._writer.add(case)
        except DropCaseError as dropped:
            why = f"{dropped.cause}" if dropped.cause else dropped.reason
            raise InputError(f"case {case['evalId']!r} cannot be recorded: {why}") from dropped
        self.counts.turns += 1
        if self._writer.waiting >= RECORDS_PER_APPEND:
            self._writer.write_batch()

    def _finish(self) -> None:
        self._writer.write_batch()
        self._writer.write_manifest({}, closing=True)
        self._await_broker()

    def _close(self) -> None:
        self._sink.close()
        if isinstance(self._sink, KafkaSink):
            self.counts.refused = self._sink.refused()

    def _unsent(self) -> list[str]:
        """Return a message about turns that wait for a broker, or nothing."""
        turns = self._sink.unsent() if isinstance(self._sink, KafkaSink) else 0
        return [_left(turns)] if turns else []

    def _await_broker(self) -> None:
        while not self._sink.flush(ACKNOWLEDGED_EVERY_SECONDS):
            if isinstance(self._sink, KafkaSink):
                _raise_if_fatal(self._sink)

    def _append(self, records: Sequence[WireRecord]) -> None:
        try:
            try:
                self._sink.append(records)
            except SinkError:
                if not (isinstance(self._sink, KafkaSink) and self._sink.unsent()):
                    raise
                # Waiting empties a full spool, and no agent is blocked.
                self._await_broker()
                self._sink.append(records)
        except SinkError as error:
            raise InputError(str(error)) from error


def _raise_if_fatal(sink: KafkaSink) -> None:
    """Raise the error that keeps turns in the spool and that waiting does not fix, if any."""
    trouble = sink.fatal_error()
    if isinstance(trouble, ConfigurationError):
        raise ConfigurationError(f"{trouble}; {_left(sink.unsent())}") from trouble
    if trouble is not None:
        raise trouble


def _left(turns: int) -> str:
    """Return a message that turns wait in the spool, and how to send them."""
    return (
        f"{counted(turns, 'turn')} {'waits' if turns == 1 else 'wait'} on the spool:"
        " the next `evaltap record` or recorder with this log sends them"
    )


def one_turn_cases(case: CaseData) -> Iterator[CaseData]:
    """Yield a case for each recorded turn, with its expected turn if it has one.

    A trace-mode case with only one conversation recorded that one. Raises InputError for a case
    without recorded turns, or whose two conversations differ in length.
    """
    name = f"case {cut_text(str(case.get('evalId')), 200)!r}"
    actual, expected = _conversations(case, name)
    rest = {k: v for k, v in case.items() if k not in ("actualConversation", "conversation")}
    seen: set[str] = set()
    for index, turn in enumerate(actual):
        if not isinstance(turn, dict):
            raise InputError(f"{name}: actualConversation[{index}] is null; expected a turn")
        invocation_id = turn.get("invocationId") or f"{case['evalId']}-{index + 1}"
        if invocation_id in seen:
            raise InputError(
                f"{name}: invocationId {invocation_id!r} occurs twice; make them unique"
            )
        seen.add(invocation_id)
        recorded = {**rest, "evalMode": "trace"}
        if expected and expected[index] is not None:
            recorded["conversation"] = [expected[index]]
        recorded["actualConversation"] = [{**turn, "invocationId": invocation_id}]
        yield recorded


def _conversations(case: CaseData, name: str) -> tuple[list[Any], list[Any]]:
    """Return the recorded turns and the expected ones: none, or equally many."""
    actual, expected = case.get("actualConversation") or [], case.get("conversation") or []
    if not actual and case.get("evalMode") == "trace":
        actual, expected = expected, []
    if not actual:
        raise InputError(
            f"{name} contains no recorded turns; expected evalMode 'trace' with actualConversation"
        )
    if expected and len(expected) != len(actual):
        raise InputError(
            f"{name}: {len(actual)} recorded turns but {len(expected)} expected ones;"
            " give equally many or none"
        )
    return actual, expected
