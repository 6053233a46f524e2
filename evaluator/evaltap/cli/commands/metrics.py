"""`evaltap metrics`: list the evaluators, with examples for the metrics file."""

import json
from collections.abc import Sequence

from evaltap.cli.messages import print_json
from evaltap.cli.options.score import MetricsOptions
from evaltap.evaluator.scoring.evaluators.catalogue import (
    Description,
    described,
    description_text,
    listed,
)
from evaltap.schemas.known import check_known


def run(options: MetricsOptions) -> int:
    """List all evaluators, or describe the named ones."""
    found = _named(described(), options.names)
    if options.example:
        metrics = [one.example for one in found if one.example]
        print("[" + ",\n ".join(json.dumps(one, ensure_ascii=False) for one in metrics) + "]")
    elif options.json:
        print_json([one.data() for one in found])
    elif options.names:
        print("\n\n".join(map(description_text, found)))
    else:
        print(listed(found))
    return 0


def _named(known: Sequence[Description], names: Sequence[str]) -> list[Description]:
    if not names:
        return list(known)
    by_name = {one.name: one for one in known}
    for name in names:
        check_known(name, by_name, f"no evaluator named '{name}'", "`evaltap metrics` lists them")
    return [by_name[name] for name in names]
