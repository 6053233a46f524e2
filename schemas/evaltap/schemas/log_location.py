"""Where a log is: the path of a local file, or topics of a Kafka cluster.

    agent.log.db
    kafka://host:port[,host:port]/topic[,topic][?format=case|otlp]

The format is that of the records: turns (`case`, what recorders write), or raw OTLP as an OpenTelemetry
Collector writes it (`otlp`), which can only be read.

Settings of the Kafka client (TLS, SASL) come from the environment: `EVALTAP_KAFKA_SECURITY_PROTOCOL`
becomes `security_protocol`, and so on.  They may hold secrets, so they are never part of a URL.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from evaltap.schemas.errors import ConfigurationError

ENVIRONMENT_PREFIX = "EVALTAP_KAFKA_"
FORM = "kafka://host:port[,host:port]/topic"
PRODUCER_BATCH_BYTES = 256 << 10
"""What a producer sends at once.  With kafka-python's 16 KB a batch holds a few turns, and its request
costs more than their sending, and its reading more than their unpacking."""
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
CASE, OTLP = FORMATS = ("case", "otlp")


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
    """Return where a log is; raise ConfigurationError for a URL that names none."""
    if "://" not in text:
        return Path(text)
    parts = urlsplit(text)
    if parts.scheme != "kafka":
        raise ConfigurationError(f"log {text!r}: unknown kind of URL; expected a path, or {FORM}")
    if "@" in parts.netloc:
        raise ConfigurationError(
            "a log URL holds no user or password; set EVALTAP_KAFKA_SASL_PLAIN_USERNAME and"
            " EVALTAP_KAFKA_SASL_PLAIN_PASSWORD instead"
        )
    brokers = tuple(broker for broker in parts.netloc.split(",") if broker)
    topics = tuple(topic for topic in parts.path.strip("/").split(",") if topic)
    if not brokers or not topics or any("/" in topic for topic in topics):
        raise ConfigurationError(f"log {text!r}: names no broker or no topic; expected {FORM}")
    options = parse_qs(parts.query)
    form = options.pop("format", [CASE])[-1]
    if options:
        raise ConfigurationError(
            f"log {text!r}: unknown option {next(iter(options))!r}; expected format=case or format=otlp"
        )
    if form not in FORMATS:
        raise ConfigurationError(
            f"log {text!r}: format {form!r} is not supported; expected {' or '.join(FORMATS)}"
        )
    return KafkaLocation(brokers, topics, form)


def kafka_settings(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client settings that the environment names; numbers and booleans where such belong.

    `known` are those of the client at hand with their defaults: a producer's setting means nothing to a
    consumer, and a password of digits is still a text.  Raises ConfigurationError for a value that
    cannot be meant.
    """
    found: dict[str, Any] = {}
    for variable, value in os.environ.items():
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if variable.startswith(ENVIRONMENT_PREFIX) and value and name in known:
            is_number = isinstance(known[name], bool | int | float) or name.endswith(_NUMBERS)
            found[name] = _decoded(value) if is_number else value
    if "security_protocol" in found:
        found["security_protocol"] = _security_protocol(found["security_protocol"])
    return found


def _security_protocol(given: str) -> str:
    """Return the protocol as the client knows it: what it does not know it takes for plaintext."""
    if given.upper() not in SECURITY_PROTOCOLS:
        raise ConfigurationError(
            f"{ENVIRONMENT_PREFIX}SECURITY_PROTOCOL is {given!r};"
            f" expected one of {', '.join(SECURITY_PROTOCOLS)}"
        )
    return given.upper()


_NUMBERS = ("_bytes", "_ms")
"""How settings end that are numbers, and by default none."""


def _decoded(value: str) -> Any:
    try:
        decoded = json.loads(value)
    except ValueError:
        return value
    return decoded if isinstance(decoded, bool | int | float) else value
