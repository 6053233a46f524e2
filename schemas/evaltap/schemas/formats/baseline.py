"""Baselines: how often each case passed each metric, the content of a `baseline.json` in git."""

from typing import Annotated

from evaltap.schemas.formats.model import Always, Keep, Map, WireModel


class BaselineMetric(WireModel):
    """A metric version that the counts are of."""

    metric_name: str = ""
    digest: str = ""
    """Empty: not known; nothing then says whether another run used the same version."""
    threshold: Annotated[float | None, Keep] = None


class BaselineCase(WireModel):
    """A case: `5/5` is five passes of five trials."""

    app_name: str = ""
    eval_set_id: str = ""
    eval_id: str = ""
    content: str = ""
    """Names its input and expectation; empty: not known."""
    passed: Annotated[dict[str, str], Map] = {}
    """By metric, `passes/trials`; trials without a verdict are left out."""
    scores: Annotated[dict[str, list[float]], Map] = {}
    """By metric that has scores and no verdict: one for each trial."""
    cost_usd: Annotated[float | None, Keep] = None
    """Geometric mean over trials."""
    latency_ms: Annotated[float | None, Keep] = None
    """Geometric mean over trials."""


class BaselineFile(WireModel):
    """The runs that others are compared with."""

    format: Annotated[str, Always] = ""
    """`evaltap.baseline/1`."""
    runs: Annotated[int, Always] = 0
    metrics: list[BaselineMetric] = []
    cases: list[BaselineCase] = []
