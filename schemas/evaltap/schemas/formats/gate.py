"""Gates: what a case must reach in several dimensions before it may pass, the content of a gate file."""

from typing import Annotated

from evaltap.schemas.formats.criteria import GradedCriterion
from evaltap.schemas.formats.metric import EvalMetric, JudgeModel
from evaltap.schemas.formats.model import Keep, WireModel


class GateDimension(WireModel):
    """One side of quality: the mean of its metrics, and of its criteria as one of them."""

    name: str = ""
    """`correctness`, `quality`, `safety`, `change_safety`, or a name of your own."""
    threshold: Annotated[float | None, Keep] = None
    """From 0 to 1; EVALTAP_GATE_<NAME> goes before it."""
    metrics: list[EvalMetric] = []
    criteria: list[GradedCriterion] = []
    """Answered by the gate's judge."""
    with_reference: bool = False
    with_tools: bool = False


class GateFile(WireModel):
    """The dimensions of a gate, and the judge of their criteria."""

    judge_model: JudgeModel | None = None
    dimensions: list[GateDimension] = []
