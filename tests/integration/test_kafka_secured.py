"""A secured cluster: TLS, users with passwords, permissions, no automatic creation of topics."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.schemas.log.location import KafkaClientName
from support.builders.cases import make_case, make_records, make_turn
from support.builders.topics import cases, landed, location, record
from support.builders.waiting import wait_for
from support.servers import apache
from support.servers.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PASSWORD = "store-password"
USERS = {"admin": "admin-secret", "agent": "agent-secret", "reader": "reader-secret"}
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="admin" password="admin-secret"'
    + "".join(f' user_{user}="{password}"' for user, password in USERS.items())
    + ";"
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the broker's key and, in PEM, the certificate that clients trust."""
    apache.skip_where_missing()
    folder = tmp_path_factory.mktemp("certificate")
    store = ["-keystore", str(folder / "broker.p12"), "-storepass", PASSWORD, "-alias", "broker"]
    _keytool("-genkeypair", *store, "-keyalg", "EC", "-storetype", "PKCS12", "-dname", "CN=broker",
             "-ext", "SAN=ip:127.0.0.1", "-validity", "2")  # fmt: skip
    _keytool("-exportcert", *store, "-rfc", "-file", str(folder / "ca.pem"))
    _keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(folder / "ca.pem"),
             "-keystore", str(folder / "trust.p12"), "-storetype", "PKCS12",
             "-storepass", PASSWORD)  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def cluster(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
        "ssl.keystore.location": str(certificate / "broker.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(certificate / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",  # the controller's own listener has no users
        "auto.create.topics.enable": "false",
    }
    folder = tmp_path_factory.mktemp("secured") / "kafka"
    broker = Broker(folder, apache.ApacheKafka(protocol="SASL_SSL", settings=settings))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def broker(cluster: Broker, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Broker:
    cluster.renew_names()
    monkeypatch.setenv("EVALTAP_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("EVALTAP_KAFKA_SSL_CAFILE", str(certificate / "ca.pem"))
    monkeypatch.setenv("EVALTAP_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_BLOCK_MS", "1000")
    log_in("agent", monkeypatch)
    return cluster


def log_in(user: str, monkeypatch: pytest.MonkeyPatch, password: str | None = None) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_SASL_PLAIN_USERNAME", user)
    monkeypatch.setenv("EVALTAP_KAFKA_SASL_PLAIN_PASSWORD", password or USERS[user])


def test_credentials_and_certificates_come_from_the_environment(
    broker: Broker, client: KafkaClientName, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(broker)
    allow(broker, "agent", "WRITE")
    allow(broker, "reader", "READ")

    recorder = Recorder(broker.log())
    record(recorder, 20)
    assert recorder.close(60)

    log_in("reader", monkeypatch)
    with Store(":memory:") as store:
        assert landed(broker.log(), store, client=client) == 20


def test_without_the_right_to_write_turns_wait_until_it_is_given(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_topic(broker)
    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records(cases(50)))
        assert not sink.flush(3)
        assert sink.backlog() == 50

        allow(broker, "agent", "WRITE")
        assert sink.flush(60)

    assert not list(tmp_path.rglob("*.rejected")), "a missing right is mended, not a bad record"
    log_in("admin", monkeypatch)
    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 50


def test_turns_wait_until_their_topic_is_made(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in("admin", monkeypatch)
    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records(cases(50)))
        assert not sink.flush(3)

        make_topic(broker)
        assert sink.flush(60)

    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 50


def test_with_a_wrong_password_turns_wait_and_the_consumer_says_why(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_in("agent", monkeypatch, "not-the-password")
    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records(cases(5)))
        assert not sink.flush(3)
        assert sink.backlog() == 5

    db = str(tmp_path / "x.duckdb")
    code = main(["consume", "--log", broker.log(), "--db", db, "--until-idle"])

    said = capsys.readouterr().err
    assert code == 2
    assert "check address and settings" in said
    assert "not-the-password" not in said


def test_without_the_right_to_read_consume_says_so_and_ends(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_topic(broker)
    allow(broker, "reader", "DESCRIBE")
    log_in("reader", monkeypatch)
    db = str(tmp_path / "x.duckdb")

    assert main(["consume", "--log", broker.log(), "--db", db, "--until-idle"]) == 2
    assert "AuthorizationFailed" in capsys.readouterr().err


def test_a_record_too_large_for_the_topic_is_set_aside_and_can_be_landed_from_there(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log_in("admin", monkeypatch)
    make_topic(broker, **{"max.message.bytes": "20000"})
    noise = os.urandom(60_000).hex()  # it must not compress below the limit
    big = make_case("big", [make_turn(answer=noise)])

    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records([*cases(300), big, *cases(300, first=300)]))
        assert sink.flush(60)
        assert sink.backlog() == 1, "counted as spooled: it is on the disk and not acknowledged"

    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 600
    (aside,) = tmp_path.rglob("*.rejected")
    db = str(tmp_path / "aside.duckdb")
    assert main(["consume", "--log", str(aside), "--db", db, "--until-idle"]) == 0
    with Store(db) as store:
        assert store.rows("SELECT eval_id FROM turns") == [("big",)]


def make_topic(broker: Broker, **settings: str) -> None:
    """Make the test's topic, and wait until it is there."""
    name = broker.name("evaltap.cases")
    with closing(_admin(broker)) as admin:
        admin.create_topics(
            {name: {"num_partitions": 1, "replication_factor": 1, "configs": settings}}
        )
        wait_for(lambda: name in admin.list_topics())


def allow(broker: Broker, user: str, operation: str, topic: str | None = None) -> None:
    """Give a user a right on a topic, the test's own unless another is named."""
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    with closing(_admin(broker)) as admin:
        admin.create_acls(
            [
                ACL(
                    principal=f"User:{user}",
                    host="*",
                    operation=ACLOperation[operation],
                    permission_type=ACLPermissionType.ALLOW,
                    resource_pattern=ResourcePattern(
                        ResourceType.TOPIC, topic or broker.name("evaltap.cases")
                    ),
                )
            ]
        )


def _admin(broker: Broker) -> Any:  # Any: kafka-python's client
    from kafka import KafkaAdminClient

    return KafkaAdminClient(
        bootstrap_servers=broker.address,
        security_protocol="SASL_SSL",
        ssl_cafile=os.environ["EVALTAP_KAFKA_SSL_CAFILE"],
        sasl_mechanism="PLAIN",
        sasl_plain_username="admin",
        sasl_plain_password=USERS["admin"],
    )


def _keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True, timeout=60)
