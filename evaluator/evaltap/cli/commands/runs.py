"""`evaltap runs`: list the scoring runs of a DuckDB file, and export their scores for comparisons."""

from evaltap.cli.messages import print_json, print_outcome
from evaltap.cli.options.inspect import RunsExportOptions, RunsOptions
from evaltap.cli.stores import open_stores
from evaltap.evaluator.reports.runs import print_runs, run_data
from evaltap.evaluator.scoring.results.runs import listed_runs, run_states
from evaltap.schemas.text import counted


def run(options: RunsOptions | RunsExportOptions) -> int:
    """Print a row for each run, oldest first, or write the scores of runs."""
    if isinstance(options, RunsExportOptions):
        return _export(options)
    with open_stores(options.db) as store:
        rows = listed_runs(store)
        landing = store.lands
    if not rows and not options.json:
        print("no scoring runs yet; create one with `evaltap score` or `evaltap consume --metrics`")
        return 0
    if options.json:
        print_json([run_data(row) for row in rows])
        return 0
    states = run_states(rows, landing=landing)
    print_runs([{**row, "state": state} for row, state in zip(rows, states, strict=True)])
    return 0


def _export(options: RunsExportOptions) -> int:
    from evaltap.evaluator.reports.compare.reading import export_scores  # all that compares runs

    written = export_scores(options.db, options.out)
    noun = "score" if options.out.suffix != ".json" else "case"
    data = {f"{noun}s": written, "out": str(options.out)}
    text = f"evaltap runs: {counted(written, noun)} written to {options.out}"
    print_outcome(data, text, as_json=options.json)
    return 0
