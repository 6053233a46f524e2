"""Eval sets and their cases, one document for each set."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from evaltap.experiments.stores.document_store import DocumentStore
from evaltap.experiments.stores.errors import ChangedError, ExistsError, NotFoundError, required
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalCase, EvalSet, Invocation


class EvalSetStoring(Protocol):
    """Stores eval sets by app; called from any thread.

    Every method raises InputError for a blank id.  What it returns belongs to the caller.
    """

    # More methods than rule 8 allows: they are tRPC-Agent-Go's manager, method by method.

    def get(self, app: str, eval_set_id: str) -> EvalSet:
        """Return a set with its cases; raise NotFoundError."""
        ...

    def create(self, app: str, eval_set_id: str) -> EvalSet:
        """Create an empty set and return it; raise ExistsError."""
        ...

    def put(self, app: str, eval_set: EvalSet) -> EvalSet:
        """Add a set with its cases and return it, stamped if it has no time; raise ExistsError."""
        ...

    def list(self, app: str) -> list[str]:
        """Return the ids of the app's sets; none for an app that is not known."""
        ...

    def delete(self, app: str, eval_set_id: str) -> None:
        """Delete a set with its cases, but not its metrics and results; raise NotFoundError."""

    def get_case(self, app: str, eval_set_id: str, eval_id: str) -> EvalCase:
        """Return a case; raise NotFoundError."""
        ...

    def add_case(self, app: str, eval_set_id: str, case: EvalCase | Mapping[str, Any]) -> None:
        """Add a case at the end and stamp it and its turns that have no time; raise ExistsError."""

    def update_case(
        self,
        app: str,
        eval_set_id: str,
        case: EvalCase | Mapping[str, Any],
        *,
        expected: EvalCase | None = None,
    ) -> None:
        """Replace a case whole, stamping nothing; raise NotFoundError, and ChangedError if the stored case is
        not the expected one.
        """

    def delete_case(self, app: str, eval_set_id: str, eval_id: str) -> None:
        """Delete a case; raise NotFoundError."""

    def close(self) -> None:
        """Release what the store holds."""


class EvalSetStore(DocumentStore[EvalSet]):
    """Eval sets in documents, as `EvalSetStoring` says; `now` gives the time in Unix seconds."""

    def get(self, app: str, eval_set_id: str) -> EvalSet:
        required(app_name=app, eval_set_id=eval_set_id)
        with self._lock:
            found = self._documents.read(app, eval_set_id)
        if found is None:
            raise NotFoundError(f"no eval set {eval_set_id!r} in app {app!r}; create it")
        return found

    def create(self, app: str, eval_set_id: str) -> EvalSet:
        return self.put(app, EvalSet(eval_set_id=eval_set_id, name=eval_set_id))

    def put(self, app: str, eval_set: EvalSet) -> EvalSet:
        required(app_name=app, eval_set_id=eval_set.eval_set_id)
        if eval_set.creation_timestamp is None:
            eval_set = eval_set.model_copy(update={"creation_timestamp": self._now()})
        with self._changing():
            if self._documents.read(app, eval_set.eval_set_id) is not None:
                raise ExistsError(f"eval set {eval_set.eval_set_id!r} exists in app {app!r}")
            self._documents.write(app, eval_set.eval_set_id, eval_set)
            return self.get(app, eval_set.eval_set_id)

    def delete(self, app: str, eval_set_id: str) -> None:
        with self._changing():
            self.get(app, eval_set_id)
            self._documents.remove(app, eval_set_id)

    def get_case(self, app: str, eval_set_id: str, eval_id: str) -> EvalCase:
        required(app_name=app, eval_set_id=eval_set_id, eval_id=eval_id)
        return self._found(self.get(app, eval_set_id), eval_id)[1]

    def add_case(self, app: str, eval_set_id: str, case: EvalCase | Mapping[str, Any]) -> None:
        required(app_name=app, eval_set_id=eval_set_id)
        added = stamped(case_of(case), self._now())
        with self._changing():
            eval_set = self.get(app, eval_set_id)
            if any(one.eval_id == added.eval_id for one in eval_set.eval_cases):
                raise ExistsError(f"case {added.eval_id!r} exists in eval set {eval_set_id!r}")
            self._write(app, eval_set, [*eval_set.eval_cases, added])

    def update_case(
        self,
        app: str,
        eval_set_id: str,
        case: EvalCase | Mapping[str, Any],
        *,
        expected: EvalCase | None = None,
    ) -> None:
        """Replace a case whole, if it is still the expected one."""
        required(app_name=app, eval_set_id=eval_set_id)
        changed = case_of(case)
        with self._changing():
            eval_set = self.get(app, eval_set_id)
            place, stored = self._found(eval_set, changed.eval_id)
            check_unchanged(stored, expected)
            cases = [*eval_set.eval_cases]
            cases[place] = changed
            self._write(app, eval_set, cases)

    def delete_case(self, app: str, eval_set_id: str, eval_id: str) -> None:
        required(app_name=app, eval_set_id=eval_set_id, eval_id=eval_id)
        with self._changing():
            eval_set = self.get(app, eval_set_id)
            place, _ = self._found(eval_set, eval_id)
            cases = [one for index, one in enumerate(eval_set.eval_cases) if index != place]
            self._write(app, eval_set, cases)

    def _write(self, app: str, eval_set: EvalSet, cases: Sequence[EvalCase]) -> None:
        document = eval_set.model_copy(update={"eval_cases": [*cases]})
        self._documents.write(app, eval_set.eval_set_id, document)

    @staticmethod
    def _found(eval_set: EvalSet, eval_id: str) -> tuple[int, EvalCase]:
        for place, case in enumerate(eval_set.eval_cases):
            if case.eval_id == eval_id:
                return place, case
        raise NotFoundError(f"no case {eval_id!r} in eval set {eval_set.eval_set_id!r}")


def check_unchanged(stored: EvalCase, expected: EvalCase | None) -> None:
    """Raise ChangedError if another case than the expected one is stored."""
    if expected is not None and stored != expected:
        raise ChangedError(f"case {stored.eval_id!r} has changed since it was read; read it again")


def stamped(case: EvalCase, now: float) -> EvalCase:
    """Return a case that has a creation time, as have its turns."""
    changed: dict[str, Any] = {
        name: [_turn(one, now) for one in turns]
        for name, turns in (
            ("conversation", case.conversation),
            ("actual_conversation", case.actual_conversation),
        )
    }
    if case.creation_timestamp is None:
        changed["creation_timestamp"] = now
    return case.model_copy(update=changed)


def _turn(turn: Invocation | None, now: float) -> Invocation | None:
    if turn is None or turn.creation_timestamp is not None:
        return turn
    return turn.model_copy(update={"creation_timestamp": now})


def case_of(given: EvalCase | Mapping[str, Any]) -> EvalCase:
    """Return a case that can be stored; raise InputError."""
    if given is None:
        raise InputError("the case is null; give an eval case")
    case = given if isinstance(given, EvalCase) else parse(EvalCase, dict(given))
    required(eval_id=case.eval_id)
    if None in case.conversation:
        raise InputError(
            f"case {case.eval_id!r}: conversation[{case.conversation.index(None)}] is null; leave it out"
        )
    return case
