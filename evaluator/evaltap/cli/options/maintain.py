"""The commands of the group "maintain", their options and examples."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal

from evaltap.cli.declared import STORE, Action, Actions, argument, option, setting
from evaltap.cli.options.shared import as_json, store


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The log to check, and the store that consumed it.

    examples:
      evaltap doctor                         # what the recorder sees here
      evaltap doctor --log agent.log.db --db cases.duckdb  # and every turn
      evaltap doctor --log kafka://host:9092/evaltap.cases --db cases.duckdb

    exit code: 0 all is well; 1 a gap, turns dropped for any reason but sampling, a
    problem, or a producer that ended without a closing manifest; 2 bad input
    """

    log: str | None = option("--log LOG", "the log to check: a file, or kafka://host:port/topic")
    usual_log: str | None = setting("EVALTAP_LOG")
    db: Path | None = option("--db X.duckdb", "the DuckDB file that consumed it", variable=STORE)
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqListOptions:
    """The dead letters to list."""

    db: Path = store()
    reason: str = option("--reason REASON", "only dead letters with this reason", default="")
    limit: int = option("--limit N", "list at most N (default: 50)", default=50)
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqShowOptions:
    """The dead letter to show."""

    db: Path = store()
    number: int = argument("NUMBER", "the dead letter's number in `list`")
    json: bool = as_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class DlqReplayOptions:
    """The dead letters to replay."""

    db: Path = store()
    reason: str = option("--reason REASON", "only dead letters with this reason", default="")
    dry_run: bool = option("--dry-run", "only count what would land")
    json: bool = as_json()


class DlqOptions:
    """What can be done with dead letters.

    examples:
      evaltap dlq list cases.duckdb --reason schema_unknown
      evaltap dlq show cases.duckdb 3
      evaltap dlq replay cases.duckdb   # after an upgrade: land what is readable

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """The store to archive, and the archive.

    examples:
      evaltap archive cases.duckdb --to archive
      evaltap archive cases.duckdb --to s3://bucket/evaltap   # the extra 's3'
      evaltap archive --verify archive
      evaltap report archive                  # read like a store

    Writes Parquet files by table and day, and a manifest with their counts and hashes.
    A later run adds what is new, and goes on where one was interrupted. What `prune`
    deletes from the store stays in its archive. Stop the consumer of the file first.

    A bucket is reached with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
    AWS_ENDPOINT_URL (for servers other than Amazon's), or the role of the machine.

    exit code: 0 done, 2 bad input, or an archive that is damaged or cannot be written
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions:
    """The store to prune, and the age of the sessions to delete.

    examples:
      evaltap prune cases.duckdb --older-than 90d --dry-run
      evaltap prune cases.duckdb --older-than 90d
      evaltap prune cases.duckdb --older-than 90d --archived archive

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseOptions:
    """The person to erase, and the places to erase from.

    examples:
      evaltap erase --subject alice@example.com --log agent.log.db \\
          --db cases.duckdb --dry-run
      evaltap erase --subject alice@example.com --log agent.log.db \\
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FmtOptions:
    """The files to format, and how.

    examples:
      evaltap fmt math.evalset.json math.metrics.json
      evaltap fmt --check evals/*.json         # exit 1 when a file is not canonical
      evaltap fmt --to adk --stdout math.evalset.json

    API keys are never written; ${NAME} in judge settings is kept unexpanded.

    exit code: 0 all files are canonical, 1 one is not (--check), 2 bad input
    """

    files: tuple[Path, ...] = argument("FILE", "eval-set, metrics or result files")
    check: bool = option(
        "--check", "change nothing; exit with 1 if a file is not canonical", either="output"
    )
    stdout: bool = option(
        "--stdout", "print the result instead of rewriting files", either="output"
    )
    to: Literal["trpc", "adk"] | None = option(
        "--to", "write eval sets in this format (default: unchanged)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOptions:
    """The shell that the script is for.

    examples:
      eval "$(evaltap completion bash)"                  # in ~/.bashrc
      evaltap completion zsh > "${fpath[1]}/_evaltap"
      evaltap completion fish > ~/.config/fish/completions/evaltap.fish
    """

    shell: Literal["bash", "zsh", "fish", "tcsh"] = argument(
        "{bash,zsh,fish,tcsh}", "the shell to complete for"
    )
