"""Stores of eval sets, metrics and results by app: in memory, in tRPC-Agent-Go's files, and its tables.

sets, metrics, results = stores_at("data")  # a folder, X.duckdb, mysql://… or postgresql://…
sets.create("my-app", "golden")
"""

from evaltap.experiments.stores.documents import (
    Stores,
    database_stores,
    file_stores,
    memory_stores,
    stores_at,
)
from evaltap.experiments.stores.errors import (
    ChangedError,
    DatabaseError,
    ExistsError,
    NotFoundError,
)
from evaltap.experiments.stores.eval_sets import EvalSetStore, EvalSetStoring
from evaltap.experiments.stores.locator import (
    EVAL_SET_FILES,
    METRICS_FILES,
    RESULT_FILES,
    FileLocator,
    Locator,
)
from evaltap.experiments.stores.metrics import MetricStore, MetricStoring, SharedMetrics
from evaltap.experiments.stores.results import ResultStore, ResultStoring
from evaltap.experiments.stores.tables import table_names

__all__ = [
    "EVAL_SET_FILES",
    "METRICS_FILES",
    "RESULT_FILES",
    "ChangedError",
    "DatabaseError",
    "EvalSetStore",
    "EvalSetStoring",
    "ExistsError",
    "FileLocator",
    "Locator",
    "MetricStore",
    "MetricStoring",
    "NotFoundError",
    "ResultStore",
    "ResultStoring",
    "SharedMetrics",
    "Stores",
    "database_stores",
    "file_stores",
    "memory_stores",
    "stores_at",
    "table_names",
]
