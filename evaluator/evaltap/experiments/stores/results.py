"""Results of evaluations by app, one document for each."""

import uuid
from typing import Protocol

from evaltap.experiments.stores.document_store import DocumentStore
from evaltap.experiments.stores.errors import NotFoundError, required
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.result import EvalSetResult

Ids = list[str]


class ResultStoring(Protocol):
    """Stores results by app; called from any thread.  Raises InputError for a blank id."""

    def save(self, app: str, result: EvalSetResult) -> str:
        """Store a result, replacing one with its id, and return the id."""
        ...

    def get(self, app: str, result_id: str) -> EvalSetResult:
        """Return a result; raise NotFoundError."""
        ...

    def list(self, app: str) -> Ids:
        """Return the ids of the app's results; none for an app that is not known."""
        ...

    def close(self) -> None:
        """Release what the store holds."""


class ResultStore(DocumentStore[EvalSetResult]):
    """Results in documents; `now` gives the time in Unix seconds."""

    def save(self, app: str, result: EvalSetResult) -> str:
        """Store a result under its id, or under a new one; name and time are set if absent."""
        stored = to_store(app, result, self._now())
        with self._lock:
            self._documents.write(app, stored.eval_set_result_id, stored)
        return stored.eval_set_result_id

    def get(self, app: str, result_id: str) -> EvalSetResult:
        required(app_name=app, result_id=result_id)
        with self._lock:
            found = self._documents.read(app, result_id)
        if found is None:
            raise NotFoundError(f"no result {result_id!r} in app {app!r}")
        return found


def to_store(app: str, result: EvalSetResult, now: float) -> EvalSetResult:
    """Return a copy with an id, a name and a time; raise InputError if it cannot be stored."""
    if result is None:
        raise InputError("the result is null; give one")
    required(app_name=app, eval_set_id=result.eval_set_id)
    result_id = result.eval_set_result_id or f"{app}_{result.eval_set_id}_{uuid.uuid4()}"
    time_of = now if result.creation_timestamp is None else result.creation_timestamp
    return result.model_copy(
        update={
            "eval_set_result_id": result_id,
            "eval_set_result_name": result.eval_set_result_name or result_id,
            "creation_timestamp": time_of,
        }
    )
