"""`evaltap convert`: convert data sets to eval cases, and OpenAI eval configurations to metrics."""

import sys
from pathlib import Path

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.record import ConvertOptions
from evaltap.evaluator.cases.datasets.cases import dataset_cases, write_case_lines
from evaltap.evaluator.cases.datasets.columns import Columns, parse_columns
from evaltap.evaluator.cases.datasets.openai_evals import EvalConfig, read_eval_config
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import eval_set_name, is_lines_name
from evaltap.schemas.files.documents import write_document, write_eval_set
from evaltap.schemas.text import counted


def run(options: ConvertOptions) -> int:
    """Convert the files and report the result; raise EvaltapError for input that cannot be converted."""
    if not options.files and not options.openai_eval:
        raise InputError("nothing to convert; give data files, or --openai-eval EVAL.json")
    if bool(options.files) != bool(options.out):
        raise InputError("data files and --out FILE: one is missing; give both")
    if bool(options.openai_eval) != bool(options.metrics_out):
        raise InputError("--openai-eval and --metrics-out: one is missing; give both")
    config = _config(options)
    count = _convert(options, options.out, config) if options.out else 0
    if config is not None and options.metrics_out:
        write_document(options.metrics_out, config.metrics)
        for criterion in config.unsupported:
            say("convert", f"left out: {criterion}")
    data = {
        "cases": count,
        "out": str(options.out) if options.files else None,
        "metrics": len(config.metrics) if config else 0,
        "unsupported": config.unsupported if config else [],
    }
    if options.json:
        print_json(data)
    else:
        made = [f"{counted(count, 'case')} -> {options.out}"] if options.files else []
        if config is not None:
            made.append(f"{counted(len(config.metrics), 'metric')} -> {options.metrics_out}")
        print("; ".join(made), file=sys.stderr)
    return 0


def _config(options: ConvertOptions) -> EvalConfig | None:
    if options.openai_eval is None:
        return None
    config = read_eval_config(options.openai_eval, parse_columns(options.map).given)
    if config.unsupported and not options.skip_unsupported:
        raise InputError(
            f"{options.openai_eval}: no metric corresponds to {'; '.join(config.unsupported)}; skip them"
            " with --skip-unsupported"
        )
    if not config.metrics:
        raise InputError(
            f"{options.openai_eval}: no testing criterion can be converted to a metric"
        )
    return config


def _convert(options: ConvertOptions, out: Path, config: EvalConfig | None) -> int:
    columns = Columns(config.columns) if config else parse_columns(options.map)
    found = dataset_cases(options.files, columns, split=options.split, app_name=options.app_name)
    if is_lines_name(out):
        return write_case_lines(out, found)
    if not (cases := list(found)):
        raise InputError("no rows found; expected at least one")
    write_eval_set(out, {"evalSetId": eval_set_name(out), "evalCases": cases})
    return len(cases)
