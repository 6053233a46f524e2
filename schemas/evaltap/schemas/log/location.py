"""Log locations: the path of a local file, or topics of a Kafka cluster.

    agent.log.db
    kafka://host:port[,host:port]/topic[,topic][?format=case|otlp]

The format is that of the records: turns (`case`, as written by recorders), or raw OTLP as written
by an OpenTelemetry Collector (`otlp`), which can only be read.

Settings of the Kafka client (TLS, SASL) come from the environment:
`EVALTAP_KAFKA_SECURITY_PROTOCOL` becomes `security_protocol`, and so on. They may hold secrets, so
they are never part of a URL.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from evaltap.schemas.errors import ConfigurationError

FORM = "kafka://host:port[,host:port]/topic"
CASE = "case"
OTLP = "otlp"
FORMATS = (CASE, OTLP)
KafkaClientName = Literal["kafka-python", "confluent-kafka"]
"""The packages that can fetch a topic's records."""


@dataclass(frozen=True, slots=True)
class KafkaLocation:
    """Topics of one cluster."""

    brokers: tuple[str, ...]
    topics: tuple[str, ...]
    format: str = CASE

    def __str__(self) -> str:
        form = "" if self.format == CASE else f"?format={self.format}"
        return f"kafka://{','.join(self.brokers)}/{','.join(self.topics)}{form}"


LogLocation = Path | KafkaLocation


def parse_log_location(text: str) -> LogLocation:
    """Parse a log location; raises ConfigurationError for an invalid URL."""
    if "://" not in text:
        if text.startswith("kafka:"):
            raise ConfigurationError(f"log {text!r}: not a URL; expected a path, or {FORM}")
        return Path(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise ConfigurationError(f"log {text!r}: {error}; expected a path, or {FORM}") from None
    if parts.scheme != "kafka":
        raise ConfigurationError(f"log {text!r}: unknown kind of URL; expected a path, or {FORM}")
    if "@" in parts.netloc:
        raise ConfigurationError(
            "a log URL must not contain a user or password; set EVALTAP_KAFKA_SASL_PLAIN_USERNAME and"
            " EVALTAP_KAFKA_SASL_PLAIN_PASSWORD instead"
        )
    brokers = tuple(filter(None, parts.netloc.split(",")))
    topics = tuple(filter(None, parts.path.strip("/").split(",")))
    if not brokers or not topics or any("/" in topic for topic in topics):
        raise ConfigurationError(f"log {text!r}: names no broker or no topic; expected {FORM}")
    if parts.fragment or text.endswith("#"):
        raise ConfigurationError(f"log {text!r}: '#' is not allowed; expected {FORM}")
    for broker in brokers:
        _check_broker(text, broker)
    for topic in topics:
        _check_topic(text, topic)
    return KafkaLocation(brokers, topics, _format(text, parts.query))


def _format(text: str, query: str) -> str:
    options = parse_qs(query)
    form = options.pop("format", [CASE])[-1]
    if options:
        raise ConfigurationError(
            f"log {text!r}: unknown option {next(iter(options))!r}; expected format=case or format=otlp"
        )
    if form not in FORMATS:
        raise ConfigurationError(
            f"log {text!r}: format {form!r} is not supported; expected {' or '.join(FORMATS)}"
        )
    return form


_BROKER = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^][:\s]+)(?::([0-9]{1,5}))?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _check_broker(text: str, broker: str) -> None:
    found = _BROKER.fullmatch(broker)
    if found is None or not 1 <= int(found[1] or 1) <= 65_535:
        raise ConfigurationError(
            f"log {text!r}: broker {broker!r} is invalid; expected host:port, the port 1 to 65535"
        )


def _check_topic(text: str, topic: str) -> None:
    # As folder names, these two would escape the spool folder.
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ConfigurationError(
            f"log {text!r}: topic {topic!r:.80} is invalid; expected up to 249 letters, digits,"
            " dots, underscores and hyphens"
        )
