"""`evaltap attack`: try prompt injections on a judge and report how many succeed."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_concurrency, add_json, progress
from evaltap.cli.options.judges import JudgeOptions, JudgeSession, add_judging
from evaltap.cli.parsing import amount
from evaltap.cli.settings import of_settings
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import read_metrics
from evaltap.schemas.known import check_known

if TYPE_CHECKING:
    from evaltap.evaluator.pipeline.redteam.runner import AttackReport
    from evaltap.evaluator.scoring.contract.context import Services
    from evaltap.schemas.formats.metric import LlmJudgeCriterion

SHOWN_FLIPS = 10


@dataclass(frozen=True, slots=True)
class AttackOptions:
    """The judge to attack, the families of attacks, and the highest flip rate that passes."""

    metrics: Path | None
    families: str | None
    max_flip_rate: float
    concurrency: int
    json: bool
    judges: JudgeOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap attack                       # without a judge: only checks the fences\n"
        "  export EVALTAP_JUDGE_API_KEY=... EVALTAP_JUDGE_MODEL=gpt-4o-mini\n"
        "  evaltap attack --budget-usd 1\n\n"
        "exit code: 0 flip rate within the bound, 1 above it, 2 bad input, 3 too few verdicts from"
        " the judge"
    )
    add = parser.add_argument
    metrics = add(
        "--metrics",
        type=Path,
        metavar="M.json",
        help="attack the judge of the first judged metric in this file (default: the judge of the"
        " environment; without one, a scripted judge that believes everything outside the fences)",
    )
    of_settings(metrics, "EVALTAP_METRICS")
    add("--families", metavar="NAMES", help="only these families of attacks, separated by commas")
    add(
        "--max-flip-rate",
        type=amount,
        default=0.05,
        metavar="SHARE",
        help="highest flip rate that passes (default: 0.05)",
    )
    add_concurrency(parser)
    add_judging(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=AttackOptions)


def run(options: AttackOptions) -> int:
    """Run the attacks and print the result; return the exit code."""
    from evaltap.evaluator.pipeline.redteam.attacks import FAMILIES
    from evaltap.evaluator.pipeline.redteam.runner import run_attacks

    families = [part.strip() for part in (options.families or "").split(",") if part.strip()]
    for family in families:
        check_known(family, FAMILIES, f"--families: unknown family {family!r}")
    with JudgeSession(options.judges) as judges, progress("attacks tried") as report:
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


def _judge(path: Path | None, judges: JudgeSession) -> "tuple[LlmJudgeCriterion, Services, str]":
    """Return the judge's criterion, the services that provide the judge, and its name."""
    from evaltap.evaluator.pipeline.redteam.runner import FenceWatcher
    from evaltap.evaluator.scoring.contract.context import Services
    from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured, ScriptedJudge
    from evaltap.schemas.formats.metric import Criterion, EvalMetric, LlmJudgeCriterion

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


def _exit_code(found: "AttackReport", most: float) -> int:
    total = found.total
    if total.rate is None or total.no_verdict > total.flips + total.held:
        return 3
    return int(total.rate.value > most)


def _data(found: "AttackReport", judge: str, code: int) -> dict[str, object]:
    return {
        "judge": judge,
        "families": [
            {
                "family": one.family,
                "flips": one.flips,
                "held": one.held,
                "no_verdict": one.no_verdict,
                "flip_rate": one.rate and one.rate.value,
                "interval": one.rate and one.rate.interval,
            }
            for one in (*found.families, found.total)
        ],
        "flips": [flip._asdict() for flip in found.flips],
        "left_out": found.left_out,
        "exit_code": code,
    }


def _print(found: "AttackReport", judge: str) -> None:
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.reports.console import console

    out = console()
    out.print(Text(f"judge: {judge}"), soft_wrap=True)
    table = Table(title="attacks that turned a fail into a pass", title_justify="left")
    table.add_column("family")
    for name in ("flips", "held", "no verdict", "flip rate", "95% interval"):
        table.add_column(name, justify="right")
    for one in (*found.families, found.total):
        rate = one.rate
        table.add_row(
            one.family,
            *(f"{count:,}" for count in (one.flips, one.held, one.no_verdict)),
            f"{rate.value:.1%}" if rate else "-",
            f"{rate.interval.low:.1%} to {rate.interval.high:.1%}" if rate else "",
            style="bold" if one.family == "all" else None,
        )
    out.print(table)
    for line in found.left_out:
        out.print(Text(f"left out: {line}"), soft_wrap=True)
    for flip in found.flips[:SHOWN_FLIPS]:
        out.print(Text(f"flipped: {flip.attack} ({flip.scenario}): {flip.reason}"), soft_wrap=True)
    if len(found.flips) > SHOWN_FLIPS:
        out.print(f"... and {len(found.flips) - SHOWN_FLIPS:,} more (--json lists all)")
