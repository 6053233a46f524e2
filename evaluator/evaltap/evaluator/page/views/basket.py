"""The basket: picked cases, the eval set created from them, and its file."""

import io
import shlex
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from evaltap.evaluator.analysis.filters.choice import Choice, chosen_keys
from evaltap.evaluator.analysis.filters.language import parse_filter, quoted
from evaltap.evaluator.analysis.filters.listing import ListedCase, list_page, listed_cases
from evaltap.evaluator.analysis.filters.restricted import restricted
from evaltap.evaluator.analysis.filters.terms import KEYS
from evaltap.evaluator.cases.datasets.exports.forms import ENDINGS, files_of
from evaltap.evaluator.cases.datasets.exports.tools import texts_to_promptfoo
from evaltap.evaluator.cases.evalsets.files import read_set, set_bytes, write_set
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.curation.curate import Means, curate
from evaltap.evaluator.curation.recipe import BUILT_IN, Expect
from evaltap.evaluator.curation.review.queue import decisions
from evaltap.evaluator.curation.updating import add_to
from evaltap.evaluator.ingest.landing.cases import landed_cases, repeated_ids, with_own_ids
from evaltap.evaluator.page import changes
from evaltap.evaluator.page.changes import Change, CursorWriter
from evaltap.evaluator.page.request import Download, PageRequest, case_link, key_text, link
from evaltap.evaluator.page.views.cases import all_of
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

MOST_PICKED: Final = 500
"""For more cases, use `evaltap curate` with a filter."""

_LISTED: Final = f"""
SELECT {KEYS}, first_at, last_at, cost_usd, unpriced, latency_ms, turns,
       row_number() OVER (ORDER BY p.changed_at DESC, eval_id) AS place
FROM ({changes.PICKED}) p JOIN case_index USING ({KEYS})
"""
_REVIEWED: Final = f"""
SELECT {KEYS}, count(DISTINCT invocation_id) FILTER (verdict = 'good'),
       count(DISTINCT invocation_id) FILTER (verdict = 'bad')
FROM v_review_items SEMI JOIN {{cases}} USING ({KEYS}) GROUP BY ALL
"""


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
class PickedCase:
    case: ListedCase
    picked_at: datetime
    key: str
    """The value of a form field."""
    approved: int
    """The number of turns that reviewers approved."""
    rejected: int
    href: str
    expected_href: str


@dataclass(frozen=True, slots=True)
class BasketPage:
    picked: tuple[PickedCase, ...]
    wanted: ExportRequest
    contents: tuple[tuple[str, str, str], ...]
    """The possible contents of cases: name, description and link."""
    forms: tuple[str, ...]
    made: int
    """The number of cases in the file."""
    left_out: tuple[Mapping[str, str], ...]
    commands: tuple[str, ...]
    """The equivalent commands; empty if a filter cannot contain the ids."""
    sets: tuple[tuple[str, tuple[str, ...]], ...]
    """The set files to which cases can be added, each with its command."""


def read(reader: StoreReader, request: PageRequest) -> BasketPage:
    """Return the basket, and the cases that it yields with the parameters `as`, `format` and `name`."""
    since = changes.picked(reader, request.person)
    wanted = export_request(request["as"], request["format"], request["name"])
    with reader.scratch(_LISTED, {"who": request.person.name}) as listed:
        cases = listed_cases(reader, listed)
        reviewed = {
            (app, name, one): tuple(counts)
            for app, name, one, *counts in reader.rows(_REVIEWED.format(cases=listed))
        }
    keys = [(one.app, one.eval_set_id, one.eval_id) for one in cases]
    filter_ = filter_of(reader, keys)
    made = exported_cases(reader, keys, wanted.content, request.redact)
    if keys and not made.cases and not request["as"]:  # open with a content that yields something
        for content in CONTENTS:
            if content != wanted.content and not made.cases:
                made = exported_cases(reader, keys, content, request.redact)
                wanted = export_request(content, request["format"], request["name"])
    store, picked = request.store_path, []
    for one, key in zip(cases, keys, strict=True):
        approved, rejected = reviewed.get(key, (0, 0))
        hrefs = case_link(key), case_link(key, "/expected")
        picked.append(PickedCase(one, since[key], key_text(key), approved, rejected, *hrefs))
    return BasketPage(
        tuple(picked),
        wanted,
        tuple((name, words, _to(wanted, name)) for name, words in CONTENTS.items()),
        tuple(ENDINGS),
        len(made.cases),
        made.left_out,
        commands(store, filter_, wanted) if filter_ else (),
        tuple(
            (path.name, commands(store, filter_, wanted, path) if filter_ else ())
            for path in request.sets
        ),
    )


def _to(wanted: ExportRequest, content: str) -> str:
    form = "" if wanted.form == "trpc" else wanted.form
    name = "" if wanted.name == "basket" else wanted.name
    return link("/basket", **{"as": content}, format=form, name=name)


# -- what people do with it ---------------------------------------------------------------------


def pick(writer: CursorWriter, request: PageRequest) -> str:
    """Add the chosen cases to the basket, or with `all` those that a filter selects."""
    keys = request.keys
    if request["all"]:
        page = list_page(
            writer, Choice(all_of(request), traffic=True), MOST_PICKED, now=request.now
        )
        if page.matched > MOST_PICKED:
            raise InputError(
                f"{page.matched:,} cases match, but a basket holds at most {MOST_PICKED}. Narrow the"
                " filter, or use `evaltap curate` with it"
            )
        keys = [(one.app, one.eval_set_id, one.eval_id) for one in page.cases]
    there = changes.picked(writer, request.person)
    new = [key for key in keys if key not in there]
    if len(there) + len(new) > MOST_PICKED:
        raise InputError(
            f"a basket holds at most {MOST_PICKED} cases, and {len(there)} are in it; remove some"
        )
    changes.write(writer, request.person, [Change("pick", key) for key in new])
    return request.path


def drop(writer: CursorWriter, request: PageRequest) -> str:
    """Remove the chosen cases from the basket, or with `all` all cases."""
    there = changes.picked(writer, request.person)
    gone = [*there] if request["all"] else [key for key in request.keys if key in there]
    changes.write(writer, request.person, [Change("drop", key) for key in gone])
    return request.path if request["next"] else "/basket"


def export(writer: CursorWriter, request: PageRequest) -> Download:
    """Return the basket as a file."""
    wanted = export_request(request["as"], request["format"], request["name"])
    keys = _basket(writer, request)
    with writer.snapshot():
        made = exported_cases(writer, keys, wanted.content, request.redact, wanted.form)
    if not made.cases:
        raise InputError(_nothing(made.left_out))
    file = download(made, wanted)
    detail = {"cases": len(made.cases), "content": wanted.content, "format": wanted.form}
    changes.write(writer, request.person, [Change("export", target=file.name, detail=detail)])
    return file


def add_to_set(writer: CursorWriter, request: PageRequest) -> str:
    """Add the basket to one of the set files with which the page was started."""
    path = next((one for one in request.sets if one.name == request["file"]), None)
    if path is None:
        given = request.sets or "none"
        raise InputError(
            f"unknown set {request['file']!r}; the page was started with --set {given}"
        )
    wanted = export_request(request["as"], "trpc", "")
    if wanted.content == "recorded":
        raise InputError("recorded cases cannot be added to a set; choose expected or inputs")
    keys = _basket(writer, request)
    with writer.snapshot():
        made = exported_cases(writer, keys, wanted.content, request.redact)
    there = read_set(path)
    updated = add_to(there.cases, made.cases)
    if not updated.added:
        raise InputError(_nothing(made.left_out) if not made.cases else f"{path}: has these cases")
    write_set(path, there, updated.cases)
    detail = {"cases": list(updated.added)}
    changes.write(writer, request.person, [Change("add_to_set", target=path.name, detail=detail)])
    return link("/basket", **{"as": request["as"]}, added=str(len(updated.added)), file=path.name)


def _basket(writer: CursorWriter, request: PageRequest) -> Sequence[CaseKey]:
    keys = [*changes.picked(writer, request.person)]
    if not keys:
        raise InputError("the basket is empty; pick cases in the list with x and b")
    return keys


def _nothing(left_out: Sequence[Mapping[str, str]]) -> str:
    why = f": {left_out[0]['turn']}: {left_out[0]['reason']}" if left_out else ""
    return f"no case in the basket can be written in this form{why}"


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
    made = _picked_cases(reader, keys, content, redact, form)
    if form != "promptfoo":
        return made
    kept, others = texts_to_promptfoo(made.cases)
    reason = "has a text that promptfoo would render, load or run"
    refused = [{"turn": case["evalId"], "reason": reason} for case in others]
    return ExportedCases(kept, (*made.left_out, *refused))


def _picked_cases(
    reader: StoreReader,
    keys: Sequence[CaseKey],
    content: str,
    redact: Callable[[CaseData], CaseData],
    form: str,
) -> ExportedCases:
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
        return (f"evaltap set export {_shell_word(store)} {chosen}{form} --out {_shell_word(out)}",)
    made = wanted.name + ENDINGS["trpc"]
    to = f"--into {_shell_word(into)}" if into else f"--out {_shell_word(made)}"
    first = f"evaltap curate {_shell_word(store)} --as {wanted.content} --all {chosen} {to}"
    if into or wanted.form == "trpc":
        return (first,)
    form = "" if wanted.form == "jsonl" else f" --format {wanted.form}"
    return (first, f"evaltap set export {_shell_word(made)}{form} --out {_shell_word(out)}")


def _shell_word(path: Path | str) -> str:
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
