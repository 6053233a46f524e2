"""`evaltap run`: run an agent on the cases of an eval set, and score it."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeVar

from evaltap.cli.experimenting import (
    ProgressLines,
    chosen,
    quiet_engine,
    request_of,
    scorer_of,
    starter_of,
    user_of,
)
from evaltap.cli.messages import print_json, say
from evaltap.cli.mocking import lines_of_mocks
from evaltap.cli.options.run import RunOptions
from evaltap.cli.scoring import judge_session
from evaltap.cli.settings import named_in_hints
from evaltap.cli.tasks import required, run_tasks, verbose_lines
from evaltap.evaluator.analysis.traffic import holds_traffic
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.wording import readable
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.experiments.early_stop import parse_until
from evaltap.experiments.outcome import CaseOutcome, MetricOutcome, Outcome
from evaltap.experiments.partners import User
from evaltap.experiments.plan import CaseSet, only, read_set
from evaltap.experiments.result_file import write_result
from evaltap.experiments.running import Finished, Request, dry_run, run_experiment, tried_agent
from evaltap.experiments.tool_calls import is_served
from evaltap.schemas.errors import EvaltapError, InputError
from evaltap.schemas.text import counted, some_of

T = TypeVar("T")
_CUT_SHORT = ("interrupted", "budget")
_SHOWN: Final = 10  # cases
_REASON: Final = 200  # characters


def run(options: RunOptions) -> int:
    """Run the experiment, or that of each task, print what was found, and return the exit code."""
    return run_tasks(options, _run) if options.tasks.tasks else _run(required(options))[0]


def _run(options: RunOptions) -> tuple[int, Finished | None]:
    with judge_session("run", options.judges) as judges:
        request, scorer = _checked(options, judges)
        with Store(options.db) as store:
            if holds_traffic(store):
                told = "holds traffic, too; its report will show these runs among it"
                say("run", f"{options.db}: {told}; --db names another file")
            if options.dry_run:
                plan = dry_run(request, scorer, store)
                print(json.dumps(plan.data()) if options.json else "\n".join(plan.lines()))
                return 0, None
            judges.check_reachable(scorer.metrics)
            if request.has_users:
                request.user.check_reachable()
            told = request.tools.told(request.cases.cases, request.agent)
            say("run", told)
            shown = ProgressLines()
            with quiet_engine(options.agent):
                finished = run_experiment(
                    request, scorer, store, report=shown.report, start=starter_of(options.agent)
                )
            if options.judges.budget_usd is not None and (unpriced := finished.outcome.unpriced):
                told = f"--budget-usd: does not count {counted(unpriced, 'turn')} of unknown cost"
                say("run", told)
            if options.result is not None:
                path = write_result(options.result, store, finished)
                say("run", f"wrote {path}")
            if options.verbose:
                for line in verbose_lines(store, finished):
                    print(visible(line), file=sys.stderr)
    code = _exit_code(options, finished)
    if options.json:
        print_json({**finished.data(), "exit_code": code})
    else:
        _print(options, finished)
    return code, finished


def _checked(options: RunOptions, judges: JudgeSession) -> tuple[Request, CaseScorer]:
    """Return what to run and how to score it; raise InputError with all that is wrong, the agent included."""
    problems: list[str] = []

    def tried(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except EvaltapError as error:
            problems.append(str(error))
            return otherwise

    cases = tried(lambda: _chosen(options), CaseSet("", ()))
    scorer = tried(lambda: scorer_of("run", options, judges), None)
    user = tried(lambda: user_of(options.partners, judges), User())
    until = parse_until(options.until) if options.until else None
    expected = options.partners.expected_agent
    request = request_of(options, cases, until=until, user=user, expected_agent=expected)
    problems += request.tools.problems(cases, None)
    if problems or scorer is None:
        problems += request.partner_problems()
        problems += tried_agent(request)[1]
        raise InputError("\n".join(problems))
    return request, scorer


def _chosen(options: RunOptions) -> CaseSet:
    assert options.set is not None  # see `required`
    cases = read_set(options.set, options.case)
    if options.filter:
        ids = [one.eval_id for one in cases.cases]
        kept = [one for one in ids if any(fnmatchcase(one, g) for g in options.filter)]
        if not kept:
            raise InputError(
                f"--filter {' '.join(options.filter)}: no eval id of {options.set} matches"
            )
        cases = only(cases, kept)
    return chosen(cases, options.partners)


def _exit_code(options: RunOptions, finished: Finished) -> int:
    outcome, progress = finished.outcome, finished.progress
    if outcome.invalid_share > options.max_invalid or progress.stopped_by in _CUT_SHORT:
        return 3
    if options.until is not None:
        return {"reached": 0, "missed": 1}.get(progress.decision or "open", 3)
    # Of a whole set, a metric that applies nowhere is a mistake; of chosen cases, it need not be.
    chosen = bool(finished.plan.cases.whole)
    unsure = outcome.not_evaluated or any(
        one.rate is None and not (chosen and one.not_applicable) for one in outcome.metrics
    )
    return 1 if outcome.has_failed else 3 if unsure else 0


def _next(db: Path, version: str | None, bad: Sequence[CaseOutcome]) -> str:
    """Return the commands that show what went wrong."""
    failed = [f"{one.failed_set}/{one.eval_id}" for one in bad if one.failed_set]
    see = [f"evaltap show {named_in_hints(db)}{shlex.quote(one)}" for one in failed[:1]]
    of_version = f"@version={version}" if version else ""
    return f"next: {'; '.join([*see, f'evaltap compare OTHER {db}{of_version}'])}"


def _print(options: RunOptions, finished: Finished) -> None:
    outcome, progress = finished.outcome, finished.progress
    for metric in outcome.metrics:
        print(_line_of(metric))
    bad = sorted((one for one in outcome.cases if one.has_problem), key=_share)
    for case in bad[:_SHOWN]:
        print(_line_of_case(case))
    if (left := len(bad) - _SHOWN) > 0:
        print(f"  and {counted(left, 'more case')}, which --json lists")
    served = is_served(finished.plan.agent)
    for line in lines_of_mocks(outcome.mocks, finished.plan.cases, served=served):
        print(line)
    if ended := outcome.ended_by:
        print(f"conversations ended by: {', '.join(f'{why} {n}' for why, n in ended.items())}")
    parts = [f"{counted(outcome.scored, 'run')} scored"]
    parts += [f"{outcome.crashed} crashed"] if outcome.crashed else []
    parts += [f"{outcome.invalid} invalid (no evidence, in no rate)"] if outcome.invalid else []
    took = f"{', '.join(parts)} in {finished.seconds:.1f} s"
    print(f"{finished.plan.experiment_id}: {took}{_cost(outcome)}")
    if progress.decision is not None:
        print(f"target {options.until}: {progress.decision}")
    if progress.stopped_by in _CUT_SHORT:
        again = ["evaltap", "run", *sys.argv[2:], *([] if options.resume else ["--resume"])]
        print(f"stopped ({progress.stopped_by}); go on with: {shlex.join(again)}")
    elif bad:
        print(_next(options.db, finished.plan.version, bad))


def _cost(outcome: Outcome) -> str:
    if outcome.cost_usd is None:
        return ""
    missing = f" (unknown for {counted(outcome.unpriced, 'turn')})" if outcome.unpriced else ""
    return f", ${outcome.cost_usd:.4f}{missing}"


def _line_of(metric: MetricOutcome) -> str:
    rate, lacking, other = metric.rate, metric.not_evaluated, metric.not_applicable
    if rate is None and other and not lacking:
        return f"{metric.metric}: does not apply: no case expects anything of what it compares"
    if rate is None:
        return f"{metric.metric}: not evaluated"
    more = [_pass_hat(metric, k) for k in list(metric.pass_hat)[-1:] if k > 1]
    more += [f"{counted(lacking, 'run')} not evaluated"] if lacking else []
    more += [f"does not apply to {counted(other, 'run')}"] if other else []
    return (
        f"{metric.metric}: {rate.value:.1%} passed ({metric.passed} of {counted(rate.n, 'run')}, 95 %:"
        f" {rate.interval:.1%}){''.join(f', {one}' for one in more)}"
    )


def _pass_hat(metric: MetricOutcome, k: int) -> str:
    """Return pass^k, with the cases that it rests on unless these are all."""
    cases, all_cases = metric.cases_with[k], metric.cases_with[1]
    of = f" ({cases} of {counted(all_cases, 'case')} with {k} runs)" if cases < all_cases else ""
    return f"pass^{k} {metric.pass_hat[k].value:.1%}{of}"


def _share(case: CaseOutcome) -> float:
    """Return the share of trials that passed; 1 without a verdict."""
    return case.passed / case.runs if case.runs else 1.0


def _line_of_case(case: CaseOutcome) -> str:
    crashed = f", {case.crashed} crashed" if case.crashed else ""
    invalid = f", {case.invalid} invalid" if case.invalid else ""
    invalid += f", {case.not_evaluated} not evaluated" if case.not_evaluated else ""
    flaky = ", flaky" if case.runs and case.flaky else ""
    reasons = [one_line(readable(reason), _REASON) for reason in (*case.reasons, *case.failures)]
    why = f": {some_of(reasons, 2, ' | ')}" if reasons else ""
    return visible(
        f"  {case.eval_id}: {case.passed}/{case.runs} passed{crashed}{invalid}{flaky}{why}"
    )
