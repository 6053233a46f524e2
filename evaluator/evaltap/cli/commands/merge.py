"""`evaltap set merge`: merge two eval sets into one."""

from evaltap.cli.messages import print_json, say
from evaltap.cli.options.set import MergeOptions
from evaltap.evaluator.cases.evalsets.difference import merge
from evaltap.evaluator.cases.evalsets.files import read_set, write_set
from evaltap.schemas.files.content import check_set_name, read_bytes
from evaltap.schemas.text import counted


def run(options: MergeOptions) -> int:
    """Merge the sets and write the result."""
    # git names the files of a merge driver `.merge_file_x`.
    if options.out.suffix or options.out != options.ours:
        check_set_name(options.out)
    ours, theirs = read_set(options.ours), read_set(options.theirs)
    # Of a file that both sides added, git's ancestor is an empty file.
    has_base = options.base is not None and read_bytes(options.base).strip()
    base = read_set(options.base).cases if options.base and has_base else None
    merged = merge(ours.cases, theirs.cases, base)
    write_set(options.out, ours, merged.cases)
    if options.json:
        data = {"cases": len(merged.cases), "conflicts": merged.conflicts, "same": merged.same}
        print_json(data)
    else:
        print(f"{counted(len(merged.cases), 'case')} written to {options.out}")
        mine = {case["evalId"] for case in ours.cases}
        for name in merged.conflicts:
            why = "ours removed it and theirs changed it; theirs was kept"
            if name in mine:
                differ = "they differ" if base is None else "both sides changed it"
                why = f"{differ}; ours was kept"
            say("set merge", f"{name}: {why}")
        if merged.same:
            say("set merge", f"already present under other ids: {', '.join(merged.same)}")
    return 1 if merged.conflicts else 0
