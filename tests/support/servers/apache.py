"""Apache Kafka itself as a test broker, from its Maven artefacts: Java 17 and Maven are all it needs.

The jars are fetched once, into the user's cache folder; test runs side by side wait for each other.
"""

import hashlib
import re
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from support.servers.broker import Broker, free_port
from support.servers.cached import cache_folder, kept

VERSION = "4.3.1"
POM = Path(__file__).parent / "apache_kafka" / "pom.xml"
_NAME = f"apache-kafka-{VERSION}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:8]}"
FETCH_SECONDS = 600
FORMAT_SECONDS = 60


class ApacheKafka:
    """One node that is broker and controller (KRaft); `settings` are added to its server.properties.

    `protocol` is what its listener speaks: PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL.  It is the only
    node, or the one numbered `node` of several that find each other at the ports of `controllers`.
    Its classes become the file `keep_classes` when it stops.
    """

    def __init__(
        self,
        *,
        protocol: str = "PLAINTEXT",
        settings: Mapping[str, str] | None = None,
        node: int = 1,
        controllers: Mapping[int, int] | None = None,
        cluster_id: str | None = None,
        keep_classes: Path | None = None,
    ) -> None:
        self._protocol = protocol
        self._settings = dict(settings or {})
        self._node = node
        self._controllers = controllers
        self._cluster_id = cluster_id
        self._keep_classes = keep_classes

    def command(self, folder: Path, port: int) -> list[str]:
        """Format the storage at the first start, and return the command."""
        settings = self._properties(port, folder / "data")
        return command(folder, settings, self._cluster_id, self._keep_classes)

    def _properties(self, port: int, data: Path) -> dict[str, str]:
        controllers = self._controllers or {self._node: free_port()}
        control = controllers[self._node]
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._node),
            "controller.quorum.voters": ",".join(
                f"{node}@127.0.0.1:{port}" for node, port in controllers.items()
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{self._protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"{self._protocol}://127.0.0.1:{port}",
            "listener.security.protocol.map": (
                f"CONTROLLER:PLAINTEXT,{self._protocol}:{self._protocol}"
            ),
            "inter.broker.listener.name": self._protocol,
            "log.dirs": str(data),
            # One node, short tests: no replicas to wait for, few internal partitions to make.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # A killed broker comes back only when its former self counts as gone.
            "broker.session.timeout.ms": "1500",
            "broker.heartbeat.interval.ms": "300",
            **self._settings,
        }


def three_nodes(folder: Path) -> list[Broker]:
    """Return the nodes of one cluster, not started: each partition lies on all, two must have a record."""
    controllers = {node: free_port() for node in (1, 2, 3)}
    settings = {
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    cluster_id = uuid.uuid4().hex[:22]
    return [
        Broker(
            folder / f"node-{node}",
            ApacheKafka(
                settings=settings, node=node, controllers=controllers, cluster_id=cluster_id
            ),
        )
        for node in controllers
    ]


def command(
    folder: Path,
    settings: Mapping[str, str],
    cluster_id: str | None = None,
    keep_classes: Path | None = None,
) -> list[str]:
    """Return what runs a node with these settings; its storage is formatted at the first start.

    At later starts the settings of the first one hold.
    """
    run = ["-XX:ArchiveClassesAtExit=" + str(keep_classes)] if keep_classes else [_classes()]
    properties = folder / "server.properties"
    if not properties.exists():
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        read = [] if keep_classes else run
        done = subprocess.run(
            [*_java(), *read, "kafka.tools.StorageTool", "format", "--ignore-formatted",
             "-t", cluster_id or uuid.uuid4().hex[:22], "-c", str(properties)],
            capture_output=True, text=True, timeout=FORMAT_SECONDS,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"Kafka refuses its settings: {done.stdout}{done.stderr}")
    return [*_java(), *run, "kafka.Kafka", str(properties)]


def tool(name: str) -> list[str]:
    """Return the command of a tool of Kafka."""
    return [*_java(), _classes(), name]


def _java() -> list[str]:
    # Compiling well takes as long as all that a short test does.
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["java", *flags, "-cp", f"{jars()}/*"]


def _classes() -> str:
    """Return the flag that lets Java read all classes at once: from jars, they take half of the start."""
    digest = hashlib.sha256(_java_says().encode()).hexdigest()[:8]
    return f"-XX:SharedArchiveFile={kept(f'{_NAME}-{digest}', _keep_classes) / 'kafka.jsa'}"


def _keep_classes(folder: Path) -> None:
    node = Broker(folder / "node", ApacheKafka(keep_classes=folder / "kafka.jsa"))
    node.start()
    node.stop()


def missing() -> str | None:
    """Return why Apache Kafka cannot run here, None when it can."""
    if not shutil.which("java") or (java_version() or 0) < 17:
        return "Apache Kafka needs Java 17 or newer"
    if not shutil.which("mvn") and not cache_folder(_NAME).is_dir():
        return "Apache Kafka is fetched with Maven, which is not here"
    return None


def skip_where_missing() -> None:
    """Skip the test that asks where Apache Kafka cannot run, and say why."""
    if reason := missing():
        pytest.skip(reason)


def java_version() -> int | None:
    """Return the major version of the Java on the PATH."""
    found = re.search(r'version "(\d+)', _java_says())
    return int(found.group(1)) if found else None


@cache
def _java_says() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30)
    return said.stderr


def jars() -> Path:
    """Return the folder of the jars, fetched when they are not there."""
    return kept(_NAME, _fetch)


def _fetch(folder: Path) -> None:
    subprocess.run(
        ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies",
         f"-DoutputDirectory={folder}"],
        check=True, stdin=subprocess.DEVNULL, timeout=FETCH_SECONDS,
    )  # fmt: skip
