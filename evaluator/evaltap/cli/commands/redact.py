"""`evaltap redact`: list what would leak from files, or write redacted copies."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evaltap.cli.options.common import add_json
from evaltap.cli.options.redaction import redaction_key
from evaltap.schemas.errors import InputError

Redactor = Any
"""The recorder's PatternRedactor: commands load the recorder only when they are called."""


@dataclass(frozen=True, slots=True)
class RedactOptions:
    """The files to search, and the policy and rules to apply."""

    files: tuple[str, ...]
    check: bool
    out: Path | None
    policy: str | None
    rules: str | None
    log: str | None
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap redact --check golden.evalset.json cases.jsonl agent.log.db\n"
        "  evaltap redact golden.evalset.json --out clean.evalset.json\n"
        "  evaltap redact references.evalset.json --policy metadata --log agent.log.db \\\n"
        "      --out hashed.evalset.json\n\n"
        "exit code: 0 done, or nothing found; 1 something would leak (--check); 2 bad input"
    )
    add = parser.add_argument
    add(
        "files",
        nargs="+",
        metavar="FILE",
        help="eval sets, JSON Lines, any JSON or text file; with --check also local logs",
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--check", action="store_true", help="only list what would be redacted")
    task.add_argument(
        "--out", type=Path, metavar="FILE", help="write the redacted file to this path"
    )
    add(
        "--policy",
        default=None,
        metavar="P",
        help="redaction policy, e.g. toolArguments=hash,userId=drop or metadata",
    )
    add(
        "--rules",
        default=None,
        metavar="JSON",
        help="your own rules, a JSON object of names and regular expressions",
    )
    add(
        "--log",
        metavar="LOG",
        help="make pseudonyms with the key of this log (for a topic: the key on this machine); no record"
        " is read (default: EVALTAP_REDACTION_KEY, or a new key)",
    )
    add_json(parser)
    parser.set_defaults(run=run, options=RedactOptions)


def run(options: RedactOptions) -> int:
    """Check or redact; return the exit code."""
    for path in options.files:
        if "://" in path:
            raise InputError(
                f"{path}: topics cannot be checked; recorders redact before they write. To check what is on"
                " a topic, write it to a file with `evaltap consume` and `evaltap export`"
            )
    files = [Path(path) for path in options.files]
    redactor = _redactor(options)
    if options.check:
        return _check(options, files, redactor)
    if len(files) != 1 or options.out is None:
        raise InputError("--out takes one FILE; run the command once for each")
    from evaltap.recorder.privacy.files import redact_file

    redact_file(files[0], options.out, redactor)
    if options.json:
        print(json.dumps({"file": str(files[0]), "out": str(options.out)}))
    else:
        print(f"{files[0]} -> {options.out}", file=sys.stderr)
    return 0


def _check(options: RedactOptions, files: Sequence[Path], redactor: Redactor) -> int:
    from evaltap.recorder.privacy.files import leaks_in_file

    found = []
    for path in files:
        not_json: list[str] = []
        for leak in leaks_in_file(path, redactor, not_json.append):
            found.append(
                {
                    "file": str(path),
                    "place": leak.place,
                    "kind": leak.kind,
                    "excerpt": leak.excerpt,
                }
            )
            if not options.json:
                print(f"{path}: {leak.place}: {leak.kind}: {leak.excerpt!r}")
        _report_searched_as_text(path, not_json)
    if options.json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        print(_summary(len(found)), file=sys.stderr)
    return 1 if found else 0


_MOST_NAMED = 3
"""Parts of a file that are not JSON and named in the output; further ones are only counted."""


def _report_searched_as_text(path: Path, parts: Sequence[str]) -> None:
    for part in parts[:_MOST_NAMED]:
        print(f"{path}: {part} is not valid JSON and was only searched as text", file=sys.stderr)
    if len(parts) > _MOST_NAMED:
        more = len(parts) - _MOST_NAMED
        print(f"{path}: {more:,} more are not valid JSON either", file=sys.stderr)


def _summary(number: int) -> str:
    """Return the count with the kinds that were and were not searched for: 0 found does not mean clean."""
    from evaltap.recorder.privacy.findings import LOOKED_FOR, NOT_LOOKED_FOR

    return f"{number:,} found ({', '.join(LOOKED_FOR)}). {NOT_LOOKED_FOR}"


def _redactor(options: RedactOptions) -> Redactor:
    from evaltap.recorder.config import RecorderConfig

    config = RecorderConfig()
    if options.policy is not None:
        config = replace(config, redaction_policy=options.policy)
    if options.rules is not None:
        config = replace(config, redaction_rules=options.rules)
    return config.redactor(redaction_key(options.log))
