"""Cases in memory."""

import pytest

from evaltap.recorder import MemorySink


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()
