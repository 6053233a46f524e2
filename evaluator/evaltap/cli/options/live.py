"""`--monitor` and `--serve`: rules, watches and alerts of a consumer; its probes, metrics and reloads."""

import argparse
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from evaltap.cli.listening import host_and_port
from evaltap.cli.options.code import code_allowed
from evaltap.cli.options.page import LivePage
from evaltap.cli.options.redaction import text_redactor
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known

if TYPE_CHECKING:
    from evaltap.evaluator.monitoring.alerting.notice import Notice
    from evaltap.evaluator.monitoring.alerting.receivers import Receiver
    from evaltap.evaluator.monitoring.history import Alert
    from evaltap.evaluator.pipeline.live.consumer import ConsumerTask
    from evaltap.evaluator.pipeline.live.figures import Figures
    from evaltap.evaluator.pipeline.live.outbox import Outbox
    from evaltap.evaluator.scoring.scorer import CaseScorer
    from evaltap.evaluator.store.database import Store
    from evaltap.schemas.formats.monitor import MonitorFile


_CASES_QUOTED = 3
_LONGEST_QUOTE = 200
_WORDS = """
SELECT eval_id, user_text, final_text FROM latest_turns WHERE eval_id IN $ids::VARCHAR[]
QUALIFY row_number() OVER (PARTITION BY eval_id ORDER BY started_at DESC, landed_seq DESC) = 1
ORDER BY eval_id
"""


def add_monitor(parser: argparse.ArgumentParser) -> None:
    """Add `--monitor`."""
    parser.add_argument(
        "--monitor",
        type=Path,
        metavar="monitor.json",
        help="score and watch live traffic by these rules, and store alarms in the DuckDB file (`evaltap"
        " monitor alerts` lists them)",
    )


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Add `--serve`."""
    parser.add_argument(
        "--serve",
        "--metrics-port",
        type=address,
        metavar="HOST:PORT",
        help="serve /healthz and /readyz for probes and /metrics for Prometheus (a port alone: this"
        " machine only; default: off)",
    )


def add_scores_otlp(parser: argparse.ArgumentParser) -> None:
    """Add `--scores-otlp`."""
    parser.add_argument(
        "--scores-otlp",
        "--otlp-scores",
        metavar="URL",
        help="send each score of a turn as an OpenTelemetry event gen_ai.evaluation.result, and metrics"
        " every minute, to an OTLP endpoint, e.g. http://collector:4318 (headers:"
        " OTEL_EXPORTER_OTLP_HEADERS)",
    )
    parser.add_argument(
        "--explanations",
        action="store_true",
        help="with --scores-otlp: also send the reasons of metrics and judges, redacted; they quote"
        " conversations",
    )


def otlp_outboxes(
    endpoint: str | None, store: "Store", *, explanations: bool = False
) -> "list[Outbox]":
    """Return the outbox of scores for an OTLP endpoint, or an empty list without an endpoint."""
    if endpoint is None and explanations:
        raise InputError("--explanations: only works with --scores-otlp; add it")
    if endpoint is None:
        return []
    from evaltap.evaluator.pipeline.live.otlp import OtlpWriter, otlp_scores
    from evaltap.evaluator.pipeline.live.outbox import Outbox

    scores = partial(otlp_scores, explained=text_redactor() if explanations else None)
    place = urlsplit(endpoint).netloc
    return [Outbox(store, OtlpWriter(endpoint), place, scores, name="otlp_scores")]


def figures_of(
    store: "Store",
    service: "Running",
    rules: "MonitorFile",
    *,
    serve: bool,
    endpoint: str | None,
    evidence: "Callable[[], Mapping[str, float]]",
) -> "list[Figures]":
    """Return the task that updates the values of `/metrics` and OTLP; empty if neither is enabled."""
    if not serve and endpoint is None:
        return []
    from evaltap.evaluator.pipeline.live.figures import Figures
    from evaltap.evaluator.pipeline.live.otlp import OtlpWriter

    otlp = OtlpWriter(endpoint) if endpoint else None
    return [Figures(store, service.status, otlp, rules=rules, evidence=evidence)]


def address(text: str) -> tuple[str, int]:
    """Parse a host and a port; a port alone means this machine."""
    found = host_and_port(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not an address; expected HOST:PORT, e.g. 127.0.0.1:9464"
        )
    return found


class Running:
    """The outside view of a consumer: its status, notifications to systemd, and reloads on SIGHUP."""

    def __init__(self, command: str, check: Callable[[], None]) -> None:
        from evaltap.evaluator.pipeline.live.reloading import Reload
        from evaltap.evaluator.pipeline.live.status import LiveStatus
        from evaltap.evaluator.pipeline.live.systemd import Systemd

        self.status = LiveStatus()
        self.reload = Reload(
            check, lambda text: print(f"evaltap {command}: {text}", file=sys.stderr)
        )
        self.page = LivePage(command)
        self.stopped = threading.Event()
        """Set by the first signal, so that a stopping consumer is not restarted by a reload."""
        self._systemd = Systemd()

    def beat(self) -> None:
        """Record a step of the consumer; the first step marks it as ready."""
        self.status.beat()
        if not self.status.ready:
            self.status.set_ready(ready=True)
            self._systemd.ready()
        self._systemd.alive()

    def ending(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Return a function that announces the end of the consumer and calls `stop`."""

        def end() -> None:
            self.stopped.set()
            self.status.set_ready(ready=False)
            self._systemd.stopping()
            stop()

        return end

    def again(self) -> bool:
        """Check whether the consumer ended in order to restart with new files."""
        accepted, self.reload.accepted = self.reload.accepted, False
        if accepted:
            self.status.set_ready(ready=False)
            self._systemd.reloading()
        return accepted


@contextmanager
def running(
    command: str, serve: tuple[str, int] | None, check: Callable[[], None]
) -> Iterator[Running]:
    """Serve probes and handle SIGHUP during the block; closing the terminal still ends the command."""
    found = Running(command, check)
    before = None
    if hasattr(signal, "SIGHUP") and not sys.stderr.isatty():
        before = signal.signal(signal.SIGHUP, lambda *_: found.reload.request())
    try:
        if serve is None:
            yield found
            return
        from evaltap.evaluator.pipeline.live.service import serving

        with serving(found.status, *serve) as at:
            print(f"evaltap {command}: {at}/metrics, /healthz, /readyz", file=sys.stderr)
            yield found
    finally:
        found.page.close()
        if before is not None:
            signal.signal(signal.SIGHUP, before)


def read_monitor(path: Path | None, scorer: "CaseScorer | None") -> "MonitorFile":
    """Return the rules of `--monitor`, or empty rules without it; raise InputError for invalid rules."""
    from evaltap.evaluator.monitoring.rules import read_rules
    from evaltap.schemas.formats.monitor import MonitorFile

    if path is None:
        return MonitorFile()
    rules = read_rules(path)
    if scorer is not None:
        check_metrics(rules, [one.metric_name for one in scorer.metrics], path)
    elif rules.score:
        raise InputError(f"{path}: `score` needs metrics; add --metrics")
    return rules


def watchers(
    command: str, path: Path | None, rules: "MonitorFile", store: "Store", *, allow_code: bool
) -> "list[ConsumerTask]":
    """Return the tasks that run the watches and send their alerts; empty without watches.

    Raises InputError for receivers whose secrets are not set.
    """
    if path is None or not rules.watch:
        return []
    from evaltap.evaluator.monitoring.alerting.outbox import AlertOutbox
    from evaltap.evaluator.monitoring.model import summary
    from evaltap.evaluator.pipeline.live.watcher import Watcher

    silences = {one.name: one.silence_ends for one in rules.watch}

    def silenced(watch: str) -> bool:
        until = silences.get(watch)
        return until is not None and datetime.now(UTC) < until

    outbox = AlertOutbox(
        store,
        check_receivers(rules, path, allow_code=allow_code),
        _notices(rules, store),
        excerpts_of=_excerpts_of(store),
        silenced=silenced,
    )

    def report(found: "Sequence[Alert]") -> None:
        for alert in found:
            event = alert.event
            cases = f"evaltap cases {store.path} {shlex.quote(event.cases_filter)}"
            shown = f"; {cases}" if event.cases_filter else ""
            status = "ALERT" if alert.began else "resolved"
            if silenced(event.watch):
                status = f"silenced, {status}"
            print(f"evaltap {command}: {status} {summary(event)}{shown}", file=sys.stderr)
        outbox.add(found)

    return [Watcher(store, rules, report), outbox]


def evidence_of(tasks: "Sequence[ConsumerTask]") -> "Mapping[str, float]":
    """Return the evidence of each watch at its last check, by name: how close it was to an alarm."""
    from evaltap.evaluator.pipeline.live.watcher import Watcher

    return {name: one for task in tasks if isinstance(task, Watcher)
            for name, one in task.evidence.items()}  # fmt: skip


def check_receivers(
    rules: "MonitorFile", path: Path | None, *, allow_code: bool
) -> "list[Receiver]":
    """Return the receivers of alerts; raise InputError for a receiver that cannot be used."""
    from evaltap.evaluator.monitoring.alerting.receivers import make_receiver
    from evaltap.evaluator.monitoring.rules import name_of

    found = []
    for number, settings in enumerate(rules.alerts):
        place = f"{path}: alerts[{number}] ({settings.type})"
        if settings.type == "command" and not code_allowed(given=allow_code):
            raise InputError(
                f"{place}: runs a program; check what it names, then allow it with --allow-code"
            )
        name = name_of(settings, number)
        found.append(make_receiver(settings, place, os.environ, name=name))
    return found


def _notices(rules: "MonitorFile", store: "Store") -> "Callable[[Alert, datetime, bool], Notice]":
    from evaltap.evaluator.monitoring.alerting.notice import Notice, evidence_page
    from evaltap.schemas.formats.monitor import Watch

    watches = {watch.name: watch for watch in rules.watch}

    def notice_of(alert: "Alert", began_at: "datetime", repeated: bool) -> "Notice":
        name = alert.event.watch
        watch = watches.get(name) or Watch(name=name)  # removed from the rules: its alarm has ended
        page = evidence_page(rules, watch, alert, store)
        return Notice(alert, began_at, watch, page, store.path.name, repeated)

    return notice_of


def _excerpts_of(store: "Store") -> "Callable[[Sequence[str]], list[str]]":
    """Return a function that returns redacted excerpts of some cases."""

    def excerpts(cases: "Sequence[str]") -> list[str]:
        redacted = text_redactor()
        rows = store.rows(_WORDS, {"ids": list(cases)[:_CASES_QUOTED]})
        return [
            f"{case}: {_short(redacted(asked or ''))} -> {_short(redacted(answer or ''))}"
            for case, asked, answer in rows
        ]

    return excerpts


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _LONGEST_QUOTE else f"{one_line[:_LONGEST_QUOTE]}…"


def check_metrics(rules: "MonitorFile", metrics: Sequence[str], path: Path) -> None:
    """Raise InputError for a watch or a rule on a metric that is not scored."""
    named = [(f"watch {one.name!r}", one.metric) for one in rules.watch if one.metric]
    for rule in rules.score:
        named += [(f"score {rule.name!r}", metric) for metric in rule.metrics]
        named += [(f"score {rule.name!r}", one.failed) for one in rule.always if one.failed]
    for place, metric in named:
        scored = f"scored are {', '.join(metrics)}"
        check_known(metric, metrics, f"{path}: {place}: no metric {metric!r}", scored)
