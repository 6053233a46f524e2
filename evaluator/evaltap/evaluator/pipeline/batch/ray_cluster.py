"""A Ray cluster for the duration of a block, with Ray's errors converted to evaltap's."""

import logging
import os
import socket
from typing import Any, Final, Self

from evaltap.schemas.errors import ConfigurationError, EvaltapError, InputError

OBJECT_STORE_BYTES: Final = 128 << 20
"""Memory that a cluster started here may use for the arguments and results of tasks."""

OWN_CLUSTER: Final = "local"
"""The address that makes Ray start a cluster; without an address, Ray joins one running on this machine."""

CONNECT_SECONDS: Final = 10.0


class RayCluster:
    """The cluster at an address, or a cluster on this machine that ends with the block.

    Raises ConfigurationError if Ray is not installed, InputError if the cluster cannot be reached.
    """

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._began = False

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise ConfigurationError(
                "--engine ray needs the package ray; install evaltap[ray]"
            ) from None
        self.ray: Any = ray  # the module, which has no types
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if not ray.is_initialized():
            address = self._address or os.environ.get("RAY_ADDRESS") or OWN_CLUSTER
            if address == OWN_CLUSTER:
                quiet |= {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
            try:
                _knock(address)
                ray.init(address, **quiet)
            except (OSError, ValueError, RuntimeError) as error:
                reason = str(error).splitlines()[0]
                if address == OWN_CLUSTER:
                    raise InputError(f"Ray could not start on this machine: {reason}") from None
                raise InputError(
                    f"no Ray cluster at {address} ({reason}); start one with `ray start --head`"
                ) from None
            self._began = True
        # `init` recreates this logger.  Errors arrive as exceptions anyway.
        logging.getLogger("ray").setLevel(logging.ERROR)
        return self

    def __exit__(self, *_: object) -> None:
        if self._began:
            self.ray.shutdown()

    def processors(self) -> int:
        """Return how many processors the cluster has now."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))


def _knock(address: str) -> None:
    """Raise OSError if nobody listens at the address: Ray itself would retry for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


def readable(error: Exception) -> EvaltapError:
    """Return a worker's error as an EvaltapError."""
    cause: BaseException | None = error
    while cause is not None:
        # Ray raises a class that derives from ours as well, but its message is the whole traceback.
        inner = getattr(cause, "cause", None)
        if isinstance(cause, EvaltapError) and inner is None:
            return cause
        if isinstance(cause, OSError) and inner is None:
            return InputError(
                f"a node cannot reach {cause.filename or 'a file'} ({cause.strerror}); input and"
                " results must be under the same path on every node"
            )
        cause = inner or cause.__cause__
    return InputError(f"Ray gave up: {str(error).strip().splitlines()[-1]}")
