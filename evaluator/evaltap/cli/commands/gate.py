"""`evaltap gate`: check eval cases against thresholds in several dimensions."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.code import add_allow_code, check_code
from evaltap.cli.options.common import add_json, open_store, progress
from evaltap.cli.options.judges import JudgeOptions, JudgeSession, add_judging
from evaltap.cli.parsing import positive
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import eval_set_name, iter_cases

if TYPE_CHECKING:
    from evaltap.evaluator.gates.gate import Gate, GateResult
    from evaltap.schemas.formats.case import CaseData

SHOWN = 10


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The gate, the cases that must pass it, and where their scores go."""

    cases: tuple[Path, ...]
    gate: Path
    db: Path | None
    concurrency: int
    json: bool
    allow_code: bool
    judges: JudgeOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap gate cases.evalset.json --gate gate.json\n"
        "  EVALTAP_GATE_SAFETY=1 evaltap gate cases.jsonl --gate gate.json --json\n\n"
        "exit code: 0 every case passed every dimension, 1 one did not, 2 bad input,\n"
        "3 incomplete: nothing failed, but something could not be checked"
    )
    add = parser.add_argument
    add(
        "cases",
        nargs="+",
        type=Path,
        metavar="CASES",
        help=".evalset.json or JSON Lines of eval cases",
    )
    add(
        "--gate", required=True, type=Path, metavar="GATE.json",
        help="dimensions with thresholds, metrics and criteria; EVALTAP_GATE_<DIMENSION> overrides",
    )  # fmt: skip
    add("--db", type=Path, metavar="X.duckdb", help="also keep the scores of all metrics here")
    add(
        "--concurrency", type=positive, default=8, metavar="N",
        help="judged cases under way at a time (default: 8)",
    )  # fmt: skip
    add_allow_code(parser)
    add_judging(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=GateOptions)


def run(options: GateOptions) -> int:
    """Check the cases and print the verdicts; return the exit code."""
    from evaltap.evaluator.gates.gate import Gate
    from evaltap.schemas.files.documents import read_gate

    spec = read_gate(options.gate)
    named = [metric for dimension in spec.dimensions for metric in dimension.metrics]
    check_code(named, options.gate, allowed=options.allow_code)
    metrics = Gate(spec).scorer.metrics
    with JudgeSession(options.judges) as judges, progress("cases checked") as show:
        gate = Gate(spec, services=judges.services(metrics))
        results = _checked(gate, options, show)
    if not results:
        raise InputError(f"{', '.join(map(str, options.cases))}: no case; expected at least one")
    if options.json:
        found = [result.data() for result in results]
        passed = all(result.passed for result in results)
        print(json.dumps({"passed": passed, "cases": found}, ensure_ascii=False))
    else:
        _print(gate, results)
    statuses = {result.status for result in results}
    return 1 if "failed" in statuses else 3 if "incomplete" in statuses else 0


def _checked(gate: "Gate", options: GateOptions, show: Callable[[int], None]) -> "list[GateResult]":
    from evaltap.evaluator.gates.revision import Attempt, attempts_into

    results: list[GateResult] = []
    threads = options.concurrency if gate.scorer.waits else 1
    source = ", ".join(map(str, options.cases))
    with (
        open_store(options.db) as store,
        attempts_into(store, gate, source) as record,
        ThreadPoolExecutor(threads) as pool,
    ):
        cases = list(_cases(options.cases))
        for case, result in zip(cases, pool.map(gate.evaluate, cases), strict=True):
            record(Attempt(1, None, case, result))
            results.append(result)
            show(len(results))
    return results


def _cases(paths: Sequence[Path]) -> "Iterator[CaseData]":
    from evaltap.evaluator.store.file_type import is_database

    for path in paths:
        if is_database(path):
            raise InputError(f"{path}: is a DuckDB file; `evaltap export` makes an eval set of it")
        for case in iter_cases(path):
            yield {"evalSetId": eval_set_name(path), **case}


def _print(gate: "Gate", results: "Sequence[GateResult]") -> None:
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.reports.console import console, shorten
    from evaltap.schemas.text import counted

    passed = sum(result.passed for result in results)
    table = Table(
        title=f"{passed:,} of {counted(len(results), 'case')} passed the gate",
        title_justify="left",
    )
    table.add_column("dimension")
    for name in ("threshold", "passed", "failed", "not checked", "mean score"):
        table.add_column(name, justify="right")
    for place, (name, threshold) in enumerate(gate.thresholds.items()):
        found = [result.dimensions[place] for result in results]
        scores = [one.score for one in found if one.score is not None]
        counts = [
            sum(one.status in statuses for one in found)
            for statuses in (("passed",), ("failed", "crashed"))
        ]
        mean = f"{sum(scores) / len(scores):.3f}" if scores else "-"
        unchecked = len(found) - sum(counts)
        cells = (f"{threshold:.2f}", *(f"{count:,}" for count in (*counts, unchecked)), mean)
        table.add_row(Text(name), *cells)
    out = console()
    out.print(table)
    stopped = [result for result in results if not result.passed]
    for result in stopped[:SHOWN]:
        lines = "\n".join(shorten(line) for line in result.feedback.splitlines()[1:])
        out.print(Text(f"{result.eval_id}: {result.status}\n{lines}"))
    if len(stopped) > SHOWN:
        out.print(f"... and {len(stopped) - SHOWN:,} more; --json lists all of them")
