"""Runs of an agent on cases are no traffic: rates, eval sets and alarms leave them out."""

import re
from typing import Final

from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.text import counted

_NAMES_THEM: Final = re.compile(r"\benvironment\b", re.IGNORECASE)
_RUNS: Final = "SELECT DISTINCT app_name, eval_set_id, eval_id FROM units"
_HAS_RUNS: Final = "SELECT 1 FROM units LIMIT 1"
_HAS_TRAFFIC: Final = f"""
SELECT 1 FROM turns ANTI JOIN ({_RUNS}) USING (app_name, eval_set_id, eval_id) LIMIT 1"""
_TURNS_OF_RUNS: Final = f"""
SELECT count(DISTINCT (app_name, eval_set_id, eval_id, invocation_id))
FROM turns SEMI JOIN ({_RUNS}) USING (app_name, eval_set_id, eval_id)"""


def holds_traffic(store: StoreReader) -> bool:
    """Return whether turns have landed that no run on cases made."""
    return bool(store.rows(_HAS_TRAFFIC))


def runs_apart(store: StoreReader) -> bool:
    """Return whether runs have to be left out: they stay in a store that holds nothing else."""
    return bool(store.rows(_HAS_RUNS)) and holds_traffic(store)


def without_runs(store: StoreReader, where: str = "", *, app: str = "app") -> str:
    """Return an SQL condition that leaves out the turns of runs; empty where there is nothing to leave out.

    They stay with a condition `where` that names the environment, which is `experiment` for runs.  `app` is
    the column of the application.
    """
    if _NAMES_THEM.search(where) or not runs_apart(store):
        return ""
    return f"({app}, eval_set_id, eval_id) NOT IN ({_RUNS})"


def told_of_runs(store: StoreReader, where: str = "") -> str:
    """Return a sentence on the turns that `without_runs` leaves out; empty if these are none."""
    if not (turns := _turns_of_runs(store, where)):
        return ""
    return f"{turns} left out; they are no traffic, and have the environment 'experiment'"


def told_of_runs_among(store: StoreReader, *, weighted: bool) -> str:
    """Return a sentence on turns of runs that are counted beside traffic; empty if there are none.

    Rates that are `weighted` are of the traffic without them.
    """
    if not (turns := _turns_of_runs(store)):
        return ""
    leaves_out = "environment IS DISTINCT FROM 'experiment'"
    places = "among these cases, not in the rates" if weighted else "among these cases"
    return f'{turns} are {places}; --where "{leaves_out}" leaves them out'


def _turns_of_runs(store: StoreReader, where: str = "") -> str:
    count = store.rows(_TURNS_OF_RUNS)[0][0] if without_runs(store, where) else 0
    return f"{counted(count, 'turn')} of `evaltap run` and `evaltap replay`" if count else ""
