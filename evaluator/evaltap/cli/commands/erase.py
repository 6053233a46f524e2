"""`evaltap store erase`: remove a person's cases from log, store and eval sets."""

import glob
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
    subject = _subject(options)
    places = erase(
        subject,
        logs=[*map(Path, options.log)],
        stores=options.db,
        files=options.files,
        dry_run=options.dry_run,
    )
    cannot = _out_of_reach(options, places)
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


def _subject(options: EraseOptions) -> Subject:
    for log in options.log:
        if "://" not in log:
            continue
        raise InputError(
            f"--log {log}: records cannot be removed from a Kafka topic; set its retention, and erase from"
            " the DuckDB file that consumed it"
        )
    names = {*spellings(options.subject)}
    for key in {_key(log) for log in options.log or (None,)} - {None}:
        assert key is not None
        for name in spellings(options.subject):
            names.add(str(PatternRedactor(key).value(name)))
            names.update(Pseudonyms(key).token(kind, name) for kind in ("user", "hash"))
    return Subject(frozenset(names))


def _key(log: str | None) -> bytes | None:
    try:
        return redaction_key(log)
    except InputError:
        # Recorded without redaction, or the key is lost: only the id itself can be searched for.
        return redaction_key(None)


def _out_of_reach(options: EraseOptions, places: list[Erased]) -> list[str]:
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
    return [*mentions, *aside, *OUT_OF_REACH]
