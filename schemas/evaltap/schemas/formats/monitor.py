"""What is watched in live traffic: the content of a monitoring file.  Unknown keys are errors."""

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from evaltap.schemas.formats.model import Always, Keep, WireModel

Share = Annotated[float, Always, Field(ge=0, le=1)]
Chance = Annotated[float, Always, Field(gt=0, lt=1)]


class StrictModel(WireModel):
    """A model that refuses keys that it does not know: a setting that does nothing hides for months."""

    model_config = ConfigDict(extra="forbid")


class Watch(StrictModel):
    """One share of turns that must not rise."""

    name: str = ""
    signal: str = "pass_rate"
    """`pass_rate`, `error_rate`, `silence`, ...: those of `evaltap estimate --signal`."""
    metric: str = ""
    """Of `pass_rate`, `not_scored` and `judge_disagreement`."""
    where: dict[str, str] = {}
    """Only turns of these slices: `{"app": "shop"}`."""
    by: list[str] = []
    """Watch the values of a slice one by one, too."""
    smallest_change: Share = 0.0
    """A rise up to this, from 0 to 1, is no change."""
    baseline_days: Annotated[int, Always, Field(ge=7, le=366)] = 14
    false_alarms_per_month: Annotated[Chance | None, Keep] = None
    """None: its part of the file's."""
    below: Annotated[float | None, Keep, Field(ge=0, le=1)] = None
    """A fixed limit in place of what is usual: the share may not be below it."""
    above: Annotated[float | None, Keep, Field(ge=0, le=1)] = None
    """A fixed limit in place of what is usual: the share may not be above it."""
    hours: Annotated[int, Keep, Field(ge=1, le=8784)] = 24
    """Of a fixed limit: the window."""
    minutes: Annotated[int, Keep, Field(ge=1)] = 30
    """Of `silence`: so long without a turn."""
    severity: str = ""
    """A label of its alerts: critical, error, warning (when empty) or info."""
    silenced_until: str = ""
    """A time, as 2026-11-24T18:00:00Z.

    Until then nobody is told of its alarms, as during work that is known; they are stored all
    the same.
    """

    @property
    def silence_ends(self) -> datetime | None:
        """The end of `silenced_until`, aware; None without one.  Raises ValueError for what is no time."""
        if not self.silenced_until:
            return None
        found = datetime.fromisoformat(self.silenced_until)
        if found.tzinfo is None:
            raise ValueError(f"{self.silenced_until} has no zone")
        return found

    @property
    def has_limit(self) -> bool:
        """Whether it has a fixed limit, and learns nothing."""
        return self.below is not None or self.above is not None


class Condition(StrictModel):
    """What a turn is like; all that is given must hold."""

    error: Annotated[bool | None, Keep] = None
    """Whether its run or one of its tools failed."""
    negative_feedback: Annotated[bool | None, Keep] = None
    slower_than_ms: Annotated[float | None, Keep] = None
    costlier_than_usd: Annotated[float | None, Keep] = None
    more_steps_than: Annotated[int | None, Keep] = None
    """Tool calls."""
    failed: str = ""
    """A metric that it failed, which is scored first."""


class Budget(StrictModel):
    """What the judges of a rule may cost a day (UTC)."""

    usd_per_day: Annotated[float | None, Keep, Field(gt=0)] = None
    calls_per_day: Annotated[int | None, Keep, Field(gt=0)] = None


class ScoreRule(StrictModel):
    """Which metrics score which turns of live traffic, and at which rate."""

    name: str = ""
    metrics: list[str] = []
    rate: Share = 1.0
    unit: str = ""
    """turn (when empty) or session: what shares a draw."""
    where: dict[str, str] = {}
    """Only turns of these slices, as of a watch."""
    always: list[Condition] = []
    """Turns of which one of these holds are scored whatever the rate."""
    budget: Budget | None = None


class AlertReceiver(StrictModel):
    """Who is told when an alarm begins and when it has ended.  Secrets are named: `${NAME}`."""

    type: str = ""
    """webhook, alertmanager, slack, pagerduty or command."""
    name: str = ""
    """What the deliveries are kept under; when empty the type and the place in the file."""
    url: str = ""
    headers: dict[str, str] = {}
    routing_key: str = ""
    """Of pagerduty."""
    argv: list[str] = []
    """Of command: a program and its arguments, without a shell."""
    allow_private: bool = False
    """Whether the host may be in a private network."""
    content: bool = False
    """Whether it is told what was said in some cases, redacted."""
    repeat_hours: Annotated[float, Always, Field(gt=0)] = 24.0
    """How often it is told of an alarm that goes on."""


class MonitorFile(StrictModel):
    """What is scored, what is watched, how many false alarms there may be, and who is told."""

    false_alarms_per_month: Chance = 0.05
    quiet_minutes: Annotated[int, Always, Field(ge=1, le=1440)] = 30
    """So long without a turn, and a session counts for the watches."""
    score: list[ScoreRule] = []
    watch: list[Watch] = []
    alerts: list[AlertReceiver] = []
    evidence_url: str = ""
    """A page about a case, for alerts: `https://host/cases/{app}/{eval_id}`."""
