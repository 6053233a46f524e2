"""The metrics of eval sets: one list for each set, in the order in which they are evaluated."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from evaltap.experiments.stores.document_store import Documents
from evaltap.experiments.stores.errors import ExistsError, NotFoundError, required
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.metric import EvalMetric

Metrics = list[EvalMetric]
Names = list[str]


class MetricStoring(Protocol):
    """Stores metrics by app and set, which need not exist; called from any thread.

    Every method raises InputError for a blank id.
    """

    # More methods than rule 8 allows: they are tRPC-Agent-Go's manager, method by method.

    def list(self, app: str, eval_set_id: str) -> Names:
        """Return the names of a set's metrics; none for a set that is not known."""
        ...

    def get(self, app: str, eval_set_id: str, name: str) -> EvalMetric:
        """Return a metric; raise NotFoundError."""
        ...

    def add(self, app: str, eval_set_id: str, metric: EvalMetric | Mapping[str, Any]) -> None:
        """Add a metric at the end; raise ExistsError."""

    def update(self, app: str, eval_set_id: str, metric: EvalMetric | Mapping[str, Any]) -> None:
        """Replace a metric whole; raise NotFoundError."""

    def delete(self, app: str, eval_set_id: str, name: str) -> None:
        """Delete a metric; raise NotFoundError."""

    def close(self) -> None:
        """Release what the store holds."""


class MetricStore:
    """Metrics in documents; see `MetricStoring`."""

    def __init__(self, documents: Documents[Metrics]) -> None:
        self._documents = documents
        self._lock = threading.RLock()

    def list(self, app: str, eval_set_id: str) -> Names:
        return [one.metric_name for one in self._all(app, eval_set_id)]

    def get(self, app: str, eval_set_id: str, name: str) -> EvalMetric:
        required(metric_name=name)
        metrics = self._all(app, eval_set_id)
        return metrics[self._place(metrics, name)]

    def add(self, app: str, eval_set_id: str, metric: EvalMetric | Mapping[str, Any]) -> None:
        added = metric_of(metric)
        with self._changing(app, eval_set_id) as metrics:
            if any(one.metric_name == added.metric_name for one in metrics):
                raise ExistsError(f"metric {added.metric_name!r} exists in {eval_set_id!r}")
            metrics.append(added)

    def update(self, app: str, eval_set_id: str, metric: EvalMetric | Mapping[str, Any]) -> None:
        changed = metric_of(metric)
        with self._changing(app, eval_set_id) as metrics:
            metrics[self._place(metrics, changed.metric_name)] = changed

    def delete(self, app: str, eval_set_id: str, name: str) -> None:
        required(metric_name=name)
        with self._changing(app, eval_set_id) as metrics:
            del metrics[self._place(metrics, name)]

    def close(self) -> None:
        """Do nothing: documents are held open by nobody."""

    @contextmanager
    def _changing(self, app: str, eval_set_id: str) -> Iterator[Metrics]:
        """Yield the metrics, and write what was made of them; nobody else changes them meanwhile."""
        with self._lock, self._documents.exclusive():
            metrics = self._all(app, eval_set_id)
            yield metrics
            self._documents.write(app, eval_set_id, metrics)

    def _all(self, app: str, eval_set_id: str) -> Metrics:
        required(app_name=app, eval_set_id=eval_set_id)
        with self._lock:
            return self._documents.read(app, eval_set_id) or []

    @staticmethod
    def _place(metrics: Metrics, name: str) -> int:
        for place, metric in enumerate(metrics):
            if metric.metric_name == name:
                return place
        known = ", ".join(one.metric_name for one in metrics)
        raise NotFoundError(f"no metric {name!r}; the set has: {known or 'none'}")


class SharedMetrics(MetricStore):
    """The same metrics for every set; raises InputError when they are to be changed."""

    def __init__(self, metrics: Sequence[EvalMetric], source: str) -> None:
        self._metrics, self._source = metrics, source

    def _changing(self, app: str, eval_set_id: str) -> NoReturn:
        raise InputError(f"every set has the metrics of {self._source}; change that file")

    def _all(self, app: str, eval_set_id: str) -> Metrics:
        return [*self._metrics]


def metric_of(given: EvalMetric | Mapping[str, Any]) -> EvalMetric:
    """Return a metric that can be stored; raise InputError."""
    if given is None:
        raise InputError("the metric is null; give one")
    metric = given if isinstance(given, EvalMetric) else parse(EvalMetric, dict(given))
    required(metric_name=metric.metric_name)
    return metric
