"""Gates: what a case must reach in several dimensions to pass; the content of a gate file."""

from typing import Annotated

from pydantic import model_validator

from evaltap.schemas.formats.criteria import GradedCriterion
from evaltap.schemas.formats.metric import EvalMetric, JudgeModel
from evaltap.schemas.formats.model import Keep, WireModel


class GateDimension(WireModel):
    """One dimension of quality: the mean of its metrics, with its criteria counting as one of them."""

    name: str = ""
    """`correctness`, `quality`, `safety`, `change_safety`, or a name of your own."""
    threshold: Annotated[float | None, Keep] = None
    """From 0 to 1; EVALTAP_GATE_<NAME> overrides it. null: the dimension is informational."""
    informs: bool = False
    """Scored and reported, but never blocks the case."""
    text: str = ""
    """Instead of metrics and criteria: what the gate's judge grades from 0 to 1.  One call grades all such
    dimensions and says whether the answer passes as a whole."""
    metrics: list[EvalMetric] = []
    criteria: list[GradedCriterion] = []
    """Answered by the gate's judge."""
    with_reference: bool = False
    with_tools: bool = False

    @model_validator(mode="before")
    @classmethod
    def _read_null(cls, data: object) -> object:
        # Elsewhere null means "not given", but a forgotten threshold is a mistake.
        if isinstance(data, dict) and "threshold" in data and data["threshold"] is None:
            return {"informs": True, **data}
        return data


class GateFile(WireModel):
    """The dimensions of a gate, and the judge of their criteria."""

    preset: str = ""
    """Empty or `traceflow`: dimensions to begin with; one in `dimensions` replaces that of the same name."""
    judge_model: JudgeModel | None = None
    dimensions: list[GateDimension] = []
