"""Baselines: how often each case passed each metric; the content of a `baseline.json` in git."""

from typing import Annotated

from evaltap.schemas.formats.model import Always, Keep, Map, WireModel


class BaselineMetric(WireModel):
    """The metric version that the counts refer to."""

    metric_name: str = ""
    digest: str = ""
    """Empty: unknown, so it is undecidable whether another run used the same version."""
    threshold: Annotated[float | None, Keep] = None


class BaselineCase(WireModel):
    """A case: `5/5` is five passes of five trials."""

    app_name: str = ""
    eval_set_id: str = ""
    eval_id: str = ""
    content: str = ""
    """Hashes of the inputs of its turns, joined by `-`, each with that of what is expected, if known, after a
    `.`; a last `-` if its run failed there.  Empty: unknown."""
    passed: Annotated[dict[str, str], Map] = {}
    """By metric, `passes/trials`; excludes trials without a verdict."""
    scores: Annotated[dict[str, list[float]], Map] = {}
    """For metrics with scores but no verdict: one score per trial."""
    cost_usd: Annotated[float | None, Keep] = None
    """Geometric mean over trials."""
    latency_ms: Annotated[float | None, Keep] = None
    """Geometric mean over trials."""


class BaselineFile(WireModel):
    """The runs to compare others with."""

    format: Annotated[str, Always] = ""
    """`evaltap.baseline/2`."""
    runs: Annotated[int, Always] = 0
    metrics: list[BaselineMetric] = []
    cases: list[BaselineCase] = []
