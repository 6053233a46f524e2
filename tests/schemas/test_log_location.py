"""URLs of logs, and settings of the Kafka client from the environment, converted to the expected types."""

import re
from typing import Any

import pytest

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.log.kafka_settings import kafka_settings
from evaltap.schemas.log.location import KafkaLocation, parse_log_location

KNOWN: dict[str, Any] = {
    "linger_ms": 0, "retry_backoff_max_ms": 1000, "enable_auto_commit": True, "ssl_password": None,
    "sasl_plain_password": None, "sasl_plain_username": None, "receive_buffer_bytes": None,
    "security_protocol": "PLAINTEXT", "acks": -1, "compression_type": None, "ssl_cafile": None,
    "socket_options": [], "bootstrap_servers": "localhost", "check_crcs": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("sasl_plain_password", "12345678", "12345678"),
        ("sasl_plain_password", "true", "true"),
        ("sasl_plain_username", "1e5", "1e5"),
        ("ssl_password", "0", "0"),
        ("sasl_plain_password", " from a file \r\n", " from a file "),
        ("linger_ms", "20\n", 20),
        ("security_protocol", "SASL_SSL", "SASL_SSL"),
        ("security_protocol", "sasl_ssl", "SASL_SSL"),
        ("linger_ms", "20", 20),
        ("receive_buffer_bytes", "65536", 65536),
        ("check_crcs", "false", False),
        ("retry_backoff_max_ms", "0.5", 0.5),
        ("acks", "1", 1),
        ("acks", "all", "all"),
        ("compression_type", "GZIP", "gzip"),
        ("compression_type", "none", None),
        ("compression_type", "null", None),
        ("compression_type", "", None),
        ("check_crcs", "False", False),
    ],
)
def test_only_what_the_client_counts_with_is_a_number(
    monkeypatch: pytest.MonkeyPatch, name: str, given: str, taken: object
) -> None:
    monkeypatch.setenv(f"EVALTAP_KAFKA_{name.upper()}", given)

    assert kafka_settings(KNOWN) == {name: taken}


def test_what_this_client_does_not_know_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_POLL_RECORDS", "5")

    assert kafka_settings(KNOWN) == {}
    assert caplog.text == "", "a consumer knows it"


def test_what_no_client_knows_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_FOO_BAR", "secret")

    assert kafka_settings(KNOWN) == kafka_settings({}) == {}
    (told,) = caplog.messages
    assert told.startswith("EVALTAP_KAFKA_FOO_BAR has no effect")
    assert "secret" not in told


@pytest.mark.parametrize("given", ["TLS", "SASL_SSLX", "sasl-ssl", "false"])
def test_a_protocol_that_nobody_knows_is_never_taken_for_plaintext(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_SECURITY_PROTOCOL", given)

    with pytest.raises(ConfigurationError, match=f"SECURITY_PROTOCOL is '{given}'; "):
        kafka_settings(KNOWN)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("RETRY_BACKOFF_MAX_MS", "soon", "is 'soon'; expected a number"),
        ("LINGER_MS", "true", "is 'true'; expected a number"),
        ("ACKS", "NaN", "is 'NaN'; expected a number"),
        ("CHECK_CRCS", "no", "is 'no'; expected true or false"),
        ("ENABLE_AUTO_COMMIT", "true", "cannot be set: offsets are stored with what was"),
        ("BOOTSTRAP_SERVERS", "other:9092", "cannot be set: the brokers are those of the log's"),
        ("COMPRESSION_TYPE", "zip", "is 'zip'; did you mean 'gzip'"),
        ("SOCKET_OPTIONS", "x", "cannot be set, because no text can express such a value"),
        ("SASL_MECHANISM", "SCRAM", "is 'SCRAM'; expected one of PLAIN, SCRAM-SHA-256, "),
        ("SECURITY_PROTOCOL", "SASL_SSL", "is 'SASL_SSL' but no login is configured; set "),
        (
            "SSL_CAFILE",
            "/no/such/file",
            "is '/no/such/file', which is not readable; name a readable file",
        ),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, given: str, said: str
) -> None:
    monkeypatch.setenv(f"EVALTAP_KAFKA_{name}", given)

    with pytest.raises(ConfigurationError, match=f"^EVALTAP_KAFKA_{name} {said}"):
        kafka_settings({**KNOWN, "sasl_mechanism": None})


def test_a_compression_whose_library_is_missing_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafka.codec.has_lz4", lambda: False)
    monkeypatch.setenv("EVALTAP_KAFKA_COMPRESSION_TYPE", "lz4")

    with pytest.raises(ConfigurationError, match="is 'lz4', whose library is not installed"):
        kafka_settings(KNOWN)


@pytest.mark.parametrize(
    ("brokers", "topic"),
    [
        (("a:1", "b.example:65535"), "evaltap.cases"),
        (("[::1]:9092", "[fe80::1]:9"), "x_-."),
        (("plain",), "t" * 249),
    ],
)
def test_a_url_names_brokers_and_a_topic(brokers: tuple[str, ...], topic: str) -> None:
    found = parse_log_location(f"kafka://{','.join(brokers)}/{topic}")

    assert found == KafkaLocation(brokers, (topic,))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("kafka://127.0.0.1:abc/t", "broker '127.0.0.1:abc' is invalid; expected host:port"),
        ("kafka://a:1,b:0/t", "broker 'b:0' is invalid"),
        ("kafka://a:65536/t", "broker 'a:65536' is invalid"),
        ("kafka://a:/t", "broker 'a:' is invalid"),
        ("kafka://a b:1/t", "broker 'a b:1' is invalid"),
        ("kafka://[::1/t", "IPv6"),
        ("kafka://a:1/one two", "topic 'one two' is invalid; expected up to 249 letters"),
        ("kafka://a:1/fine,ümlaut", "topic 'ümlaut' is invalid"),
        ("kafka://a:1/.", "topic '.' is invalid"),
        ("kafka://a:1/..", "topic '..' is invalid"),
        (f"kafka://a:1/{'t' * 250}", "is invalid"),
        ("kafka://a:1/t#part", "'#' is not allowed"),
        ("kafka://a:1/t?format=otlp#", "'#' is not allowed"),
    ],
)
def test_a_url_that_can_name_no_topic_is_refused(url: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        parse_log_location(url)
