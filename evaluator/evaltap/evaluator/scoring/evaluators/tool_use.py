"""`tool_use`: the share of requirements on tool calls that a turn meets, without a reference."""

from collections.abc import Callable, Sequence
from statistics import fmean

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.comparisons import ComparisonError, checking
from evaltap.evaluator.scoring.contract.context import RubricVerdict, Status, TurnScore
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.named import load_function, source_digest
from evaltap.evaluator.scoring.contract.turn_evaluator import Finding, TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.calls.attempts import calls_of, check_attempts, select
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.schemas.data import Json
from evaltap.schemas.formats.criteria import ToolUse, ValueCriterion
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted


class ToolUseChecks(TurnEvaluator):
    """Checks the calls of each turn against the requirements on each tool.

    Raises MetricError if `criterion.toolUse` is missing or invalid.
    """

    name = "tool_use"
    version = "2"

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.tool_use, "toolUse")
        self._tools = criterion.tools
        self._no_others = criterion.no_others
        if not self._tools:
            raise MetricError("criterion.toolUse.tools is empty; name at least one tool")
        for tool in self._tools:
            low, high = _least(tool), tool.max_calls
            if not tool.name or low < 0 or (high is not None and high < low):
                raise MetricError(
                    f"criterion.toolUse.tools has name '{tool.name}', minCalls {low}, maxCalls {high};"
                    " expected a name and 0 <= minCalls <= maxCalls (minCalls of an optional tool: 0)"
                )
        self._attempts = check_attempts(criterion.attempts, "successful")
        self._wishes = [_Wish(tool, place) for place, tool in enumerate(self._tools)]
        wants_arguments = any(wish.reads_arguments for wish in self._wishes)
        digests = [wish.digest for wish in self._wishes if wish.digest]
        self.version = ".".join([self.version, *digests])
        self.needs = ("tools.name", "tools.arguments") if wants_arguments else ("tools.name",)

    def score(self, turn: Turn, expected: Turn, case: Case) -> Finding | TurnScore:
        """Return the share of fulfilled requirements."""
        calls = select(calls_of(turn), self._attempts)
        try:
            rows = [wish.verdict(calls) for wish in self._wishes]
        except ComparisonError as error:
            return TurnScore(Status.ERROR, reason=str(error))
        if self._no_others:
            named = {tool.name for tool in self._tools}
            others = sorted({call.get("name") or "" for call in calls} - named)
            rows.append(RubricVerdict("no others", float(not others), ", ".join(others)))
        score = fmean(row.score for row in rows)
        reason = "; ".join(f"{row.id}: {row.reason}" for row in rows if row.score < 1)
        return Finding(score, reason, tuple(rows))


def _least(tool: ToolUse) -> int:
    """Return how often a tool must be called."""
    return int(not tool.optional) if tool.min_calls is None else tool.min_calls


class _Wish:
    """The compiled requirements on the calls to one tool."""

    def __init__(self, tool: ToolUse, place: int) -> None:
        where = f"toolUse.tools[{place}]"
        if tool.paths and tool.arguments is None:
            raise MetricError(f"{where}: paths say how arguments are compared; add arguments")
        self._tool = tool
        self._similarity = Similarity(ValueCriterion(mode="superset", paths=tool.paths))
        self._check: Callable[[object], str | None] | None = None
        self.digest = ""
        self.reads_arguments = tool.arguments is not None or bool(tool.function)
        if tool.function:
            function = load_function(tool.function, f"{where}.function")
            self._check = checking(f"function '{tool.function}'", function)
            self.digest = source_digest(function)

    def verdict(self, calls: Sequence[AnyCall]) -> RubricVerdict:
        """Return the score of a turn's calls and what is wrong with them."""
        tool = self._tool
        own = [call for call in calls if call.get("name") == tool.name]
        low = _least(tool)
        if len(own) < low:
            return RubricVerdict(tool.name, 0.0, f"{counted(len(own), 'call')}, at least {low}")
        if tool.max_calls is not None and len(own) > tool.max_calls:
            return RubricVerdict(
                tool.name, 0.0, f"{counted(len(own), 'call')}, at most {tool.max_calls}"
            )
        if not self.reads_arguments or not own:
            return RubricVerdict(tool.name, 1.0, f"{counted(len(own), 'call')}")
        found = [self._arguments(call.get("arguments")) for call in own]
        found.sort(key=lambda one: -one[0])
        # As many calls must have the arguments as there must be calls; of an optional tool, all must.
        score, reason = found[-1 if tool.optional else max(low, 1) - 1]
        return RubricVerdict(tool.name, score, reason)

    def _arguments(self, given: Json) -> tuple[float, str]:
        if self._check is not None and (wrong := self._check(given)) is not None:
            return 0.0, wrong
        if self._tool.arguments is None:
            return 1.0, "arguments as wanted"
        score = self._similarity.pair(self._tool.arguments, given)
        return score, "arguments as wanted" if score == 1 else "other arguments than wanted"
