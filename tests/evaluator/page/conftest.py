"""A reader of the store that a file's fixture `path` names."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.readers import Readers


@pytest.fixture
def reader(path: Path) -> Iterator[StoreReader]:
    with Store(path) as store:
        Summaries(store).refresh()
        with Readers(store).reading(seconds=120) as found:
            yield found
