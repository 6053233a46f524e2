"""Which cluster a topic was read from: the offsets of one mean nothing on another."""

from collections.abc import Iterable

from evaltap.evaluator.log_position import stored_offsets
from evaltap.evaluator.store import Store


def moved_topics(store: Store, topics: Iterable[str], cluster_id: str | None) -> list[str]:
    """Have topics that were read from another cluster before be read from their start; tell of each.

    What is there already is known by its names and lands no second time.  Clusters that call themselves
    the same cannot be told apart, nor one that says nothing.
    """
    if not cluster_id:
        return []
    known = dict(store.rows("SELECT key, value FROM meta WHERE starts_with(key, 'cluster:')"))
    offsets = stored_offsets(store)
    told = []
    for topic in topics:
        before = known.get(key := f"cluster:{topic}")
        if before == cluster_id:
            continue
        with store.transaction():
            store.execute("DELETE FROM meta WHERE key = ?", [key])
            store.append("meta", [(key, cluster_id)])
            if before is None:
                continue
            now = store.now()
            store.append("offsets", [(*one, 0, now) for one in offsets if one.topic == topic])
        told.append(
            f"{topic}: is of the cluster {cluster_id}, and what was landed of {before}; it is read from its"
            " start. Give each cluster a DuckDB file of its own"
        )
    return told
