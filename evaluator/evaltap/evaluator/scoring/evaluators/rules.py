"""`rule_avg_score`: the weighted share of deterministic rules that a text of each turn meets.

It needs neither a reference nor a judge, so it suits recorded traffic without labels.  An invalid rule
(unknown type, missing value, invalid pattern) raises MetricError when the metric is built: rules are written
by hand, and a typing error must not look like a failure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.cases.json_text import parse
from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.aggregation import weighted_mean
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    Finding,
    MissingEvidence,
    TurnEvaluator,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.lexical import normalized
from evaltap.evaluator.scoring.criteria.content.text import compile_length, lower, search
from evaltap.evaluator.scoring.criteria.content.tokenizers import IN_A_WORD, WITHOUT_SPACES
from evaltap.evaluator.scoring.criteria.content.turn_text import text_at
from evaltap.schemas.formats.criteria import Rule
from evaltap.schemas.formats.metric import EvalMetric, LengthCriterion
from evaltap.schemas.text import did_you_mean_one_of, nearest

Checked = tuple[float, str]
"""A score in [0, 1] and a reason."""
Check = Callable[[str], Checked]

_WORD = re.compile(rf"[{WITHOUT_SPACES}]|{IN_A_WORD}+")


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """A rule ready for use: its id, its weight and its check."""

    id: str
    weight: float
    check: Check

    def verdict(self, text: str) -> RubricVerdict:
        """Return the rule's score of a text."""
        score, reason = self.check(text)
        return RubricVerdict(self.id, score, reason)


def compile_rules(rules: list[Rule]) -> list[CompiledRule]:
    """Return the compiled rules; raise MetricError if one of them is invalid."""
    if not rules:
        raise MetricError("criterion.rules has no rules; add at least one")
    seen: set[str] = set()
    compiled = []
    for place, rule in enumerate(rules):
        where = f"rules[{place}]"
        if not rule.id.strip():
            raise MetricError(f"{where} has a blank id; give each rule an id of its own")
        if rule.id in seen:
            raise MetricError(f"{where} has the id '{rule.id}' again; give each rule its own")
        seen.add(rule.id)
        if (make := _TYPES.get(rule.type)) is None:
            raise MetricError(f"{where} '{rule.id}' has type '{rule.type}'; {_meant(rule.type)}")
        weight = 1.0 if rule.weight is None else rule.weight
        if not 0 <= weight < float("inf"):
            raise MetricError(f"{where} '{rule.id}' has weight {weight}; expected 0 or more")
        try:
            _only_its_own(rule)
            check = make(rule)
        except ValueError as error:
            raise MetricError(f"{where} '{rule.id}' ({rule.type}): {error}") from None
        compiled.append(CompiledRule(rule.id, weight, _negated(check) if rule.negate else check))
    if not sum(rule.weight for rule in compiled):
        raise MetricError("all rules have weight 0; give one of them a positive weight")
    return compiled


def _meant(kind: str) -> str:
    """Suggest the type that was probably meant; `not_contains` is `contains` with `negate`."""
    plain = re.sub("^not[_ -]?", "", kind)
    if plain != kind and (known := nearest(plain, _TYPES)):
        return f'use "type": "{known}" with "negate": true'
    return did_you_mean_one_of(kind, _TYPES)


def _only_its_own(rule: Rule) -> None:
    """Raise ValueError for a value that only rules of another type read."""
    for name, field in type(rule).model_fields.items():
        readers = [kind for kind, read in _READ.items() if name in read]
        if readers and rule.type not in readers and getattr(rule, name) not in (None, "", []):
            raise ValueError(
                f"{field.alias or name} is read by {' and '.join(readers)} only; take it out"
            )


def _negated(check: Check) -> Check:
    def negated(text: str) -> Checked:
        score, reason = check(text)
        return 1.0 - score, f"must not hold: {reason}"

    return negated


def _exact(rule: Rule) -> Check:
    value = _required_value(rule)
    fold = lower if rule.case_insensitive else _same
    wanted = fold(value)

    def check(text: str) -> Checked:
        if fold(text) == wanted:
            return 1.0, "equal"
        return 0.0, f"found {quoted(text)}, expected {quoted(value)}"

    return check


def _contains(rule: Rule) -> Check:
    values = _required_values(rule)
    mode = rule.mode or "any"
    if mode not in ("any", "all", "fraction"):
        raise ValueError(f"mode is '{mode}'; expected any, all or fraction")
    fold = lower if rule.case_insensitive else _same
    folded = [fold(value) for value in values]

    def check(text: str) -> Checked:
        body = fold(text)
        found = [value for value, key in zip(values, folded, strict=True) if key in body]
        score = len(found) / len(values)
        if mode != "fraction":
            score = float(len(found) == len(values) if mode == "all" else bool(found))
        return score, _shares("contains", found, rule)

    return check


def _regex(rule: Rule) -> Check:
    pattern = _required_value(rule)
    # A flag instead of lower-casing: no other tool's format must be matched here.
    expression = f"(?i){pattern}" if rule.case_insensitive else pattern
    search(expression, "")

    def check(text: str) -> Checked:
        found = search(expression, text)
        return float(found), f"{'matches' if found else 'does not match'} {quoted(pattern)}"

    return check


def _length(rule: Rule) -> Check:
    if rule.min is None and rule.max is None:
        raise ValueError("neither min nor max is given; give at least one")
    low, high = rule.min or 0, rule.max
    if low < 0 or (high is not None and high < low):
        raise ValueError(f"min is {rule.min} and max is {rule.max}; expected 0 <= min <= max")
    measure = compile_length(LengthCriterion(min=rule.min, max=rule.max))

    def check(text: str) -> Checked:
        reason = measure(text)
        return (1.0, f"length {len(text)}") if reason is None else (0.0, reason)

    return check


def _json(rule: Rule) -> Check:
    schema = None
    if rule.schema_ is not None:
        from evaltap.evaluator.scoring.criteria.content.json_schema import (
            compile_schema,
            schema_problem,
        )

        if (problem := schema_problem(rule.schema_)) is not None:
            raise ValueError(problem)
        schema = compile_schema(rule.schema_)

    def check(text: str) -> Checked:
        try:
            value = parse(text, exact=True)
        except ValueError as error:
            return 0.0, f"not valid JSON: {error}"
        reason = schema(value) if schema else None
        return (1.0, "valid JSON") if reason is None else (0.0, reason)

    return check


def _keywords(rule: Rule) -> Check:
    values = _required_values(rule)

    def words(text: str) -> str:
        plain = normalized(text, case_sensitive=not rule.case_insensitive, keep_space=True)
        return f" {' '.join(_WORD.findall(plain))} "

    phrases = [*map(words, values)]
    for value, phrase in zip(values, phrases, strict=True):
        if not phrase.strip():
            raise ValueError(f"keyword {value!r} has no letters or digits; use contains instead")

    def check(text: str) -> Checked:
        body = words(text)
        found = [value for value, phrase in zip(values, phrases, strict=True) if phrase in body]
        return len(found) / len(values), _shares("covers", found, rule)

    return check


_TYPES: Final[dict[str, Callable[[Rule], Check]]] = {
    "exact": _exact,
    "contains": _contains,
    "regex": _regex,
    "length": _length,
    "json": _json,
    "keywords": _keywords,
}

_READ: Final = {
    "exact": ("value",),
    "contains": ("values", "mode"),
    "regex": ("value",),
    "length": ("min", "max"),
    "json": ("schema_",),
    "keywords": ("values",),
}
"""The fields that each type reads in addition to those common to all types."""


def _shares(verb: str, found: list[str], rule: Rule) -> str:
    """Return how many of a rule's values were found, and those that break it."""
    wrong = found if rule.negate else [value for value in rule.values if value not in found]
    named = ", ".join(map(repr, wrong))
    shares = f"{verb} {len(found)} of {len(rule.values)}"
    if not wrong:
        return shares
    return f"{shares}: {named}" if rule.negate else f"{shares}; missing: {named}"


def _required_value(rule: Rule) -> str:
    if rule.value is None:
        raise ValueError("value is missing; give the text to compare with")
    if not rule.value and rule.type == "regex":
        raise ValueError("value is empty, and found in every text; give a pattern")
    return rule.value


def _required_values(rule: Rule) -> list[str]:
    if not rule.values:
        raise ValueError("values is empty; give at least one text")
    if "" in rule.values:
        raise ValueError("values has an empty text, which is found in every text; take it out")
    return rule.values


def _same(text: str) -> str:
    return text


class Rules(TurnEvaluator):
    """Checks one text of each turn against every rule.

    Raises MetricError if `criterion.rules` is missing or a rule is invalid.
    """

    name = "rule_avg_score"
    version = "3"

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.rules, "rules")
        self._target = text_at(criterion.target, "rules.target")
        self.needs = self._target.needs
        self._rules = compile_rules(criterion.rules)
        self._weights = [rule.weight for rule in self._rules]

    def score(self, turn: Turn, expected: Turn, case: Case) -> Finding | MissingEvidence:
        """Return the weighted mean of the rules' scores."""
        text = self._target.of(turn, case)
        if isinstance(text, MissingEvidence):
            return text
        verdicts = tuple(rule.verdict(text) for rule in self._rules)
        score = weighted_mean([verdict.score for verdict in verdicts], self._weights)
        broken = [f"{verdict.id}: {verdict.reason}" for verdict in verdicts if verdict.score < 1]
        return Finding(score, "; ".join(broken), verdicts)
