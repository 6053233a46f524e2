"""`evaltap redact`: list what would leak from files, or write redacted copies."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaltap.cli.messages import print_json, print_outcome
from evaltap.cli.options.record import RedactOptions
from evaltap.cli.redaction import redaction_key
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.privacy.files import leaks_in_file, redact_file
from evaltap.recorder.privacy.findings import LOOKED_FOR, NOT_LOOKED_FOR
from evaltap.recorder.privacy.redactor import PatternRedactor
from evaltap.schemas.errors import InputError


def run(options: RedactOptions) -> int:
    """Check or redact; return the exit code."""
    for path in options.files:
        if "://" in path:
            raise InputError(
                f"{path}: topics cannot be checked; recorders redact before they write. To check what is on"
                " a topic, write it to a file with `evaltap consume` and `evaltap set export`"
            )
    files = [Path(path) for path in options.files]
    config = RecorderConfig()
    if options.policy is not None:
        config = replace(config, redaction_policy=options.policy)
    if options.rules is not None:
        config = replace(config, redaction_rules=options.rules)
    redactor = config.redactor(redaction_key(options.log))
    if options.check:
        return _check(options, files, redactor)
    if len(files) != 1 or options.out is None:
        raise InputError("--out takes one FILE; run the command once for each")
    redact_file(files[0], options.out, redactor)
    data = {"file": str(files[0]), "out": str(options.out)}
    print_outcome(data, f"{files[0]} -> {options.out}", as_json=options.json)
    return 0


def _check(options: RedactOptions, files: Sequence[Path], redactor: PatternRedactor) -> int:
    found = []
    for path in files:
        not_json: list[str] = []
        for leak in leaks_in_file(path, redactor, not_json.append):
            found.append(
                {"file": str(path), "place": leak.place, "kind": leak.kind, "excerpt": leak.excerpt}
            )
            if not options.json:
                print(f"{path}: {leak.place}: {leak.kind}: {leak.excerpt!r}")
        for part in not_json[:_MOST_NAMED]:
            print(
                f"{path}: {part} is not valid JSON and was only searched as text", file=sys.stderr
            )
        if (more := len(not_json) - _MOST_NAMED) > 0:
            print(f"{path}: {more:,} more are not valid JSON either", file=sys.stderr)
    if options.json:
        print_json(found)
    else:
        print(f"{len(found):,} found ({', '.join(LOOKED_FOR)}). {NOT_LOOKED_FOR}", file=sys.stderr)
    return 1 if found else 0


_MOST_NAMED = 3
"""Parts of a file that are not JSON and named in the output; further ones are only counted."""
