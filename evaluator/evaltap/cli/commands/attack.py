"""`evaltap attack`: try prompt injections on a judge and report how many succeed."""

import json
from pathlib import Path

from rich.table import Table
from rich.text import Text

from evaltap.cli.options.score import AttackOptions
from evaltap.cli.progress import progress
from evaltap.cli.scoring import judge_session
from evaltap.evaluator.pipeline.redteam.attacks import FAMILIES
from evaltap.evaluator.pipeline.redteam.runner import AttackReport, FenceWatcher, run_attacks
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured, ScriptedJudge
from evaltap.evaluator.scoring.judges.session import JudgeSession
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import read_metrics
from evaltap.schemas.formats.metric import Criterion, EvalMetric, LlmJudgeCriterion
from evaltap.schemas.known import check_known

SHOWN_FLIPS = 10


def run(options: AttackOptions) -> int:
    """Run the attacks and print the result; return the exit code."""
    families = [part.strip() for part in (options.families or "").split(",") if part.strip()]
    for family in families:
        check_known(family, FAMILIES, f"--families: unknown family {family!r}")
    with judge_session("attack", options.judges) as judges, progress("attacks tried") as report:
        judge, services, name = _judge(options.metrics, judges)
        found = run_attacks(
            judge, services, families=families, threads=options.concurrency, progress=report
        )
    code = _exit_code(found, options.max_flip_rate)
    if options.json:
        print(json.dumps(_data(found, name, code), ensure_ascii=False))
    else:
        _print(found, name)
    return code


def _judge(path: Path | None, judges: JudgeSession) -> tuple[LlmJudgeCriterion, Services, str]:
    """Return the judge's criterion, the services that provide the judge, and its name."""
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


def _exit_code(found: AttackReport, most: float) -> int:
    total = found.total
    if total.rate is None or total.no_verdict > total.flips + total.held:
        return 3
    return int(total.rate > most)


def _data(found: AttackReport, judge: str, code: int) -> dict[str, object]:
    return {
        "judge": judge,
        "families": [
            {
                "family": one.family,
                "flips": one.flips,
                "held": one.held,
                "no_verdict": one.no_verdict,
                "flip_rate": one.rate,
                "interval": one.interval,
            }
            for one in (*found.families, found.total)
        ],
        "flips": [flip._asdict() for flip in found.flips],
        "left_out": found.left_out,
        "exit_code": code,
    }


def _print(found: AttackReport, judge: str) -> None:
    out = console()
    out.print(Text(f"judge: {judge}"), soft_wrap=True)
    table = Table(title="attacks that turned a fail into a pass", title_justify="left")
    table.add_column("family")
    for name in ("flips", "held", "no verdict", "flip rate", "95% interval"):
        table.add_column(name, justify="right")
    for one in (*found.families, found.total):
        ends = one.interval
        table.add_row(
            one.family,
            *(f"{count:,}" for count in (one.flips, one.held, one.no_verdict)),
            "-" if one.rate is None else f"{one.rate:.1%}",
            f"{ends.low:.1%} to {ends.high:.1%}" if ends else "",
            style="bold" if one.family == "all" else None,
        )
    out.print(table)
    for line in found.left_out:
        out.print(Text(f"left out: {line}"), soft_wrap=True)
    for flip in found.flips[:SHOWN_FLIPS]:
        out.print(Text(f"flipped: {flip.attack} ({flip.scenario}): {flip.reason}"), soft_wrap=True)
    if len(found.flips) > SHOWN_FLIPS:
        out.print(f"... and {len(found.flips) - SHOWN_FLIPS:,} more (--json lists all)")
