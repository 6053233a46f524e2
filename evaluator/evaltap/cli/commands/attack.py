"""`evaltap attack`: try prompt injections on a judge and report how many succeed."""

from pathlib import Path

from evaltap.cli.messages import print_json
from evaltap.cli.options.score import AttackOptions
from evaltap.cli.progress import progress
from evaltap.cli.scoring import judge_session
from evaltap.evaluator.pipeline.redteam.attacks import FAMILIES
from evaltap.evaluator.pipeline.redteam.runner import (
    FenceWatcher,
    exit_code,
    outcome_data,
    print_outcome,
    run_attacks,
)
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured, ScriptedJudge
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import read_metrics
from evaltap.schemas.formats.metric import Criterion, EvalMetric, LlmJudgeCriterion
from evaltap.schemas.known import check_known


def run(options: AttackOptions) -> int:
    """Run the attacks and print the result; return the exit code."""
    for family in options.families:
        check_known(family, FAMILIES, f"--families: unknown family {family!r}")
    with judge_session("attack", options.judges) as judges, progress("attacks tried") as report:
        judge, services, name = _judge(options.metrics, judges)
        found = run_attacks(
            judge, services, families=options.families, threads=options.concurrency, progress=report
        )
    code = exit_code(found, options.max_flip_rate)
    if options.json:
        print_json(outcome_data(found, name, code))
    else:
        print_outcome(found, name)
    return code


def _judge(path: Path | None, judges: JudgeSession) -> tuple[LlmJudgeCriterion, Services, str]:
    metrics = read_metrics(path) if path else []
    parts = [
        one.criterion.llm_judge for one in metrics if one.criterion and one.criterion.llm_judge
    ]
    if path and not parts:
        raise InputError(f"{path}: no metric uses a judge; add one with llmJudge")
    judge = parts[0] if parts else LlmJudgeCriterion()
    asking = [EvalMetric(criterion=Criterion(llm_judge=judge))]
    services = judges.services(asking)
    judges.check_reachable(asking)
    assert services is not None  # the metric asks a judge
    try:
        return judge, services, repr(services.judge(judge.judge_model))
    except JudgeNotConfigured:
        if path:
            raise
    scripted = ScriptedJudge(FenceWatcher())
    return judge, Services(judge=lambda _: scripted), "none (a script that sees only the structure)"
