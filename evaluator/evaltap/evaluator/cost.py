"""What an evaluator costs: nothing but time, a model on this machine, or calls that are paid for."""

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaltap.evaluator.registry import Evaluator
    from evaltap.schemas.metric import EvalMetric


class CostClass(StrEnum):
    """The classes, cheapest first."""

    FREE = "free"
    LOCAL_MODEL = "local_model"
    PAID_JUDGE = "paid_judge"


def cost_class_of(metric: "EvalMetric", evaluator: "Evaluator") -> CostClass:
    """Return the class of a metric.

    An evaluator may say it by an attribute `cost_class`; otherwise a metric with `llmJudge` asks a
    judge, and any other is free.
    """
    given = getattr(evaluator, "cost_class", None)
    if given is not None:
        return CostClass(given)
    judged = metric.criterion is not None and metric.criterion.llm_judge is not None
    return CostClass.PAID_JUDGE if judged else CostClass.FREE
