"""The commands of the group "start", their options and examples."""

from dataclasses import dataclass
from pathlib import Path

from evaltap.cli.declared import STORE, STORE_FILE, argument, group, option
from evaltap.cli.options.shared import (
    ADDRESS,
    ReferenceOptions,
    ShownOptions,
    as_json,
    no_redaction,
)
from evaltap.cli.values import share


@dataclass(slots=True, kw_only=True, repr=False)
class TryOptions:
    """The files to read, and where to keep what was read.

    examples:
      evaltap try traces.json                 # an export of a tracing product
      evaltap try ~/.codex/sessions --db codex.duckdb
      curl -s URL | evaltap try - --json

    Recognises the format of each file by its content: traces of Langfuse, Phoenix,
    LangSmith, MLflow, Logfire, Opik, Datadog, CloudWatch, Jaeger, Tempo and
    OpenTelemetry; sessions of Claude Code, Codex, Gemini CLI, Copilot CLI and
    OpenHands; tau2 results, n8n executions, chat messages and eval sets. Scores
    them without references or a judge, and shows what the agent did.

    exit code: 0 done, 2 no file could be read, 3 a file that was named was skipped
    """

    files: tuple[Path, ...] = argument("FILE", "files, folders of them, or - for standard input")
    db: Path | None = option(
        "--db X.duckdb", "keep cases and scores in this file (default: a temporary one)"
    )
    no_redaction: bool = no_redaction()
    open: bool = option(
        "--no-open", "do not show the page (default: on a terminal, open it)", default=True
    )
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class DemoOptions:
    """The folder to write to, and the output.

    examples:
      evaltap demo --dir /tmp/evaltap-demo
      evaltap demo --ui            # keep the agent running, watch it in the browser

    A Google ADK support agent with a scripted model runs through four sessions,
    twice. The OpenTelemetry span processor and the runner plugin record it at the
    same time. The demo compares the two recordings, lands one, scores it against
    references and explains what failed.
    """

    dir: Path = option(
        "--dir DIR", "the folder to write to (default: evaltap-demo)", default=Path("evaltap-demo")
    )
    ui: str | None = option(
        "--ui HOST:PORT",
        "afterwards keep the agent running and show its turns in the browser, until stopped"
        " (default: 127.0.0.1:4710)",
        const=ADDRESS,
    )
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class InitOptions:
    """The settings to write; the user is asked for those that are None.

    examples:
      evaltap init                                  # asks three questions
      evaltap init --yes                            # uses the defaults
      evaltap init --log kafka://broker:9092/evaltap.cases --sample-rate 0.1

    Commands in this folder and below then use this log, store, metrics file and
    watches. If the log already has turns, the metrics get limits on time, cost,
    tokens and calls that fit these turns.
    """

    log: str | None = option(
        "--log LOG", "the log that the agent records to (default: agent.log.db)"
    )
    store: Path = option(
        "--store X.duckdb",
        "the DuckDB file for cases and scores (default: cases.duckdb)",
        default=Path(STORE_FILE),
    )
    metrics: Path = option(
        "--metrics M.json",
        "the metrics file; an existing one is kept (default: metrics.json)",
        default=Path("metrics.json"),
    )
    sample_rate: float | None = option(
        "--sample-rate SHARE", "share of sessions to record (default: 1)", parse=share
    )
    judge_model: str | None = option(
        "--judge-model MODEL", "the model that judges answers (default: no judge)"
    )
    monitor: Path = option(
        "--monitor monitor.json",
        "the file of watches; an existing one is kept (default: monitor.json)",
        default=Path("monitor.json"),
    )
    yes: bool = option("-y, --yes", "ask nothing")
    force: bool = option("--force", "overwrite an existing evaltap.toml")
    json: bool = option("--json", "print what was written as JSON, and ask nothing")


@dataclass(slots=True, kw_only=True, repr=False)
class UpOptions:
    """The log, the store, the metrics, and the addresses of receiver and page.

    examples:
      evaltap up                                   # agent.log.db, cases.duckdb
      evaltap up --metrics metrics.json --port 4319
      evaltap up --metrics metrics.json --references golden.evalset.json
      evaltap up --monitor monitor.json --no-open

    After `evaltap init`, up scores and watches with the files that init wrote.
    Prints a link to the page, and the settings that make an agent send its spans
    here. Only this machine can connect; for other machines and more options, run
    the parts separately: `collect`, `consume` and `ui`.

    On SIGTERM, up stops receiving, lands and scores the rest, then stops the page.
    Turns that could not land in time stay on the log.

    exit code: 0 stopped by a signal, 2 bad input, 3 some turns did not reach the
    log
    """

    log: str = option(
        "--log LOG",
        "the log between receiver and consumer (default: agent.log.db)",
        default="agent.log.db",
        variable="EVALTAP_LOG",
    )
    db: Path = option(
        "--db X.duckdb",
        "the DuckDB file for cases and scores (default: cases.duckdb)",
        default=Path(STORE_FILE),
        variable=STORE,
    )
    metrics: Path | None = option(
        "--metrics FILE",
        "score with these metrics (default: only land)",
        variable="EVALTAP_METRICS",
    )
    monitor: Path | None = option(
        "--monitor monitor.json",
        "watch the turns by these rules (`evaltap init` writes the file), and store alarms",
        variable="EVALTAP_MONITOR",
    )
    expected: ReferenceOptions = group(ReferenceOptions)
    port: int = option(
        "--port PORT",
        "the port that receives OTLP over HTTP (default: 4318)",
        parse=int,
        default=4318,
    )
    ui: str = option(
        "--ui HOST:PORT",
        "the page's address on this machine (default: 127.0.0.1:4710)",
        default=ADDRESS,
    )
    open: bool = option("--no-open", "print the link without opening it", default=True)
    shown: ShownOptions = group(ShownOptions)
