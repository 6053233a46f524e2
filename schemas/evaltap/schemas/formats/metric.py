"""Metrics and their criteria: the content of `<id>.metrics.json`, a JSON array of metrics.

Field names, order and defaults are those of tRPC-Agent-Go's metrics file;
`docs/reference/evaluators` explains the criteria. An API key is read and never written; a `${NAME}`
reference stays unresolved until the judge is used.
"""

import re
from typing import Annotated

from pydantic import Field, SecretStr, SerializationInfo, field_serializer, field_validator

from evaltap.schemas.formats.case import Rubric
from evaltap.schemas.formats.criteria import (
    CommandCriterion,
    CompressionCriterion,
    DeepEvalCriterion,
    EmbeddingCriterion,
    FeedbackCriterion,
    FunctionCriterion,
    GradingCriterion,
    KeywordsCriterion,
    LexicalCriterion,
    OperationsCriterion,
    RulesCriterion,
    SentimentCriterion,
    ToolUseCriterion,
    ToxicWordsCriterion,
    TrajectoryCriterion,
)
from evaltap.schemas.formats.message import SnakeModel
from evaltap.schemas.formats.model import Always, AnyValue, FreeObject, Keep, Map, WireModel

_REFERENCE = re.compile(r"\$(\{\w+\}|\w+)")


class LengthCriterion(WireModel):
    """Inclusive bounds on the length of the actual text, in code points."""

    ignore: bool = False
    min: Annotated[int | None, Keep] = None
    max: Annotated[int | None, Keep] = None


class TextCriterion(WireModel):
    """How to compare two texts."""

    ignore: bool = False
    case_insensitive: bool = False
    match_strategy: str = ""
    """Empty or `exact`, `contains`, `regex`, `skip`."""
    length: LengthCriterion | None = None
    compare_name: str = ""


class JsonCriterion(WireModel):
    """How to compare two JSON values."""

    ignore: bool = False
    ignore_tree: FreeObject = {}
    only_tree: FreeObject = {}
    match_strategy: str = ""
    """Empty or `exact`, `skip`."""
    number_tolerance: Annotated[float | None, Keep] = None
    """Maximum absolute difference between two numbers to count as equal; default 1e-6."""
    valid: bool = False
    schema_: AnyValue = Field(default=None, alias="schema")
    compare_name: str = ""


class RougeThreshold(WireModel):
    """Lower bounds of precision, recall and F1; all must hold."""

    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0


class RougeCriterion(WireModel):
    """ROUGE overlap of the final response with its reference."""

    ignore: bool = False
    rouge_type: str = ""
    measure: str = ""
    threshold: Annotated[RougeThreshold, Always] = RougeThreshold()
    use_stemmer: bool = False
    split_summaries: bool = False
    tokenizer_name: str = ""


class XmlCriterion(WireModel):
    """Whether the final response is one XML document."""

    ignore: bool = False
    valid: bool = False
    match_strategy: str = ""


class ToolTrajectoryStrategy(WireModel):
    """How to compare one pair of tool calls; absent parts are not compared."""

    name: TextCriterion | None = None
    arguments: JsonCriterion | None = None
    result: JsonCriterion | None = None


class ToolTrajectoryCriterion(WireModel):
    """How to match a turn's tool calls with the expected ones."""

    default_strategy: ToolTrajectoryStrategy | None = None
    tool_strategy: Annotated[dict[str, ToolTrajectoryStrategy], Map] = {}
    order_sensitive: bool = False
    subset_matching: bool = False
    compare_name: str = ""


class FinalResponseCriterion(WireModel):
    """How to compare the final response with the expected one; every given part must match."""

    text: TextCriterion | None = None
    json_: JsonCriterion | None = Field(default=None, alias="json")
    rouge: RougeCriterion | None = None
    xml: XmlCriterion | None = None
    compare_name: str = ""


class GenerationConfig(SnakeModel):
    """Parameters of the judge's generation."""

    max_tokens: Annotated[int | None, Keep] = None
    temperature: Annotated[float | None, Keep] = None
    top_p: Annotated[float | None, Keep] = None
    stream: Annotated[bool, Always] = False
    stop: list[str] = []
    presence_penalty: Annotated[float | None, Keep] = None
    frequency_penalty: Annotated[float | None, Keep] = None
    logprobs: Annotated[bool | None, Keep] = None
    top_logprobs: Annotated[int | None, Keep] = None
    reasoning_effort: Annotated[str | None, Keep] = None
    thinking_enabled: Annotated[bool | None, Keep] = None
    thinking_tokens: Annotated[int | None, Keep] = None
    thinking_level: Annotated[str | None, Keep] = None
    # evaltap's own
    seed: Annotated[int | None, Keep] = None
    """Sent plus the sample's number, so that samples differ."""


class JudgePrices(WireModel):
    """Prices of a judge's tokens, in USD per million."""

    input_per_million: Annotated[float, Always] = 0.0
    output_per_million: Annotated[float, Always] = 0.0


class JudgeModel(WireModel):
    """The judge model, at an OpenAI-compatible endpoint.

    `provider_name`, `model_name`, `variant`, `base_url` and `api_key` may contain `$NAME` or
    `${NAME}`; only the judge client expands them, when it is created.
    """

    provider_name: str = ""
    model_name: str = ""
    variant: str = ""
    base_url: str = Field(default="", alias="baseURL")
    api_key: SecretStr | None = Field(default=None, repr=False)
    extra_fields: FreeObject = {}
    num_samples: Annotated[int | None, Keep] = None
    generation_config: GenerationConfig | None = None
    # evaltap's own
    prices: JudgePrices | None = None

    @field_validator("api_key", mode="before")
    @classmethod
    def _hide_key(cls, value: object) -> object:
        return SecretStr(value) if isinstance(value, str) else value

    @field_serializer("api_key")
    def _write_reference_only(self, value: SecretStr | None, _: SerializationInfo) -> str | None:
        # A reference only names the key; nothing else may be written, and only to a metrics file.
        text = value.get_secret_value() if value else ""
        return text if _REFERENCE.fullmatch(text) else None


class OtherJudge(JudgeModel):
    """A judge in addition to the metric's own; the environment only fills in missing fields."""


class Cascade(WireModel):
    """A second judge for turns on which the first one is uncertain."""

    judge_model: OtherJudge | None = None
    margin: float = 0.0
    """A score closer than this to the threshold is uncertain; samples that disagree always are."""
    min_confidence: float = 0.0
    """Rubrics: request a confidence in [0, 1]; below this one the answer is uncertain."""


class TemplateCategory(WireModel):
    """A label that the judge may answer, with its score."""

    label: str = ""
    score: Annotated[float, Always] = 0.0


class ResponseScorerOptions(WireModel):
    """Options of a response scorer."""

    categories: list[TemplateCategory] = []
    # evaltap's own
    min: Annotated[float | None, Keep] = None
    """For `single_score`: the lowest answer, default 0."""
    max: Annotated[float | None, Keep] = None
    """For `single_score`: the highest answer, default 1."""


class VariableSelector(WireModel):
    """Chooses one step of an execution trace."""

    node_id: str = Field(default="", alias="nodeID")


class VariableSource(WireModel):
    """Where a template variable gets its value."""

    scope: str = ""
    field: str = ""
    selector: VariableSelector | None = None
    path: str = ""


class VariableBinding(WireModel):
    """Binds one `{{variable}}` of a judge template."""

    template_variable: str = ""
    source: VariableSource | None = None


class JudgeTemplate(WireModel):
    """A custom judge prompt, with its bindings, scorer and aggregators."""

    prompt: str = ""
    response_scorer_name: str = ""
    structured_output_name: str = ""
    response_scorer_options: ResponseScorerOptions | None = None
    variable_bindings: list[VariableBinding] = []
    sample_aggregator_name: str = ""
    invocation_aggregator_name: str = ""


class LlmJudgeCriterion(WireModel):
    """What to ask a judge, and which judge."""

    rubrics: list[Rubric] = []
    judge_model: JudgeModel | None = None
    sample_parallelism_enabled: bool = False
    sample_parallelism: Annotated[int | None, Keep] = None
    template: JudgeTemplate | None = None
    # evaltap's own
    sample_aggregator_name: str = ""
    """How samples are combined: empty or `majority_vote`, `average`, or a name of your own."""
    early_stop: bool = False
    """Request no more samples than needed to decide the majority."""
    evidence: str = ""
    """Quotes for rubrics: empty (not requested), `flag` (marked when not in the trace) or `require`."""
    panel: list[OtherJudge] = []
    """Additional judges besides `judge_model`; the majority of judges decides."""
    cascade: Cascade | None = None
    retrieval_tools: list[str] = []
    """`llm_rubric_knowledge_recall`: tools whose results are the retrieved knowledge (empty:
    tRPC-Agent-Go's default)."""


class Criterion(WireModel):
    """The criterion of a metric: it must contain the part that the evaluator reads."""

    tool_trajectory: ToolTrajectoryCriterion | None = None
    final_response: FinalResponseCriterion | None = None
    llm_judge: LlmJudgeCriterion | None = None
    # evaltap's own
    rules: RulesCriterion | None = None
    trajectory: TrajectoryCriterion | None = None
    lexical: LexicalCriterion | None = None
    keywords: KeywordsCriterion | None = None
    operations: OperationsCriterion | None = None
    tool_use: ToolUseCriterion | None = None
    grading: GradingCriterion | None = None
    embedding: EmbeddingCriterion | None = None
    feedback: FeedbackCriterion | None = None
    compression: CompressionCriterion | None = None
    sentiment: SentimentCriterion | None = None
    toxic_words: ToxicWordsCriterion | None = None
    function: FunctionCriterion | None = None
    command: CommandCriterion | None = None
    deepeval: DeepEvalCriterion | None = None
    suite: "SuiteCriterion | None" = None


class EvalMetric(WireModel):
    """One metric: which evaluator, its threshold and its criterion."""

    metric_name: str = ""
    evaluator_name: str = ""
    """Uses another evaluator than the one with the metric's name."""
    threshold: float = 0.0
    criterion: Criterion | None = None
    extension: AnyValue = None
    # evaltap's own
    weight: Annotated[float | None, Keep] = None
    """Share in the overall score of a case relative to the other metrics; default 1."""


class SuiteCriterion(WireModel):
    """Metrics that run in sequence and count as one."""

    metrics: list[EvalMetric] = []


def without_key(criterion: Criterion) -> Criterion:
    """Return the criterion without the keys of its judges, including references to them."""
    if criterion.suite is not None:
        metrics = [
            metric.model_copy(update={"criterion": without_key(metric.criterion)})
            if metric.criterion
            else metric
            for metric in criterion.suite.metrics
        ]
        suite = criterion.suite.model_copy(update={"metrics": metrics})
        criterion = criterion.model_copy(update={"suite": suite})
    if (judge := criterion.llm_judge) is None:
        return criterion
    update: dict[str, object] = {}
    if judge.judge_model is not None and judge.judge_model.api_key is not None:
        update["judge_model"] = _keyless(judge.judge_model)
    if judge.panel:
        update["panel"] = [_keyless(member) for member in judge.panel]
    if judge.cascade is not None and judge.cascade.judge_model is not None:
        second = _keyless(judge.cascade.judge_model)
        update["cascade"] = judge.cascade.model_copy(update={"judge_model": second})
    if not update:
        return criterion
    return criterion.model_copy(update={"llm_judge": judge.model_copy(update=update)})


def _keyless(model: JudgeModel) -> JudgeModel:
    return model.model_copy(update={"api_key": None})
