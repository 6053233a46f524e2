"""Options that several commands have: dataclasses for `group`, and functions that return one field."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from evaltap.cli.declared import STORE, argument, group, option
from evaltap.cli.values import (
    amount,
    cost_classes,
    fail_on,
    level,
    milliseconds,
    names,
    ratio,
    report_file,
    seconds,
    share,
    switched_on,
    threshold,
    whole_amount,
    yes_or_no,
)

PORT: Final = 4710
ADDRESS: Final = f"127.0.0.1:{PORT}"
"""Of the page."""

Join = Literal["auto", "eval_id", "user_text"]


def as_json() -> Any:  # here and below as `option`
    """Declare `--json`."""
    return option("--json", "print JSON for scripts")


def store() -> Any:
    """Declare the DuckDB file to read."""
    return argument(
        "X.duckdb",
        "the store to read (default: the one in evaltap.toml, or ./cases.duckdb)",
        variable=STORE,
    )


def stores() -> Any:
    """Declare the DuckDB files to read as one."""
    return argument(
        "X.duckdb",
        "the store to read, or its archive; several files, one for each consumer with --partitions,"
        " are read as one (default: the one in evaltap.toml, or ./cases.duckdb)",
        variable=STORE,
    )


def concurrency() -> Any:
    """Declare the number of cases that are judged at a time."""
    return option(
        "--concurrency N", "number of cases to judge concurrently (default: 8)", default=8
    )


def columns() -> Any:
    """Declare the columns of data sets."""
    return option(
        "--map FIELD=COLUMN",
        "for data sets: the column for a field of the case (default: recognised by the usual column names)",
    )


def allow_code() -> Any:
    """Declare whether metrics and alerts may run code that files name."""
    return option(
        "--allow-code",
        "run the commands, functions and DeepEval classes that the metrics name; only for files that"
        " you trust as you would a program (default: EVALTAP_ALLOW_CODE, or refuse such metrics)",
        variable="EVALTAP_ALLOW_CODE",
        parse=switched_on,
    )


def reports() -> Any:
    """Declare the reports to write."""
    return option(
        "--report FILE",
        "also write a report: .html, .md (Markdown), .xml (JUnit) or .json; may be repeated",
        parse=report_file,
        many=True,
    )


def redact() -> Any:
    """Declare whether texts are redacted before they are printed."""
    return option(
        "--redact", "redact what is printed, too; for scored files that were never redacted"
    )


def no_redaction() -> Any:
    """Declare whether recorded texts are written as they are."""
    return option(
        "--no-redaction",
        "do not redact (default: replace email addresses, numbers and keys with pseudonyms)",
    )


def no_redact(where: str) -> Any:
    """Declare that a report file, written `where`, keeps its texts."""
    return option(
        "--no-redact",
        f"with {where}: write texts as they are (default: replace keys, email addresses, phone, card and"
        " account numbers with pseudonyms, as a recorder does)",
    )


def trace_url() -> Any:
    """Declare the template of links to traces."""
    return option(
        "--trace-url URL",
        "link turns to their traces in your tracing tool, e.g. http://localhost:16686/trace/{trace_id}"
        " (default: EVALTAP_TRACE_URL)",
        variable="EVALTAP_TRACE_URL",
    )


def how_to_join() -> Any:
    """Declare how a case is matched with its reference."""
    return option(
        "--join",
        "how to match a case with its reference: by its eval_id, by the user_text (what the user said),"
        " or auto: by eval id if one matches, otherwise by user text (default: auto)",
        default="auto",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class PeriodOptions:
    """The period in which the turns started."""

    since: datetime | None = option(
        "--since TIME",
        "only turns that started at this time or later: 2026-11-21 or 2026-11-21T12:00:00Z, in UTC if"
        " it names no zone, or an age such as 24h or 7d",
    )
    until: datetime | None = option("--until TIME", "only turns that started before this time")


_FILTER: Final = (
    "choose cases by words and field:value terms, e.g. 'tool:refund status:failed -feedback:up"
    " since:7d' (`evaltap cases --help` lists the fields)"
)


@dataclass(slots=True, kw_only=True, repr=False)
class FilterOptions:
    """A filter as the user wrote it, and an SQL condition."""

    filter: tuple[str, ...] = option("--filter FILTER", _FILTER)
    where: str = option(
        "--where SQL",
        "choose cases with a turn that meets this SQL condition on the view curation_turns",
        default="",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class FilterArguments(FilterOptions):
    """The same filter, without `--filter` before it."""

    filter: tuple[str, ...] = argument("FILTER", _FILTER, default=())


@dataclass(slots=True, kw_only=True, repr=False)
class TlsOptions:
    """The certificate of a server."""

    tls_cert: Path | None = option(
        "--tls-cert FILE", "serve HTTPS with this certificate chain (PEM)"
    )
    tls_key: Path | None = option("--tls-key FILE", "the certificate's private key (PEM)")


@dataclass(slots=True, kw_only=True, repr=False)
class ShownOptions:
    """What the page shows besides the store."""

    sets: tuple[Path, ...] = option(
        "--set SET",
        "an eval set that the page compares traffic with and adds cases to; may be repeated",
    )
    trace_url: str | None = trace_url()


@dataclass(slots=True, kw_only=True, repr=False)
class ReferenceOptions:
    """The expected turns to score landed cases against."""

    references: Path | None = option(
        "--references R.evalset.json",
        "references (expected turns) for recorded cases, landed or in files",
        variable="EVALTAP_REFERENCES",
    )
    join: Join = how_to_join()


@dataclass(slots=True, kw_only=True, repr=False)
class OtherReferenceOptions:
    """References that replace those that landed cases were scored against."""

    references: Path | None = option(
        "--references R.evalset.json",
        "compare landed cases with these references (default: those they were scored against)",
    )
    join: Join = how_to_join()


@dataclass(slots=True, kw_only=True, repr=False)
class JudgeOptions:
    """Cache, limits and budget of judges; their environment supplies what is not given."""

    judge_cache: str = option(
        "--judge-cache PATH",
        "file that caches judges' answers, or 'off' (default: EVALTAP_JUDGE_CACHE, or"
        " evaltap/judge-cache.db in the user's cache folder)",
        default="",
    )
    budget_usd: float | None = option(
        "--budget-usd USD",
        "set a budget: spend at most this much on judges",
        parse=amount,
        variable="EVALTAP_JUDGE_BUDGET_USD",
    )
    budget_tokens: int | None = option(
        "--budget-tokens N",
        "... use at most this many tokens, input and output",
        parse=whole_amount,
        variable="EVALTAP_JUDGE_BUDGET_TOKENS",
    )
    budget_calls: int | None = option(
        "--budget-calls N",
        "... send at most this many requests",
        parse=whole_amount,
        variable="EVALTAP_JUDGE_BUDGET_CALLS",
    )
    judge_concurrency: int | None = option(
        "--judge-concurrency N", "concurrent requests to one judge"
    )
    judge_rpm: int | None = option("--judge-rpm N", "requests to one judge per minute")
    judge_tpm: int | None = option("--judge-tpm N", "tokens to and from one judge per minute")
    allow_variables: bool = option(
        "--allow-variables",
        "let the metrics file read the environment: expand $NAME in its baseURL and modelName, and"
        " any variable in its apiKey (default: only variables named like keys, only in apiKey)",
    )
    allow_key_for: tuple[str, ...] = option(
        "--allow-key-for HOST",
        "let the metrics file have a key sent to this host, e.g. llm.example.com or localhost:8000; may be"
        " repeated (default: EVALTAP_ALLOW_KEY_FOR; otherwise a key goes only to its provider and to"
        " EVALTAP_JUDGE_BASE_URL)",
    )


def metrics_file(help: str, **declared: Any) -> Any:
    """Declare the metrics file."""
    return option("--metrics M.json", help, variable="EVALTAP_METRICS", **declared)


def ray_address() -> Any:
    """Declare the address of a Ray cluster."""
    return option(
        "--ray-address ADDRESS",
        "the cluster's address, or auto (default: RAY_ADDRESS, or start a cluster on this machine)",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class MetricOptions:
    """What metrics may do, whatever they score."""

    threshold: tuple[tuple[str, float], ...] = option(
        "--threshold METRIC=X",
        "override a metric's threshold; may be repeated (default: EVALTAP_THRESHOLDS, as"
        " METRIC=X,METRIC=X, or the metrics file)",
        parse=threshold,
        many=True,
        variable="EVALTAP_THRESHOLDS",
        adds=True,
    )
    case_seconds: float | None = option(
        "--case-seconds SECONDS",
        "time limit for a case under a metric without a judge; beyond it the case gets an error"
        " (default: EVALTAP_CASE_SECONDS, or 60)",
        parse=seconds,
        variable="EVALTAP_CASE_SECONDS",
    )
    allow_code: bool = allow_code()


@dataclass(slots=True, kw_only=True, repr=False)
class ScoringOptions:
    """How to apply the metrics."""

    expected: ReferenceOptions = group(ReferenceOptions)
    placeholders: Literal["auto", "peer"] = option(
        "--placeholders",
        "how to compare a turn without a reference; auto: not at all if evaltap recorded it (not"
        " evaluated), with an empty turn if it is from tRPC-Agent-Go, as that project does; peer: always with"
        " an empty turn (default: auto)",
        default="auto",
    )
    unknown_metrics: Literal["error", "skip"] = option(
        "--unknown-metrics",
        "what to do with a metric whose evaluator is not installed (default: error)",
        default="error",
    )
    cost_class: tuple[str, ...] | None = option(
        "--cost-class CLASSES",
        "run only metrics of these classes, e.g. free,local_model; classes: free, local_model,"
        " paid_judge (default: all)",
        parse=cost_classes,
    )
    concurrency: int = concurrency()
    limits: MetricOptions = group(MetricOptions)
    judges: JudgeOptions = group(JudgeOptions, "judges")


@dataclass(slots=True, kw_only=True, repr=False)
class GuardOptions:
    """What decides the exit code."""

    fail_on: str = option(
        "--fail-on {failed,error,not_evaluated,never}",
        "which verdicts make the exit code nonzero; failed: only failures; error: also errors;"
        " not_evaluated: also missing evidence; never: none (default: EVALTAP_FAIL_ON, or not_evaluated)",
        parse=fail_on,
        default="not_evaluated",
        variable="EVALTAP_FAIL_ON",
    )
    allow_agent_errors: bool = option(
        "--allow-agent-errors",
        "do not fail the command because of crashed cases, whose run failed, never ended or was cut"
        " off (default: EVALTAP_ALLOW_AGENT_ERRORS, or fail)",
        parse=yes_or_no,
        variable="EVALTAP_ALLOW_AGENT_ERRORS",
    )
    p95_ms: float | None = option(
        "--p95-ms MS",
        "upper limit for the 95th percentile of turn latency (a crashed run counts as exceeding it);"
        " exit code 1 above the limit, 3 if latencies are missing (default: EVALTAP_P95_MS, or no limit)",
        parse=milliseconds,
        variable="EVALTAP_P95_MS",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class RuleOptions:
    """The rules that decide when a difference counts."""

    alpha: float = option(
        "--alpha SHARE",
        "false-alarm rate: how often equal runs may be called worse (default: 0.02)",
        parse=level,
        default=0.02,
    )
    margin: float = option(
        "--margin SHARE",
        "tolerate a drop of the pass rate up to this; 0.05 is 5 percentage points (default: 0)",
        parse=share,
        default=0.0,
    )
    max_drop: float | None = option(
        "--max-drop SHARE",
        "require evidence that the drop is smaller than this: exit code 0 only when its 95 %%"
        " interval ends below it, otherwise 3",
        parse=share,
    )
    min_pass_rate: float | None = option(
        "--min-pass-rate SHARE",
        "exit code 1 when the 95 %% interval of HEAD's pass rate is below this, 3 when the interval"
        " contains it",
        parse=share,
    )
    max_cost_ratio: float | None = option(
        "--max-cost-ratio RATIO",
        "exit with 1 if HEAD costs more than RATIO times as much as BASE, by the 95 %% interval",
        parse=ratio,
    )
    max_latency_ratio: float | None = option(
        "--max-latency-ratio RATIO",
        "exit with 1 if HEAD takes more than RATIO times as long as BASE, by the 95 %% interval",
        parse=ratio,
    )
    fail_on_metrics: tuple[str, ...] = option(
        "--fail-on-metrics NAME,...",
        "the metrics that decide the exit code (default: all that pass or fail)",
        parse=names,
    )
    across_metrics: bool = option(
        "--across-metrics",
        "compare a metric even if its definition or its evaluator's version changed",
    )
    by: tuple[str, ...] = option(
        "--by NAME,...",
        "also compare within slices, for information only: app, eval_set, tool, tool_path, language;"
        " for live traffic the names of `evaltap estimate --by` except times",
        parse=names,
    )
    pair_by_id: bool = option(
        "--pair-by-id", "pair cases by eval id alone, ignoring app and eval set"
    )
    subset: bool = option(
        "--subset",
        "compare what both have, although HEAD lacks cases or metrics of BASE (default: exit code 3 if it"
        " lacks more than 5 %% of the cases, as a run that died does, or a metric)",
    )
