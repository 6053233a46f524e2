"""The commands of the group "record", their options and examples."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evaltap.cli.declared import Action, Actions, argument, group, option
from evaltap.cli.options.shared import TlsOptions, as_json, columns, no_redaction


@dataclass(slots=True, kw_only=True, repr=False)
class OtlpOptions:
    """Telemetry files, and the destination of their runs.

    examples:
      evaltap record otlp traces.otlp.json logs.otlp.json --out my.evalset.json
      evaltap record otlp traces.jsonl --log agent.log.db
      evaltap record otlp traces.otlp.json --explain     # only list what is in it

    exit code: 0 all recorded, 2 bad input or configuration, 3 the broker of a
    kafka:// log refused turns
    """

    files: tuple[str, ...] = argument(
        "FILE",
        "files of OTLP/JSON (one object, or JSON Lines), or traces exported from LangSmith,"
        " Langfuse, MLflow, Phoenix, Logfire, Opik, Datadog, CloudWatch, Jaeger or Tempo; in any order",
    )
    out: str | None = option(
        "--out FILE", "write an eval set with one case for each session", either="output"
    )
    log: str | None = option(
        "--log LOG", "append each turn to a log, for `evaltap consume`", either="output"
    )
    no_redaction: bool = no_redaction()
    explain: bool = option("--explain", "list each turn and what was not captured")
    json: bool = option("--json", "print the summary as JSON")


@dataclass(slots=True, kw_only=True, repr=False)
class ReplayedOptions:
    """Eval case files, and the log to which their turns are replayed.

    example:
      evaltap record cases support.evalset.json --log agent.log.db

    exit code: 0 all recorded, 2 bad input or configuration, 3 the broker of a
    kafka:// log refused turns
    """

    files: tuple[Path, ...] = argument("FILE", ".evalset.json files, or JSON Lines of eval cases")
    log: str = option("--log LOG", "the log to append to", variable="EVALTAP_LOG")
    no_redaction: bool = no_redaction()
    json: bool = option("--json", "print the summary as JSON")


@dataclass(slots=True, kw_only=True, repr=False)
class ClaudeCodeOptions:
    """Transcripts, and the destination of their sessions.

    examples:
      evaltap record claude-code ~/.claude/projects/shop --out shop.evalset.json
      evaltap record claude-code session.jsonl --log agent.log.db

    exit code: 0 all recorded, 2 bad input or configuration, 3 the broker of a
    kafka:// log refused turns
    """

    files: tuple[str, ...] = argument(
        "FILE",
        "transcripts (JSON Lines), or folders of them; the files of sub-agents next to them are included",
    )
    out: str | None = option(
        "--out FILE",
        "write an eval set with one case for each session",
        either="output",
        required=True,
    )
    log: str | None = option(
        "--log LOG",
        "append each turn to a log, for `evaltap consume`",
        either="output",
        required=True,
    )
    no_redaction: bool = no_redaction()
    json: bool = option("--json", "print the summary as JSON")


class RecordOptions:
    """The sources that can be recorded from.

    example: evaltap record otlp traces.otlp.json --out support.evalset.json

    exit code: 0 all recorded, 2 bad input or configuration, 3 the broker of a
    kafka:// log refused turns
    """

    ACTIONS: ClassVar = Actions(
        {
            "otlp": Action(
                "create eval cases from the agent runs in OTLP/JSON files of traces and logs",
                OtlpOptions,
            ),
            "cases": Action(
                "replay the recorded turns of eval cases to a log, redacting them on the way",
                ReplayedOptions,
            ),
            "claude-code": Action(
                "create eval cases from Claude Code transcripts, one case for each session",
                ClaudeCodeOptions,
            ),
        },
        "SOURCE",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class CollectOptions:
    """The address to listen on, and the log to write.

    example: evaltap collect --log agent.log.db

    To send spans to it, set these in the agent's environment:
      OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
      OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf

    On SIGTERM, collect ends open runs and writes them to the log.

    Other machines can connect only with a token and TLS, or with --insecure.
    EVALTAP_COLLECT_TOKEN sets the token. Senders present it with:
      OTEL_EXPORTER_OTLP_HEADERS='Authorization=Bearer%20TOKEN'

    exit code: 0 stopped by a signal, 2 bad input, 3 some turns did not reach the
    log
    """

    log: str = option("--log LOG", "the log to write to", variable="EVALTAP_LOG")
    host: str = option(
        "--host HOST",
        "address to listen on (default: 127.0.0.1, this machine only)",
        default="127.0.0.1",
    )
    port: int = option("--port PORT", "port to listen on (default: 4318)", parse=int, default=4318)
    tls: TlsOptions = group(TlsOptions)
    insecure: bool = option(
        "--insecure",
        "let other machines send without a token or TLS; only on a trusted network, or behind a"
        " proxy that requires both",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class RedactOptions:
    """The files to search, and the policy and rules to apply.

    examples:
      evaltap redact --check golden.evalset.json cases.jsonl agent.log.db
      evaltap redact golden.evalset.json --out clean.evalset.json
      evaltap redact references.evalset.json --policy metadata --log agent.log.db \\
          --out hashed.evalset.json

    exit code: 0 done, or nothing found; 1 something would leak (--check); 2 bad
    input
    """

    files: tuple[str, ...] = argument(
        "FILE", "eval sets, JSON Lines, any JSON or text file; with --check also local logs"
    )
    check: bool = option(
        "--check", "only list what would be redacted", either="output", required=True
    )
    out: Path | None = option(
        "--out FILE", "write the redacted file to this path", either="output", required=True
    )
    policy: str | None = option(
        "--policy P", "redaction policy, e.g. toolArguments=hash,userId=drop or metadata"
    )
    rules: str | None = option(
        "--rules JSON", "your own rules, a JSON object of names and regular expressions"
    )
    log: str | None = option(
        "--log LOG",
        "make pseudonyms with the key of this log (for a topic: the key on this machine); no"
        " record is read (default: EVALTAP_REDACTION_KEY, or a new key)",
    )
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ConvertOptions:
    """The data sets to convert, and the meaning of their columns.

    examples:
      evaltap convert goldens.json --out goldens.evalset.json
      evaltap convert squad/ --split validation --map expected=answers.text \\
          --out squad.jsonl
      evaltap convert rows.jsonl --openai-eval eval.json --out cases.jsonl \\
          --metrics-out metrics.json

    fields for --map: id, input, output, expected, tools, expected_tools, messages,
    run
    """

    files: tuple[Path, ...] = argument(
        "DATA",
        ".jsonl, .json, .yaml, .csv, .parquet, .arrow, or a folder saved by Hugging Face datasets",
        default=(),
    )
    out: Path | None = option("--out FILE", "the eval set (.evalset.json), or JSON Lines (.jsonl)")
    map: tuple[str, ...] = columns()
    split: str = option("--split NAME", "one split of a folder (default: all)", default="")
    app_name: str = option("--app-name NAME", "the app that the cases belong to", default="")
    openai_eval: Path | None = option(
        "--openai-eval EVAL.json",
        "an OpenAI evals configuration, whose testing criteria become metrics",
    )
    metrics_out: Path | None = option("--metrics-out M.json", "the file for these metrics")
    skip_unsupported: bool = option(
        "--skip-unsupported",
        "skip testing criteria that no metric corresponds to (default: exit with an error)",
    )
    json: bool = as_json()
