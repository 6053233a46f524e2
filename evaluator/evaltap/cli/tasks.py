"""`evaltap run --tasks`: make the cases and metrics of tasks, and run them one after the other."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from evaltap.cli.messages import say
from evaltap.cli.options.run import RunOptions, TaskRunOptions
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured
from evaltap.evaluator.scoring.judges.endpoint import judge_settings
from evaltap.evaluator.scoring.judges.settings import judge_models_of
from evaltap.evaluator.store.database import Store
from evaltap.experiments.running import Finished
from evaltap.experiments.tasks.base import Task, TaskCases, TaskOptions, find_task, make_cases
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted, some_of

SHOWN = 3
_NOT_GIVEN = Path()


def _made(tasks: Mapping[str, Task], given: TaskRunOptions) -> dict[str, TaskCases]:
    """Return the cases of each task; raise InputError for a task without a source, and the reverse."""
    sources = _sources(given)
    if unused := next((name for name in sources if name not in tasks), None):
        raise InputError(f"a file for {unused}: add it to --tasks, or leave it out")
    options = TaskOptions(tuple(given.checkpoints))
    made: dict[str, TaskCases] = {}
    for name, task in tasks.items():
        if name not in sources:
            raise InputError(f"--tasks {name}: no rows; name them with --task-file {name}=SOURCE")
        made[name] = make_cases(name, task, sources[name], options, strict=given.strict)
        _report_skipped(name, made[name])
    return made


def run_tasks(options: RunOptions, run: Callable[[RunOptions], tuple[int, Finished | None]]) -> int:
    """Run each task as a set of its own, until one is interrupted; return the worst exit code.

    All sources are read before the first call.  What one has spent is not there for the next.
    """
    if options.set is not None:
        raise InputError(f"--tasks: brings its own cases; leave {options.set} out")
    given = options.tasks
    is_file = options.result is not None and options.result.suffix == ".json"
    if is_file and len(given.tasks) > 1:
        raise InputError(f"--result {options.result}: each task has a result; expected a folder")
    tasks = {name: find_task(name) for name in given.tasks}
    made = _made(tasks, given)
    codes = []
    with tempfile.TemporaryDirectory(prefix="evaltap-tasks-") as folder:
        for name, task in tasks.items():
            if not options.json and len(tasks) > 1:
                print(f"{name}:")
            code, found = run(_as_set(options, name, task, made[name], Path(folder)))
            codes.append(code)
            if found is None:
                continue
            if found.progress.stopped_by == "interrupted":
                break
            if (budget := options.judges.budget_usd) is not None:
                left = max(0.0, budget - found.progress.spent_usd)
                options = replace(options, judges=replace(options.judges, budget_usd=left))
    if rest := [*tasks][len(codes) :]:
        say("run", f"not run: {', '.join(rest)}")
    return next((code for code in (1, 3) if code in codes), 0)


def required(options: RunOptions) -> RunOptions:
    """Return the options of a run without tasks; raise InputError for what it cannot do without."""
    missing = ["SET"] if options.set is None else []
    missing += ["--metrics"] if options.metrics == _NOT_GIVEN else []
    if missing:
        raise InputError(f"missing {', '.join(missing)} (see evaltap run --help), or name --tasks")
    given = options.tasks
    if _sources(given) or given.checkpoints or given.strict:
        raise InputError("--task-file, --file-…, --checkpoints, --strict: are for --tasks; add it")
    return options


def verbose_lines(store: Store, finished: Finished) -> Iterator[str]:
    """Yield a line for each scored case: its set and id, the answer, verdicts, scores and reasons."""
    rows = store.rows(
        "SELECT s.eval_set_id, s.eval_id, any_value(t.answer),"
        " list((metric_name, s.status, s.score, s.reason) ORDER BY metric_name)"
        " FROM scores s LEFT JOIN (SELECT eval_set_id, eval_id,"
        "   string_agg(final_text, ' | ' ORDER BY started_at) AS answer FROM latest_turns GROUP BY ALL) t"
        " USING (eval_set_id, eval_id)"
        " WHERE s.eval_set_id LIKE $label GROUP BY ALL ORDER BY ALL",
        {"label": f"{finished.plan.cases.name}@{finished.plan.experiment_id}.%"},
    )
    for name, eval_id, answer, scores in rows:
        found = ", ".join(
            f"{metric} {'-' if score is None else format(score, '.2f')} {status}"
            f"{f' ({reason})' if reason else ''}"
            for metric, status, score, reason in scores
        )
        yield f"{eval_id} [{name.partition('@')[0]}] {answer or 'no answer'!r}: {found}"


def _sources(given: TaskRunOptions) -> dict[str, str]:
    short = {
        "context-compression": given.file_context_compression,
        "graph": given.file_graph,
        "summary": given.file_summary,
    }
    return {name: source for name, source in short.items() if source} | dict(given.task_file)


def _report_skipped(name: str, made: TaskCases) -> None:
    if left_out := len(made.problems):
        rows = f"{counted(left_out, 'row')} left out, of {left_out + len(made.cases):,}"
        shown = some_of(made.problems, SHOWN, "; ")
        say("run", f"{name}: {rows} ({shown}); --strict stops instead")


def _as_set(
    options: RunOptions, name: str, task: Task, made: TaskCases, folder: Path
) -> RunOptions:
    """Write a task's cases and metrics to files, and return the options that run them."""
    cases, metrics = folder / f"{name}.jsonl", folder / f"{name}.metrics.json"
    cases.write_bytes(b"".join(orjson.dumps(case) + b"\n" for case in made.cases))
    kept = _answerable(name, task.metrics())
    metrics.write_bytes(orjson.dumps([one.model_dump(by_alias=True) for one in kept]))
    return replace(options, set=cases, metrics=metrics, tasks=replace(options.tasks, tasks=()))


def _answerable(name: str, metrics: Sequence[EvalMetric]) -> list[EvalMetric]:
    """Leave out the metrics whose judge is not configured, and say so."""
    kept = []
    for metric in metrics:
        try:
            for model in judge_models_of(metric):
                judge_settings(model, os.environ)
        except JudgeNotConfigured as error:
            say("run", f"{name}: without {metric.metric_name}: {error}")
            continue
        kept.append(metric)
    return kept
