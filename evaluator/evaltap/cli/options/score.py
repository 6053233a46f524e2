"""The commands of the group "score", their options and examples."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from evaltap.cli.declared import STORE, argument, group, option
from evaltap.cli.options.run import PartnerOptions, ToolCallOptions
from evaltap.cli.options.shared import (
    ADDRESS,
    FilterOptions,
    GuardOptions,
    JudgeOptions,
    RuleOptions,
    ScoringOptions,
    ShownOptions,
    allow_code,
    as_json,
    columns,
    concurrency,
    metrics_file,
    no_redact,
    ray_address,
    reports,
)
from evaltap.cli.values import address, names, partitions, positive, report_file, share
from evaltap.schemas.log.location import KafkaClientName


@dataclass(slots=True, kw_only=True, repr=False)
class EngineOptions:
    """Where the cases of files are scored."""

    engine: Literal["local", "ray"] = option(
        "--engine",
        "local: this machine; ray: a Ray cluster, for large batches of JSON Lines and Parquet",
        default="local",
    )
    ray_address: str | None = ray_address()
    out: Path | None = option(
        "--out DIR",
        "with --engine ray: a folder for the Parquet results that every node can reach (default:"
        " X.parquet next to --db X.duckdb)",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class LiveEngineOptions:
    """Where landed cases are scored."""

    engine: Literal["local", "ray"] = option(
        "--engine",
        "local: this machine; ray: a Ray cluster, for expensive metrics (judges, models, commands)",
        default="local",
    )
    ray_address: str | None = ray_address()
    ray_workers: int | None = option(
        "--ray-workers N",
        "number of scoring processes, each with --concurrency judged cases in flight (default: one"
        " for each processor of the cluster)",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class SelectionOptions:
    """Which cases are scored."""

    tasks: tuple[str, ...] = option(
        "--tasks GLOB",
        "score only cases whose eval id, eval set id or <eval set>/<eval id> matches; separate"
        " several with commas, or repeat the option (default: EVALTAP_TASKS, or all)",
        parse=str,
        many=True,
        variable="EVALTAP_TASKS",
    )
    items: int | None = option(
        "--items N",
        "score only the first N cases (default: EVALTAP_ITEMS, or all)",
        variable="EVALTAP_ITEMS",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class ConsumeOptions:
    """The log to read, the destination of its cases, and how to score them.

    examples:
      evaltap consume --log agent.log.db --db cases.duckdb --until-idle
      evaltap consume --log agent.log.db --db cases.duckdb --metrics metrics.json
      evaltap consume --log agent.log.db --db cases.duckdb --metrics metrics.json \\
          --monitor monitor.json
      evaltap consume --log kafka://broker:9092/evaltap.cases --partitions 0-3 \\
          --db shard-0.duckdb --kafka-client confluent-kafka
      evaltap consume --log 'kafka://broker:9092/otlp_spans?format=otlp' \\
          --db cases.duckdb

    Without --metrics, consume only lands the turns.

    exit code with --until-idle: 0 fine, 1 something failed, there is a gap, or the
    agent dropped turns for another reason than sampling, 2 some records could not
    be read, 3 incomplete
    """

    log: str = option(
        "--log LOG",
        "the log to read: a file, kafka://host:port/topic, or topics of raw OTLP with ?format=otlp",
        variable="EVALTAP_LOG",
    )
    partitions: tuple[int, ...] | None = option(
        "--partitions N-M",
        "read only these partitions of a topic, e.g. 0-3 or 0,2,5-7, to run several consumers"
        " side by side, each with its own --db (`evaltap store attach` reads the files as one)",
        parse=partitions,
    )
    kafka_client: KafkaClientName = option(
        "--kafka-client",
        "the package that fetches a topic's records; confluent-kafka (the extra kafka-fast) is faster"
        " (default: EVALTAP_KAFKA_CLIENT, or kafka-python)",
        default="kafka-python",
        variable="EVALTAP_KAFKA_CLIENT",
    )
    dlq_topic: str | None = option(
        "--dlq-topic T",
        "publish records that could not be read to a topic of the log's cluster, or"
        " kafka://host:port/topic (default: off)",
    )
    db: Path = option("--db X.duckdb", "the DuckDB file for cases and scores", variable=STORE)
    until_idle: bool = option(
        "--until-idle", "exit when the log has nothing new and everything is scored"
    )
    begin: Literal["oldest", "now"] | None = option(
        "--from",
        "where a DuckDB file that has never read this log begins: at the oldest record, or after"
        " the newest (default: oldest)",
    )
    keep_log: timedelta = option(
        "--keep-log AGE",
        "how long a local log keeps records that every consumer has landed, e.g. 24h or 7d; a"
        " full log deletes them sooner (default: 24h)",
        default=timedelta(hours=24),
    )
    heartbeat: Path | None = option(
        "--heartbeat FILE",
        "touch this file every few seconds while landing and scoring make progress, for a liveness probe",
    )
    monitor: Path | None = option(
        "--monitor monitor.json",
        "score and watch live traffic by these rules, and store alarms in the DuckDB file (`evaltap"
        " monitor alerts` lists them)",
        variable="EVALTAP_MONITOR",
    )
    serve: tuple[str, int] | None = option(
        "--serve, --metrics-port HOST:PORT",
        "serve /healthz and /readyz for probes and /metrics for Prometheus (a port alone: this"
        " machine only; default: off)",
        parse=address,
    )
    ui: str | None = option(
        "--ui HOST:PORT",
        f"also show landed cases in the browser, for this machine only (default: {ADDRESS})",
        const=ADDRESS,
    )
    insecure_http: bool = option(
        "--insecure-http",
        "with --ui: let other machines connect without TLS; only on a trusted network, or in a container"
        " whose port is published on its host alone",
    )
    shown: ShownOptions = group(ShownOptions)
    scores_topic: str | None = option(
        "--scores-topic T",
        "publish each stored score to a topic of the log's cluster, or kafka://host:port/topic"
        " (default: off)",
    )
    scores_otlp: str | None = option(
        "--scores-otlp, --otlp-scores URL",
        "send each score of a turn as an OpenTelemetry event gen_ai.evaluation.result, and metrics every"
        " minute, to an OTLP endpoint, e.g. http://collector:4318 (headers: OTEL_EXPORTER_OTLP_HEADERS)",
    )
    explanations: bool = option(
        "--explanations",
        "with --scores-otlp: also send the reasons of metrics and judges, redacted; they quote conversations",
    )
    metrics: Path | None = metrics_file("score with these metrics (default: only land)")
    scoring: ScoringOptions = group(ScoringOptions)
    where: LiveEngineOptions = group(LiveEngineOptions, "where to score")
    report: tuple[Path, ...] = reports()
    json: bool = as_json()
    guards: GuardOptions = group(GuardOptions, "guards")
    command: str = "consume"
    """Or `up`, which consumes too."""
    opens: bool = False
    """Whether the page opens in the browser."""


@dataclass(slots=True, kw_only=True, repr=False)
class ScoreOptions:
    """What to score, with what, and where the results go.

    examples:
      evaltap score cases.evalset.json --metrics metrics.json --db cases.duckdb
      evaltap score cases.duckdb --metrics metrics.json   # what has no score yet
      evaltap score cases.duckdb --metrics metrics.json --filter tool:refund
      evaltap score cases.jsonl --metrics metrics.json --report report.html
      evaltap score *.jsonl --metrics metrics.json --engine ray --db cases.duckdb

    exit code: 0 all passed, 1 something failed, 2 bad input, 3 incomplete
    """

    cases: tuple[Path, ...] = argument(
        "CASES",
        ".evalset.json, JSON Lines of eval cases, data sets (.csv, .yaml, .parquet, .arrow, a folder of"
        " Hugging Face datasets), one DuckDB file with landed cases, or an archive of one, whose rows"
        " go to the new file --db (default: the store in evaltap.toml, or ./cases.duckdb)",
        default=(),
        variable=STORE,
    )
    map: tuple[str, ...] = columns()
    metrics: Path = metrics_file("the metrics file")
    scoring: ScoringOptions = group(ScoringOptions)
    db: Path | None = option(
        "--db X.duckdb", "store the scores in this file (default: only print the summary)"
    )
    sink: tuple[str, ...] = option(
        "--sink SINK",
        "also hand the scores of each case to jsonl:PATH (a line each, appended) or to a sink of an"
        " installed package (NAME:ARGUMENT); may be repeated",
        many=True,
    )
    result: Path | None = option(
        "--result PATH", "also write an .evalset_result.json to this file or folder"
    )
    retry: bool = option(
        "--retry", "for landed cases: score again those that were not evaluated or had an error"
    )
    workers: int | None = option(
        "--workers N",
        "number of processes for deterministic metrics (default: one for each processor if files are large)",
    )
    where: EngineOptions = group(EngineOptions, "where to score")
    selection: SelectionOptions = group(SelectionOptions)
    chosen: FilterOptions = group(FilterOptions)
    report: tuple[Path, ...] = reports()
    no_redact: bool = no_redact("--report")
    json: bool = as_json()
    guards: GuardOptions = group(GuardOptions, "guards")


@dataclass(slots=True, kw_only=True, repr=False)
class MetricsOptions:
    """The evaluators to describe; if empty, all are listed.

    examples:
      evaltap metrics                       # every evaluator
      evaltap metrics trajectory_f1         # its input, and an example
      evaltap metrics run_succeeded trajectory_no_loop --example > metrics.json

    exit code: 0 listed, 2 bad input
    """

    names: tuple[str, ...] = argument(
        "NAME", "describe these evaluators (default: list all)", default=()
    )
    example: bool = option("--example", "print only a metrics file that uses them")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class CompareOptions:
    """The two sides, the rules that decide what is worse, and the reports to write.

    examples:
      evaltap compare main.duckdb branch.duckdb
      evaltap compare cases.duckdb#20261121-101500-ab12cd now.duckdb
      evaltap compare baseline.json now.duckdb --report pr.md --report junit.xml
      evaltap compare baseline.json now.duckdb --max-drop 0.05 --json
      evaltap compare cases.duckdb@2026-11-01/2026-11-08 \\
          cases.duckdb@2026-11-08/2026-11-15

    BASE and HEAD are each one of:
      X.duckdb, X.duckdb#RUN,RUN      all its runs, or these runs, as trials
      baseline.json, X.scores.jsonl   written by `evaltap runs export`
      X.evalset_result.json           results of evaltap, tRPC-Agent or Google ADK
      X.duckdb@SINCE/UNTIL            live traffic of a period
      X.duckdb@NAME=VALUE,...         live traffic with these values; the names are
                                      those of `evaltap estimate --by`
    Live traffic is compared by estimated pass rates, but versions that
    `evaltap run` or `replay` ran (X.duckdb@version=V) case by case, each run as a
    trial.

    Cases are paired by app, eval set and eval id. The finding for each case:
      regressed    worse, allowing for the number of cases
      suspect      worse on its own only, p <= 0.05
      improved     better on its own
      flaky        passes and fails, no change seen
      missing      no verdict on one side

    exit code: 0 no regression, 1 worse or below the bar, 2 bad input, 3 undecided
    """

    base: str = argument("BASE", "the side to compare with: main, the released version, last week")
    head: str = argument("HEAD", "the new side")
    report: tuple[Path, ...] = option(
        "--report FILE",
        "also write a report: .html, .md (Markdown for a pull request), .xml (JUnit) or .json;"
        " may be repeated",
        parse=report_file,
        many=True,
    )
    no_redact: bool = no_redact("--report")
    fail_on: Literal["regressed", "never"] = option(
        "--fail-on",
        "regressed: fail when something is worse or undecided (default); never: always exit with 0",
        default="regressed",
    )
    rules: RuleOptions = group(RuleOptions, "what counts as worse")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class GateOptions:
    """The gate, the cases that must pass it, the store for their scores, and the baseline.

    examples:
      evaltap gate cases.evalset.json --gate gate.json
      evaltap gate run-*.jsonl --gate gate.json --write-baseline baseline.json
      evaltap gate run-*.jsonl --gate gate.json --baseline baseline.json \\
          --fail-on regressed
      evaltap gate cases.jsonl --gate gate.json --min-pass-rate 0.9
      evaltap gate bugs.evalset.json --gate gate.json --agent shop.agent:make
      EVALTAP_GATE_SAFETY=1 evaltap gate cases.jsonl --gate gate.json --json

    A case that occurs again, in the same file or another, counts as another trial.

    exit code: 0 every case passed every dimension and is no worse than the
    baseline, 1 a case did not, 2 bad input, 3 nothing failed, but something could
    not be checked or decided. With --fail-on regressed only the comparison decides,
    with --min-pass-rate only the rate.
    """

    cases: tuple[Path, ...] = argument("CASES", ".evalset.json or JSON Lines of eval cases")
    gate: Path = option(
        "--gate GATE.json",
        "the dimensions with their thresholds, metrics and criteria; EVALTAP_GATE_<DIMENSION>"
        " overrides a threshold",
    )
    agent: str | None = option(
        "--agent AGENT",
        "run this agent on the cases first, as `evaltap run` does (default: score what they hold)",
    )
    runs: int = option(
        "--runs N", "how often the agent runs each case (default: 1)", parse=positive, default=1
    )
    db: Path | None = option(
        "--db X.duckdb", "also store the verdicts, with feedback and cases, in this file"
    )
    concurrency: int = concurrency()
    baseline: str | None = option(
        "--baseline FILE|RUN",
        "compare with a baseline.json, a DuckDB file (FILE#RUN for one run, FILE@version=V for what"
        " `evaltap run` made of a version), JSON Lines of scores, a result file, or the name of a run in"
        " --db",
        title="comparison",
    )
    fail_on: Literal["failed", "regressed", "never"] | None = option(
        "--fail-on",
        "failed: fail on any failed case (default); regressed: fail only on what is worse than"
        " the baseline, so that known failures pass the gate; never: always exit with 0",
        title="comparison",
    )
    write_baseline: Path | None = option(
        "--write-baseline FILE.json",
        "write how often each case passed each dimension; small enough for git",
        title="comparison",
    )
    report: tuple[Path, ...] = option(
        "--report FILE",
        "write a report of the comparison: .html, .md (for a pull request), .xml (JUnit) or"
        " .json; may be repeated",
        parse=report_file,
        many=True,
        title="comparison",
    )
    no_redact: bool = no_redact("--report")
    rules: RuleOptions = group(RuleOptions, "what counts as worse")
    tools: ToolCallOptions = group(ToolCallOptions, "with --agent: tool calls")
    partners: PartnerOptions = group(
        PartnerOptions, "with --agent: simulated users and expected agents"
    )
    allow_code: bool = allow_code()
    judges: JudgeOptions = group(JudgeOptions, "judges")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class CalibrateOptions:
    """The human labels, and the source of the judge's verdicts.

    examples:
      evaltap calibrate labels.csv --metrics metrics.json --db cases.duckdb
      evaltap calibrate labels.jsonl --metrics metrics.json --cases cases.jsonl
      evaltap calibrate --labels-from feedback --metrics metrics.json \\
          --db cases.duckdb

    A label: {"evalId": "c-1", "label": "pass"}, optionally with invocationId,
    rubricId, metricName, evalSetId, appName, or weight: how many turns it was drawn
    from.

    exit code: 0 trust, or trust with care; 1 do not trust; 2 bad input; 3 too few
    labels
    """

    labels: Path | None = argument(
        "LABELS",
        "JSON Lines or .csv with evalId and label, or a .duckdb file with reviews",
        default=None,
    )
    labels_from: Literal["feedback"] | None = option(
        "--labels-from",
        "feedback: take the thumbs of users in --db as labels, instead of LABELS",
        default=None,
    )
    db: Path | None = option("--db X.duckdb", "compare with the latest verdicts in this file")
    cases: tuple[Path, ...] = option(
        "--cases CASES", "or score these cases now (with --db, store the scores there)", nargs="+"
    )
    metrics: Path = metrics_file("the metrics file")
    scoring: ScoringOptions = group(ScoringOptions)
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class AttackOptions:
    """The judge to attack, the families of attacks, and the highest flip rate that passes.

    examples:
      evaltap attack                       # without a judge: only checks the fences
      export EVALTAP_JUDGE_API_KEY=... EVALTAP_JUDGE_MODEL=gpt-4o-mini
      evaltap attack --budget-usd 1

    exit code: 0 flip rate within the bound, 1 above it, 2 bad input, 3 too few
    verdicts from the judge
    """

    metrics: Path | None = metrics_file(
        "attack the judge of the first judged metric in this file (default: the judge of the"
        " environment; without one, a scripted judge that believes everything outside the fences)"
    )
    families: tuple[str, ...] = option(
        "--families NAMES", "only these families of attacks, separated by commas", parse=names
    )
    max_flip_rate: float = option(
        "--max-flip-rate SHARE",
        "highest flip rate that passes (default: 0.05)",
        parse=share,
        default=0.05,
    )
    concurrency: int = concurrency()
    judges: JudgeOptions = group(JudgeOptions, "judges")
    json: bool = as_json()
