"""The options of `evaltap store …`: keeping a DuckDB file in order."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from evaltap.cli.declared import STORE, Action, Actions, argument, option
from evaltap.cli.options.shared import as_json, store


@dataclass(slots=True, kw_only=True, repr=False)
class AttachOptions:
    """The files to read, and the file for the SQL.

    examples:
      evaltap store attach shard-*.duckdb --out all.sql
      duckdb -init all.sql -c 'FROM v_pass_rate'

    In Python: duckdb.connect().execute(open("all.sql").read())
    """

    dbs: tuple[Path, ...] = argument(
        "X.duckdb", "files that consumers with --partitions wrote; no process may have them open"
    )
    out: Path | None = option("--out FILE.sql", "the file to write (default: print the SQL)")


@dataclass(slots=True, kw_only=True, repr=False)
class DlqListOptions:
    """The dead letters to list."""

    db: Path = store()
    reason: str = option("--reason REASON", "only dead letters with this reason", default="")
    limit: int = option("--limit N", "list at most N (default: 50)", default=50)
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class DlqShowOptions:
    """The dead letter to show."""

    db: Path = store()
    number: int = argument("NUMBER", "the dead letter's number in `list`")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class DlqReplayOptions:
    """The dead letters to replay."""

    db: Path = store()
    reason: str = option("--reason REASON", "only dead letters with this reason", default="")
    dry_run: bool = option("--dry-run", "only count what would land")
    json: bool = as_json()


class DlqOptions:
    """What can be done with dead letters.

    examples:
      evaltap store dlq list cases.duckdb --reason schema_unknown
      evaltap store dlq show cases.duckdb 3
      evaltap store dlq replay cases.duckdb   # after an upgrade: land what can be

    --json prints text. Keys and values that are not UTF-8 are in key_base64 and
    value_base64; a header with such a value is [name, null, base64].

    exit code: 0 done, 1 some records still cannot be read (replay), 2 bad input
    """

    ACTIONS: ClassVar = Actions(
        {
            "list": Action("list dead letters, oldest first", DlqListOptions),
            "show": Action("show a dead letter with its headers and bytes", DlqShowOptions),
            "replay": Action("land the dead letters that can now be read", DlqReplayOptions),
        }
    )


@dataclass(slots=True, kw_only=True, repr=False)
class PruneOptions:
    """The store to prune, and the age of the sessions to delete.

    examples:
      evaltap store prune cases.duckdb --older-than 90d --dry-run
      evaltap store prune cases.duckdb --older-than 90d
      evaltap store prune cases.duckdb --older-than 90d --archived archive

    Deletes whole sessions, by the start of their newest turn. Stop the consumer of
    the file first. The file is rewritten, which needs free space for a second copy.
    """

    db: Path = store()
    older_than: timedelta = option(
        "--older-than AGE",
        "delete sessions whose newest turn started longer ago than this, e.g. 24h or 90d",
    )
    archived: Path | None = option(
        "--archived DIR",
        "delete only if this archive of the store (a folder, or s3://bucket/prefix) has every row"
        " that is deleted; its files are read again",
    )
    dry_run: bool = option("--dry-run", "only count what would be deleted")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class EraseOptions:
    """The person to erase, and the places to erase from.

    examples:
      evaltap store erase --subject alice@example.com --log agent.log.db \\
          --db cases.duckdb --dry-run
      evaltap store erase --subject alice@example.com --log agent.log.db \\
          --db cases.duckdb --db archive golden.evalset.json
    """

    subject: str = option("--subject ID", "the user id or session id, as the agent used it")
    log: tuple[str, ...] = option(
        "--log LOG", "a local log, whose key also finds the subject's pseudonyms; may be repeated"
    )
    db: tuple[Path, ...] = option(
        "--db X.duckdb",
        "a store or an archive; may be repeated, and sessions found in one are erased from all",
    )
    files: tuple[Path, ...] = argument(
        "FILE", "eval sets, result files, JSON Lines of cases", default=()
    )
    dry_run: bool = option("--dry-run", "only count what would be removed")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ArchiveOptions:
    """The store to archive, and the archive.

    examples:
      evaltap store archive cases.duckdb --to archive
      evaltap store archive cases.duckdb --to s3://bucket/evaltap   # the extra 's3'
      evaltap store archive --verify archive
      evaltap report archive                  # read like a store

    Writes Parquet files by table and day, and a manifest with their counts and
    hashes. A later run adds what is new, and goes on where one was interrupted.
    What `prune` deletes from the store stays in its archive. Stop the consumer of
    the file first.

    A bucket is reached with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION
    and AWS_ENDPOINT_URL (for servers other than Amazon's), or the role of the
    machine.

    exit code: 0 done, 2 bad input, or an archive that is damaged or cannot be
    written
    """

    db: Path | None = argument(
        "X.duckdb",
        "the store to archive (default: the one in evaltap.toml, or ./cases.duckdb)",
        default=None,
        variable=STORE,
    )
    to: Path | None = option(
        "--to DIR", "the archive: a folder, or s3://bucket/prefix", either="work"
    )
    verify: Path | None = option(
        "--verify DIR",
        "instead, read all files of this archive and compare them with its manifest",
        either="work",
    )
    json: bool = as_json()
