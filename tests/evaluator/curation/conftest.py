"""A store of landed traffic from which eval sets are made."""

from pathlib import Path

import pytest

from support.worlds.curated import traffic
from support.worlds.shop import landed


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return landed(tmp_path_factory.mktemp("curate"), traffic())
