"""Which scores and cases a report is about."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.queries import Parameters, Rows, Scratch, StoreReader, newest_of
from evaltap.schemas.errors import InputError


def check_run(store: StoreReader, run_id: str) -> None:
    """Raise InputError if there is no such run."""
    known = store.column("SELECT run_id FROM runs ORDER BY started_at")
    if run_id not in known:
        raise InputError(
            f"no run {run_id!r}; expected one of: {', '.join(known) or 'none, there are no runs'}"
        )


def score_scope(
    store: StoreReader, run_id: str | None, digests: Sequence[str] = ()
) -> tuple[str, dict[str, object]]:
    """Return `FROM … WHERE …` over the scores of a run or the latest ones, and its parameters.

    A live run continues with cases that grow or get feedback: only a case's last score counts.  A gate's run
    may contain answers that were revised: they do not count.  `digests` restricts the scores to metric
    versions, also where a newer score is of another one.
    """
    parameters: dict[str, object] = {"digests": list(digests)} if digests else {}
    wanted = "metric_digest IN $digests::VARCHAR[]" if digests else "TRUE"
    if run_id is None:
        key = "app_name, eval_set_id, eval_id, metric_name"
        scores = f"(FROM scores WHERE {wanted})" if digests else "scores"
        return (
            f"FROM {newest_of(scores, key, 'revision DESC, scored_at DESC')} WHERE TRUE",
            parameters,
        )
    scope = f"FROM scores WHERE run_id = $run_id AND {wanted}"
    parameters["run_id"] = run_id
    if store.rows("SELECT 1 FROM gate_results WHERE run_id = ? LIMIT 1", [run_id]):
        mended = (
            "ANTI JOIN mended_attempts USING (run_id, app_name, eval_set_id, eval_id, revision)"
        )
        return f"FROM (FROM scores {mended}) WHERE run_id = $run_id AND {wanted}", parameters
    if store.rows("SELECT 1 FROM runs WHERE run_id = ? AND kind = 'live'", [run_id]):
        last = (
            "QUALIFY row_number() OVER (PARTITION BY app_name, eval_set_id, eval_id, metric_name"
            " ORDER BY revision DESC, scored_at DESC) = 1"
        )
        scope = f"FROM (SELECT * {scope} {last}) WHERE TRUE"
    return scope, parameters


@dataclass(frozen=True, slots=True)
class ReportedScores:
    """The scores that a report is about, and the cases that it shows in full, as tables of a reader."""

    store: StoreReader
    scores: Scratch
    cases: Scratch

    def rows(self, query: str, parameters: Parameters = None) -> Rows:
        """Return the rows of a query that names the tables `{scores}` and `{cases}`."""
        return self.store.rows(query.format(scores=self.scores, cases=self.cases), parameters)


def these_cases(store: StoreReader, keys: Iterable[CaseKey]) -> AbstractContextManager[Scratch]:
    """Return a table of cases."""
    return store.scratch(
        "SELECT app_name, eval_set_id, eval_id FROM scores LIMIT 0", rows=list(keys)
    )
