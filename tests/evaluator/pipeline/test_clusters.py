"""Topics with the same name on two clusters: landed records of one do not hide records of the other."""

from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch
from evaltap.evaluator.ingest.sources.positions import moved_topics, stored_offsets
from evaltap.evaluator.store.database import Store
from support.builders.cases import make_records
from support.builders.topics import cases, publish, turns
from support.servers.broker import Broker

FIRST, SECOND = Partition("cases", 0), Partition("cases", 1)
OTHER = Partition("others")


def test_a_topic_of_another_cluster_is_read_from_its_start_each_time_it_changes() -> None:
    with Store(":memory:") as store:
        begun = moved_topics(store, ["cases"], "one")
        Lander(store).land(SourceBatch(next_offsets={FIRST: 7, SECOND: 8, OTHER: 9}))
        same = moved_topics(store, ["cases"], "one")
        before = stored_offsets(store)
        (told,) = moved_topics(store, ["cases"], "two")
        moved = stored_offsets(store)
        Lander(store).land(SourceBatch(next_offsets={FIRST: 3}))
        back = moved_topics(store, ["cases"], "one")

    assert (begun, same, before) == ([], [], {FIRST: 7, SECOND: 8, OTHER: 9})
    assert told.startswith("cases: belongs to the cluster two, but was landed from one")
    assert moved == {FIRST: 0, SECOND: 0, OTHER: 9}
    assert len(back) == 1


def test_a_cluster_that_does_not_say_which_it_is_changes_nothing() -> None:
    with Store(":memory:") as store:
        moved_topics(store, ["cases"], "one")
        Lander(store).land(SourceBatch(next_offsets={FIRST: 7}))

        assert moved_topics(store, ["cases"], None) == []
        assert stored_offsets(store) == {FIRST: 7}


@pytest.mark.timeout(120)
def test_turns_of_two_clusters_land_in_one_file_all_the_same(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not broker.is_apache:
        pytest.skip("each noida-db says that it is the same cluster; with Kafka itself it runs")
    other = Broker(tmp_path / "other")
    other.start()
    db = str(tmp_path / "x.duckdb")
    logs = [broker.log(), broker.log().replace(broker.address, other.address)]
    for number, log in enumerate(logs):
        publish(log, make_records(cases(5, first=number * 5), producer_id=f"p-{number}"))

    codes = [main(["consume", "--log", log, "--db", db, "--until-idle"]) for log in (*logs, *logs)]
    other.stop()

    assert codes == [0, 1, 1, 1]  # a gap is told by the exit code, too

    with Store(db) as store:
        assert len(turns(store)) == 10
    assert capsys.readouterr().err.count("GAP") == 3
