"""Ray clusters of several nodes on this machine, in a separate process, because Ray leaves threads behind."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NODES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False})
others = [cluster.add_node(num_cpus=1) for _ in range(int(sys.argv[1]) - 1)]
cluster.wait_for_nodes()
print(cluster.address, flush=True)
for line in sys.stdin:
    cluster.remove_node(others.pop(), allow_graceful=False)
    print('removed', flush=True)
cluster.shutdown()
"""


class Nodes:
    """A cluster of nodes with one processor each; its workers find modules in `path`."""

    def __init__(self, count: int, path: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", NODES, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.address = self._stdout.readline().strip()

    def kill_one(self) -> None:
        """Kill a node that is not the head."""
        print("kill", file=self._stdin, flush=True)
        assert self._stdout.readline() == "removed\n"

    def close(self) -> None:
        """End the cluster."""
        self._stdin.close()
        self._process.wait(60)
        self._stdout.close()


@contextmanager
def nodes(count: int = 2, path: str = "") -> Iterator[Nodes]:
    """Start a cluster for as long as the block lasts."""
    cluster = Nodes(count, path)
    try:
        yield cluster
    finally:
        cluster.close()
