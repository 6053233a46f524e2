"""`evaltap store erase`: remove a person's cases from log, store and eval sets."""

import glob
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from evaltap.cli.messages import print_json
from evaltap.cli.options.store import EraseOptions
from evaltap.cli.redaction import redaction_key
from evaltap.evaluator.pipeline.maintenance.erasure import Erased, Subject, erase
from evaltap.evaluator.pipeline.maintenance.mentions import spellings
from evaltap.evaluator.store.file_type import is_database
from evaltap.recorder.privacy.pseudonyms import Pseudonyms
from evaltap.recorder.privacy.redactor import PatternRedactor
from evaltap.schemas.errors import InputError

OUT_OF_REACH = (
    "copies: backups, exports, and archives, files and databases that you did not name",
    "buckets: older versions of an archive's files, if the bucket keeps them; delete them there",
    "Kafka: records stay on a topic until its retention ends; if you consume it again, erase again",
    "spools for Kafka: each is a local log below EVALTAP_SPOOL_DIR; name it with --log",
    "running agents: turns in their memory are written later; erase again when they have ended",
    "the judge cache (EVALTAP_JUDGE_CACHE): its answers may quote a person without an id; delete the file",
    "other systems: traces in your telemetry backend, prompts at the model provider",
    "the disk: freed blocks are not overwritten",
)


def run(options: EraseOptions) -> int:
    """Erase the subject; report what was removed and what evaltap cannot reach."""
    if not (options.log or options.db or options.files):
        raise InputError("nothing to erase from; give --log, --db or files")
    if len(options.subject) < 3:
        raise InputError(
            f"--subject {options.subject!r} is too short to identify a person; give the complete id"
        )
    if misplaced := next(filter(is_database, options.files), None):
        raise InputError(f"{misplaced}: is a DuckDB file; name it with --db {misplaced}")
    keys = _keys(options)
    subject = _subject(options.subject, keys.values())
    places = erase(
        subject,
        logs=[*map(Path, options.log)],
        stores=options.db,
        files=options.files,
        dry_run=options.dry_run,
    )
    cannot = [*_in_these_places(options, places), *_without_key(keys), *OUT_OF_REACH]
    if options.json:
        data = {
            "sessions": len(subject.sessions),
            "dry_run": options.dry_run,
            "places": [
                {"place": one.place, "removed": dict(one.removed), "mentions": one.mentions}
                for one in places
            ],
            "out_of_reach": cannot,
        }
        print_json(data)
        return 0
    verb = "would be removed" if options.dry_run else "removed"
    for one in places:
        counts = ", ".join(f"{n:,} {kind}" for kind, n in one.removed.items() if n)
        print(f"{one.place}: {counts or 'nothing'} {verb}")
    print("\nnot erased (outside evaltap's reach):")
    for line in cannot:
        print(f"- {line}")
    return 0


def _keys(options: EraseOptions) -> dict[str | None, bytes | None]:
    """Return the key of each log, without logs the one of the environment; None if there is none."""
    for log in options.log:
        if "://" not in log:
            continue
        raise InputError(
            f"--log {log}: records cannot be removed from a Kafka topic; set its retention, and erase from"
            " the DuckDB file that consumed it"
        )
    return {log: _key(log) for log in options.log or (None,)}


def _key(log: str | None) -> bytes | None:
    if log is not None:
        with suppress(InputError):  # recorded with the key of the environment, or the file is lost
            return redaction_key(log)
    return redaction_key(None) if os.environ.get("EVALTAP_REDACTION_KEY") else None


def _subject(name: str, keys: Iterable[bytes | None]) -> Subject:
    names = {*spellings(name)}
    for key in {*keys} - {None}:
        assert key is not None
        for spelling in spellings(name):
            names.add(str(PatternRedactor(key).value(spelling)))
            names.update(Pseudonyms(key).token(kind, spelling) for kind in ("user", "hash"))
    return Subject(frozenset(names))


def _without_key(keys: Mapping[str | None, bytes | None]) -> list[str]:
    lacking = [
        log or "the logs that these places were recorded from" for log in keys if not keys[log]
    ]
    return lacking and [
        f"pseudonyms: no key of {', '.join(lacking)} was found, so an id that redaction replaced was not"
        " looked for; name each log with --log and keep its key beside it, or set EVALTAP_REDACTION_KEY"
    ]


def _in_these_places(options: EraseOptions, places: list[Erased]) -> list[str]:
    """Return what stays in the places that were named."""
    mentions = [
        f"{one.place}: {one.mentions:,} cases of other people mention the subject; not changed"
        for one in places
        if one.mentions
    ]
    named = [*map(Path, options.log), *options.db]
    aside = [
        f"{path}: set aside as damaged, so its content is unknown; delete it"
        for one in named
        for path in sorted(one.parent.glob(f"{glob.escape(one.name)}*.bad-*"))
    ]
    return [*mentions, *aside]
