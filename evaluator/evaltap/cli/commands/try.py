"""`evaltap try`: read files of any supported format, score their turns and show what the agent did."""

import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from evaltap.cli.declared import options_of
from evaltap.cli.messages import print_json
from evaltap.cli.options.inspect import UiOptions
from evaltap.cli.options.start import TryOptions
from evaltap.cli.recognising import FileRead, files_in, recognise
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.reports.first_look import METRICS, FirstLook, first_look, look_lines
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import open_store
from evaltap.recorder.sources.replay import Replay
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import metrics_of
from evaltap.schemas.files.refused import no_such_file
from evaltap.schemas.text import counted, some_of

_STDIN: Final = Path("-")
_SKIPPED_SHOWN: Final = 10
_FILES_SHOWN: Final = 12
_FILES_REPEATED: Final = 3


def run(options: TryOptions) -> int:
    """Read, land, score and show; return 3 if a file that was named was skipped."""
    if options.db is not None and options.db.suffix != ".duckdb":
        raise InputError(f"--db {options.db}: expected a file that ends in .duckdb")
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder, _files(options, folder) as files:
        found = recognise(files_in(files))
        if not found.cases:
            raise InputError(_nothing(found.files, options.files))
        db = options.db or Path(folder) / "try.duckdb"
        log = Path(folder) / "try.log.db"
        refused = _record(found.cases, log, redacts=not options.no_redaction)
        if len(refused) == len(found.cases):
            raise InputError("; ".join(refused[:_SKIPPED_SHOWN]))
        look = _look(log, db)
        if options.json:
            files_read = [asdict(file) | {"path": str(file.path)} for file in found.files]
            print_json({"files": files_read, "refused": refused, **look.data()})
        else:
            told = [*_file_lines(found.files), *refused, "", *look_lines(look), "", *_next(options)]
            for line in told:
                print(visible(line))
            if options.open and sys.stdin.isatty() and sys.stdout.isatty():
                from evaltap.cli.commands import ui  # half a second, for those who look

                print("\nthe page, until Ctrl-C:", flush=True)
                ui.run(options_of(UiOptions, {"command": "ui", "db": db, "port": 0}))
        skipped = {file.path for file in found.files if file.skipped}
        return 3 if skipped.intersection(files) else 0


@contextmanager
def _files(options: TryOptions, folder: str) -> Iterator[Sequence[Path]]:
    """Yield the files to read, with standard input as one."""
    for path in options.files:
        if path != _STDIN and not path.exists():
            raise InputError(
                no_such_file(path, "expected a file, a folder, or - for standard input")
            )
    held = Path(folder) / "stdin"
    if _STDIN in options.files:
        held.write_bytes(sys.stdin.buffer.read())
    yield [held if path == _STDIN else path for path in options.files]


def _record(cases: Sequence[CaseData], log: Path, *, redacts: bool) -> list[str]:
    """Append the turns to a log; return why some could not be, such as one that is nested too deeply."""
    refused: list[str] = []
    with Replay(str(log), redaction=redacts) as replay:
        for case in cases:
            try:
                replay.add([case])
            except InputError as error:
                refused.append(f"left out: {error}")
    return refused


def _look(log: Path, db: Path) -> FirstLook:
    source = LocalLogSource(log)
    with open_store(db) as store:
        Consumer(source, store).run(until_idle=True, report=lambda _: None)
        source.close()
        PendingScorer(store, CaseScorer(metrics_of(METRICS))).score("landed", "evaltap try")
        return first_look(store)


def _file_lines(files: Sequence[FileRead]) -> Iterator[str]:
    """Yield what each file was read as; of many files, only the counts, and the first skipped ones."""
    read = [file for file in files if not file.skipped]
    skipped = [file for file in files if file.skipped]
    if len(read) > _FILES_SHOWN:
        for form, count in Counter(file.format for file in read).items():
            yield f"{counted(count, 'file')}  {form}"
        if noted := sum(bool(file.notes) for file in read):
            yield f"  left out: parts of {counted(noted, 'file')}; --json lists them"
    else:
        width = min(48, max((len(file.path.name) for file in read), default=0))
        for file in read:
            yield f"{file.path.name:<{width}}  {file.format} ({file.contents})"
            yield from (f"  left out: {note}" for note in file.notes)
    for file in skipped[:_SKIPPED_SHOWN]:
        yield f"{file.path.name}  skipped: {file.skipped}"
    if len(skipped) > _SKIPPED_SHOWN:
        rest = counted(len(skipped) - _SKIPPED_SHOWN, "more file")
        yield f"{rest} skipped; --json lists them"


def _nothing(files: Sequence[FileRead], given: Sequence[Path]) -> str:
    if not files:
        return f"{', '.join(map(str, given))}: contains no files"
    reasons = [f"{file.path.name}: {file.skipped}" for file in files]
    some = some_of(reasons, _SKIPPED_SHOWN, "; ")
    return f"no turns found; {some} (docs/how-to/try.md lists the formats)"


def _next(options: TryOptions) -> Iterator[str]:
    if options.db is None:
        given = [shlex.quote(str(path)) for path in options.files]
        files = " ".join(given) if len(given) <= _FILES_REPEATED else f"{given[0]} …"
        yield f"next: evaltap try {files} --db cases.duckdb"
        yield "      evaltap ui cases.duckdb"
    else:
        db = shlex.quote(str(options.db))
        yield f"next: evaltap ui {db}"
        yield f"      evaltap curate {db} --out golden.evalset.json"
