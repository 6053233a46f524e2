"""Which models the judged metrics of a file ask, told without loading what asks them."""

from evaltap.schemas.metric import EvalMetric, JudgeModel, LlmJudgeCriterion


def judge_models(criterion: LlmJudgeCriterion) -> list[JudgeModel | None]:
    """Return the models of all judges of a metric: its own, its panel, the second of its cascade."""
    models: list[JudgeModel | None] = [criterion.judge_model, *criterion.panel]
    if criterion.cascade is not None:
        models.append(criterion.cascade.judge_model)
    return models


def judge_models_of(metric: EvalMetric) -> list[JudgeModel | None]:
    """Return the models that a metric asks, with those of the metrics in its suite."""
    criterion = metric.criterion
    if criterion is None:
        return []
    models = judge_models(criterion.llm_judge) if criterion.llm_judge else []
    suite = criterion.suite.metrics if criterion.suite else []
    return [*models, *(model for part in suite for model in judge_models_of(part))]
