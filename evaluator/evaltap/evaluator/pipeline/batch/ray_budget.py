"""One budget for all workers of a cluster: an actor keeps it, and workers reserve from it."""

from typing import Any, Final

from evaltap.evaluator.scoring.contract.judge import BudgetSpentError
from evaltap.evaluator.scoring.judges.budget import Budget, BudgetLimits, Spending
from evaltap.evaluator.scoring.waiting import in_thread, sleep

BUDGET_POLL_SECONDS: Final = 0.05


class BudgetKeeper:
    """An actor that keeps the budget of all workers.  Reservations of a worker that died count as spent."""

    def __init__(self, limits: BudgetLimits) -> None:
        self._budget = Budget(limits)
        self._reserved: dict[str, list[Spending]] = {}

    def reserve(self, name: str, worst: Spending) -> tuple[bool, str]:
        """Return whether a request may be made now, and the reason if it never may."""
        try:
            if not self._budget.try_reserve(worst):
                return False, ""
        except BudgetSpentError as spent:
            return False, str(spent)
        self._reserved.setdefault(name, []).append(worst)
        return True, ""

    def settle(self, name: str, worst: Spending, actual: Spending) -> None:
        """Replace a reservation by the actual spending."""
        reserved = self._reserved.get(name, [])
        if worst in reserved:  # otherwise it was counted when the worker died
            reserved.remove(worst)
            self._budget.settle(worst, actual)

    def lost(self, name: str) -> None:
        """Count the reservations of a dead worker as spent."""
        for worst in self._reserved.pop(name, []):
            self._budget.settle(worst, worst)

    def spending(self) -> tuple[Spending, int]:
        """Return the spending, and the number of refused requests."""
        return self._budget.spent, self._budget.refused


class SharedBudget:
    """A worker's access to the shared budget."""

    def __init__(self, limits: BudgetLimits, keeper: Any, name: str) -> None:
        self.limits = limits
        self._keeper = keeper
        self._name = name

    def reserve(self, worst: Spending) -> None:
        """Reserve the worst case of a request; raise BudgetSpentError if it does not fit."""
        import ray

        while True:
            reserved, reason = in_thread(ray.get, self._keeper.reserve.remote(self._name, worst))
            if reserved:
                return
            if reason:
                raise BudgetSpentError(reason)
            sleep(BUDGET_POLL_SECONDS)

    def settle(self, worst: Spending, actual: Spending) -> None:
        """Replace a reservation by the actual spending."""
        self._keeper.settle.remote(self._name, worst, actual)
