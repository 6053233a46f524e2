"""What is watched in live traffic: the content of a monitoring file.  Unknown keys are errors."""

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
    minutes: Annotated[int, Keep, Field(ge=1)] = 30
    """Of `silence`: so long without a turn."""


class MonitorFile(StrictModel):
    """Watches, and how many false alarms all of them may raise."""

    false_alarms_per_month: Chance = 0.05
    watch: list[Watch] = []
