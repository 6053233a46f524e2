"""What a criterion asks of its judges: the jurors, their samples, and what answers must contain."""

from collections import Counter
from collections.abc import Sequence

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.judge import DEFAULT_GENERATION
from evaltap.evaluator.scoring.evaluators.judged.panel import Juror
from evaltap.evaluator.scoring.evaluators.judged.rubric_prompt import RubricExtras
from evaltap.evaluator.scoring.evaluators.judged.samples import samples_of
from evaltap.schemas.formats.case import Rubric
from evaltap.schemas.formats.metric import JudgeModel, LlmJudgeCriterion


def jurors_of(
    criterion: LlmJudgeCriterion, models: Sequence[JudgeModel | None]
) -> tuple[tuple[Juror, ...], Juror | None]:
    """Return the jurors that are always asked, and the one for uncertain verdicts, if any."""
    jurors: list[Juror] = []
    first = 0
    for place, model in enumerate(models):
        samples = samples_of(model)
        generation = model.generation_config if model else None
        name = "judge" if place == 0 else f"panel-{place}"
        jurors.append(Juror(place, name, first, samples, generation or DEFAULT_GENERATION))
        first += samples
    if criterion.cascade is None:
        return tuple(jurors), None
    return tuple(jurors[:-1]), jurors[-1]._replace(name="second")


def extras_of(criterion: LlmJudgeCriterion, *, rubrics: bool) -> RubricExtras:
    """Return what answers must contain; raises MetricError for settings that need `rubrics`."""
    evidence = criterion.evidence
    if evidence not in ("", "flag", "require"):
        raise MetricError(f"llmJudge.evidence is '{evidence}'; expected flag or require")
    confidence = criterion.cascade is not None and criterion.cascade.min_confidence > 0
    if (evidence or confidence) and not rubrics:
        raise MetricError("evidence and minConfidence are for the evaluators that ask rubrics")
    return RubricExtras(evidence, confidence)


def check_rubrics(rubrics: Sequence[Rubric]) -> None:
    """Raise MetricError when a rubric's id is blank or given twice."""
    ids = Counter(rubric.id.strip() for rubric in rubrics if rubric.content)
    if "" in ids:
        raise MetricError("a rubric has a blank id; give each rubric its own id")
    doubled = [name for name, count in ids.items() if count > 1]
    if doubled:
        raise MetricError(f"two rubrics have the id {doubled[0]}; give each rubric its own id")
