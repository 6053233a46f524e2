"""The content of a notification, in the form of a webhook, Alertmanager, Slack or PagerDuty.

A notification contains names of metrics, tools and slices, rates, times and case ids.  It contains text from
traces only if the receiver is configured for that.
"""

import hashlib
import json
import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from evaltap.evaluator.monitoring.history import Alert
from evaltap.evaluator.monitoring.model import explanation, joined_text, summary
from evaltap.evaluator.monitoring.rules import SEVERITIES
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import Json
from evaltap.schemas.formats.monitor import MonitorFile, Watch
from evaltap.schemas.text import utc_text

NOT_ENDED: Final = "0001-01-01T00:00:00Z"
"""Alertmanager's end time of an alarm that is on."""
_LONGEST_SLACK: Final = 3_000


@dataclass(frozen=True, slots=True)
class Notice:
    """An alarm that has begun, is still firing, or has ended."""

    alert: Alert
    began_at: datetime
    """UTC, without a time zone, in the time of the traffic."""
    watch: Watch
    evidence_url: str = ""
    """The page of one of its cases."""
    database: str = ""
    repeated: bool = False
    excerpts: tuple[str, ...] = ()
    """Redacted excerpts of some of its cases, for receivers that are configured for content."""

    @property
    def status(self) -> str:
        """firing or resolved."""
        return self.alert.event.status

    @property
    def summary(self) -> str:
        """The alarm as a sentence."""
        return summary(self.alert.event)

    @property
    def description(self) -> str:
        """The changed slices, the alarms of the same cause, and the command that lists the cases."""
        event = self.alert.event
        lines = [explanation(one, event) for one in event.changed]
        lines += [joined_text(one) for one in event.also]
        if event.cases_filter:
            lines.append(f"evaltap cases {self.database} {shlex.quote(event.cases_filter)}")
        lines += self.excerpts
        return "\n".join(lines)

    @property
    def severity(self) -> str:
        """critical, error, warning or info."""
        return self.watch.severity if self.watch.severity in SEVERITIES else "warning"

    @property
    def labels(self) -> dict[str, str]:
        """The labels that identify the alarm."""
        found = {
            "alertname": f"evaltap_{self.watch.signal}",
            "watch": self.watch.name,
            "signal": self.watch.signal,
            "metric": self.watch.metric,
            "severity": self.severity,
            "quantile": f"{self.alert.event.quantile:g}" if self.alert.event.quantile else "",
            **self.watch.where,
            **self.alert.event.slice,
        }
        return {name: value for name, value in found.items() if value}

    @property
    def fingerprint(self) -> str:
        """Identifies the watch and slice, whenever the alarm began."""
        return hashlib.sha256(json.dumps(self.labels, sort_keys=True).encode()).hexdigest()[:16]


def evidence_page(rules: MonitorFile, watch: Watch, alert: Alert, store: StoreReader) -> str:
    """Return the address of the page of an alert's first case; empty if there is none."""
    if not rules.evidence_url or not alert.event.cases:
        return ""
    case = alert.event.cases[0]
    app = watch.where.get("app") or alert.event.slice.get("app")
    if not app:
        # The newest one, if several share the case's id.
        newest = (
            "SELECT app_name FROM latest_cases WHERE eval_id = ? ORDER BY landed_at DESC LIMIT 1"
        )
        app = next(iter(store.column(newest, [case])), None)
    return rules.evidence_url.format(app=quote(app or "-", safe=""), eval_id=quote(case, safe=""))


def alertmanager(notice: Notice) -> list[Json]:
    """Return the body of Alertmanager's /api/v2/alerts."""
    found = {
        "labels": notice.labels,
        "annotations": {"summary": notice.summary, "description": notice.description},
        "startsAt": utc_text(notice.began_at),
    }
    if notice.status == "resolved":
        found["endsAt"] = utc_text(datetime.now(UTC))
    return [found | ({"generatorURL": notice.evidence_url} if notice.evidence_url else {})]


def webhook(notice: Notice) -> Json:
    """Return the body that Alertmanager sends to webhooks, plus the row of `monitor alerts --json`."""
    ended = notice.alert.event.at if notice.status == "resolved" else None
    annotations = {"summary": notice.summary, "description": notice.description}
    one = {
        "status": notice.status,
        "labels": notice.labels,
        "annotations": annotations,
        "startsAt": utc_text(notice.began_at),
        "endsAt": NOT_ENDED if ended is None else utc_text(ended),
        "generatorURL": notice.evidence_url,
        "fingerprint": notice.fingerprint,
    }
    return {
        "version": "4",
        "groupKey": f"{{}}:{{watch={json.dumps(notice.watch.name)}}}",
        "status": notice.status,
        "receiver": "evaltap",
        "groupLabels": {"watch": notice.watch.name},
        "commonLabels": notice.labels,
        "commonAnnotations": annotations,
        "externalURL": "",
        "truncatedAlerts": 0,
        "alerts": [one],
        "evaltap": {**notice.alert.data(), "repeated": notice.repeated},
    }


def slack(notice: Notice) -> Json:
    """Return a message for an incoming webhook of Slack."""
    sign = "resolved" if notice.status == "resolved" else notice.severity.upper()
    text = _slack_text(f"{sign}: {notice.summary}")
    blocks: list[Json] = [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]
    if notice.description:
        shown = f"```{_slack_text(notice.description)[: _LONGEST_SLACK - 6]}```"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": shown}})
    return {"text": text, "blocks": blocks}


def pagerduty(notice: Notice, routing_key: str) -> Json:
    """Return an event of PagerDuty's Events API v2; one alarm is one incident."""
    found: dict[str, Json] = {
        "routing_key": routing_key,
        "event_action": "resolve" if notice.status == "resolved" else "trigger",
        "dedup_key": notice.alert.alert_id,
        "client": "evaltap",
    }
    if notice.status != "resolved":
        found["payload"] = {
            "summary": notice.summary[:1024],
            "source": "evaltap",
            "severity": notice.severity,
            "timestamp": utc_text(notice.began_at),
            "component": notice.watch.name,
            "class": notice.watch.signal,
            "custom_details": {**notice.labels, "description": notice.description},
        }
        if notice.evidence_url:
            found["links"] = [{"href": notice.evidence_url, "text": "a case"}]
    return found


def _slack_text(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped[:_LONGEST_SLACK]
