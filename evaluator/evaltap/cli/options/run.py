"""The commands of the group "run", their options and examples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaltap.cli.declared import STORE, argument, group, option
from evaltap.cli.options.shared import (
    FilterOptions,
    JudgeOptions,
    MetricOptions,
    TlsOptions,
    allow_code,
    as_json,
    metrics_file,
    ray_address,
)
from evaltap.cli.values import (
    amount,
    argument_of,
    counts,
    names,
    of_tool,
    positive,
    seconds,
    share,
    whole_amount,
)


@dataclass(slots=True, kw_only=True, repr=False)
class CalledAgentOptions:
    """The agent, and how it is called."""

    agent: str = option(
        "--agent AGENT",
        "the agent: package.module:name, imported from the current folder; 'command:PROGRAM ARGUMENTS';"
        " openai:MODEL@URL, whose key is EVALTAP_AGENT_API_KEY; or an http:// address",
    )
    agent_request: Path | None = option(
        "--agent-request FILE.json",
        "what an http:// agent is sent, with {{message}}, {{messages}}, {{session_id}} and {{mocks_url}}",
    )
    agent_result: str = option(
        "--agent-result PATH",
        "where the answer is in what an http:// agent returns, e.g. $.output.text",
        default="",
    )
    concurrency: int = option(
        "--concurrency C", "how many cases the agent runs at once (default: 8)", default=8
    )
    turn_seconds: float = option(
        "--turn-seconds S",
        "time limit for a turn; beyond it the agent is cancelled and has crashed (default: 300)",
        parse=seconds,
        default=300.0,
    )


@dataclass(slots=True, kw_only=True, repr=False)
class AgentOptions(CalledAgentOptions):
    """The agent, and how its runs are made."""

    version: str = option(
        "--version V",
        "label of the agent, for `compare` and `report --by version` (default: EVALTAP_VERSION)",
        default="",
        variable="EVALTAP_VERSION",
    )
    engine: Literal["local", "ray"] = option(
        "--engine",
        "local: the agent runs on this machine; ray: on a Ray cluster, whose nodes have the agent in the same"
        " folder (default: local)",
        default="local",
    )
    ray_address: str | None = ray_address()
    ray_workers: int | None = option(
        "--ray-workers N",
        "processes with the agent, which share --concurrency (default: one for each processor)",
        parse=positive,
    )
    agent_rpm: float | None = option(
        "--agent-rpm N",
        "turns that the agent may begin in a minute (default: no limit); after a provider's refusal (429)"
        " all wait, and the run is made again",
        parse=amount,
    )


@dataclass(slots=True, kw_only=True, repr=False)
class AnswerOptions:
    """Which recorded calls answer."""

    mock_match: Literal["args", "fifo", "order"] = option(
        "--mock-match",
        "which recorded call answers; args: one with equal arguments; fifo: the tool's next; order: the"
        " turn's next, with equal arguments (default: args)",
        default="args",
    )
    ignore_argument: tuple[tuple[str, list[str]], ...] = option(
        "--ignore-argument TOOL.ARGUMENT",
        "an argument that need not be equal, e.g. get_order.request_id; may be repeated",
        parse=argument_of,
        many=True,
    )
    on_miss: tuple[tuple[str, str], ...] = option(
        "--on-miss TOOL=WHAT",
        "what to do where a tool has no recorded result: fail (the default); llm: the model of"
        " EVALTAP_JUDGE_MODEL invents one; closest: the result for the nearest arguments; may be repeated",
        parse=of_tool,
        many=True,
    )
    rename_tool: tuple[tuple[str, str], ...] = option(
        "--rename-tool NEW=OLD",
        "the recorded name of a tool that has another name now; may be repeated",
        parse=of_tool,
        many=True,
    )
    mock_latency: bool = option(
        "--mock-latency",
        "answers take as long as they took when they were recorded; always so if a metric depends on it,"
        " like completed_within",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class ToolCallOptions(AnswerOptions):
    """What answers the agent's tool calls."""

    mocks: Literal["auto", "recorded", "declared", "off"] = option(
        "--mocks",
        "recorded: the results in the set; declared: the toolMock of its turns; off: the tools run (default:"
        " auto: recorded for cases from production, otherwise declared where there are any)",
        default="auto",
    )
    read_only: tuple[str, ...] = option(
        "--read-only TOOL,...",
        "tools without side effects, which run where nothing was recorded",
        parse=names,
        default=(),
    )
    allow_real_tools: bool = option(
        "--allow-real-tools",
        "let tools run that have no recorded result, also on production's cases",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class TaskRunOptions:
    """Tasks, which make cases and metrics of the rows of data sets."""

    tasks: tuple[str, ...] = option(
        "--tasks NAME,...",
        "instead of SET and --metrics: run these tasks, context-compression, graph, summary, or those of"
        " installed packages",
        parse=names,
        default=(),
    )
    task_file: tuple[tuple[str, str], ...] = option(
        "--task-file TASK=SOURCE",
        "the rows of a task: a file (.jsonl, .json, .csv, .parquet, a folder), hf:REPOSITORY[@SPLIT] or"
        " confident:ALIAS; may be repeated",
        parse=of_tool,
        many=True,
    )
    file_context_compression: str | None = option(
        "--file-context-compression SOURCE", "the rows of context-compression"
    )
    file_graph: str | None = option("--file-graph SOURCE", "the rows of graph")
    file_summary: str | None = option("--file-summary SOURCE", "the rows of summary")
    checkpoints: tuple[int, ...] = option(
        "--checkpoints N,...",
        "context-compression: after how many messages the context is measured (default: at the end)",
        parse=counts,
        default=(),
    )
    strict: bool = option(
        "--strict", "stop if a row makes no case (default: leave it out, and say so)"
    )


@dataclass(slots=True, kw_only=True, repr=False)
class PartnerOptions:
    """Who plays the users of cases with a plan, and which agent gives expected turns."""

    user: str = option(
        "--user USER",
        "who plays the users of cases with a conversationScenario: an agent, named as for --agent, or a"
        " FILE.json with a judgeModel (default: the model of EVALTAP_JUDGE_MODEL)",
        default="",
    )
    user_seed: int | None = option(
        "--user-seed N",
        "the seed that a user's model is sent for the first run of a case; each further run gets the next",
        parse=whole_amount,
    )
    check_user: bool = option(
        "--check-user",
        "let the judge of EVALTAP_JUDGE_MODEL say whether the user played its plan, gave it away, invented"
        " facts, looped or left too early; a run whose user failed is invalid",
    )
    continue_from: int | None = option(
        "--continue-from K",
        "say the first K turns of each case as they were recorded; then a simulated user goes on, who wants"
        " what the recorded one wanted",
        parse=whole_amount,
    )
    expected_agent: str = option(
        "--expected-agent AGENT",
        "the agent that gives the expected turns of cases with expectedRunnerEnabled, named as for --agent",
        default="",
    )


@dataclass(slots=True, kw_only=True, repr=False)
class RunOptions:
    """The set, the agent, how often and how long, and where the runs go.

    examples:
      evaltap run golden.evalset.json --agent shop.agent:make \\
          --metrics metrics.json --db runs.duckdb --version 1.5 --runs 5
      evaltap run golden.evalset.json --agent shop.agent:make \\
          --metrics metrics.json --db runs.duckdb --version 1.5 --runs 10 --resume
      evaltap run golden.evalset.json --agent shop.agent:make \\
          --metrics metrics.json --db runs.duckdb --until 'pass_rate>=0.9@95%'
      evaltap run --tasks summary,graph --file-summary texts.jsonl \\
          --file-graph hf:me/graphs@test --agent shop.agent:make --db runs.duckdb
      evaltap run bookings.evalset.json --agent shop.agent:make \\
          --user traveller.json --expected-agent shop.old:make \\
          --metrics metrics.json --db runs.duckdb
      evaltap compare runs.duckdb@version=1.4 runs.duckdb@version=1.5

    The agent is a function `(messages)` or `(messages, turn)` that returns the
    answer, sync or async; an agent object of Google ADK, OpenAI Agents, LangChain,
    LangGraph, pydantic-ai, Strands or the Claude Agent SDK; or a factory without
    parameters that makes one for each run of a case. It runs in a process of its
    own.

    Cases from production carry the results that tools gave: they answer the
    agent's calls, and no tool runs. A call that nothing was recorded for ends the
    run, which is invalid.

    exit code: 0 every run passed, or the target is reached; 1 some did not, or the
    target is missed; 2 bad input, listed before the first call; 3 incomplete:
    interrupted, budget spent, target undecided, too many invalid runs, or a run
    that a metric could not be evaluated on
    """

    set: Path | None = argument("SET", "the eval set: .evalset.json or JSON Lines of eval cases")
    agent: AgentOptions = group(AgentOptions)
    metrics: Path = metrics_file("the metrics file (tasks bring their own)", default=Path())
    db: Path = option("--db X.duckdb", "the DuckDB file for the runs", variable=STORE)
    tasks: TaskRunOptions = group(TaskRunOptions, "tasks")
    runs: int = option("--runs N", "how often each case is run (default: 1)", default=1)
    until: str | None = option(
        "--until TARGET",
        "stop when it is certain whether the pass rate reaches a target, e.g. 'pass_rate>=0.9@95%%',"
        " after at most --runs runs of each case",
    )
    case: tuple[str, ...] = option(
        "--case ID", "run only this case; may be repeated", parse=str, many=True
    )
    filter: tuple[str, ...] = option(
        "--filter GLOB",
        "run only cases whose eval id matches; may be repeated",
        parse=str,
        many=True,
    )
    resume: bool = option(
        "--resume",
        "go on with the last experiment on this set: run what is not done, and what a higher --runs adds",
    )
    dry_run: bool = option("--dry-run", "check everything and print the plan; run nothing")
    max_invalid: float = option(
        "--max-invalid SHARE",
        "the share of invalid runs, which are no evidence, that is tolerated (default: 0.05)",
        parse=share,
        default=0.05,
    )
    result: Path | None = option(
        "--result PATH", "also write an .evalset_result.json of all runs to this file or folder"
    )
    verbose: bool = option(
        "--verbose", "print a line for each case: its answer, and score and reason of each metric"
    )
    tools: ToolCallOptions = group(ToolCallOptions, "tool calls")
    partners: PartnerOptions = group(PartnerOptions, "simulated users and expected agents")
    limits: MetricOptions = group(MetricOptions)
    judges: JudgeOptions = group(
        JudgeOptions, "judges; --budget-usd counts agents and simulated users, too"
    )
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class ReplayOptions:
    """The traffic, the agent, and what decides.

    examples:
      evaltap replay cases.duckdb --agent shop.agent:make --metrics metrics.json
      evaltap replay cases.duckdb --agent shop.agent:make --metrics metrics.json \\
          --filter since:7d --sample 200 --version 1.5 --markdown forecast.md
      evaltap replay cases.duckdb --agent shop.agent:make --metrics metrics.json \\
          --rename-tool lookup_order=get_order --ignore-argument search.request_id

    Recorded sessions run again with the new agent: the same user messages, and the
    results that the tools gave then. No tool runs. A session ends at the first call
    that has no recorded result. From what was the same, `replay` forecasts the pass
    rate of the traffic; bounds decide, not the estimate.

    Replay the unchanged agent first: its difference must be 0, and its forks are
    the least that you can expect.

    exit code: 0 no metric gets worse by more than --max-drop; 1 one does; 2 bad
    input, listed before the first call; 3 not enough to tell, or interrupted
    """

    store: Path = argument("STORE", "the DuckDB file with the traffic, scored with --metrics")
    agent: AgentOptions = group(AgentOptions)
    metrics: Path = metrics_file("the metrics file; its metrics must not need references")
    db: Path | None = option(
        "--db X.duckdb", "the DuckDB file for the new runs (default: STORE.replay.duckdb beside it)"
    )
    chosen: FilterOptions = group(FilterOptions)
    sample: int | None = option(
        "--sample N", "replay about N sessions, drawn at random (default: all)", parse=positive
    )
    runs: int = option("--runs N", "how often each session is replayed (default: 1)", default=1)
    after_fork: Literal["stop", "script"] = option(
        "--after-fork",
        "after a turn whose calls are not the recorded ones; stop: end the session; script: go on with the"
        " recorded user messages, outside of the forecast (default: stop)",
        default="stop",
    )
    max_drop: float = option(
        "--max-drop SHARE",
        "the drop of a pass rate that is accepted (default: 0.02)",
        parse=share,
        default=0.02,
    )
    resume: bool = option("--resume", "go on with the last replay into this DuckDB file")
    markdown: Path | None = option("--markdown FILE", "also write the forecast for a pull request")
    html: Path | None = option(
        "--html FILE",
        "also write the forecast as one HTML file, with changed sessions beside their recording",
    )
    tools: ToolCallOptions = group(ToolCallOptions, "tool calls")
    limits: MetricOptions = group(MetricOptions)
    judges: JudgeOptions = group(JudgeOptions, "judges; --budget-usd counts the agent, too")
    json: bool = as_json()


@dataclass(slots=True, kw_only=True, repr=False)
class MocksOptions:
    """The recorded tools, and how they are offered.

    examples:
      evaltap mocks golden.evalset.json --mcp
      evaltap mocks golden.evalset.json --case late --mcp --misses m.jsonl
      evaltap mocks golden.evalset.json --port 8765
      evaltap mocks "$EVALTAP_MOCKS_URL" --mcp

    For agents in any language: an MCP server over standard input and output, or
    over HTTP (URL/mcp), or plain requests (POST URL/tools/NAME with the arguments).
    An agent that `evaltap run` starts as a command, or calls over HTTP, finds the
    address of the tools of its case in EVALTAP_MOCKS_URL or {{mocks_url}}.

    exit code: 0 every call was answered; 1 some were not; 2 bad input
    """

    set: str = argument("SET", "the eval set, or the address in EVALTAP_MOCKS_URL")
    mcp: bool = option("--mcp", "speak MCP over standard input and output")
    port: int = option(
        "--port P", "serve HTTP on this port of 127.0.0.1 (default: a free one)", default=0
    )
    case: tuple[str, ...] = option(
        "--case ID", "only this case's recording; may be repeated", parse=str, many=True
    )
    schemas: Path | None = option(
        "--tools FILE.json",
        "names, descriptions and schemas of the tools, as MCP lists them (default: as recorded)",
    )
    misses: Path | None = option(
        "--misses FILE", "write each call without a recorded result to this file, as JSON Lines"
    )
    tools: AnswerOptions = group(AnswerOptions, "tool calls")


@dataclass(slots=True, kw_only=True, repr=False)
class ServeOptions:
    """The agent, what it is evaluated on, and who may ask.

    examples:
      evaltap serve --agent shop.agent:make --sets evals
      evaltap serve --agent shop.agent:make --sets evals.duckdb --app shop
      evaltap serve --agent shop.agent:make --app shop \\
          --sets postgresql://ann@db/evals    # the password: PGPASSWORD

      curl -H "Authorization: Bearer $TOKEN" -d '{"setId": "golden"}' \\
          http://127.0.0.1:4711/evaluation/runs

    The routes are those of tRPC-Agent-Go's evaluation server, and Google ADK's eval
    routes below /dev/apps/APP. With `Prefer: respond-async`, a run goes on in the
    background: GET /evaluation/runs/ID/events follows it, DELETE
    /evaluation/runs/ID cancels it. Results are saved after each run of the set.

    A folder has ID.evalset.json and ID.metrics.json; results are written beside
    them. With --app, they are in its subfolder APP, as tRPC-Agent-Go has it.

    Access:
      Only this machine can reach the server, unless --host is given.
      Each request needs the token: that of EVALTAP_SERVE_TOKEN, or a new one, which
      is printed at the start.
      Scripts of web pages are refused, unless --allow-origin names their page.

    exit code: 0 ended by a signal, 2 bad input
    """

    agent: CalledAgentOptions = group(CalledAgentOptions)
    sets: str = option(
        "--sets STORE",
        "the eval sets, their metrics and results: a folder, a file X.duckdb, mysql://USER:PASSWORD@HOST/NAME"
        " or postgresql://…; ?prefix=P for tables with a prefix (default: EVALTAP_SETS)",
        variable="EVALTAP_SETS",
        required=True,
    )
    app: str = option(
        "--app NAME", "the app that the sets belong to (default: the folder's name)", default=""
    )
    metrics: Path | None = option(
        "--metrics M.json", "score every set by the metrics of this file, not by the set's own"
    )
    runs: int = option(
        "--runs N", "how often each case is run if a request does not say (default: 1)", default=1
    )
    expected_agent: str | None = option(
        "--expected-agent AGENT",
        "gives the expected answers of cases with expectedRunnerEnabled; as --agent",
    )
    user_agent: str | None = option(
        "--user-agent AGENT",
        "plays the user of cases with a conversationScenario; as --agent, e.g. openai:MODEL@URL",
    )
    run_seconds: float | None = option(
        "--run-seconds S", "time limit for what one request runs (default: none)", parse=seconds
    )
    runs_at_once: int = option(
        "--runs-at-once N", "requests that run at a time; others wait (default: 2)", default=2
    )
    allow_code: bool = allow_code()
    host: str = option(
        "--host HOST", "address to listen on (default: 127.0.0.1)", default="127.0.0.1"
    )
    port: int = option("--port PORT", "port to listen on (default: 4711)", parse=int, default=4711)
    allow_host: tuple[str, ...] = option(
        "--allow-host NAME", "a host name under which the server may be asked, besides its address"
    )
    allow_origin: tuple[str, ...] = option(
        "--allow-origin ORIGIN",
        "let scripts of this page ask, e.g. https://evals.example.com; '*' for every page; may be repeated",
    )
    token: bool = option(
        "--no-token", "let every program on this machine ask, without a token", default=True
    )
    tls: TlsOptions = group(TlsOptions)
    insecure_http: bool = option(
        "--insecure-http", "let other machines connect without TLS; only on a trusted network"
    )
    json: bool = option("--json", "print address and token as JSON")
