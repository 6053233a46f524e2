"""`evaltap merge`: merge two eval sets into one."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from evaltap.cli.options.common import add_json
from evaltap.schemas.text import counted


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """The sets, their common ancestor, and the file for the result."""

    ours: Path
    theirs: Path
    base: Path | None
    out: Path
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap merge golden.evalset.json more.evalset.json --out golden.evalset.json\n"
        "  evaltap merge a.evalset.json b.evalset.json --base old.evalset.json \\\n"
        "      --out all.evalset.json\n\n"
        "To use it as a git merge driver, add to .gitattributes:\n"
        "  *.evalset.json merge=evaltap\n"
        "and run once in each clone:\n"
        "  git config merge.evaltap.driver 'evaltap merge %A %B --base %O --out %A'\n\n"
        "exit code: 0 merged; 1 both sides changed the same case: OURS was kept, and its id is"
        " listed; 2 bad input"
    )
    add = parser.add_argument
    add("ours", type=Path, metavar="OURS", help="your eval set")
    add("theirs", type=Path, metavar="THEIRS", help="the eval set to merge into it")
    add("--base", type=Path, metavar="BASE", help="their common ancestor")
    add("--out", required=True, type=Path, metavar="SET", help="the eval set to write")
    add_json(parser)
    parser.set_defaults(run=run, options=MergeOptions)


def run(options: MergeOptions) -> int:
    """Merge the sets and write the result."""
    from evaltap.evaluator.cases.evalsets.files import read_set, write_set
    from evaltap.evaluator.cases.evalsets.merging import merge
    from evaltap.schemas.files.documents import check_set_name

    check_set_name(options.out)
    ours, theirs = read_set(options.ours), read_set(options.theirs)
    base = read_set(options.base).cases if options.base else None
    merged = merge(ours.cases, theirs.cases, base)
    write_set(options.out, ours.eval_set_id, merged.cases)
    if options.json:
        data = {"cases": len(merged.cases), "conflicts": merged.conflicts, "same": merged.same}
        print(json.dumps(data, ensure_ascii=False))
    else:
        print(f"{counted(len(merged.cases), 'case')} written to {options.out}")
        for name in merged.conflicts:
            print(f"evaltap merge: {name}: both sides changed it; ours was kept", file=sys.stderr)
        if merged.same:
            known = ", ".join(merged.same[:5])
            print(f"evaltap merge: already present under other ids: {known}", file=sys.stderr)
    return 1 if merged.conflicts else 0
