"""`evaltap export`: the landed cases of a DuckDB file as one eval set."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from evaltap.cli.options.common import add_database
from evaltap.cli.options.filtering import FilterOptions, add_filter


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The store to export, and the file to write."""

    db: Path
    out: Path
    format: str | None
    id: str | None
    chosen: FilterOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap export cases.duckdb --out cases.evalset.json\n"
        "  evaltap export cases.duckdb --out cases.jsonl            # JSON Lines of cases\n"
        "  evaltap export cases.duckdb --out cases.evalset.json --format adk\n"
        "  evaltap export cases.duckdb --out late.evalset.json --filter 'tool:refund status:failed since:7d'"
    )
    add_database(parser)
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="the file to write; - is not a file"
    )
    parser.add_argument(
        "--format", choices=("trpc", "adk", "jsonl"), help="default: by the ending of the file"
    )
    parser.add_argument("--id", metavar="ID", help="the eval set's id (default: the file's name)")
    add_filter(parser)
    parser.set_defaults(run=run, options=ExportOptions)


def run(options: ExportOptions) -> int:
    """Write the latest revision of the chosen landed cases."""
    from evaltap.evaluator.landing.cases import landed_cases, write_json_lines
    from evaltap.schemas.files import adk, canonical
    from evaltap.schemas.files.documents import eval_set_name, write_bytes, write_document
    from evaltap.schemas.files.run_error import with_run_errors
    from evaltap.schemas.formats.case import EvalCase, EvalSet
    from evaltap.schemas.text import counted

    form = options.format or ("jsonl" if options.out.suffix in (".jsonl", ".ndjson") else "trpc")
    with options.chosen.open([options.db]) as store:
        if form == "jsonl":
            count = write_json_lines(options.out, landed_cases(store))
        else:
            landed = landed_cases(store)
            shown = map(with_run_errors, landed) if form == "trpc" else landed
            cases = [EvalCase.model_validate(case) for case in shown]
            name = options.id or eval_set_name(options.out)
            eval_set = EvalSet(eval_set_id=name, name=name, eval_cases=cases)
            if form == "adk":
                write_bytes(options.out, canonical.dumps(adk.to_adk(eval_set)))
            else:
                write_document(options.out, eval_set)
            count = len(cases)
    print(f"{counted(count, 'case')} written to {options.out}", file=sys.stderr)
    return 0
