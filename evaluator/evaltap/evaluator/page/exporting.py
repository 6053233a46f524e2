"""Export picked cases as files equal to those of `evaltap set export` and `evaltap curate`."""

import io
import shlex
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evaltap.evaluator.analysis.filters.choice import Choice, chosen_keys
from evaltap.evaluator.analysis.filters.language import parse_filter, quoted
from evaltap.evaluator.analysis.filters.restricted import restricted
from evaltap.evaluator.cases.datasets.exports.forms import ENDINGS, files_of
from evaltap.evaluator.cases.evalsets.files import set_bytes
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.curation.curate import Means, curate
from evaltap.evaluator.curation.recipe import BUILT_IN, Expect
from evaltap.evaluator.curation.review.queue import decisions
from evaltap.evaluator.ingest.landing.cases import landed_cases, repeated_ids, with_own_ids
from evaltap.evaluator.page.request import Download
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

CONTENTS: Final[Mapping[str, str]] = {
    "expected": "turns that a reviewer approved become references",
    "recorded": "as recorded, to score again",
    "inputs": "only the user's messages, for live runs",
}
_EXPECT: Final[Mapping[str, Expect]] = {"expected": "expected", "inputs": "inputs"}


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The content, format and name of a requested file."""

    content: str
    form: str
    name: str


@dataclass(frozen=True, slots=True)
class ExportedCases:
    """Cases to write, and the excluded sessions with the reasons."""

    cases: Sequence[CaseData]
    left_out: tuple[Mapping[str, str], ...] = ()


def export_request(content: str, form: str, name: str) -> ExportRequest:
    """Return what a form requests; invalid values are replaced by defaults."""
    kept = "".join(letter for letter in name if letter.isalnum() or letter in "-_. ").strip(". ")
    return ExportRequest(
        content if content in CONTENTS else "expected",
        form if form in ENDINGS else "trpc",
        kept[:100] or "basket",
    )


def exported_cases(
    reader: StoreReader,
    keys: Sequence[CaseKey],
    content: str,
    redact: Callable[[CaseData], CaseData],
    form: str = "trpc",
) -> ExportedCases:
    """Return the cases created from the picked ones."""
    if not keys:
        return ExportedCases(())
    with restricted(reader, Choice(), keys):
        if content == "recorded":
            repeated = repeated_ids(reader, runs_apart=form in ("jsonl", "trpc"))
            return ExportedCases(list(with_own_ids(landed_cases(reader), repeated)))
        name = "approved" if content == "expected" else "representative"
        recipe = BUILT_IN[name].everything().changed(expect=_EXPECT[content])
        found = curate(reader, recipe, Means(redact=redact, reviewed=decisions(reader)))
    made = {
        tuple(origin[name] for name in ("appName", "evalSetId", "evalId"))
        for origin in (case["source"]["curation"]["from"] for case in found.cases)
    }
    reported = {one["turn"].rpartition("#")[0] for one in found.left_out}
    silent = [key for key in keys if key not in made and key[2] not in reported]
    more = [
        {"turn": key[2], "reason": "no reviewer has approved one of its turns"} for key in silent
    ]
    return ExportedCases(found.cases, (*found.left_out, *more))


def download(made: ExportedCases, wanted: ExportRequest) -> Download:
    """Return the file; a folder becomes a ZIP archive."""
    if wanted.form == "trpc" and wanted.content != "recorded":
        content = set_bytes(wanted.name, made.cases)
        return Download(wanted.name + ENDINGS["trpc"], content, "application/json")
    cases = made.cases
    if wanted.form == "jsonl" and wanted.content != "recorded":
        cases = [case | {"evalSetId": wanted.name} for case in cases]
    files = files_of(wanted.form, cases, wanted.name)
    if set(files) == {""}:
        return Download(wanted.name + ENDINGS[wanted.form], files[""])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for ending, content in files.items():
            archive.writestr(wanted.name + (ending or ENDINGS[wanted.form]), content)
    return Download(f"{wanted.name}.zip", packed.getvalue(), "application/zip")


def commands(
    store: Path, filter_: str, wanted: ExportRequest, into: Path | None = None
) -> tuple[str, ...]:
    """Return the equivalent commands."""
    out = wanted.name + (ENDINGS[wanted.form] or "/")
    chosen = f"--filter {shlex.quote(filter_)}"
    if wanted.content == "recorded":
        form = "" if wanted.form in ("trpc", "jsonl") else f" --format {wanted.form}"
        return (f"evaltap set export {_quoted(store)} {chosen}{form} --out {_quoted(out)}",)
    made = wanted.name + ENDINGS["trpc"]
    to = f"--into {_quoted(into)}" if into else f"--out {_quoted(made)}"
    first = f"evaltap curate {_quoted(store)} --as {wanted.content} --all {chosen} {to}"
    if into or wanted.form == "trpc":
        return (first,)
    form = "" if wanted.form == "jsonl" else f" --format {wanted.form}"
    return (first, f"evaltap set export {_quoted(made)}{form} --out {_quoted(out)}")


def _quoted(path: Path | str) -> str:
    return shlex.quote(str(path))


def filter_of(reader: StoreReader, keys: Collection[CaseKey]) -> str:
    """Return the filter that selects exactly these cases; empty if it cannot be written."""
    ids = sorted({key[2] for key in keys})
    if not ids or any(set(one) & set('"*?,\n\0') for one in ids):
        return ""
    shared = [(name, {key[at] for key in keys}) for name, at in (("app", 0), ("set", 1))]
    terms = ["id:" + ",".join(map(quoted, ids))]
    terms += [
        f"{name}:{quoted(value)}"
        for name, values in shared
        if len(values) == 1 and (value := next(iter(values))) and not set(value) & set('"*?,\n\0')
    ]
    for text in (terms[0], " ".join(terms)):
        try:
            if set(chosen_keys(reader, Choice(parse_filter(text)))) == set(keys):
                return text
        except InputError:
            return ""
    return ""
