"""The live part of the demo: the agent keeps running, and the page shows its turns as they land."""

import asyncio
import random
import secrets
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Final

from google.adk.plugins.base_plugin import BasePlugin

from evaltap.cli.demo.agent import run_session
from evaltap.cli.demo.script import SESSIONS
from evaltap.cli.page import LivePage
from evaltap.cli.signals import stopped_by_signals
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.remote.server import served
from evaltap.recorder import Recorder
from evaltap.recorder.plugins.adk import EvaltapPlugin
from evaltap.schemas.errors import EvaltapError

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
