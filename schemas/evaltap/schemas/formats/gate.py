"""Gates: what a case must reach in several dimensions before it may pass, the content of a gate file."""

from typing import Annotated

from pydantic import model_validator

from evaltap.schemas.formats.criteria import GradedCriterion
from evaltap.schemas.formats.metric import EvalMetric, JudgeModel
from evaltap.schemas.formats.model import Keep, WireModel


class GateDimension(WireModel):
    """One side of quality: the mean of its metrics, and of its criteria as one of them."""

    name: str = ""
    """`correctness`, `quality`, `safety`, `change_safety`, or a name of your own."""
    threshold: Annotated[float | None, Keep] = None
    """From 0 to 1; EVALTAP_GATE_<NAME> goes before it.  null: the dimension only informs."""
    informs: bool = False
    """Scored and shown, and whatever it scores, the case may pass."""
    metrics: list[EvalMetric] = []
    criteria: list[GradedCriterion] = []
    """Answered by the gate's judge."""
    with_reference: bool = False
    with_tools: bool = False

    @model_validator(mode="before")
    @classmethod
    def _read_null(cls, data: object) -> object:
        # Elsewhere null is as good as not given, and a threshold that was forgotten is a mistake.
        if isinstance(data, dict) and "threshold" in data and data["threshold"] is None:
            return {"informs": True, **data}
        return data


class GateFile(WireModel):
    """The dimensions of a gate, and the judge of their criteria."""

    judge_model: JudgeModel | None = None
    dimensions: list[GateDimension] = []
