"""Criteria of evaltap's own: trajectories, rules, grading, text, operations, embeddings, adapters.

`docs/reference/evaluators` says what each evaluator reads.
"""

from typing import Annotated

from pydantic import Field

from evaltap.schemas.formats.case import Tool
from evaltap.schemas.formats.model import AnyValue, FreeObject, Keep, Map, WireModel


class PathRule(WireModel):
    """How the value at one path is compared, and what it weighs among its siblings.

    A path names keys from the outside in, with dots between them: `filter.date`.  `*` stands for any
    key, or for each item of a list.
    """

    path: str = ""
    weight: Annotated[float | None, Keep] = None
    """Share in the score of the enclosing object, relative to the other keys; 1 when not given."""
    ignore: bool = False
    required: bool = False
    """When this path differs, the whole value scores 0."""
    match: str = ""
    """Empty or `exact`, `regex` (the reference is an RE2 pattern), `set` (a list without order and
    repetition), `present` (any value)."""
    tolerance: Annotated[float | None, Keep] = None
    """Largest absolute difference of two equal numbers."""
    case_fold: bool = False
    coerce: bool = False
    """A text that is a number equals that number."""


class ValueCriterion(WireModel):
    """How alike two JSON values are: the arguments of two calls, two results, two states."""

    mode: str = ""
    """Empty or `exact`, `ignore`, `subset` (the actual value may lack keys of the reference),
    `superset` (it may have more)."""
    keys: list[str] = Field(default_factory=list)
    """Only these paths are compared; all when empty."""
    paths: list[PathRule] = Field(default_factory=list)
    tolerance: Annotated[float | None, Keep] = None
    case_fold: bool = False
    coerce: bool = False


class EditCosts(WireModel):
    """What the steps of an edit script cost; 1 each when not given, and no swaps."""

    insert: Annotated[float | None, Keep] = None
    delete: Annotated[float | None, Keep] = None
    substitute: Annotated[float | None, Keep] = None
    """For calls to different tools; one to the same tool costs 1 minus the likeness."""
    swap: Annotated[float | None, Keep] = None
    """For two neighbours in the wrong order; without it there are no swaps."""


class TrajectoryReference(WireModel):
    """One trajectory that would have been right."""

    tools: list[Tool] = Field(default_factory=list)


class TrajectoryCriterion(WireModel):
    """What the evaluators of the trajectory suite are told; each reads the part it needs."""

    arguments: ValueCriterion | None = None
    tool_arguments: Annotated[dict[str, ValueCriterion], Map] = Field(default_factory=dict)
    """Takes the place of `arguments` for calls to the named tool."""
    results: ValueCriterion | None = None
    state: ValueCriterion | None = None
    ordered: bool = False
    attempts: str = ""
    """`all`, `successful` or `final`; each evaluator has its own default."""
    agents: str = ""
    """Empty or `flattened`, `per_agent`."""
    references: list[TrajectoryReference] = Field(default_factory=list)
    """Trajectories that are right besides the expected turn's own; the best one counts."""
    costs: EditCosts | None = None
    forbidden: list[str] = Field(default_factory=list)
    required_tools: list[str] = Field(default_factory=list)
    max_calls: Annotated[int | None, Keep] = None
    max_calls_per_tool: Annotated[dict[str, int], Map] = Field(default_factory=dict)
    optimal_steps: Annotated[int | None, Keep] = None
    repeats: Annotated[int | None, Keep] = None
    """From how many repetitions on it is a loop; 3 when not given."""
    max_period: Annotated[int | None, Keep] = None
    """Longest sequence of calls whose repetition is looked for; 4 when not given."""
    unchanged_retries: bool = False
    """Count a repetition with the same arguments as a recovery, too."""
    max_states: Annotated[int | None, Keep] = None
    """How many ways to go on the search over partial orders tries for each call; 5000 when not given."""


class LexicalCriterion(WireModel):
    """How alike the letters of the final response and of the expected one are."""

    algorithm: str = ""
    """Empty or `dice`, `jaro_winkler`, `levenshtein`."""
    case_sensitive: bool = False
    keep_space: bool = False
    """Compare white space as it is; otherwise each run of it counts as one space."""


class KeywordsCriterion(WireModel):
    """Which keywords the final response should hold, and how they are looked for."""

    source: str = ""
    """Empty or `config` (`values`), `reference` (the words of the expected final response), `context`
    (a list of texts, or a text with commas, at `path` in the case)."""
    values: list[str] = Field(default_factory=list)
    path: str = ""
    """Where keywords stand in the case: `$.sessionInput.state.keywords`."""
    min_length: Annotated[int | None, Keep] = None
    """Shortest word of a reference that is a keyword; 4 letters when not given."""
    partial: bool = False
    """A keyword may be part of a longer word."""
    case_sensitive: bool = False
    keep_space: bool = False


class SentimentCriterion(WireModel):
    """The tone of one text of a turn, by a lexicon of English words."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`."""
    mode: str = ""
    """Empty or `normalized` (0 to 1), `comparative` (valence per word), `raw` (sum of valences),
    `category`."""
    categories: list[str] = Field(default_factory=list)
    """Of `category`: those that are right, of `positive`, `neutral` and `negative`."""
    min: Annotated[float | None, Keep] = None
    """Of `comparative` and `raw`: the lowest value that is right."""
    max: Annotated[float | None, Keep] = None


class ToxicWordsCriterion(WireModel):
    """Words that must not stand in one text of a turn."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`."""
    values: list[str] = Field(default_factory=list)
    languages: list[str] = Field(default_factory=list)
    """Languages whose word list of the package glin-profanity counts as well: `english`, `german`, ..."""
    allowed: list[str] = Field(default_factory=list)
    """Words of those lists that are allowed here."""
    partial: bool = False
    """A value may be part of a longer word."""


class OperationsCriterion(WireModel):
    """Upper bounds, inclusive; each evaluator reads those it is named for."""

    max_cost_usd: Annotated[float | None, Keep] = None
    max_seconds: Annotated[float | None, Keep] = None
    max_tokens: Annotated[int | None, Keep] = None
    max_input_tokens: Annotated[int | None, Keep] = None
    max_output_tokens: Annotated[int | None, Keep] = None
    whole_case: bool = False
    """Bound the sum over all turns; otherwise each turn."""


class ToolUse(WireModel):
    """What is wanted of the calls to one tool."""

    name: str = ""
    optional: bool = False
    """It need not be called, but its calls must be as told."""
    arguments: AnyValue = None
    """Some call must have at least these arguments; with `optional` each call must."""
    min_calls: Annotated[int | None, Keep] = None
    max_calls: Annotated[int | None, Keep] = None


class ToolUseCriterion(WireModel):
    """Which tools a turn must use, and how."""

    tools: list[ToolUse] = Field(default_factory=list)
    no_others: bool = False
    """Calls to tools that are not named count as a fault."""
    attempts: str = ""
    """Empty or `successful`, `final`, `all`."""


class FunctionCriterion(WireModel):
    """A Python function that scores one turn."""

    path: str = ""
    """`package.module:function`; the module is imported, so it can do whatever you can."""


class CommandCriterion(WireModel):
    """A command that reads a case as JSON and writes a score for each turn as JSON."""

    argv: list[str] = []
    """The program and its arguments; no shell reads them."""
    timeout_seconds: Annotated[float | None, Keep] = None
    """For one case, 30 when not given; the command and its children are then killed."""
    memory_mb: Annotated[int | None, Keep] = None
    """Memory that each process may claim, 1024 when not given; 0 for no limit."""
    env: list[str] = []
    """Environment variables that are passed on besides PATH, HOME, LANG, LC_ALL, TMPDIR and TZ."""
    cost_class: str = ""
    """Empty or `free`, `local_model`, `paid_judge`: what a run of the command costs."""


class DeepEvalCriterion(WireModel):
    """A metric of the package DeepEval."""

    metric: str = ""
    """A class of `deepeval.metrics`, or `package.module:Class`."""
    parameters: FreeObject = {}
    """What its constructor takes; `{"$python": "package.module:name"}` stands for a Python object."""
    context_path: str = ""
    """Where `context` (a list of texts) stands in the case: `$.sessionInput.state.context`."""
    retrieval_tools: list[str] = []
    """Tools whose results are the retrieval context."""


class Rule(WireModel):
    """One check of one text; which fields it reads depends on its type.

    exact: `value`.  contains: `values` and `mode`.  regex: `value`, in RE2 syntax, anywhere.
    length: `min` and `max` in code points.  json: optionally `schema`.  keywords: `values`, as
    whole words, scored by the share that occurs.
    """

    id: str = ""
    type: str = ""
    """exact | contains | regex | length | json | keywords."""
    value: Annotated[str | None, Keep] = None
    values: list[str] = Field(default_factory=list)
    mode: str = ""
    """For contains: empty or `any`, `all`, `fraction` (the share of values that occur)."""
    case_insensitive: bool = False
    negate: bool = False
    """Turn the score round, for what must not be there."""
    min: Annotated[int | None, Keep] = None
    max: Annotated[int | None, Keep] = None
    schema_: AnyValue = Field(default=None, alias="schema")
    weight: Annotated[float | None, Keep] = None
    """Share in the score relative to the other rules; 1 when not given."""


class RulesCriterion(WireModel):
    """Rules over one text of a turn; the turn's score is the weighted mean of the rules' scores."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`."""
    rules: list[Rule] = Field(default_factory=list)


class GradedCriterion(WireModel):
    """One question to the judge, the scale of its answer, and its share in the overall score."""

    id: str = ""
    text: str = ""
    scale: str = ""
    """Empty or `binary` (0 or 1), `likert5` (1 to 5), `numeric` (`min` to `max`), `pass_fail`,
    `custom` (one of `labels`)."""
    min: Annotated[float | None, Keep] = None
    """Of `numeric`: the lowest answer, 0 when not given."""
    max: Annotated[float | None, Keep] = None
    """Of `numeric`: the highest answer, 10 when not given."""
    labels: Annotated[dict[str, float], Map] = {}
    """Of `custom`: each answer that is allowed, and the score from 0 to 1 it stands for."""
    weight: Annotated[float | None, Keep] = None
    """Share in the score relative to the other criteria; 1 when not given."""


class GradingCriterion(WireModel):
    """Criteria with scales; the turn's score is the weighted mean of the normalised answers."""

    criteria: list[GradedCriterion] = Field(default_factory=list)
    with_reference: bool = False
    """Show the judge the expected final response as well."""
    with_tools: bool = False
    """Show the judge the tool calls as well."""


class EmbeddingModel(WireModel):
    """The model that turns texts into vectors.  A key is never part of it: the environment has it."""

    provider_name: str = ""
    """Empty or `openai` (any OpenAI-compatible endpoint), `wordllama` (weights on this machine)."""
    model_name: str = ""
    base_url: str = ""


class EmbeddingCriterion(WireModel):
    """How near the final response is to the expected one in the space of a model."""

    model: EmbeddingModel | None = None
