"""Fetch the records of topics with librdkafka (confluent-kafka), in C and on threads of its own.

librdkafka retries what can be retried by itself and reports it to the logger `kafka.librdkafka`.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import Any, Final

import confluent_kafka
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer
from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError, for_code

from evaltap.evaluator.ingest.sources.base import Partition, SourceRecord
from evaltap.evaluator.ingest.topics.clients import COMMITTED, is_transient
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.log.kafka_settings import ENVIRONMENT_PREFIX, kafka_settings, settings_blamed
from evaltap.schemas.log.location import KafkaLocation
from evaltap.schemas.wire.record import WireRecord

_LOG: Final = logging.getLogger("kafka.librdkafka")

_WAIT_SECONDS: Final = 0.1
"""How long one call of librdkafka waits: signals are handled, and `close` is noticed, between calls."""

_SAME: Final = (
    "client_rack check_crcs connections_max_idle_ms fetch_max_bytes fetch_min_bytes client_id "
    "isolation_level max_partition_fetch_bytes receive_message_max_bytes "
    "reconnect_backoff_max_ms reconnect_backoff_ms retry_backoff_ms "
    "sasl_kerberos_service_name sasl_mechanism security_protocol"
)
"""Settings with the same name in both, but for the dots of librdkafka: `isolation.level`."""
_SETTINGS: Final = {
    **{name: name.replace("_", ".") for name in _SAME.split()},
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
    "receive_buffer_bytes": "socket.receive.buffer.bytes",
    "request_timeout_ms": "socket.timeout.ms",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
    "send_buffer_bytes": "socket.send.buffer.bytes",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
}
"""librdkafka's names of kafka-python's settings."""

_ASKING: Final = ("api_version", "bootstrap_timeout_ms", "metrics_enabled")
"""Settings that only matter to the client that asks for metadata."""

_CORRUPT: Final = (
    confluent_kafka.KafkaError._BAD_COMPRESSION,
    confluent_kafka.KafkaError._BAD_MSG,
    CorruptRecordError.errno,
)


def librdkafka_settings(location: KafkaLocation) -> JsonObject:
    """Return the settings of a consumer: ours, overridden by kafka-python's from the environment.

    Raises ConfigurationError for settings that librdkafka does not have.
    """
    settings: JsonObject = {
        "bootstrap.servers": ",".join(location.brokers),
        "client.id": "evaltap-evaluator",
        "group.id": "evaltap-evaluator",  # required, but partitions are assigned, so it is not joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Never `latest`: records written before the first start would be lost silently.
        "auto.offset.reset": "earliest",
        "isolation.level": COMMITTED,
        "enable.partition.eof": True,  # the only way to know the position behind transaction markers
        "check.crcs": True,
        "enable.metrics.push": False,  # brokers get no telemetry about this process
        # The size of responses and of the queue bounds memory, and an idle queue is refilled at once.
        "fetch.max.bytes": 2 << 20,
        "max.partition.fetch.bytes": 256 << 10,
        "queued.max.messages.kbytes": 2 << 10,
        "fetch.queue.backoff.ms": 5,
        "receive.message.max.bytes": 1 << 30,  # also limits what a batch unpacks to
    }
    for name, value in kafka_settings(KafkaConsumer.DEFAULT_CONFIG).items():
        variable = f"{ENVIRONMENT_PREFIX}{name.upper()}"
        if name == "ssl_check_hostname":
            settings["ssl.endpoint.identification.algorithm"] = "https" if value else "none"
        elif name == "sasl_mechanism" and value in ("AWS_MSK_IAM", "OAUTHBEARER"):
            raise ConfigurationError(
                f"{variable} is {value}, which confluent-kafka cannot log in with; set --kafka-client"
                " kafka-python"
            )
        elif name in _SETTINGS:
            settings[_SETTINGS[name]] = value
        elif name not in _ASKING:
            raise ConfigurationError(
                f"{variable} means nothing to confluent-kafka; unset it, or set --kafka-client kafka-python"
            )
    return settings


class LibrdkafkaFetcher:
    """A `Fetcher` with a consumer of confluent-kafka.

    Raises ConfigurationError for `settings` that librdkafka rejects.
    """

    def __init__(self, settings: JsonObject) -> None:
        with settings_blamed():
            self._consumer = confluent_kafka.Consumer(settings, logger=_LOG)
        self._positions: dict[Partition, int] = {}
        self._paused: frozenset[Partition] = frozenset()
        self._failure: Exception | None = None
        """Why what follows the records that were returned cannot be returned."""
        self._closing = threading.Event()
        self._in_use = threading.Lock()
        """Held while the consumer is used: it must not be closed meanwhile."""

    def start(self, positions: Mapping[Partition, int], paused: Collection[Partition]) -> None:
        with self._in_use:
            if self._closing.is_set():
                return
            places = [TopicPartition(*one, offset) for one, offset in positions.items()]
            self._consumer.assign(places)
            self._positions = dict(positions)
            self._paused = frozenset()  # an assignment resumes all
            self._failure = None
        self.pause(paused)

    def fetch(
        self, timeout_ms: int, max_records: int
    ) -> Mapping[Partition, Sequence[SourceRecord]]:
        until = time.monotonic() + timeout_ms / 1000
        found: dict[Partition, list[SourceRecord]] = {}
        with self._in_use:
            while not (found or self._closing.is_set()):
                if self._failure is not None:
                    raise self._failure
                messages = self._consumer.consume(max_records, 0)
                left = until - time.monotonic()
                if not messages and left > 0:
                    first = self._consumer.poll(min(left, _WAIT_SECONDS))
                    messages = [] if first is None else [first]
                self._take(messages, found)
                if not messages and left <= 0:
                    break
        return found

    def _take(
        self,
        messages: Sequence[confluent_kafka.Message],
        found: dict[Partition, list[SourceRecord]],
    ) -> None:
        """Add records to `found`, up to the first that cannot be read."""
        partition, records = Partition(""), list[SourceRecord]()
        for message in messages:
            error, place = message.error(), (message.topic() or "", message.partition() or 0)
            if place != partition:
                partition = Partition(*place)
                records = found.get(partition, [])
            if error is None:
                try:
                    record = _record(partition, message)
                except Exception as failure:  # headers whose names are no texts: a SystemError
                    self._failure = CorruptRecordError(str(failure.__cause__ or failure))
                    return
                if not records:
                    found[partition] = records
                records.append(record)
                self._positions[partition] = record.offset + 1
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._positions[partition] = message.offset() or 0
            elif (refused := _refusal(error, partition)) is not None:
                self._failure = refused
                return

    def position(self, partition: Partition) -> int | None:
        return self._positions.get(partition)

    def pause(self, paused: Collection[Partition]) -> None:
        wanted, before = frozenset(paused), self._paused
        with self._in_use:
            if not self._closing.is_set():
                self._consumer.resume([TopicPartition(*one) for one in before - wanted])
                self._consumer.pause([TopicPartition(*one) for one in wanted - before])
                self._paused = wanted

    def close(self) -> None:
        self._closing.set()
        with self._in_use:
            self._consumer.close()


_headers: Final[Callable[[Any], Any]] = methodcaller("headers")
"""Returns the headers of a message; call it once for each.

For a name that is not UTF-8, confluent-kafka returns a list with holes beside its error.  Python only notices
that in calls from C: `message.headers()` passes the list on in hot code, and the process crashes.
"""
_value: Final = itemgetter(1)


def _record(partition: Partition, message: Any) -> SourceRecord:  # stubs: headers may be texts
    kind, time_ms = message.timestamp()
    headers: tuple[Any, ...] = tuple(_headers(message) or ())
    if None in map(_value, headers):
        headers = tuple((name, value or b"") for name, value in headers)
    return SourceRecord(
        partition,
        message.offset(),
        WireRecord(message.key(), message.value(), headers),
        None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else time_ms,
    )


def _refusal(error: confluent_kafka.KafkaError, partition: Partition) -> Exception | None:
    """Return kafka-python's error for one of librdkafka; None if librdkafka retries by itself.

    Errors without a topic are those of the consumer group, which nobody joins.
    """
    code, text = error.code(), error.str()
    refused: Exception
    if code in _CORRUPT:
        refused = CorruptRecordError(text)
    elif code == confluent_kafka.KafkaError._NOT_IMPLEMENTED:
        refused = UnsupportedCodecError(text)
    elif code < 0 or not partition.topic:
        return None
    else:
        answer: KafkaError = for_code(code)(text)
        if is_transient(answer):
            return None
        refused = answer
    return refused
