"""`evaltap demo`: run the whole pipeline on a small agent, without API keys and network."""

import asyncio
import os
import random
import secrets
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Final

from google.adk.plugins.base_plugin import BasePlugin
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from evaltap.cli.demo.agent import run_session, run_sessions
from evaltap.cli.demo.script import SESSIONS, judge_answer
from evaltap.cli.messages import print_json
from evaltap.cli.options.start import DemoOptions
from evaltap.cli.page import LivePage
from evaltap.cli.signals import stopped_by_signals
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.ingest.landing.cases import landed_cases
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.reports.formats import write_report
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.reports.summary import Summary, summarise
from evaltap.evaluator.reports.terminal import print_summary
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import ScriptedJudge
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store, open_store
from evaltap.evaluator.store.remote.server import served
from evaltap.recorder import CaseSpanProcessor, Recorder
from evaltap.recorder.plugins.adk import EvaltapPlugin
from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.files.documents import iter_cases, read_metrics

HERE = Path(__file__).parents[1] / "demo"
QUERIES = (
    "FROM v_pass_rate",
    "SELECT eval_id, metric_name, reason FROM v_worst_cases",
    "SELECT tool_name, calls, errors FROM v_tools",
)


def run(options: DemoOptions) -> int:
    """Run the demo; return 0 if it ran as scripted, regardless of the agent's quality."""
    folder = options.dir
    spans, plugin, live = (folder / f"{name}.log.db" for name in ("spans", "plugin", "live"))
    _empty(folder, spans, plugin, live)
    _record(spans, plugin)
    with _landed(spans, folder / "cases.duckdb") as store, _landed(plugin, None) as other:
        differences = compare(sessions(store), sessions(other))
        turns = store.rows("SELECT count(*) FROM latest_turns")[0][0]
        PendingScorer(store, _scorer(), references=_references()).score("landed", "demo")
        summary = summarise(store)
        write_report(read_report(store), folder / "report.html")
    if differences:
        raise EvaltapError("the two recordings differ: " + "; ".join(differences))
    if options.json:
        print_json({**summary.data(), "turns": turns, "db": str(folder / "cases.duckdb")})
    else:
        _explain(folder, turns, summary)
    if options.ui is not None:
        with open_store(folder / "cases.duckdb") as store:
            show(options.ui, live, store, _scorer(), _references())
    return 0


def _empty(folder: Path, *logs: Path) -> None:
    """Create the folder and remove only the files of an earlier demo from it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*(log.name for log in logs), "cases.duckdb", "report.html"):
        for ending in ("", "-wal", "-shm", ".key", ".wal"):
            (folder / (name + ending)).unlink(missing_ok=True)


def _record(spans: Path, plugin: Path) -> None:
    # With one key the same address gets the same pseudonym in both logs, so they can be compared.
    secret = secrets.token_hex()
    by_spans = Recorder(spans, redaction_key=secret)
    by_plugin = Recorder(plugin, redaction_key=secret)
    provider = TracerProvider()
    provider.add_span_processor(CaseSpanProcessor(recorder=by_spans))
    trace.set_tracer_provider(provider)
    print("running the agent: 4 sessions, 6 turns, scripted model ...", file=sys.stderr)
    run_sessions([EvaltapPlugin(recorder=by_plugin)])
    provider.shutdown()
    for recorder in (by_spans, by_plugin):
        if not recorder.close():
            raise EvaltapError(
                f"recorded turns were not written in time: {recorder.counters()}; try again"
            )


def _landed(log: Path, path: Path | None) -> Store:
    store = open_store(path)
    source = LocalLogSource(log)
    Consumer(source, store).run(until_idle=True, report=lambda _: None)
    source.close()
    return store


def sessions(store: Store) -> dict[str, list[JsonObject]]:
    """Return the turns of each session, without ids, times and origin of the recording."""
    return {
        case["evalId"]: [_content(turn) for turn in case["actualConversation"]]
        for case in landed_cases(store)
    }


def _content(turn: CaseData) -> JsonObject:
    kept = ("userContent", "finalResponse", "intermediateResponses", "capture")
    tools = [
        {key: tool.get(key) for key in ("id", "name", "arguments", "result", "error", "capture")}
        for tool in turn.get("tools") or ()
    ]
    return {key: turn.get(key) for key in kept} | {"tools": tools}


def compare(
    one: Mapping[str, Sequence[JsonObject]], other: Mapping[str, Sequence[JsonObject]]
) -> list[str]:
    """Return the differences between two recordings of the same sessions."""
    differences = [f"session {name} is in only one of them" for name in one.keys() ^ other.keys()]
    for name in one.keys() & other.keys():
        if len(one[name]) != len(other[name]):
            differences.append(f"{name}: {len(one[name])} turns and {len(other[name])}")
        for number, (left, right) in enumerate(zip(one[name], other[name], strict=False), start=1):
            differences += [
                f"{name} turn {number} {key}: {left[key]!r} and {right[key]!r}"
                for key in left
                if left[key] != right[key]
            ]
    return differences


def _scorer() -> CaseScorer:
    judge = ScriptedJudge(lambda request: judge_answer(request.prompt))
    return CaseScorer(read_metrics(HERE / "metrics.json"), services=Services(judge=lambda _: judge))


def _references() -> References:
    return References.of(iter_cases(HERE / "references.evalset.json"))


def _explain(folder: Path, turns: int, summary: Summary) -> None:
    print(f"recorded {turns} turns twice, by span processor and by runner plugin; both agree")
    print("redacted them before writing, and scored them with references and a scripted judge:\n")
    print_summary(summary, console())
    database = folder / "cases.duckdb"
    evaltap = _program("evaltap")
    print(f"\nin the browser ({folder / 'report.html'} is a report to share)")
    print(f"  {evaltap} ui {database}        (evaltap demo --ui: with a running agent)")
    print("one case, turn by turn")
    print(f"  {evaltap} show {database} s-too-generous")
    print("or query the store in SQL")
    for query in QUERIES:
        print(f'  {evaltap} sql "{query}" --db {database}')


def _program(name: str) -> str:
    """Return how to call a program of this environment: its name if PATH finds it, otherwise its path."""
    here = Path(sys.executable).parent / name
    found = shutil.which(name)
    if not here.exists() or (found and Path(found).absolute() == here):
        return name
    return os.path.relpath(here) if here.is_relative_to(Path.cwd()) else str(here)


PAUSE_SECONDS: Final = 1.0
"""Mean pause between two sessions."""
_OFTEN: Final = {"s-delivery": 5, "s-outage": 3, "s-too-generous": 1, "s-promise": 1}


def show(at: str, log: Path, store: Store, scorer: CaseScorer, references: References) -> None:
    """Serve the page at an address and land new sessions of the agent until a signal stops it."""
    page = LivePage("demo", opens=True)
    source = LocalLogSource(log, must_exist=False)
    try:
        with served(store, lands=True), _working(log), page.serving(at, store, references) as tasks:
            pending = PendingScorer(store, scorer, references=references)
            consumer = Consumer(source, store, scorer=pending, tasks=tasks, log=str(log))
            with stopped_by_signals("demo", consumer.stop):
                consumer.run(until_idle=False, report=lambda _: None)
    finally:
        source.close()
        page.close()


@contextmanager
def _working(log: Path) -> Iterator[None]:
    """Run the agent on another thread during the block; it answers one user after another."""
    recorder = Recorder(log, redaction_key=secrets.token_hex())
    ended = threading.Event()
    thread = threading.Thread(
        target=_work, args=(EvaltapPlugin(recorder=recorder), ended), name="demo-agent", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
        if not recorder.close():
            raise EvaltapError(f"recorded turns were not written in time: {recorder.counters()}")


def _work(plugin: BasePlugin, ended: threading.Event) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ADK announces its experimental features
        for number in takewhile(lambda _: not ended.is_set(), count(1)):
            (name,) = random.choices(list(_OFTEN), weights=list(_OFTEN.values()))
            asyncio.run(run_session(f"{name}-{number:03d}", SESSIONS[name], [plugin]))
            ended.wait(random.uniform(0.2, 2 * PAUSE_SECONDS - 0.2))
