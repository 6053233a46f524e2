"""A cluster of three brokers that die one after the other: leaders and coordinators change."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.schemas.log.location import KafkaClientName
from support.builders.program import Program
from support.builders.topics import landed, location, record, turns
from support.builders.waiting import wait_for
from support.servers import apache
from support.servers.broker import Broker, GivenCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def together(do: str, nodes: Sequence[Broker]) -> None:
    """Start nodes at once: none of them answers alone.  Or kill them."""
    with ThreadPoolExecutor(len(nodes)) as pool:
        for done in [pool.submit(getattr(node, do)) for node in nodes]:
            done.result()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    apache.skip_where_missing()
    nodes = apache.three_nodes(tmp_path_factory.mktemp("cluster"))
    try:
        together("start", nodes)
        yield nodes
    finally:
        together("kill", nodes)  # one that finds no others does not stop in good order


@pytest.fixture
def cluster(nodes: list[Broker]) -> Broker:
    """The cluster as clients know it, by all of its addresses."""
    together("start", nodes)
    cluster = GivenCluster(",".join(node.address for node in nodes))
    create_topics(location(cluster.log()), {cluster.name("evaltap.cases"): 3})
    return cluster


def test_leaders_die_one_after_the_other_and_each_turn_lands_once(
    cluster: Broker, client: KafkaClientName, nodes: list[Broker], tmp_path: Path
) -> None:
    recorder = Recorder(cluster.log())
    db = tmp_path / "x.duckdb"
    consume = ["consume", "--log", cluster.log(), "--kafka-client", client, "--db", str(db)]
    consumer = Program(consume, tmp_path / "out")
    for round_, node in enumerate(nodes):
        record(recorder, 100, first=round_ * 200)
        node.kill()  # it leads one of the three partitions
        delivered = recorder.counters().delivered
        record(recorder, 100, first=round_ * 200 + 100)
        wait_for(lambda before=delivered: recorder.counters().delivered >= before + 100, 90)  # type: ignore[misc]
        node.start()

    assert recorder.close(60)
    assert consumer.stop() == 0, consumer.output

    assert recorder.counters().delivered == 600
    with Store(db) as store:
        assert landed(cluster.log(), store) == 600
        assert len(set(turns(store))) == 600
        assert store.rows("SELECT count(*) FROM dead_letters") == [(0,)]
    assert "GAP" not in consumer.output


def test_while_too_few_brokers_are_left_every_turn_waits_on_the_spool(
    cluster: Broker, nodes: list[Broker]
) -> None:
    recorder = Recorder(cluster.log())
    record(recorder, 50)
    wait_for(lambda: recorder.counters().delivered == 50)
    for node in nodes[:2]:
        node.kill()
    record(recorder, 50, first=50)
    assert recorder.flush(10)

    time.sleep(3)  # time for the one that is left to take them wrongly
    counters = recorder.counters()
    assert (counters.recorded, counters.delivered, counters.spooled) == (100, 50, 50)

    together("start", nodes)
    assert recorder.close(120)
    with Store(":memory:") as store:
        assert landed(cluster.log(), store) == 100
