"""Settings of librdkafka, from those that users give kafka-python."""

import re

import pytest

pytest.importorskip("confluent_kafka", reason="the extra kafka-fast is not installed")

from evaltap.evaluator.ingest.sources.librdkafka import LibrdkafkaFetcher, librdkafka_settings
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.log.location import KafkaLocation

CLUSTER = KafkaLocation(("a:9092", "b:9092"), ("t",))


@pytest.mark.parametrize(
    ("name", "value", "theirs", "found"),
    [
        ("SASL_PLAIN_PASSWORD", "12345", "sasl.password", "12345"),
        ("SSL_CHECK_HOSTNAME", "false", "ssl.endpoint.identification.algorithm", "none"),
        ("REQUEST_TIMEOUT_MS", "1000", "socket.timeout.ms", 1000),
        ("MAX_PARTITION_FETCH_BYTES", "1", "max.partition.fetch.bytes", 1),
        ("CHECK_CRCS", "false", "check.crcs", False),
    ],
)
def test_a_setting_of_kafka_python_goes_by_librdkafkas_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, theirs: str, found: object
) -> None:
    monkeypatch.setenv(f"EVALTAP_KAFKA_{name}", value)

    settings = librdkafka_settings(CLUSTER)

    assert (settings["bootstrap.servers"], settings[theirs]) == ("a:9092,b:9092", found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"SASL_MECHANISM": "AWS_MSK_IAM"}, "SASL_MECHANISM is AWS_MSK_IAM, which confluent-kafka"),
        ({"SOCKS5_PROXY": "socks5://h:1"}, "SOCKS5_PROXY means nothing to confluent-kafka"),
        ({"FETCH_MAX_WAIT_MS": "-1"}, "fetch.wait.max.ms"),
        ({"SECURITY_PROTOCOL": "SSL", "SSL_CIPHERS": "none such"}, "ssl.cipher.suites failed"),
    ],
)
def test_a_setting_that_librdkafka_cannot_use_is_named(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], message: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"EVALTAP_KAFKA_{name}", value)

    with pytest.raises(ConfigurationError, match=re.escape(message)):
        LibrdkafkaFetcher(librdkafka_settings(CLUSTER))
