"""`evaltap set export`: write landed cases, or an eval set, in the format of another tool."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path

from evaltap.cli.messages import print_json, print_outcome, say
from evaltap.cli.options.set import ExportOptions
from evaltap.cli.stores import choice_of, open_chosen
from evaltap.evaluator.cases.datasets.exports.forms import files_of
from evaltap.evaluator.cases.datasets.exports.losses import losses
from evaltap.evaluator.cases.datasets.exports.rows import pairs_of
from evaltap.evaluator.cases.datasets.exports.tools import FORMS, WITH_ACTUAL, texts_to_promptfoo
from evaltap.evaluator.cases.evalsets.files import read_set
from evaltap.evaluator.cases.turn import run_failure
from evaltap.evaluator.curation.expectations import expecting_itself
from evaltap.evaluator.ingest.landing.cases import (
    landed_cases,
    repeated_ids,
    with_own_ids,
    write_json_lines,
)
from evaltap.evaluator.store.file_type import is_store
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import eval_set_name, is_lines_name, write_bytes
from evaltap.schemas.text import counted


def run(options: ExportOptions) -> int:
    """Write the cases, or compare them with the existing file."""
    source, form = options.source, _form(options)
    if source is None:
        raise InputError("name the SOURCE: a DuckDB file of evaltap, or an eval set")
    if options.with_actual and form not in WITH_ACTUAL:
        raise InputError(f"--with-actual: only works with --format {' or '.join(WITH_ACTUAL)}")
    if source.suffix == ".duckdb" or is_store(source):
        with open_chosen([source], choice_of(options.chosen)) as store:
            # What expects something is run, whatever it was recorded in.
            own = form in ("jsonl", "trpc") and options.expect == "recorded"
            repeated = repeated_ids(store, runs_apart=own)
            _report_renamed_cases(repeated)
            cases = with_own_ids(landed_cases(store), repeated)
            if options.expect != "recorded":
                cases = _expecting(cases, keeps_actual=options.expect == "both")
            if form == "jsonl" and not options.check:
                # Streamed, so that memory does not grow with the store.
                count = write_json_lines(options.out, cases)
                _report_written_files(options, count, [options.out])
                return 0
            return _export(options, list(cases), "")
    if options.expect != "recorded":
        raise InputError("--as: only works on a store; the source is an eval set")
    if choice_of(options.chosen):
        raise InputError("--filter, --where: only work on a store; the source is an eval set")
    found = read_set(source)
    if form == "jsonl":  # its cases name their set themselves
        named = {"evalSetId": options.id or found.eval_set_id}
        return _export(options, [case | named for case in found.cases], "")
    return _export(options, found.cases, found.eval_set_id, found.fields)


def _expecting(cases: Iterable[CaseData], *, keeps_actual: bool) -> Iterator[CaseData]:
    """Yield cases that expect what they recorded, without those whose run failed; say how many those are."""
    left_out = 0
    for case in cases:
        if any(run_failure(turn) for turn in case["actualConversation"]):
            left_out += 1
        else:
            yield expecting_itself(case, keeps_actual=keeps_actual)
    if left_out:
        say(
            "set export",
            f"left out {counted(left_out, 'case')} whose run failed: nothing to expect",
        )


def _form(options: ExportOptions) -> str:
    return options.format or ("jsonl" if is_lines_name(options.out) else "trpc")


def _export(
    options: ExportOptions,
    cases: Sequence[CaseData],
    set_id: str,
    fields: Mapping[str, Json] | None = None,
) -> int:
    name = options.id or set_id or eval_set_name(options.out)
    if _form(options) in FORMS:
        cases = _with_turns(cases)
    if _form(options) == "promptfoo":
        cases = _as_they_are(cases)
    made = files_of(_form(options), cases, name, with_actual=options.with_actual, fields=fields)
    files = {Path(f"{options.out}{ending}"): content for ending, content in made.items()}
    if options.check:
        stale = [
            path
            for path, content in files.items()
            if not path.is_file() or path.read_bytes() != content
        ]
        if options.json:
            print_json({"out": str(options.out), "stale": list(map(str, stale))})
        for path in stale:
            say("set export", f"{path}: is out of date; run this command without --check")
        return int(bool(stale))
    for path, content in files.items():
        write_bytes(path, content)
    for loss in losses(_form(options), cases, with_actual=options.with_actual):
        say("set export", loss)
    _report_written_files(options, len(cases), list(files))
    return 0


def _with_turns(cases: Sequence[CaseData]) -> Sequence[CaseData]:
    """Return the cases that become rows; say how many have no turn to become one."""
    kept = [case for case in cases if pairs_of(case)]
    if left_out := len(cases) - len(kept):
        say("set export", f"left out {counted(left_out, 'case')} without turns")
    return kept


def _as_they_are(cases: Sequence[CaseData]) -> Sequence[CaseData]:
    kept, others = texts_to_promptfoo(cases)
    if others:
        say(
            "set export",
            f"left out {counted(len(others), 'case')} with a text that promptfoo would not take as it is: it"
            " renders {{, {% and {#, and loads or runs what file: and package: name",
        )
    return kept


def _report_written_files(options: ExportOptions, cases: int, files: Sequence[Path]) -> None:
    data = {
        "out": str(options.out),
        "format": _form(options),
        "cases": cases,
        "files": list(map(str, files)),
    }
    named = [options.out] if _form(options) == "huggingface" else files
    written = f"{counted(cases, 'case')} written to {' and '.join(map(str, named))}"
    print_outcome(data, written, as_json=options.json)


def _report_renamed_cases(repeated: Set[str]) -> None:
    if repeated:
        say(
            "set export",
            f"{counted(len(repeated), 'eval id')} occurred in several runs, versions or applications,"
            f" such as {min(repeated)!r}; the cases are exported as ID@RUN or ID@VERSION; use --filter"
            " version:NAME or app:NAME to export one",
        )
