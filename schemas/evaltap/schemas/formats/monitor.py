"""What to monitor in live traffic: the content of a monitoring file. Unknown keys are errors."""

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from evaltap.schemas.formats.model import Always, Keep, WireModel

Share = Annotated[float, Always, Field(ge=0, le=1)]
Chance = Annotated[float, Always, Field(gt=0, lt=1)]


class StrictModel(WireModel):
    """A model that rejects unknown keys: a setting without effect could go unnoticed for months."""

    model_config = ConfigDict(extra="forbid")


class Watch(StrictModel):
    """A share of turns, or a mean of their values, that must not get worse."""

    name: str = ""
    signal: str = "pass_rate"
    """`pass_rate`, `error_rate`, ...: those of `evaltap estimate --signal`; or `silence`, `mean_cost`, ..."""
    metric: str = ""
    """For `pass_rate`, `not_scored`, `judge_disagreement` and `mean_score`."""
    where: dict[str, str] = {}
    """Only turns of these slices: `{"app": "shop"}`."""
    by: list[str] = []
    """Also watch each value of a slice separately."""
    smallest_change: Share = 0.0
    """A rise up to this, from 0 to 1, does not count; for cost, latency and tokens, a part of the mean."""
    baseline_days: Annotated[int, Always, Field(ge=7, le=366)] = 14
    false_alarms_per_month: Annotated[Chance | None, Keep] = None
    """None: a share of the file's."""
    below: Annotated[float | None, Keep, Field(ge=0)] = None
    """A fixed limit instead of a learned one: the share or mean must not be below it."""
    above: Annotated[float | None, Keep, Field(ge=0)] = None
    """A fixed limit instead of a learned one: the share or mean must not be above it.

    Of costs in US dollars, of latencies in milliseconds; otherwise, of shares and scores, from 0 to 1.
    """
    hours: Annotated[int, Keep, Field(ge=1, le=8784)] = 24
    """For a fixed limit: the window."""
    minutes: Annotated[int, Keep, Field(ge=1)] = 30
    """For `silence`: the time without a turn."""
    severity: str = ""
    """Severity label of its alerts: critical, error, warning (when empty) or info."""
    silenced_until: str = ""
    """A time, as 2026-11-24T18:00:00Z.

    Until then its alarms are stored but not sent, as during planned maintenance.
    """

    @property
    def silence_ends(self) -> datetime | None:
        """The aware time of `silenced_until`, or None; raises ValueError when it is invalid."""
        if not self.silenced_until:
            return None
        found = datetime.fromisoformat(self.silenced_until)
        if found.tzinfo is None:
            raise ValueError(f"{self.silenced_until} has no time zone")
        return found

    @property
    def has_limit(self) -> bool:
        """Whether it has a fixed limit, and no learned one."""
        return self.below is not None or self.above is not None


class Condition(StrictModel):
    """Properties of a turn; all given ones must hold."""

    error: Annotated[bool | None, Keep] = None
    """Whether its run or one of its tools failed."""
    negative_feedback: Annotated[bool | None, Keep] = None
    slower_than_ms: Annotated[float | None, Keep] = None
    costlier_than_usd: Annotated[float | None, Keep] = None
    more_steps_than: Annotated[int | None, Keep] = None
    """Tool calls."""
    failed: str = ""
    """A metric that it failed; that metric is scored first."""


class Budget(StrictModel):
    """What a rule's judges may cost per day (UTC)."""

    usd_per_day: Annotated[float | None, Keep, Field(gt=0)] = None
    calls_per_day: Annotated[int | None, Keep, Field(gt=0)] = None


class ScoreRule(StrictModel):
    """Which metrics score which turns of live traffic, and at which rate."""

    name: str = ""
    metrics: list[str] = []
    rate: Share = 1.0
    unit: str = ""
    """turn (when empty) or session: the unit of the random draw."""
    where: dict[str, str] = {}
    """Only turns of these slices, as in a watch."""
    always: list[Condition] = []
    """Turns that meet one of these are always scored, regardless of the rate."""
    budget: Budget | None = None


class AlertReceiver(StrictModel):
    """A receiver of alerts when an alarm starts and ends. Secrets are referenced: `${NAME}`."""

    type: str = ""
    """webhook, alertmanager, slack, pagerduty or command."""
    name: str = ""
    """Key under which deliveries are stored; when empty the type and the position in the file."""
    url: str = ""
    headers: dict[str, str] = {}
    routing_key: str = ""
    """For pagerduty."""
    argv: list[str] = []
    """For command: a program and its arguments, without a shell."""
    allow_private: bool = False
    """Whether the host may be in a private network."""
    content: bool = False
    """Whether alerts include redacted excerpts of some cases."""
    repeat_hours: Annotated[float, Always, Field(gt=0)] = 24.0
    """How often to repeat the alert for a continuing alarm."""


class MonitorFile(StrictModel):
    """What to score, what to watch, how many false alarms to allow, and whom to alert."""

    false_alarms_per_month: Chance = 0.05
    quiet_minutes: Annotated[int, Always, Field(ge=1, le=1440)] = 30
    """Time without a turn after which a session counts for the watches."""
    score: list[ScoreRule] = []
    watch: list[Watch] = []
    alerts: list[AlertReceiver] = []
    evidence_url: str = ""
    """A page about a case, linked in alerts: `https://host/cases/{app}/{eval_id}`."""
