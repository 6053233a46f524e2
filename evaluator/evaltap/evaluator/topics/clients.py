"""Topics of a Kafka cluster that the evaluator writes to: created if missing, written with acknowledgements.

One thread uses a writer.  `TopicsUnavailableError` means that the broker did not confirm: nothing counts as written,
and it can be tried again.  A record that is rejected for its size would be rejected every time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.log.kafka_settings import kafka_settings, settings_blamed
from evaltap.schemas.log.location import KafkaLocation
from evaltap.schemas.wire.record import WireRecord

T = TypeVar("T")

ACK_SECONDS = 30.0
COMMITTED = "read_committed"
"""Of records of transactions, those that were aborted were never meant for anybody."""
MAX_REQUEST_BYTES = 8 << 20
"""As much as is kept of a broken record; a topic that takes less says so itself."""
CONNECT_SECONDS = 10.0
ASK_AGAIN_SECONDS = 0.5


class TopicsUnavailableError(EvaltapError):
    """Report that a broker did not answer, or not as it should; try again later."""


def create_topics(location: KafkaLocation, partitions: Mapping[str, int]) -> None:
    """Make the topics that are missing, with so many partitions each.

    A broker that dies or elects meanwhile is no reason to give up; others may answer.
    """
    from kafka.errors import KafkaError

    try:
        retry_transient(lambda: _create_topics(location, partitions), CONNECT_SECONDS)
    except KafkaError as error:
        raise TopicsUnavailableError(f"{location}: topics cannot be created ({error})") from None


def _create_topics(location: KafkaLocation, partitions: Mapping[str, int]) -> None:
    from kafka.errors import TopicAlreadyExistsError

    admin = _admin(location)
    try:
        there = set(admin.list_topics())
        for topic, count in partitions.items():
            if topic not in there:
                wanted = {topic: {"num_partitions": count, "replication_factor": -1}}
                # Somebody else may make it at the same moment.
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics(wanted)
    finally:
        admin.close()


def _admin(location: KafkaLocation) -> Any:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        return create_client(KafkaAdminClient, _settings(KafkaAdminClient.DEFAULT_CONFIG, location))
    except KafkaError as error:
        raise TopicsUnavailableError(
            f"{location}: no broker answers ({error}); check address and settings"
        ) from None


def is_transient(error: Any) -> bool:
    """Return whether a KafkaError may be gone when the brokers are asked again.

    kafka-python does not retry where the leader that it remembers is no broker any more: one that died.
    """
    return bool(error.retriable) or type(error).__name__ == "UnknownBrokerIdError"


def retry_transient(ask: Callable[[], T], seconds: float) -> T:
    """Return the answer; what fails and can be tried again is, for so many seconds.

    Raises the KafkaError of the last try.
    """
    from kafka.errors import KafkaError

    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaError as error:
            if not is_transient(error) or time.monotonic() >= until:
                raise
        time.sleep(ASK_AGAIN_SECONDS)


def ask_offsets(
    ask: Callable[[Sequence[Any]], Mapping[Any, int]], places: Sequence[Any]
) -> Mapping[Any, int]:
    """Return what a client's `beginning_offsets` or `end_offsets` says of each partition.

    Raises LeaderNotAvailableError where a partition has no leader at the moment: kafka-python leaves it
    out of its own list, and then does not find it there.
    """
    from kafka.errors import LeaderNotAvailableError

    try:
        return ask(places)
    except KeyError as error:
        raise LeaderNotAvailableError(f"{error} has no leader") from None


def poll_or_nothing(
    consumer: Any, timeout_ms: int, max_records: int
) -> Mapping[Any, Sequence[Any]]:
    """Return what a client's `poll` finds: nothing while a broker answers that it is to be tried again."""
    from kafka.errors import KafkaError

    try:
        found: Mapping[Any, Sequence[Any]] = consumer.poll(
            timeout_ms=timeout_ms, max_records=max_records
        )
    except KafkaError as error:
        if not is_transient(error):
            raise
        time.sleep(min(ASK_AGAIN_SECONDS, timeout_ms / 1000))
        return {}
    return found


def wire_record(message: Any) -> WireRecord:
    """Return a message of the client as the record that was written."""
    headers = message.headers
    if None in chain.from_iterable(headers):
        headers = [(name, value or b"") for name, value in headers]
    return WireRecord(message.key, message.value, tuple(headers))


def create_client(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Return a client of kafka-python; one that fails to start leaves no thread behind.

    Raises ConfigurationError for settings that it cannot work with.
    """
    from kafka.net.compat import KafkaNetClient

    inner: list[Any] = []

    def client(**configuration: Any) -> Any:
        inner.append(KafkaNetClient(**configuration))
        return inner[-1]

    try:
        with settings_blamed():
            return kind(**{"kafka_client": client, **settings})
    except Exception:
        for left in inner:
            left.close()
        raise


def _settings(known: Mapping[str, Any], location: KafkaLocation, **given: Any) -> dict[str, Any]:
    """Return settings of a client: ours, and above them what the environment says."""
    return {
        "bootstrap_servers": list(location.brokers),
        "client_id": "evaltap-evaluator",
        "bootstrap_timeout_ms": int(CONNECT_SECONDS * 1000),
        **given,
        **kafka_settings(known),
    }
