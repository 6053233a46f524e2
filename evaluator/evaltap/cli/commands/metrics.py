"""`evaltap metrics`: list the evaluators, with examples for the metrics file."""

import json
import shutil
import textwrap
from collections.abc import Sequence

from evaltap.cli.options.score import MetricsOptions
from evaltap.evaluator.scoring.evaluators.catalogue import GROUPS, Description, described
from evaltap.schemas.known import check_known


def run(options: MetricsOptions) -> int:
    """List all evaluators, or describe the named ones."""
    found = _named(described(), options.names)
    if options.example:
        metrics = [one.example for one in found if one.example]
        print("[" + ",\n ".join(json.dumps(one, ensure_ascii=False) for one in metrics) + "]")
    elif options.json:
        print(json.dumps([one.data() for one in found], ensure_ascii=False))
    elif options.names:
        print("\n\n".join(map(_described, found)))
    else:
        print(_listed(found))
    return 0


def _named(known: Sequence[Description], names: Sequence[str]) -> list[Description]:
    if not names:
        return list(known)
    by_name = {one.name: one for one in known}
    for name in names:
        check_known(name, by_name, f"no evaluator named '{name}'", "`evaltap metrics` lists them")
    return [by_name[name] for name in names]


def _listed(found: Sequence[Description]) -> str:
    width = max(len(one.name) for one in found)
    columns = shutil.get_terminal_size().columns
    lines = []
    for group, title in GROUPS.items():
        members = [one for one in found if one.group == group]
        if members:
            lines += ["", f"{title}:"]
            for one in members:
                lines += textwrap.wrap(
                    f"  {one.name:<{width}}  {one.measures}",
                    columns,
                    subsequent_indent=" " * (width + 4),
                )
    lines += ["", "evaltap metrics NAME shows what an evaluator needs, with an example"]
    return "\n".join(lines[1:])


def _described(one: Description) -> str:
    lines = [one.name, f"  measures  {one.measures}", f"  needs     {one.needs}"]
    if one.example is not None:
        text = json.dumps([one.example], indent=2, ensure_ascii=False)
        lines += ["  example metrics file:", *(f"    {line}" for line in text.splitlines())]
    return "\n".join(lines)
