"""Numbers a producer's records, appends them in batches, and writes manifests with their count."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from evaltap.recorder.assembly.contexts import ContextMemory
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.pacing import yield_to_agent
from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.wire.record import Manifest, WireRecord, encode_manifest


def utc_now() -> datetime:
    """Return the current UTC time."""
    return datetime.now(UTC)


class RecordWriter:
    """Writes the cases of one producer through `append`, which takes a whole batch or raises.

    A case is numbered after encoding, when only the append remains, so the numbers on the log are
    dense: a gap means loss. A batch that failed is retried by the next `write_batch`. With
    `contexts`, context messages that the session already has are not written again.
    """

    def __init__(
        self,
        processor: CaseProcessor,
        append: Callable[[Sequence[WireRecord]], None],
        *,
        producer_id: str | None = None,
        batch_records: int = 500,
        batch_bytes: int = 1 << 30,
        contexts: ContextMemory | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self.producer_id = producer_id or uuid.uuid4().hex
        self.waiting_bytes = 0
        self._processor = processor
        self._append = append
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._now = now
        self._contexts = contexts
        self._seq = 0
        self._waiting: list[WireRecord] = []
        self._stated: tuple[int, dict[str, int], bool] | None = None

    @property
    def waiting(self) -> int:
        """The number of records not yet appended."""
        return len(self._waiting)

    def add(self, case: CaseData) -> None:
        """Sample, redact and encode a case, and buffer its record; raises DropCaseError."""
        processed = self._processor.process(case)
        yield_to_agent()
        self.add_processed(processed)

    def add_processed(self, processed: JsonObject) -> None:
        """Encode a processed case and buffer its record; raises DropCaseError when it is too large."""
        contexts = self._contexts
        record = self._processor.encode(
            contexts.trimmed(processed) if contexts is not None else processed,
            producer_id=self.producer_id,
            seq=self._seq + 1,
            time=self._now(),
        )
        if contexts is not None:
            contexts.note(processed)
        self._seq += 1
        self._waiting.append(record)
        self.waiting_bytes += record.size

    def write_batch(self) -> int:
        """Append the next batch and return its size, 0 if empty; propagates errors of `append`."""
        appended = self.append_batch()
        self.forget(appended)
        return appended

    def append_batch(self) -> int:
        """Append the next batch as `write_batch` does; it counts as waiting until `forget`."""
        if batch := self._next_batch():
            self._append(batch)
        return len(batch)

    def forget(self, records: int) -> None:
        """Remove so many appended records from those waiting."""
        self.waiting_bytes -= sum(record.size for record in self._waiting[:records])
        del self._waiting[:records]

    def _next_batch(self) -> list[WireRecord]:
        """Return the next batch, limited by records and bytes, with at least one record."""
        batch = self._waiting[: self._batch_records]
        size = 0
        for place, record in enumerate(batch):
            size += record.size
            if place and size > self._batch_bytes:
                return batch[:place]
        return batch

    def write_manifest(self, drops: Mapping[str, int], *, closing: bool = False) -> None:
        """Append a manifest, unless nothing has changed since the last one."""
        highest = self._seq - len(self._waiting)
        stated = (highest, dict(drops), closing)
        if stated == self._stated or not (highest or drops):
            return
        manifest = Manifest(self.producer_id, highest, self._now(), stated[1], closing)
        self._append([encode_manifest(manifest)])
        self._stated = stated

    def discard(self) -> int:
        """Discard buffered records when time is up; return how many."""
        discarded = len(self._waiting)
        self._seq -= discarded
        self._waiting.clear()
        self.waiting_bytes = 0
        return discarded
