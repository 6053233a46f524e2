"""evaltap's own criteria: trajectories, rules, grading, text, operations, embeddings, adapters.

`docs/reference/evaluators` documents what each evaluator reads.
"""

from typing import Annotated

from pydantic import Field

from evaltap.schemas.formats.case import Tool
from evaltap.schemas.formats.model import AnyValue, FreeObject, Keep, Map, WireModel


class PathRule(WireModel):
    """How to compare the value at one path, and its weight among its siblings.

    A path lists keys from the outside in, separated by dots: `filter.date`. `*` matches any key, or
    each item of a list.
    """

    path: str = ""
    weight: Annotated[float | None, Keep] = None
    """Share in the score of the enclosing object, relative to the other keys; default 1."""
    ignore: bool = False
    required: bool = False
    """When this path differs, the whole value scores 0."""
    match: str = ""
    """Empty or `exact`, `regex` (the reference is an RE2 pattern), `set` (a list ignoring order and
    repetition), `present` (any value)."""
    tolerance: Annotated[float | None, Keep] = None
    """Maximum absolute difference between two numbers to count as equal."""
    case_fold: bool = False
    coerce: bool = False
    """Treat a text containing a number as that number."""


class ValueCriterion(WireModel):
    """How to compare two JSON values: the arguments of two calls, two results, two states."""

    mode: str = ""
    """Empty or `exact`, `ignore`, `subset` (the actual value may lack keys of the reference),
    `superset` (it may have more)."""
    keys: list[str] = []
    """Compare only these paths; all when empty."""
    paths: list[PathRule] = []
    tolerance: Annotated[float | None, Keep] = None
    case_fold: bool = False
    coerce: bool = False


class EditCosts(WireModel):
    """Costs of the steps of an edit script; default 1 each, and no swaps."""

    insert: Annotated[float | None, Keep] = None
    delete: Annotated[float | None, Keep] = None
    substitute: Annotated[float | None, Keep] = None
    """For calls to different tools; a call to the same tool costs 1 minus the similarity."""
    swap: Annotated[float | None, Keep] = None
    """For two neighbors in the wrong order; without it there are no swaps."""


class TrajectoryReference(WireModel):
    """One trajectory that would have been correct."""

    tools: list[Tool] = []


class TrajectoryCriterion(WireModel):
    """Settings for the trajectory evaluators; each reads the part it needs."""

    arguments: ValueCriterion | None = None
    tool_arguments: Annotated[dict[str, ValueCriterion], Map] = {}
    """Replaces `arguments` for calls to the named tool."""
    results: ValueCriterion | None = None
    state: ValueCriterion | None = None
    ordered: bool = False
    attempts: str = ""
    """`all`, `successful` or `final`; each evaluator has its own default."""
    agents: str = ""
    """Empty or `flattened`, `per_agent`."""
    references: list[TrajectoryReference] = []
    """Correct trajectories besides the expected turn's own; the best match counts."""
    costs: EditCosts | None = None
    forbidden: list[str] = []
    required_tools: list[str] = []
    max_calls: Annotated[int | None, Keep] = None
    max_calls_per_tool: Annotated[dict[str, int], Map] = {}
    optimal_steps: Annotated[int | None, Keep] = None
    repeats: Annotated[int | None, Keep] = None
    """Number of repetitions that make a loop; default 3."""
    max_period: Annotated[int | None, Keep] = None
    """Longest sequence of calls checked for repetition; default 4."""
    unchanged_retries: bool = False
    """Count a repetition with the same arguments as a recovery, too."""
    max_states: Annotated[int | None, Keep] = None
    """Maximum states that the search over partial orders explores per call; default 5000."""


class LexicalCriterion(WireModel):
    """How to compare the final response with the expected one, by characters or words."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`, or a path in the turn or its case: `$.tools[0].result`."""
    reference: str = ""
    """The same for the expected turn: the text to compare with."""
    algorithm: str = ""
    """Empty or `dice`, `jaro_winkler`, `levenshtein`, `rouge1`."""
    case_sensitive: bool = False
    keep_space: bool = False
    """Compare white space exactly; otherwise each run of it counts as one space."""


class KeywordsCriterion(WireModel):
    """Which keywords the final response should contain, and how to search for them."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`, or a path in the turn or its case."""
    source: str = ""
    """Empty or `config` (`values`), `reference` (the words of the expected final response), `context`
    (a list of texts, or a text with commas, at `path` in the case)."""
    values: list[str] = []
    path: str = ""
    """Path of the keywords in the expected turn or, if that lacks its first key, in the case:
    `$.sessionInput.state.keywords`."""
    min_length: Annotated[int | None, Keep] = None
    """Minimum length of a reference's word to be a keyword; default 4 letters."""
    partial: bool = False
    """A keyword may be part of a longer word."""
    case_sensitive: bool = False
    keep_space: bool = False


class SentimentCriterion(WireModel):
    """The tone of one text of a turn, by a lexicon of English words."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`, or a path in the turn or its case."""
    mode: str = ""
    """Empty or `normalized` (0 to 1), `comparative` (valence per word), `raw` (sum of valences),
    `category`."""
    categories: list[str] = []
    """For `category`: the accepted ones among `positive`, `neutral` and `negative`."""
    positive_from: Annotated[float | None, Keep] = None
    """For `category`: the lowest compound value that is positive; default 0.05."""
    negative_from: Annotated[float | None, Keep] = None
    """For `category`: the highest compound value that is negative; default -0.05."""
    lexicon: str = ""
    """Empty or `vader`, `afinn` (the word list of the package afinn, without VADER's rules)."""
    min: Annotated[float | None, Keep] = None
    """For `comparative` and `raw`: the lowest accepted value."""
    max: Annotated[float | None, Keep] = None


class ToxicWordsCriterion(WireModel):
    """Words that must not occur in one text of a turn."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`, or a path in the turn or its case."""
    values: list[str] = []
    languages: list[str] = []
    """Languages whose word lists in the package glin-profanity apply as well: `english`, `german`, ..."""
    allowed: list[str] = []
    """Words of those lists that are allowed here."""
    partial: bool = False
    """A value may be part of a longer word."""
    case_sensitive: bool = False
    """Applies to `values`; the lists of languages ignore case."""


class OperationsCriterion(WireModel):
    """Upper bounds, inclusive; each evaluator reads those named after it."""

    max_cost_usd: Annotated[float | None, Keep] = None
    max_seconds: Annotated[float | None, Keep] = None
    max_tokens: Annotated[int | None, Keep] = None
    max_input_tokens: Annotated[int | None, Keep] = None
    max_output_tokens: Annotated[int | None, Keep] = None
    whole_case: bool = False
    """Limit the sum over all turns instead of each turn."""


class ToolUse(WireModel):
    """Requirements on the calls to one tool."""

    name: str = ""
    optional: bool = False
    """It need not be called, but its calls must meet the requirements."""
    arguments: AnyValue = None
    """Some call must have at least these arguments; with `optional` each call must."""
    paths: list[PathRule] = []
    """How `arguments` are compared: by regular expression, with a tolerance, ..."""
    function: str = ""
    """`package.module:function` of a call's arguments: true, false or what is wrong with them.  It is
    required of the calls like `arguments`."""
    min_calls: Annotated[int | None, Keep] = None
    max_calls: Annotated[int | None, Keep] = None


class ToolUseCriterion(WireModel):
    """Which tools a turn must use, and how."""

    tools: list[ToolUse] = []
    no_others: bool = False
    """Calls to tools that are not listed count as a fault."""
    attempts: str = ""
    """Empty or `successful`, `final`, `all`."""


class FunctionCriterion(WireModel):
    """A Python function that scores one turn."""

    path: str = ""
    """`package.module:function`; importing the module runs its code with your permissions."""


class CommandCriterion(WireModel):
    """A command that reads a case as JSON and writes one score per turn as JSON."""

    argv: list[str] = []
    """The program and its arguments; no shell is involved."""
    timeout_seconds: Annotated[float | None, Keep] = None
    """Per case, default 30; on timeout the command and its children are killed."""
    memory_mb: Annotated[int | None, Keep] = None
    """Memory limit of each process, default 1024; 0 for no limit."""
    env: list[str] = []
    """Environment variables to pass on besides PATH, HOME, LANG, LC_ALL, TMPDIR and TZ."""
    cost_class: str = ""
    """Empty or `free`, `local_model`, `paid_judge`: what running the command costs."""


class DeepEvalCriterion(WireModel):
    """A metric of the package DeepEval."""

    metric: str = ""
    """A class of `deepeval.metrics`, or `package.module:Class`."""
    parameters: FreeObject = {}
    """Its constructor arguments; `{"$python": "package.module:name"}` refers to a Python object."""
    context_path: str = ""
    """Path of `context` (a list of texts) in the case: `$.sessionInput.state.context`."""
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
    values: list[str] = []
    mode: str = ""
    """For contains: empty or `any`, `all`, `fraction` (the share of values that occur)."""
    case_insensitive: bool = False
    negate: bool = False
    """Invert the score, for text that must not occur."""
    min: Annotated[int | None, Keep] = None
    max: Annotated[int | None, Keep] = None
    schema_: AnyValue = Field(default=None, alias="schema")
    weight: Annotated[float | None, Keep] = None
    """Share in the score relative to the other rules; default 1."""


class RulesCriterion(WireModel):
    """Rules over one text of a turn; the turn's score is the weighted mean of the rules' scores."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`, or a path in the turn or its case."""
    rules: list[Rule] = []


class GradedCriterion(WireModel):
    """One question to the judge, the scale of its answer, and its share in the overall score."""

    id: str = ""
    text: str = ""
    scale: str = ""
    """Empty or `binary` (0 or 1), `likert5` (1 to 5), `numeric` (`min` to `max`), `pass_fail` or
    `pass/fail`, `custom` (one of `labels`), or a description of several words, whose answers are kept as
    text and not scored."""
    min: Annotated[float | None, Keep] = None
    """For `numeric`: the lowest answer, default 0."""
    max: Annotated[float | None, Keep] = None
    """For `numeric`: the highest answer, default 10."""
    labels: Annotated[dict[str, float], Map] = {}
    """For `custom`: each allowed answer, with its score from 0 to 1."""
    weight: Annotated[float | None, Keep] = None
    """Share in the score relative to the other criteria; default 1."""


class GradingCriterion(WireModel):
    """Criteria with scales; the turn's score is the weighted mean of the normalized answers."""

    criteria: list[GradedCriterion] = []
    with_reference: bool = False
    """Show the judge the expected final response as well."""
    with_tools: bool = False
    """Show the judge the tool calls as well."""


class CompressionCriterion(WireModel):
    """How much shorter the final response must be than the user's message."""

    max: Annotated[float | None, Keep] = None
    """The highest share of the message's words that the response may have."""


class FeedbackCriterion(WireModel):
    """Which feedback of users counts, and from when it is positive."""

    name: str = ""
    """The question that was asked, such as `thumbs`; any when empty."""
    min: Annotated[float | None, Keep] = None
    """The lowest score that is positive; without it, thumbs up are positive."""


class EmbeddingModel(WireModel):
    """The model that turns texts into vectors. Keys come from the environment, never from here."""

    provider_name: str = ""
    """Empty or `openai` (any OpenAI-compatible endpoint), `wordllama` (local weights)."""
    model_name: str = ""
    base_url: str = ""


class EmbeddingCriterion(WireModel):
    """How to compare the final response with the expected one by embedding similarity."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`, or a path in the turn or its case."""
    reference: str = ""
    """The same for the expected turn: the text to compare with."""
    model: EmbeddingModel | None = None
