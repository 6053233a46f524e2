"""`evaltap gate`: check eval cases against thresholds in several dimensions."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

from evaltap.cli.declared import options_of
from evaltap.cli.messages import print_json, say
from evaltap.cli.options.run import PartnerOptions, ToolCallOptions
from evaltap.cli.options.score import GateOptions
from evaltap.cli.progress import progress
from evaltap.cli.redaction import report_redactor
from evaltap.cli.scoring import (
    judge_session,
    report_ineffective_settings,
    report_missing_references,
)
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.comparison import compare
from evaltap.evaluator.reports.compare.console import print_comparison
from evaltap.evaluator.reports.compare.files import write_baseline
from evaltap.evaluator.reports.compare.formats import write_comparison
from evaltap.evaluator.reports.compare.gating import (
    GatedCase,
    check_baseline,
    check_cases,
    dimensions_only,
    gate_sides,
    gated_side,
    stored,
)
from evaltap.evaluator.reports.compare.model import Comparison, Rules
from evaltap.evaluator.reports.compare.reading import read_runs
from evaltap.evaluator.reports.compare.sides import Side
from evaltap.evaluator.reports.compare.traffic import selection_of
from evaltap.evaluator.reports.gate import gate_data, gate_exit, print_gate
from evaltap.evaluator.scoring.gates.gate import Gate
from evaltap.evaluator.scoring.gates.recording import GateWriter
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.scoring.settings import check_code
from evaltap.evaluator.store.database import open_store
from evaltap.evaluator.store.file_type import is_database
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import eval_set_name
from evaltap.schemas.files.documents import iter_cases, read_gate


def _refuse_nothing(source: str, invalid: Sequence[str]) -> NoReturn:
    nothing = f"{source}: no cases found; expected at least one"
    problems = ["no case could be checked:", *invalid] if invalid else [nothing]
    raise InputError("\n".join(problems))


def run(options: GateOptions) -> int:
    """Check the cases and print the verdicts; return the exit code."""
    base = _baseline(options)
    spec = read_gate(options.gate)
    named = [metric for dimension in spec.dimensions for metric in dimension.metrics]
    check_code(named, options.gate, allowed=options.allow_code)
    unscored = Gate(spec)
    if base is not None:
        check_baseline(unscored, base)
    names = ", ".join(one.name for one in unscored.spec.dimensions)
    _warn(f"{name} has no effect: the gate has the dimensions {names}" for name in unscored.unread)
    metrics = unscored.scorer.metrics
    report_ineffective_settings("gate", metrics, thresholds=False)
    with judge_session("gate", options.judges) as judges, progress("cases checked") as show:
        gate = Gate(spec, services=judges.services(metrics))
        judges.check_reachable(metrics)
        gated = []
        with nullcontext() if options.db is None else open_store(options.db) as store:
            cases, invalid, varying = _read(options, judges, gate.scorer)
            source = ", ".join(map(str, options.cases))
            threads = options.concurrency if gate.scorer.waits else 1
            checked = check_cases(gate, cases, threads=threads)
            if store:
                checked = stored(checked, cases, GateWriter(store, gate, source))
            with closing(checked):
                for one in checked:
                    gated.append(one)
                    show(len(gated))
    if not gated:
        _refuse_nothing(source, invalid)
    head = gated_side(gate, gated, source, varying)
    found = _comparison(gate, options, base, head, gated)
    code, messages = gate_exit(
        gated, found, fail_on=options.fail_on, min_pass_rate=options.rules.min_pass_rate
    )
    if invalid and options.fail_on != "never":
        code = code or 3
    if options.json:
        print_json(gate_data(gated, found, code, invalid))
    else:
        print_gate(gate, gated, len(invalid))
        if found is not None:
            print()
            print_comparison(found)
    placeholders = sum(one.result.score.placeholders for one in gated)
    report_missing_references("gate", placeholders, gate.scorer.metrics)
    _warn([*messages, *(f"not checked: {one}" for one in invalid)])
    return code


def _warn(messages: Iterable[str]) -> None:
    for line in messages:
        say("gate", line)


def _baseline(options: GateOptions) -> Side | None:
    """Return the baseline; it is read first because the gate may write to the same file."""
    if options.write_baseline is not None and options.write_baseline.suffix != ".json":
        raise InputError(f"--write-baseline {options.write_baseline}: expected a .json file")
    if options.baseline is None:
        if options.fail_on == "regressed" or options.report:
            wanted = "--fail-on regressed" if options.fail_on == "regressed" else "--report"
            raise InputError(f"{wanted}: needs a baseline; add --baseline")
        return None
    is_file = Path(options.baseline.partition("#")[0]).exists() or selection_of(options.baseline)
    names_run = options.db is not None and not is_file
    return read_runs(f"{options.db}#{options.baseline}" if names_run else options.baseline)


def _comparison(
    gate: Gate, options: GateOptions, base: Side | None, head: Side, gated: Sequence[GatedCase]
) -> Comparison | None:
    """Write the new baseline and the reports; return the comparison with the old baseline."""
    if options.write_baseline is not None:
        write_baseline(options.write_baseline, dimensions_only(gate, head))
        if all(one.result.status == "incomplete" for one in gated):
            say(
                "gate",
                f"{options.write_baseline} has no verdicts, because no case could be checked;"
                " nothing can be compared with it",
            )
    if base is None:
        return None
    # The required rate applies to the whole gate, not to each dimension.
    rules = replace(Rules(**asdict(options.rules)), min_pass_rate=None)
    found = compare(*gate_sides(gate, base, head), rules)
    clean = report_redactor() if options.report and not options.no_redact else None
    for path in options.report:
        write_comparison(found, path, clean)
    return found


def _read(
    options: GateOptions, judges: JudgeSession, scorer: CaseScorer
) -> tuple[Sequence[CaseData], Sequence[str], Collection[CaseKey]]:
    """Return the cases, as the agent answered them if there is one, its runs that are no evidence, and the
    cases of which each run has other texts."""
    if options.agent:
        from evaltap.cli.experimenting import answered  # an agent is run seldom, and loads much

        found = answered(options, judges, scorer)
        return found.cases, found.invalid, found.varying
    unasked = options_of(ToolCallOptions, {}), options_of(PartnerOptions, {})
    if options.runs > 1 or (options.tools, options.partners) != unasked:
        raise InputError(
            "--runs, and the options of tool calls, simulated users and expected agents, say how an agent"
            " runs; add --agent"
        )
    return list(_cases(options.cases)), (), ()


def _cases(paths: Sequence[Path]) -> Iterator[CaseData]:
    for path in paths:
        if is_database(path):
            raise InputError(
                f"{path}: is a DuckDB file; write its cases to an eval set with `evaltap set export`"
            )
        for case in iter_cases(path):
            yield {"evalSetId": eval_set_name(path), **case}
