"""Rules for all tests: no file of the user is used, no example has a time limit, stores are cheap;
fixtures for commands, brokers and a browser."""

import atexit
import gc
import hashlib
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import duckdb
import pytest
from hypothesis import settings

from evaltap.evaluator.ingest.landing import lander
from evaltap.evaluator.store import database, opening
from evaltap.evaluator.store.contents import Contents, refuse_strange
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.place import Place
from evaltap.schemas.log.location import KafkaClientName
from support.builders.commands import Evaltap, runner
from support.servers import apache, chromium
from support.servers.broker import Broker, GivenCluster

if TYPE_CHECKING:
    from playwright.sync_api import Browser

os.environ.setdefault("EVALTAP_JUDGE_CACHE", "off")

# DuckDB's binding calls all that lives at exit leaked, and pytest's rewritten modules live that long:
# eighty lines that a newcomer takes for a fault.  Nothing else writes to stderr so late.
atexit.register(lambda: os.dup2(os.open(os.devnull, os.O_WRONLY), 2))

# The objects of the frameworks stay: looking through them for garbage took a tenth of the suite's time.
gc.set_threshold(20_000, 10, 20)

settings.register_profile("evaltap", deadline=None, max_examples=50)
settings.load_profile("evaltap")


@pytest.fixture(scope="session", autouse=True)
def new_stores_are_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the tables and views of a new store once, and give tests copies of them.

    DuckDB takes 0.1 s to make them, a quarter of the suite's time.  Commands in processes of their own
    make each file anew.

    Likewise, search a file for functions and triggers once while its bytes stay the same: DuckDB lists its
    own three thousand functions for it, in half of the time that opening a file takes.
    """
    attach = opening._attached
    new = tmp_path_factory.mktemp("new") / "x.duckdb"
    Store(new).close()
    opened: dict[Path, bytes] = {}
    harmless = set[bytes]()

    def copied(path: Path, reading: Sequence[Place]) -> duckdb.DuckDBPyConnection:
        in_memory = str(path) == ":memory:"
        if not in_memory and path.parent.is_dir() and not os.path.lexists(path):
            shutil.copy(new, path)
        # Before DuckDB locks the file: closing it afterwards would end the lock.
        opened[path] = _digest(new if in_memory else path)
        connection = attach(path, reading)
        if in_memory:
            connection.execute(f"ATTACH '{new}' AS new (READ_ONLY)")
            connection.execute(f"COPY FROM DATABASE new TO {opening.NAME} (SCHEMA)")
            connection.execute("INSERT INTO meta FROM new.meta")
            connection.execute("DETACH new")
        return connection

    def searched(
        connection: duckdb.DuckDBPyConnection, path: Path, found: Contents, tables: Collection[str]
    ) -> None:
        digest = opened.pop(path, b"")
        if digest not in harmless:
            refuse_strange(connection, path, found, tables)
            harmless.update({digest} - {b""})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_attached", copied)
        patch.setattr(database, "refuse_strange", searched)
        yield


def _digest(path: Path) -> bytes:
    """Return a digest of a file's bytes; nothing for a file that has a log, or is large."""
    with suppress(OSError):
        if path.stat().st_size < 1 << 24 and not path.with_name(f"{path.name}.wal").exists():
            return hashlib.blake2b(path.read_bytes()).digest()
    return b""


@pytest.fixture(scope="session", autouse=True)
def landing_knows_few_names() -> Iterator[None]:
    """Let the names of the landed cases take 0.5 MB, not 16.

    A consumer that has ended is a cycle, and Python, which counts objects, is in no hurry to collect it:
    a gigabyte after sixty commands.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lander, "_BITS", 1 << 22)
        yield


@pytest.fixture(scope="module", autouse=True)
def language_model_goes() -> Iterator[None]:
    """Let py3langid's model go after each file whose tests read languages: 75 MB that few files need."""
    yield
    if model := sys.modules.get("py3langid.langid"):
        vars(model)["IDENTIFIER"] = None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which the test works."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def evaltap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Evaltap:
    """Run a command in an empty folder, without a judge; return its exit code, its output and its errors."""
    monkeypatch.chdir(tmp_path)
    for name in ("BASE_URL", "MODEL", "API_KEY", "PROVIDER"):
        monkeypatch.delenv(f"EVALTAP_JUDGE_{name}", raising=False)
    return runner(capsys)


GIVEN_CLUSTER = os.environ.get("EVALTAP_TEST_KAFKA")
# Its jars may have to be fetched first.
_APACHE = pytest.param("apache", marks=[pytest.mark.slow, pytest.mark.timeout(300)])


@pytest.fixture(scope="module")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Apache Kafka for the tests of a file: starting takes seconds, and so does a minute of idling."""
    apache.skip_where_missing()
    broker = Broker(tmp_path_factory.mktemp("apache") / "kafka", apache.ApacheKafka())
    yield broker
    broker.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run slow tests of a broker with Apache Kafka alone where it can run, not with its substitute too.

    CI repeats a test that fails, but none that kills processes at random: there, once in a hundred runs
    is a fault.
    """
    for one in items:
        if one.get_closest_marker("chaos") and config.pluginmanager.hasplugin("rerunfailures"):
            one.add_marker(pytest.mark.flaky(reruns=0))
    twice = [one for one in items if _is_slow_with_noida(one)]
    if twice and not apache.missing():
        items[:] = [one for one in items if one not in twice]
        config.hook.pytest_deselected(items=twice)


def _is_slow_with_noida(item: pytest.Item) -> bool:
    made = getattr(item, "callspec", None)
    slow = item.get_closest_marker("slow") or item.get_closest_marker("chaos")
    return bool(slow and made and made.params.get("broker") == "noida")


@pytest.fixture(params=["given"] if GIVEN_CLUSTER else ["noida", _APACHE])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A running broker: noida-db, in the slow suite Apache Kafka too; or the given cluster alone.

    Take names of topics and groups from `broker.name` or `broker.log`: others may lie on it too.
    """
    if GIVEN_CLUSTER:
        yield GivenCluster(GIVEN_CLUSTER)
        return
    if request.param == "apache":
        kafka: Broker = request.getfixturevalue("apache_kafka")
        kafka.renew_names()
        kafka.start()
        yield kafka
        return
    noida = Broker(tmp_path / "broker")
    noida.start()
    yield noida
    noida.stop()


@pytest.fixture(params=get_args(KafkaClientName))
def client(request: pytest.FixtureRequest) -> KafkaClientName:
    """The package that fetches the records of a topic."""
    if request.param == "confluent-kafka":
        pytest.importorskip("confluent_kafka", reason="the extra kafka-fast is not installed")
    found: KafkaClientName = request.param
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = chromium.browser_path()
    if not found:
        pytest.skip(chromium.NONE)
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=chromium.ARGUMENTS)
        yield launched
        launched.close()
