"""`tool_use`: the share of requirements on tool calls that a turn meets, without a reference."""

from collections.abc import Sequence

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import Finding, TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.calls.attempts import calls_of, check_attempts, select
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.schemas.formats.criteria import ToolUse, ValueCriterion
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted


class ToolUseChecks(TurnEvaluator):
    """Checks the calls of each turn against the requirements on each tool.

    Raises MetricError if `criterion.toolUse` is missing or invalid.
    """

    name = "tool_use"

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.tool_use, "toolUse")
        self._tools = criterion.tools
        self._no_others = criterion.no_others
        if not self._tools:
            raise MetricError("criterion.toolUse.tools is empty; name at least one tool")
        for tool in self._tools:
            low, high = tool.min_calls or 0, tool.max_calls
            if not tool.name or low < 0 or (high is not None and high < low):
                raise MetricError(
                    f"criterion.toolUse.tools has name '{tool.name}', minCalls {tool.min_calls}, "
                    f"maxCalls {high}; expected a name and 0 <= minCalls <= maxCalls"
                )
        self._attempts = check_attempts(criterion.attempts, "successful")
        self._similarity = Similarity(ValueCriterion(mode="superset"))
        wants_arguments = any(tool.arguments is not None for tool in self._tools)
        self.needs = ("tools.name", "tools.arguments") if wants_arguments else ("tools.name",)

    def score(self, turn: Turn, expected: Turn, case: Case) -> Finding:
        """Return the share of fulfilled requirements."""
        calls = select(calls_of(turn), self._attempts)
        rows = [self._verdict(tool, calls) for tool in self._tools]
        if self._no_others:
            named = {tool.name for tool in self._tools}
            others = sorted({call.get("name") or "" for call in calls} - named)
            rows.append(RubricVerdict("no others", float(not others), ", ".join(others)))
        score = sum(row.score for row in rows) / len(rows)
        reason = "; ".join(f"{row.id}: {row.reason}" for row in rows if row.score < 1)
        return Finding(score, reason, tuple(rows))

    def _verdict(self, tool: ToolUse, calls: Sequence[AnyCall]) -> RubricVerdict:
        own = [call for call in calls if call.get("name") == tool.name]
        low = tool.min_calls if tool.min_calls is not None else int(not tool.optional)
        if len(own) < low:
            return RubricVerdict(tool.name, 0.0, f"{counted(len(own), 'call')}, at least {low}")
        if tool.max_calls is not None and len(own) > tool.max_calls:
            return RubricVerdict(
                tool.name, 0.0, f"{counted(len(own), 'call')}, at most {tool.max_calls}"
            )
        if tool.arguments is None or not own:
            return RubricVerdict(tool.name, 1.0, f"{counted(len(own), 'call')}")
        scores = [self._similarity.pair(tool.arguments, call.get("arguments")) for call in own]
        score = min(scores) if tool.optional else max(scores)
        reason = "arguments as wanted" if score == 1 else "other arguments than wanted"
        return RubricVerdict(tool.name, score, reason)
