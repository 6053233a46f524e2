"""Stores of eval sets, metrics and results by app: in memory, and in the files of tRPC-Agent-Go.

sets, metrics, results = file_stores("data")
sets.create("my-app", "golden")
"""

from evaltap.experiments.stores.documents import Stores, file_stores, memory_stores
from evaltap.experiments.stores.errors import ExistsError, NotFoundError
from evaltap.experiments.stores.eval_sets import EvalSetStore, EvalSetStoring
from evaltap.experiments.stores.locator import (
    EVAL_SET_FILES,
    METRICS_FILES,
    RESULT_FILES,
    FileLocator,
    Locator,
)
from evaltap.experiments.stores.metrics import MetricStore, MetricStoring
from evaltap.experiments.stores.results import ResultStore, ResultStoring
from evaltap.experiments.stores.tables import table_names

__all__ = [
    "EVAL_SET_FILES",
    "METRICS_FILES",
    "RESULT_FILES",
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
    "Stores",
    "file_stores",
    "memory_stores",
    "table_names",
]
