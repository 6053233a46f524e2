"""The commands of the group "inspect", their options and examples."""

from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import ClassVar, Literal

from evaltap.cli.declared import STORE, Action, Actions, argument, group, option, setting
from evaltap.cli.options.shared import (
    PORT,
    FilterArguments,
    FilterOptions,
    GuardOptions,
    OtherReferenceOptions,
    PeriodOptions,
    ShownOptions,
    TlsOptions,
    as_json,
    no_redact,
    redact,
    store,
    stores,
    trace_url,
)
from evaltap.cli.values import counts, names
from evaltap.evaluator.analysis.filters.language import FIELDS

ReportFormat = Literal["console", "html", "json", "junit", "markdown"]


@dataclass(slots=True, kw_only=True, repr=False)
class UiOptions:
    """The file to show, the address, and who has access.

    examples:
      evaltap ui cases.duckdb                        # prints a link and opens it
      evaltap ui cases.duckdb --no-open --port 8080
      evaltap ui cases.duckdb --link                 # a new link to a running page
      evaltap ui cases.duckdb --invite reviewer --name ann
      evaltap ui cases.duckdb --host 0.0.0.0 --allow-host evals.example.com \\
          --tls-cert cert.pem --tls-key key.pem

    Access:
      Only this machine can reach the page, unless --host is given.
      A link logs in once, within ten minutes (an invitation: within three days).
      Its code is in the fragment, so no server logs it.
      X.duckdb.page.json records where the page runs; --link and --invite make links
      to that address.
      Roles: viewer reads, reviewer also reviews and exports, admin also invites.
      Logins are kept in the user's state folder, never in the DuckDB file.

    Behind a proxy:
      The proxy names the user in --user-header. evaltap trusts the header only from
      --behind-proxy and with the secret.
      Only people on the list get in; add them with --invite or in the page's
      settings.

    Containers:
      EVALTAP_UI_TOKEN_FILE names a file with a code of 32 or more characters, which
      can log in any number of times.

    While the page runs, commands that only read the file read it through this
    process; commands that write to it (score, consume) cannot run. To watch a file
    while it is written, use `evaltap consume --ui`.

    exit code: 0 ended by a signal, 2 bad input
    """

    db: Path = store()
    host: str = option(
        "--host HOST", "address to listen on (default: 127.0.0.1)", default="127.0.0.1"
    )
    port: int = option("--port PORT", "port to listen on (default: 4710)", parse=int, default=PORT)
    allow_host: tuple[str, ...] = option(
        "--allow-host NAME", "a host name under which the page may be opened, besides its address"
    )
    tls: TlsOptions = group(TlsOptions)
    insecure_http: bool = option(
        "--insecure-http", "let other machines connect without TLS; only on a trusted network"
    )
    socket: Path | None = option(
        "--socket FILE",
        "listen on this Unix socket instead of a port, for a proxy or `ssh -L PORT:FILE`",
    )
    behind_proxy: tuple[str, ...] = option(
        "--behind-proxy CIDR",
        "trust a proxy at this address or network to name the user; `unix` for --socket; may be repeated",
    )
    user_header: str = option(
        "--user-header NAME",
        "the header in which the proxy names the user (default: X-Forwarded-Email)",
        default="X-Forwarded-Email",
    )
    proxy_secret_file: Path | None = option(
        "--proxy-secret-file FILE",
        "a file with the secret that the proxy sends as X-Evaltap-Proxy-Secret, 32 characters or more",
    )
    mask_content: Literal["viewer"] | None = option(
        "--mask-content", "hide questions, answers, arguments and reasons from viewers"
    )
    expected: OtherReferenceOptions = group(OtherReferenceOptions)
    link: bool = option("--link", "print a new link to the running page, and exit")
    invite: Literal["viewer", "reviewer", "admin"] | None = option(
        "--invite", "print an invitation link for a colleague with this role, and exit"
    )
    name: str = option("--name NAME", "the colleague's name, or your own in reviews", default="")
    shown: ShownOptions = group(ShownOptions)
    open: bool = option("--no-open", "print the link without opening it", default=True)
    json: bool = option("--json", "print the link as JSON")


@dataclass(slots=True, kw_only=True, repr=False)
class CasesOptions:
    """The cases to list.

    examples:
      evaltap cases cases.duckdb
      evaltap cases cases.duckdb tool:refund status:failed since:7d
      evaltap cases cases.duckdb 'refund "too late" -feedback:up sort:worst'
      evaltap cases cases.duckdb --where "tool_count > 5 AND outcome = 'failed'"

    A case matches when it meets every term of the filter:
      word         is in a question or an answer
      "two words"  quotes keep words together
      field:a,b    the field has one of these values
      -term        a minus excludes; put -- before a filter that begins with one

    Fields:
    FIELDS

    Runs of `evaltap run` and `evaltap replay` are left out where traffic has
    landed, too, unless the filter names environment, version, run, set or id.

    Column fb: + thumbs up, - thumbs down

    exit code: 0 listed, even if nothing matches; 2 bad input
    """

    db: Path = store()
    chosen: FilterArguments = group(FilterArguments)
    limit: int = option("--limit N", "list at most N cases (default: 50)", default=50)
    json: bool = as_json()


_FIELDS = "\n".join(f"  {name + ':':<13}{meaning}" for name, meaning in FIELDS.items())
CasesOptions.__doc__ = cleandoc(CasesOptions.__doc__ or "").replace("FIELDS", _FIELDS)


@dataclass(slots=True, kw_only=True, repr=False)
class ReportOptions:
    """The scores to report, and the format.

    examples:
      evaltap report cases.duckdb            # the latest score of each case
      evaltap report cases.duckdb --run 20261121-101500-ab12cd
      evaltap report cases.duckdb --out report.html
      evaltap report cases.duckdb --filter 'tool:refund since:7d'
      evaltap report cases.duckdb --by version
      evaltap report cases.duckdb --pass-k 1,3,5            # of repeated cases
      evaltap report cases.duckdb --cases cases.evalset.json --out junit.xml
      evaltap report cases.duckdb --baseline baseline.json --out report.html
      evaltap report cases.duckdb --format markdown >> "$GITHUB_STEP_SUMMARY"

    exit code: 0 all passed, 1 something failed, 2 bad input, 3 incomplete
    """

    db: tuple[Path, ...] = stores()
    run_id: str | None = option("--run RUN", "only this run (`evaltap runs` lists them)")
    format: ReportFormat | None = option(
        "--format",
        "the format to print, or to write to --out (default: by the ending of --out, or console)",
    )
    out: Path | None = option("--out FILE", "write a report: .html, .md, .xml or .json")
    cases: tuple[Path, ...] = option(
        "--cases CASES",
        "the files that were scored, to show what happened in their turns; may be repeated",
    )
    expected: OtherReferenceOptions = group(OtherReferenceOptions)
    worst: int = option(
        "--worst N", "list the N worst scores on the console (default: 10)", default=10
    )
    by: tuple[str, ...] = option(
        "--by NAMES",
        "also print pass rates of turns by version, environment, agent, tag, run, tool, model, hour, ...",
        parse=names,
    )
    pass_k: tuple[int, ...] = option(
        "--pass-k K,...",
        "also print pass@k and pass^k of cases that were recorded several times (EVALTAP_RUN)",
        parse=counts,
    )
    baseline: str | None = option(
        "--baseline BASE",
        "add a section to the HTML report with what changed since these runs, as in `evaltap compare`",
    )
    redact: bool = redact()
    no_redact: bool = no_redact("--out")
    trace_url: str | None = trace_url()
    chosen: FilterOptions = group(FilterOptions)
    json: bool = as_json()
    guards: GuardOptions = group(GuardOptions, "guards")


@dataclass(slots=True, kw_only=True, repr=False)
class ShowOptions:
    """The case to show.

    example: evaltap show cases.duckdb session-42
    """

    db: tuple[Path, ...] = stores()
    case: str = argument(
        "CASE",
        "the eval id, its beginning, or its abbreviation in `evaltap cases`; EVAL_SET/EVAL_ID if"
        " two eval sets contain it",
    )
    app: str | None = option("--app NAME", "the application, if several have a case of that name")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class WhyOptions:
    """The case to explain, and a log that may contain it.

    examples:
      evaltap why cases.duckdb session-42 --log agent.log.db
      evaltap why cases.duckdb --filter 'status:not_evaluated,unscored tool:refund'

    CASE is the eval id, its beginning, or EVAL_SET/EVAL_ID. With --filter or
    --where, --json prints a list.

    exit code: 0 the case has a verdict for every metric; 2 bad input; 3 it lacks
    one, and the output explains why
    """

    db: Path = store()
    case: str | None = argument("CASE", "the case to explain")
    log: str | None = option(
        "--log LOG",
        "also search this log: a file, or kafka://host:port/topic",
        variable="EVALTAP_LOG",
    )
    chosen: FilterOptions = group(FilterOptions)
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class RunsExportOptions:
    """The runs whose scores to write."""

    db: tuple[str, ...] = argument(
        "X.duckdb[#RUN,...]",
        "a store, some of its runs, or X.duckdb@version=V that `run` or `replay` ran (default: the store of"
        " evaltap.toml, or ./cases.duckdb)",
        variable=STORE,
    )
    out: Path = option("--out FILE", "the file to write")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class RunsOptions:
    """The stores whose runs are listed.

    examples:
      evaltap runs cases.duckdb
      evaltap runs export cases.duckdb --out baseline.json
      evaltap runs export cases.duckdb#20261121-101500-ab12cd --out a.scores.jsonl

    `export` writes a file for `evaltap compare` and `evaltap gate --baseline`,
    sorted and without times:
      .json   how often each case passed; small enough for git
      .jsonl  every score
    """

    db: tuple[Path, ...] = stores()
    json: bool = as_json()

    ACTIONS: ClassVar = Actions(
        {"export": Action("write the scores of runs to a file", RunsExportOptions)}
    )


@dataclass(slots=True, kw_only=True, repr=False)
class EstimateOptions:
    """The turns, the slices, and the human labels.

    examples:
      evaltap estimate cases.duckdb
      evaltap estimate cases.duckdb --metric helpful --by tool --since 7d
      evaltap estimate cases.duckdb --where "'refund' IN tools"
      evaltap estimate cases.duckdb --signal error_rate --by app --json
      evaltap estimate cases.duckdb --metric helpful --labels labels.jsonl

    low, high: 95 % interval of the rate for this agent and its users in general
    traffic_low, traffic_high: the same for the turns of this window only

    Signals:
      pass_rate, not_scored, judge_disagreement        for each metric
      error_rate, tool_error_rate, negative_feedback   for all turns
      slow_rate, costly_rate, long_rate                turns above 95 % of stored
                                                       turns

    Flags:
      uncovered       some turns had no chance of being recorded
      few_sessions    effectively fewer than 10 sessions
      open            the window has not ended
      no_labels:...   no labels for passed (or failed) verdicts

    exit code: 0 estimated, 2 bad input, 3 nothing to estimate from
    """

    db: tuple[Path, ...] = stores()
    metric: str = option("--metric NAME", "only this metric (default: all)", default="")
    signal: str = option(
        "--signal NAME", "the share to estimate (default: pass_rate)", default="pass_rate"
    )
    by: tuple[str, ...] = option(
        "--by NAME,...",
        "also estimate for each value of: app, tool, tool_path, model, service, agent, version,"
        " language, environment, tag, run, hour, day, week",
        parse=names,
    )
    period: PeriodOptions = group(PeriodOptions)
    where: str = option(
        "--where SQL",
        "an SQL condition on turns: app, service, status, tools, models, latency_ms, user_text, ...",
        default="",
    )
    labels: Path | None = option(
        "--labels FILE",
        "human labels (as for `evaltap calibrate`, or a .duckdb file with reviews), to estimate"
        " the pass rate that people would find",
    )
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class MonitorCheckOptions:
    """The rules, and a store to estimate what they would cost."""

    files: tuple[Path, ...] = argument(
        "FILE", "monitor.json, and a DuckDB file to estimate costs", default=()
    )
    rules: Path | None = option("--rules monitor.json", "the file of rules, instead of FILE")
    usual_store: Path | None = setting(STORE)
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class MonitorReplayOptions:
    """The stored turns, and the rules to run over them."""

    db: tuple[Path, ...] = stores()
    rules: Path = option("--rules monitor.json", "the file of rules", variable="EVALTAP_MONITOR")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class MonitorAlertsOptions:
    """The stores with the alarms."""

    db: tuple[Path, ...] = stores()
    rules: Path | None = option(
        "--rules monitor.json", "also show which alarms this file of rules silences now"
    )
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class MonitorStatusOptions:
    """The stores with the states of the watches."""

    db: tuple[Path, ...] = stores()
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class MonitorRebaseOptions:
    """The watch that learns a new baseline."""

    db: Path = store()
    watch: str = argument("WATCH", "the name of the watch")
    json: bool = as_json()


class MonitorOptions:
    """What can be done with the rules and alarms of live traffic.

    examples:
      evaltap monitor check monitor.json
      evaltap monitor check monitor.json cases.duckdb
      evaltap monitor replay cases.duckdb --rules monitor.json
      evaltap monitor alerts cases.duckdb
      evaltap monitor status cases.duckdb
      evaltap monitor rebase cases.duckdb helpful

    An example of monitor.json:
      {"falseAlarmsPerMonth": 0.05, "watch": [
        {"name": "helpful", "signal": "pass_rate", "metric": "helpful",
         "where": {"app": "shop"}, "by": ["tool"]},
        {"name": "slow", "signal": "slow_rate"},
        {"name": "alive", "signal": "silence", "minutes": 30}]}

    `replay` takes the first days (`baselineDays`, 14) as the baseline. `check` with
    a DuckDB file estimates from the last 7 days of its traffic.

    exit code: 0 no alarm is firing, 1 an alarm is firing, 2 bad input, 3 not enough
    data yet
    """

    ACTIONS: ClassVar = Actions(
        {
            "check": Action(
                "validate the rules, and estimate what they would score and spend per day",
                MonitorCheckOptions,
            ),
            "replay": Action("run the watches over the stored turns", MonitorReplayOptions),
            "alerts": Action(
                "list the alarms of `evaltap consume --monitor`", MonitorAlertsOptions
            ),
            "status": Action(
                "list the watches of `evaltap consume --monitor` with their states",
                MonitorStatusOptions,
            ),
            "rebase": Action(
                "let a watch learn a new baseline from now on, after a lasting change",
                MonitorRebaseOptions,
            ),
        }
    )


@dataclass(slots=True, kw_only=True, repr=False)
class SqlOptions:
    """The statement, and how to print its rows.

    examples:
      evaltap sql cases.duckdb 'FROM v_pass_rate'
      evaltap sql 'SELECT tool_name, calls, errors FROM v_tools' --csv
      evaltap sql "FROM latest_turns WHERE status = 'error'" --json

    Tables and views: docs/reference/tables.md. The statement can only read, and
    sees what was committed when it started. It does not interrupt a running
    `evaltap consume`.

    exit code: 0 printed, even if there are no rows; 2 bad input
    """

    file: Path | None = argument("X.duckdb", "the store to read (default: that of --db)")
    statement: str = argument("SQL", "one statement in DuckDB's SQL dialect")
    db: Path | None = option(
        "--db X.duckdb",
        "the store, if it is not before the statement (default: the one in evaltap.toml, or"
        " ./cases.duckdb)",
        variable=STORE,
        reads=True,
    )
    limit: int = option(
        "--limit N",
        "print at most N rows; --json and --csv print all (default: 1000)",
        default=1000,
    )
    seconds: int = option("--seconds N", "time limit for the statement (default: 60)", default=60)
    csv: bool = option("--csv", "print CSV with a header line")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class McpOptions:
    """The store that a coding agent may read, and the set to which it may add cases.

    examples:
      evaltap mcp cases.duckdb
      evaltap mcp cases.duckdb --set golden.evalset.json --allow-write
      claude mcp add evaltap -- evaltap mcp cases.duckdb

    Speaks the Model Context Protocol over standard input and output. Tools:
    find_cases, get_case, explain, why, compare, sql, draft_case. Recorded text goes
    out as quoted data. Nothing is written without --allow-write, and then only to
    SET and its metrics file. Works while `evaltap consume` writes to the store.

    exit code: 0 the client has closed the connection; 2 bad input
    """

    db: Path = store()
    set: Path = option(
        "--set SET",
        "the eval set for drafted cases (default: regressions.evalset.json)",
        default=Path("regressions.evalset.json"),
    )
    allow_write: bool = option(
        "--allow-write", "let draft_case write to the set (default: it returns a diff only)"
    )


@dataclass(slots=True, kw_only=True, repr=False)
class SkillInstallOptions:
    """Where the skill is written.

    examples:
      evaltap skill install
      evaltap skill install --target codex
      evaltap skill install --target team/skills
    """

    target: str = option(
        "--target NAME",
        "claude (.claude/skills), codex (.agents/skills), cursor (.cursor/skills), each in this folder; or a"
        " folder of skills (default: claude)",
        default="claude",
    )
    json: bool = as_json()


class SkillOptions:
    """What can be done with the playbooks for coding agents.

    examples:
      evaltap skill install
      evaltap skill install --target cursor

    The skill is a file for this version of evaltap, with playbooks: explain a
    failure, write a regression case and prove it, why was this not scored, add a
    metric, compare two versions, replay a fix.
    """

    ACTIONS: ClassVar = Actions(
        {"install": Action("write the skill to a project", SkillInstallOptions)}
    )
