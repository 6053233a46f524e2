"""The verdicts of a gate on the console."""

from collections import Counter
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.reports.compare.gating import GatedCase, pass_rate
from evaltap.evaluator.reports.compare.model import Comparison, comparison_data
from evaltap.evaluator.reports.console import console, plain_table, shorten
from evaltap.evaluator.reports.wording import readable
from evaltap.evaluator.scoring.gates.gate import DimensionResult, Gate, GateResult, threshold_text
from evaltap.schemas.text import counted

SHOWN = 10


def print_gate(gate: Gate, gated: Sequence[GatedCase], invalid: int = 0) -> None:
    """Print the dimensions, then the cases that did not pass; print equal verdicts of trials once.

    `invalid` counts the agent's runs that are no evidence.
    """
    out = console()
    keys = [case_identity(one.case, "")[:3] for one in gated]
    cases = counted(len(set(keys)), "case")
    of = cases if len(set(keys)) == len(keys) else f"{counted(len(keys), 'trial')} of {cases}"
    passed = sum(one.result.passed for one in gated)
    title = f"{passed:,} of {of} passed the gate"
    title += f"; {counted(invalid, 'run')} could not be checked" if invalid else ""
    out.print(_table(gate, [one.result for one in gated], title))
    stopped = Counter(
        (key, one.result.status, one.result.feedback)
        for key, one in zip(keys, gated, strict=True)
        if not one.result.passed
    )
    trials = Counter(keys)
    for (key, status, feedback), count in list(stopped.items())[:SHOWN]:
        missed = [readable(one) for one in feedback.split("\n- ")[1:]]
        lines = "\n".join(shorten(line) for one in missed for line in f"- {one}".splitlines())
        often = f" in {count:,} of {trials[key]:,} trials" if trials[key] > 1 else ""
        out.print(Text(f"{shorten(key[2])}: {status}{often}\n{lines}"))
    if len(stopped) > SHOWN:
        out.print(f"... and {len(stopped) - SHOWN:,} more; --json lists all of them")


def _table(gate: Gate, results: Sequence[GateResult], title: str) -> Table:
    table = plain_table(2, title)
    table.add_column("dimension")
    crashed = any(one.status == "crashed" for result in results for one in result.dimensions)
    counted = ("passed", "failed", "crashed") if crashed else ("passed", "failed")
    for name in ("threshold", *counted, "not checked", "mean score"):
        table.add_column(name, justify="right")
    for place, name in enumerate(one.name for one in results[0].dimensions):
        found = [result.dimensions[place] for result in results]
        table.add_row(Text(name), *_cells(found, gate.thresholds.get(name), counted))
    return table


def _cells(
    found: Sequence[DimensionResult], threshold: float | None, counted: Sequence[str]
) -> list[str]:
    scores = [one.score for one in found if one.score is not None]
    counts = [sum(one.status == status for one in found) for status in counted]
    mean = f"{sum(scores) / len(scores):.3f}" if scores else "-"
    unchecked = len(found) - sum(counts)
    shown = [f"{count:,}" for count in (*counts, unchecked)]
    if threshold is None:
        shown[:2] = ["-", "-"]
    needed = "informs" if threshold is None else threshold_text(threshold)
    return [needed, *shown, mean]


def gate_data(
    gated: Sequence[GatedCase], found: Comparison | None, code: int, invalid: Sequence[str] = ()
) -> dict[str, object]:
    """Return the verdicts as JSON data, with the comparison if there is one.

    `invalid` are the agent's runs that are no evidence, with their reasons.
    """
    data: dict[str, object] = {
        "passed": not invalid and all(one.result.passed for one in gated),
        "exit_code": code,
        "not_checked": list(invalid),
        "cases": [one.result.data() for one in gated],
    }
    return data if found is None else {**data, "comparison": comparison_data(found)}


def gate_exit(
    gated: Sequence[GatedCase],
    found: Comparison | None,
    *,
    fail_on: str | None,
    min_pass_rate: float | None,
) -> tuple[int, list[str]]:
    """Return the exit code, the worst of the requested checks, and the messages about it."""
    codes, messages = [0], []
    if found is not None:
        codes.append(found.exit_code)
    if min_pass_rate is not None:
        rate = pass_rate(gated)
        if rate is None:
            codes.append(3)
            messages.append(
                "the pass rate is undecided: more than 5 % of the cases could not be checked"
            )
        else:
            low, high = rate.interval
            codes.append(1 if high < min_pass_rate else 0 if low >= min_pass_rate else 3)
            messages.append(
                f"{rate.value:.1%} pass (95 %: {rate.interval:.1%}), required {min_pass_rate:.1%}"
            )
    elif fail_on in (None, "failed"):
        statuses = {one.result.status for one in gated}
        codes.append(1 if "failed" in statuses else 3 if "incomplete" in statuses else 0)
    if fail_on == "never":
        return 0, messages
    return (1 if 1 in codes else max(codes)), messages
