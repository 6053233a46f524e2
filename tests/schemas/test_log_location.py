"""Settings of the Kafka client from the environment: each of the kind that the client expects."""

from typing import Any

import pytest

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.log_location import kafka_settings

KNOWN: dict[str, Any] = {
    "linger_ms": 0, "retry_backoff_max_ms": 1000, "enable_auto_commit": True, "ssl_password": None,
    "sasl_plain_password": None, "sasl_plain_username": None, "receive_buffer_bytes": None,
    "security_protocol": "PLAINTEXT",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("sasl_plain_password", "12345678", "12345678"),
        ("sasl_plain_password", "true", "true"),
        ("sasl_plain_username", "1e5", "1e5"),
        ("ssl_password", "0", "0"),
        ("security_protocol", "SASL_SSL", "SASL_SSL"),
        ("security_protocol", "sasl_ssl", "SASL_SSL"),
        ("linger_ms", "20", 20),
        ("receive_buffer_bytes", "65536", 65536),
        ("enable_auto_commit", "false", False),
        ("retry_backoff_max_ms", "soon", "soon"),
    ],
)
def test_only_what_the_client_counts_with_is_a_number(
    monkeypatch: pytest.MonkeyPatch, name: str, given: str, taken: object
) -> None:
    monkeypatch.setenv(f"EVALTAP_KAFKA_{name.upper()}", given)

    assert kafka_settings(KNOWN) == {name: taken}


def test_what_this_client_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_POLL_RECORDS", "5")

    assert kafka_settings(KNOWN) == {}


@pytest.mark.parametrize("given", ["TLS", "SASL_SSLX", "sasl-ssl", "false"])
def test_a_protocol_that_nobody_knows_is_never_taken_for_plaintext(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_SECURITY_PROTOCOL", given)

    with pytest.raises(ConfigurationError, match=f"'{given}'; expected one of PLAINTEXT, SSL, "):
        kafka_settings(KNOWN)
