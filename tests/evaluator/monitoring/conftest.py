"""A receiver of alerts."""

from collections.abc import Iterator

import pytest

from support.servers.alert_server import Received, alert_server


@pytest.fixture
def server() -> Iterator[Received]:
    with alert_server() as received:
        yield received
