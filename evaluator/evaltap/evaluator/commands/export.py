"""`evaltap export`: the landed cases of a DuckDB file as one eval set."""

import argparse
import sys
from pathlib import Path

from evaltap.evaluator.commands.options import add_database, open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap export cases.duckdb --out cases.evalset.json\n"
        "  evaltap export cases.duckdb --out cases.jsonl            # JSON Lines of cases\n"
        "  evaltap export cases.duckdb --out cases.evalset.json --format adk"
    )
    add_database(parser)
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="the file to write; - is not a file"
    )
    parser.add_argument(
        "--format", choices=("trpc", "adk", "jsonl"), help="default: by the ending of the file"
    )
    parser.add_argument("--id", metavar="ID", help="the eval set's id (default: the file's name)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the latest revision of every landed case."""
    from evaltap.evaluator.exporting import landed_cases, write_json_lines
    from evaltap.evaluator.report import counted
    from evaltap.schemas import adk, canonical
    from evaltap.schemas.case import EvalCase, EvalSet
    from evaltap.schemas.documents import eval_set_name, write_bytes, write_document

    form = options.format or ("jsonl" if options.out.suffix in (".jsonl", ".ndjson") else "trpc")
    with open_store(options.db, create=False) as store:
        if form == "jsonl":
            count = write_json_lines(options.out, landed_cases(store))
        else:
            cases = [EvalCase.model_validate(case) for case in landed_cases(store)]
            name = options.id or eval_set_name(options.out)
            eval_set = EvalSet(eval_set_id=name, name=name, eval_cases=cases)
            if form == "adk":
                write_bytes(options.out, canonical.dumps(adk.to_adk(eval_set)))
            else:
                write_document(options.out, eval_set)
            count = len(cases)
    print(f"{counted(count, 'case')} written to {options.out}", file=sys.stderr)
    return 0
