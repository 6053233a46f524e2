"""Deliver the alerts of a file of rules to receivers, at least once, without delaying landing.

The rows of `alerts` are the outbox, and `alert_deliveries` records what was delivered.  A consumer that is
killed between a delivery and its row delivers again, under the same id.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.monitoring.alerting.notice import Notice, evidence_page
from evaltap.evaluator.monitoring.alerting.receivers import (
    NotDeliveredError,
    Receiver,
    make_receiver,
)
from evaltap.evaluator.monitoring.history import Alert, as_stored, read_alerts
from evaltap.evaluator.monitoring.rules import name_of
from evaltap.evaluator.store.database import Store, utc_now
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.monitor import MonitorFile, Watch

FIRST_PAUSE: Final = timedelta(seconds=1)
LONGEST_PAUSE: Final = timedelta(minutes=15)
GIVEN_UP_AFTER: Final = timedelta(hours=24)
TRIES_BEFORE_IDLE: Final = 3
"""The number of attempts before a consumer that stops by itself gives up; the rest is delivered at its next
start."""
log = logging.getLogger(__name__)

NoticeKey = tuple[str, str]
"""An alarm's id, and firing or resolved."""


class AlertOutbox:
    """Delivers to each receiver at its own pace; `notice_of` builds the notice of an alert.

    `excerpts_of` returns excerpts of cases, for receivers that are configured for content.  While a watch is
    `silenced`, its alarms are held back, and those that began and ended meanwhile are dropped.
    """

    def __init__(
        self,
        store: Store,
        receivers: Sequence[Receiver],
        notice_of: Callable[[Alert, datetime, bool], Notice],
        *,
        excerpts_of: Callable[[Sequence[str]], Sequence[str]] = lambda _: (),
        silenced: Callable[[str], bool] = lambda _: False,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._channels = [_Channel(one, notice_of, excerpts_of, silenced, now) for one in receivers]

    def begin(self) -> None:
        """Load undelivered alerts from the store."""
        done: dict[str, dict[NoticeKey, datetime]] = {}
        for receiver, alert_id, status, ended_at in self._store.rows(_DELIVERIES):
            done.setdefault(receiver, {})[alert_id, status] = ended_at
        alerts = read_alerts(self._store)
        for channel in self._channels:
            channel.load(alerts, done.get(channel.name, {}))

    def add(self, alerts: Iterable[Alert]) -> None:
        """Add alerts that were just stored."""
        for channel in self._channels:
            for alert in alerts:
                channel.add(alert)

    def step(self, changed: ChangedCases | None) -> bool:
        """Store the deliveries since the last step, and begin the next ones."""
        if rows := [row for channel in self._channels for row in channel.step()]:
            with self._store.transaction():
                self._store.append("alert_deliveries", rows)
        return False

    @property
    def idle(self) -> bool:
        """Whether everything was delivered, or attempted often enough for now."""
        return all(channel.idle for channel in self._channels)

    def close(self) -> None:
        """Store completed deliveries; running and waiting ones are delivered after the next start."""
        self.step(None)


@dataclass(slots=True)
class _Waiting:
    """A notice that has not been delivered yet."""

    alert: Alert
    not_before: datetime
    since: datetime
    repeated: bool = False
    attempts: int = 0

    @property
    def key(self) -> NoticeKey:
        return self.alert.alert_id, self.alert.event.status


class _Channel:
    """The pending notices of one receiver, the oldest first, and the thread that delivers them."""

    def __init__(
        self,
        receiver: Receiver,
        notice_of: Callable[[Alert, datetime, bool], Notice],
        excerpts_of: Callable[[Sequence[str]], Sequence[str]],
        silenced: Callable[[str], bool],
        now: Callable[[], datetime],
    ) -> None:
        self.name = receiver.name
        self._receiver = receiver
        self._notice_of = notice_of
        self._excerpts_of = excerpts_of
        self._silenced = silenced
        self._now = now
        self._waiting: list[_Waiting] = []
        self._began: dict[str, datetime] = {}
        """When alarms began, in the time of the traffic."""
        self._on: dict[str, tuple[Alert, datetime]] = {}
        """Alarms that are on, and when the receiver was last notified."""
        self._over: set[str] = set()
        """Alarms that have ended, perhaps while a notice of their beginning waits."""
        self._running: tuple[_Waiting, _Delivery] | None = None

    @property
    def idle(self) -> bool:
        return self._running is None and all(
            one.attempts >= TRIES_BEFORE_IDLE or self._silenced(one.alert.event.watch)
            for one in self._waiting
        )

    def load(self, alerts: Sequence[Alert], done: Mapping[NoticeKey, datetime]) -> None:
        """Load alerts from the store, except those that are delivered or too old."""
        ended = {one.alert_id for one in alerts if not one.began}
        for alert in alerts:
            key = (alert.alert_id, alert.event.status)
            old = self._now() - alert.noted_at > GIVEN_UP_AFTER
            if key in done:
                self._record_state(alert, done[key])
            elif not old or alert.alert_id not in ended or (alert.alert_id, "firing") in done:
                self.add(alert)

    def add(self, alert: Alert) -> None:
        """Add an alert that the receiver was not notified of."""
        self._record_state(alert, None)
        if alert.notify:
            self._waiting.append(_Waiting(alert, self._now(), self._now()))

    def _record_state(self, alert: Alert, notified_at: datetime | None) -> None:
        if not alert.began:
            self._over.add(alert.alert_id)
            self._on.pop(alert.alert_id, None)
            return
        self._began[alert.alert_id] = alert.event.at or alert.noted_at
        if notified_at is not None:
            self._on[alert.alert_id] = alert, notified_at

    def step(self) -> list[tuple[object, ...]]:
        """Return rows for deliveries that ended since the last step, and begin the ones that are due."""
        rows = [*self._take_ended(), *self._drop_silenced()]
        if self._running is None:
            self._repeat()
            self._begin()
        return rows

    def _take_ended(self) -> list[tuple[object, ...]]:
        if self._running is None or not self._running[1].done:
            return []
        (one, delivery), self._running = self._running, None
        one.attempts += 1
        if delivery.problem is None:
            return self._done(one, "delivered", None)
        log.warning("alert %s: %s %s", one.alert.event.watch, self.name, delivery.problem)
        if self._now() - one.since > GIVEN_UP_AFTER:
            log.error("alert %s: giving up on notifying %s", one.alert.event.watch, self.name)
            return self._done(one, "gave_up", delivery.problem)
        pause = max(FIRST_PAUSE * 2 ** min(one.attempts - 1, 20), delivery.retry_after)
        one.not_before = self._now() + min(LONGEST_PAUSE, pause)
        return []

    def _drop_silenced(self) -> list[tuple[object, ...]]:
        """Drop alarms that began and ended while their watch was silenced."""
        silenced = [
            one
            for one in self._waiting
            if not one.attempts and self._silenced(one.alert.event.watch)
        ]
        began = {one.alert.alert_id for one in silenced if one.alert.began}
        ended = {one.alert.alert_id for one in silenced if not one.alert.began}
        gone = [one for one in silenced if one.alert.alert_id in began & ended]
        self._waiting = [one for one in self._waiting if one not in gone]
        return [self._row(one, "silenced", None) for one in gone]

    def _done(self, one: _Waiting, outcome: str, detail: str | None) -> list[tuple[object, ...]]:
        self._waiting.remove(one)
        if one.alert.began and one.alert.alert_id not in self._over:
            self._on[one.alert.alert_id] = one.alert, self._now()
        kept = self._receiver.keeps_all or not one.repeated
        return [self._row(one, outcome, detail)] if kept else []

    def _row(self, one: _Waiting, outcome: str, detail: str | None) -> tuple[object, ...]:
        return (*one.key, self.name, outcome, detail, one.attempts, self._now())

    def _repeat(self) -> None:
        """Queue alarms that have been firing for the repeat interval since the last notification."""
        waiting = {one.alert.alert_id for one in self._waiting}
        for alert_id, (alert, notified_at) in self._on.items():
            # A time ahead of the clock is from before the clock was set back.
            since = abs((self._now() - notified_at).total_seconds())
            late = since >= self._receiver.repeat_seconds
            if late and alert_id not in waiting:
                self._waiting.append(_Waiting(alert, self._now(), self._now(), repeated=True))

    def _begin(self) -> None:
        """Deliver the first notice that is due; an alarm's end is delivered after its beginning."""
        before: set[str] = set()
        for one in list(self._waiting):
            blocked = one.alert.alert_id in before
            before.add(one.alert.alert_id)
            # A longer pause means that the clock was set back.
            pauses = timedelta(0) < one.not_before - self._now() <= LONGEST_PAUSE
            if blocked or self._silenced(one.alert.event.watch) or pauses:
                continue
            began = self._began.get(one.alert.alert_id, one.alert.noted_at)
            notice = self._notice_of(one.alert, began, one.repeated)
            if self._receiver.content:
                notice = replace(notice, excerpts=tuple(self._excerpts_of(one.alert.event.cases)))
            self._running = one, _Delivery(self._receiver, notice)
            return


class _Delivery(threading.Thread):
    """One attempt; a daemon thread, so that a hanging receiver does not keep the process from exiting."""

    def __init__(self, receiver: Receiver, notice: Notice) -> None:
        super().__init__(name=f"evaltap-alert-{receiver.name}", daemon=True)
        self._receiver = receiver
        self._notice = notice
        self.problem: str | None = None
        self.retry_after = timedelta(0)
        self.done = False
        self.start()

    def run(self) -> None:
        try:
            self._receiver.deliver(self._notice)
        except NotDeliveredError as problem:
            self.problem = str(problem)
            self.retry_after = problem.retry_after or timedelta(0)
        except Exception as error:  # a fault of a receiver must be recorded
            self.problem = type(error).__name__
        self.done = True


_DELIVERIES: Final = """
SELECT receiver, alert_id, status, max(ended_at) FROM alert_deliveries GROUP BY ALL
"""


_CASES_QUOTED: Final = 3
_LONGEST_QUOTE: Final = 200
_WORDS: Final = """
SELECT eval_id, user_text, final_text FROM latest_turns WHERE eval_id IN $ids::VARCHAR[]
QUALIFY row_number() OVER (PARTITION BY eval_id ORDER BY started_at DESC, landed_seq DESC) = 1
ORDER BY eval_id
"""


def receivers_of(
    rules: MonitorFile, path: Path | None, environ: Mapping[str, str], *, allow_code: bool
) -> list[Receiver]:
    """Return the receivers of alerts; raise InputError for a receiver that cannot be used."""
    found = []
    for number, settings in enumerate(rules.alerts):
        place = f"{path}: alerts[{number}] ({settings.type})"
        if settings.type == "command" and not allow_code:
            raise InputError(
                f"{place}: runs a program; check what it names, then allow it with --allow-code"
                " (EVALTAP_ALLOW_CODE=1)"
            )
        found.append(make_receiver(settings, place, environ, name=name_of(settings, number)))
    return found


def is_silenced(rules: MonitorFile, watch: str) -> bool:
    ends = next((one.silence_ends for one in rules.watch if one.name == watch), None)
    return ends is not None and datetime.now(UTC) < ends


def alert_outbox(
    store: Store,
    rules: MonitorFile,
    receivers: Sequence[Receiver],
    redactor: Callable[[], Callable[[str], str]],
) -> AlertOutbox:
    """Return the outbox of the alerts; excerpts of cases are redacted."""

    def excerpts(cases: Sequence[str]) -> list[str]:
        redacted = redactor()

        def short(text: str | None) -> str:
            return one_line(redacted(text or ""), _LONGEST_QUOTE)

        rows = store.rows(_WORDS, {"ids": list(cases)[:_CASES_QUOTED]})
        return [f"{case}: {short(asked)} -> {short(answer)}" for case, asked, answer in rows]

    watches = {watch.name: watch for watch in rules.watch}

    def notice_of(alert: Alert, began_at: datetime, repeated: bool) -> Notice:
        alert = as_stored(store, alert)
        name = alert.event.watch
        watch = watches.get(name) or Watch(name=name)  # removed from the rules: its alarm has ended
        page = evidence_page(rules, watch, alert, store)
        return Notice(alert, began_at, watch, page, store.path.name, repeated)

    def silenced(watch: str) -> bool:
        return is_silenced(rules, watch)

    return AlertOutbox(store, receivers, notice_of, excerpts_of=excerpts, silenced=silenced)
