"""`evaltap export`: write landed cases, or an eval set, in the format of another tool."""

import argparse
import json
import sys
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_json, print_outcome
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.settings import STORE, of_settings
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import is_lines_name
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from evaltap.schemas.formats.case import CaseData


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The cases to export, the format, and the file to write."""

    source: Path | None
    out: Path
    format: str | None
    id: str | None
    with_actual: bool
    check: bool
    json: bool
    chosen: FilterOptions

    @property
    def form(self) -> str:
        """The format: as given, or by the file's suffix."""
        return self.format or ("jsonl" if is_lines_name(self.out) else "trpc")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    from evaltap.evaluator.cases.datasets.exports.forms import ENDINGS

    parser.epilog = (
        "examples:\n"
        "  evaltap export cases.duckdb --out cases.evalset.json\n"
        "  evaltap export cases.duckdb --out cases.jsonl            # JSON Lines of cases\n"
        "  evaltap export cases.duckdb --out cases.evalset.json --format adk\n"
        "  evaltap export cases.duckdb --out late.evalset.json --filter since:7d\n"
        "  evaltap export golden.evalset.json --format deepeval --out goldens.json\n"
        "  evaltap export golden.evalset.json --format huggingface --out golden/\n"
        "  evaltap export golden.evalset.json --out golden.jsonl --check\n\n"
        "For tools without multi-turn cases, each turn becomes a row with the preceding conversation"
        " as messages.\n\n"
        "exit code: 0 written, or up to date with --check; 1 the file differs (--check); 2 bad input"
    )
    add = parser.add_argument
    source = add(
        "source", nargs="?", type=Path, metavar="SOURCE",
        help="a store (X.duckdb), or an eval set (default: the store of evaltap.toml, or ./cases.duckdb)",
    )  # fmt: skip
    of_settings(source, STORE)
    add(
        "--out", required=True, type=Path, metavar="P", help="the file to write (a folder for huggingface)"
    )  # fmt: skip
    add(
        "--format", choices=ENDINGS, metavar="FORMAT",
        help=f"the format to write: {', '.join(ENDINGS)} (default: by the file's ending)",
    )  # fmt: skip
    add("--id", metavar="ID", help="the eval set's id (default: its own, or the file's name)")
    add(
        "--with-actual",
        action="store_true",
        help="for deepeval and openai-evals: include the recorded answers and tool calls",
    )
    add("--check", action="store_true", help="write nothing; exit with 1 if the file differs")
    add_filter(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=ExportOptions)


def run(options: ExportOptions) -> int:
    """Write the cases, or compare them with the existing file."""
    from evaltap.evaluator.ingest.landing.cases import landed_cases, write_json_lines
    from evaltap.evaluator.ingest.landing.own_ids import repeated_ids, with_own_ids
    from evaltap.evaluator.store.file_type import is_database

    source = options.source
    if source is None:
        raise InputError("name the SOURCE: a DuckDB file of evaltap, or an eval set")
    if source.suffix == ".duckdb" or is_database(source):
        with options.chosen.open([source]) as store:
            repeated = repeated_ids(store, runs_apart=options.form in ("jsonl", "trpc"))
            _report_renamed_cases(repeated)
            cases = with_own_ids(landed_cases(store), repeated)
            if options.form == "jsonl" and not options.check:
                # Streamed, so that memory does not grow with the store.
                count = write_json_lines(options.out, cases)
                _report_written_files(options, count, [options.out])
                return 0
            return _export(options, list(cases), "")
    if options.chosen.choice():
        raise InputError("--filter, --where: only work on a store; the source is an eval set")
    from evaltap.evaluator.cases.evalsets.files import read_set

    found = read_set(source)
    return _export(options, found.cases, found.eval_set_id)


def _export(options: ExportOptions, cases: "Sequence[CaseData]", set_id: str) -> int:
    from evaltap.evaluator.cases.datasets.exports.forms import files_of
    from evaltap.evaluator.cases.datasets.exports.losses import losses
    from evaltap.schemas.files.documents import eval_set_name, write_bytes

    name = options.id or set_id or eval_set_name(options.out)
    made = files_of(options.form, cases, name, with_actual=options.with_actual)
    files = {Path(f"{options.out}{ending}"): content for ending, content in made.items()}
    if options.check:
        stale = [
            path
            for path, content in files.items()
            if not path.is_file() or path.read_bytes() != content
        ]
        if options.json:
            print(json.dumps({"out": str(options.out), "stale": list(map(str, stale))}))
        for path in stale:
            print(
                f"evaltap export: {path}: is out of date; run this command without --check",
                file=sys.stderr,
            )
        return int(bool(stale))
    for path, content in files.items():
        write_bytes(path, content)
    for loss in losses(options.form, cases):
        print(f"evaltap export: {loss}", file=sys.stderr)
    _report_written_files(options, len(cases), list(files))
    return 0


def _report_written_files(options: ExportOptions, cases: int, files: Sequence[Path]) -> None:
    data = {
        "out": str(options.out),
        "format": options.form,
        "cases": cases,
        "files": list(map(str, files)),
    }
    named = [options.out] if options.form == "huggingface" else files
    written = f"{counted(cases, 'case')} written to {' and '.join(map(str, named))}"
    print_outcome(data, written, as_json=options.json)


def _report_renamed_cases(repeated: Set[str]) -> None:
    if repeated:
        print(
            f"evaltap export: {counted(len(repeated), 'eval id')} occurred in several runs or versions,"
            f" such as {min(repeated)!r}; the cases are exported as ID@VERSION; use --filter version:NAME"
            " to export one version",
            file=sys.stderr,
        )
