"""`evaltap set fmt`: rewrite eval-set, metrics and result files in canonical form."""

import sys
from pathlib import Path

from evaltap.cli.messages import say
from evaltap.cli.options.set import FmtOptions
from evaltap.evaluator.cases.datasets.exports.losses import losses
from evaltap.schemas.errors import EvaltapError, FormatError, InputError
from evaltap.schemas.files import adk, canonical
from evaltap.schemas.files.content import LINES_ENDINGS, is_json_lines, read_bytes, write_bytes
from evaltap.schemas.files.documents import (
    READERS,
    DocumentKind,
    canonical_bytes,
    document_kind,
    iter_cases,
)
from evaltap.schemas.formats.case import EvalSet


def run(options: FmtOptions) -> int:
    """Format the files; a file that cannot be read does not stop the others."""
    different, failed = 0, 0
    for path in options.files:
        try:
            different += _format(path, options)
        except EvaltapError as error:
            failed += 1
            say("set fmt", error)
    if failed:
        return 2
    return 1 if options.check and different else 0


def _format(path: Path, options: FmtOptions) -> bool:
    """Format one file; return whether it was not canonical."""
    before = read_bytes(path)
    after = formatted(path, options.to)
    if options.to == "adk":
        for loss in losses("adk", list(iter_cases(path))):
            say("set fmt", f"{path}: {loss}")
    if options.stdout:
        sys.stdout.buffer.write(after)
        sys.stdout.flush()
    elif before != after and options.check:
        print(f"{path}: not canonical; run `evaltap set fmt {path}`", file=sys.stderr)
    elif before != after:
        write_bytes(path, after)
        print(f"{path}: rewritten", file=sys.stderr)
    return before != after


def formatted(path: Path, to: str | None = None) -> bytes:
    """Return the canonical bytes of a file; raise FormatError when its kind is unknown."""
    if path.suffix in LINES_ENDINGS and is_json_lines(path):
        raise InputError(
            f"{path}: JSON Lines have no canonical form; expected an eval-set, metrics or result file"
        )
    data = canonical.loads(read_bytes(path), path=str(path))
    try:
        return _canonical(path, document_kind(data), to)
    except FormatError as error:
        raise FormatError(error.detail, path=str(path), place=error.place) from None


def _canonical(path: Path, kind: DocumentKind, to: str | None) -> bytes:
    document = READERS[kind](path)
    if kind in ("eval set", "ADK eval set"):
        if isinstance(document, EvalSet) and (to or kind) in ("adk", "ADK eval set"):
            return canonical.dumps(adk.to_adk(document))
    elif to:
        raise InputError(f"{path}: --to only works on eval sets; this is a {kind} file")
    return canonical_bytes(document)
