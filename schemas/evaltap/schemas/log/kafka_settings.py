"""Kafka client settings from the environment: `EVALTAP_KAFKA_SECURITY_PROTOCOL` and others.

They may hold secrets, so they are never part of a URL.
"""

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.text import did_you_mean_one_of

_LOG = logging.getLogger("evaltap.kafka")

ENVIRONMENT_PREFIX = "EVALTAP_KAFKA_"
CLIENT_VARIABLE = "EVALTAP_KAFKA_CLIENT"
"""The package that fetches records, which is no setting of a client; `evaltap consume` reads it."""
PRODUCER_BATCH_BYTES = 256 << 10
"""Producer batch size. With kafka-python's 16 KB a batch holds a few turns, and requests cost more
than sending them, and reading them more than decoding."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
COMPRESSIONS = ("gzip", "snappy", "lz4", "zstd")
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def kafka_settings(known: Mapping[str, object]) -> JsonObject:
    """Return the client settings from the environment, numbers and booleans converted.

    `known` are the client's settings with their defaults: a producer's setting means nothing to a
    consumer, and a password of digits is still a text. Raises ConfigurationError for an invalid
    value.
    """
    found: JsonObject = {}
    for variable, text in os.environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CLIENT_VARIABLE:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        value = text.rstrip("\r\n")  # values read from a file often end with a newline
        if name not in known:
            _warn_unknown(variable, name)
        elif name == "compression_type":
            found[name] = _compression(variable, value)
        elif value:
            found[name] = _setting(variable, name, value, known[name])
    logs_in = found.get("security_protocol", "").startswith("SASL")
    if logs_in and "sasl_mechanism" in known and "sasl_mechanism" not in found:
        raise ConfigurationError(
            f"{ENVIRONMENT_PREFIX}SECURITY_PROTOCOL is {found['security_protocol']!r} but no login"
            f" is configured; set {ENVIRONMENT_PREFIX}SASL_MECHANISM to one of {', '.join(MECHANISMS)}"
        )
    return found


@contextmanager
def settings_blamed() -> Iterator[None]:
    """Convert a client's complaints about its settings into ConfigurationError; no retry fixes those.

    Clients created in the block have fast checksums. Errors of Kafka and of the network propagate,
    and so does a missing package.
    """
    from kafka.errors import KafkaConfigurationError, KafkaError

    _use_fast_checksums()

    try:
        yield
    except (ConfigurationError, ImportError, OSError):
        raise
    except Exception as error:
        if isinstance(error, KafkaError) and not isinstance(error, KafkaConfigurationError):
            raise
        raise ConfigurationError(
            f"the Kafka client rejects its settings ({type(error).__name__}: {error});"
            f" correct the variables {ENVIRONMENT_PREFIX}..."
        ) from error


@cache
def _warn_unknown(variable: str, name: str) -> None:
    """Warn, once per process, about a variable that matches no client setting."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    clients = (KafkaProducer, KafkaConsumer, KafkaAdminClient)
    if not any(name in client.DEFAULT_CONFIG for client in clients):
        _LOG.warning(
            "%s has no effect, because kafka-python has no such setting; check its name", variable
        )


_NUMBERS = ("_bytes", "_ms")
"""Suffixes of settings that are numbers and default to None."""
_CHOICES = {"security_protocol": SECURITY_PROTOCOLS, "sasl_mechanism": MECHANISMS}
"""Settings whose unknown values the client misinterprets, treats as plaintext, or retries forever."""
_FIXED = {
    "bootstrap_servers": "the brokers are those of the log's URL",
    "group_id": "the offsets are in the DuckDB file, not in a consumer group",
    "enable_auto_commit": "offsets are stored with what was read up to them",
    "auto_offset_reset": "what was written before the first start would be lost",
}
"""Settings fixed by evaltap, because turns would otherwise be lost or sent elsewhere."""
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")


def _setting(variable: str, name: str, value: str, default: object) -> object:
    """Return a value converted to the type of its default."""
    if name in _FIXED:
        raise ConfigurationError(f"{variable} cannot be set: {_FIXED[name]}; unset it")
    if name in _CHOICES:
        return _choice(variable, value, _CHOICES[name])
    if callable(default) or isinstance(default, list | tuple):
        raise ConfigurationError(
            f"{variable} cannot be set, because no text can express such a value"
        )
    if isinstance(default, bool):
        return _truth(variable, value)
    if name == "acks" and value == "all":
        return value
    if name in _FILES and not os.access(value, os.R_OK):
        raise ConfigurationError(
            f"{variable} is {value!r}, which is not readable; name a readable file"
        )
    if isinstance(default, int | float) or name.endswith(_NUMBERS):
        return _number(variable, value)
    return value


def _choice(variable: str, value: str, words: Sequence[str]) -> str:
    """Return one of the allowed words, in capitals; raises ConfigurationError for any other."""
    if value.upper() not in words:
        raise ConfigurationError(
            f"{variable} is {value!r}; {did_you_mean_one_of(value.upper(), words)}"
        )
    return value.upper()


def _compression(variable: str, value: str) -> str | None:
    """Return the compression, None for none; raises ConfigurationError if its library is missing."""
    from kafka import codec

    name = value.lower()
    if name in ("", "none", "null"):
        return None
    if name not in COMPRESSIONS:
        raise ConfigurationError(
            f"{variable} is {value!r}; {did_you_mean_one_of(name, (*COMPRESSIONS, 'none'))}"
        )
    if not getattr(codec, f"has_{name}")():
        raise ConfigurationError(
            f"{variable} is {value!r}, whose library is not installed; install it (pip install"
            " python-snappy, lz4 or zstandard), or use gzip or none"
        )
    return name


def _truth(variable: str, value: str) -> bool:
    if value.lower() not in ("true", "false", "1", "0"):
        raise ConfigurationError(f"{variable} is {value!r}; expected true or false")
    return value.lower() in ("true", "1")


def _number(variable: str, value: str) -> int | float:
    try:
        number = json.loads(value)
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int | float) or math.isnan(number):
        raise ConfigurationError(f"{variable} is {value!r}; expected a number")
    return number


@cache
def _use_fast_checksums() -> None:
    """Give kafka-python the checksums of google-crc32c: its own choice, crc32c, is LGPL.

    Without either package it computes them in Python, about a hundred times slower.
    """
    util: Any = import_module("kafka.record.util")
    if util.crc32c_c is not None or util.calc_crc32c.__defaults__ != (util.crc32c_py,):
        return  # fast already, or a kafka-python that does it in another way
    try:
        from google_crc32c import value
    except ImportError:
        return
    # Other modules hold the function itself, which takes the one that computes as a default.
    util.calc_crc32c.__defaults__ = (lambda data: value(bytes(data)),)
