"""Comparisons and ROUGE tokenizers of your own, which criteria name: `compareName`, `tokenizerName`.

A package provides them through entry points in the groups `evaltap.comparisons` and `evaltap.tokenizers`,
a program through `Registry(comparisons=Comparisons(…))`.  They are called from several threads concurrently.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.named import find, source_digest

COMPARISON_GROUP: Final = "evaltap.comparisons"
TOKENIZER_GROUP: Final = "evaltap.tokenizers"

Kind = Literal["text", "json", "toolTrajectory", "finalResponse"]
Tokenizer = Callable[[str], Sequence[str]]
"""Returns the words of a text in order."""
Check = Callable[[Any, Any], str | None]  # texts, JSON values or turns
"""Compares (actual, expected); returns None for a match, otherwise the reason of the mismatch."""


class ComparisonError(Exception):
    """Report a comparison or tokenizer that failed, or returned something else than a result."""


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Functions of (actual, expected) by the name that a criterion gives them, and tokenizers.

    A function returns True for a match, otherwise False or the reason of the mismatch.  Those given here
    override installed ones.
    """

    text: Mapping[str, Callable[[str, str], bool | str]] = field(default_factory=dict)
    json: Mapping[str, Callable[[Any, Any], bool | str]] = field(default_factory=dict)
    """They take the decoded arguments or results of tool calls, but the text of final responses."""
    tool_trajectory: Mapping[str, Callable[[Turn, Turn], bool | str]] = field(default_factory=dict)
    final_response: Mapping[str, Callable[[Turn, Turn], bool | str]] = field(default_factory=dict)
    tokenizers: Mapping[str, Tokenizer] = field(default_factory=dict)


class Names:
    """Finds the functions that the criterion of one metric names, and remembers which it found."""

    def __init__(self, given: Comparisons | None = None) -> None:
        given = given or Comparisons()
        self._given: Mapping[Kind, Mapping[str, Callable[[Any, Any], bool | str]]] = {
            "text": given.text,
            "json": given.json,
            "toolTrajectory": given.tool_trajectory,
            "finalResponse": given.final_response,
        }
        self._tokenizers = given.tokenizers
        self._digests: list[str] = []

    def version(self, version: str) -> str:
        """Return the version of an evaluator that calls these functions: a changed function is another."""
        return ".".join([version, *self._digests])

    def comparison(self, kind: Kind, name: str) -> Check:
        """Return the check of that name; raise MetricError if there is none."""
        key = f"{kind}.compareName"
        function = self._known(key, name, find(key, name, self._given[kind], {}, COMPARISON_GROUP))
        return checking(f"comparison '{name}'", function)

    def tokenizer(self, name: str, built_in: Mapping[str, Tokenizer]) -> Tokenizer:
        """Return the tokenizer of that name; raise MetricError if there is none."""
        if name in built_in and name not in self._tokenizers:
            return built_in[name]
        key = "rouge.tokenizerName"
        found = find(key, name, self._tokenizers, built_in, TOKENIZER_GROUP)
        function = self._known(key, name, found)

        def tokens(text: str) -> list[str]:
            words = _called(f"tokenizer '{name}'", function, text)
            if isinstance(words, str) or not isinstance(words, Sequence):
                raise ComparisonError(
                    f"tokenizer '{name}' returned {words!r:.200}; expected a list of words"
                )
            return [*words]

        return tokens

    def _known(self, key: str, name: str, found: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(found):
            raise MetricError(f"{key} '{name}' is {type(found).__name__}, not a function")
        self._digests.append(source_digest(found))
        return found


class WholeTurns:
    """A comparison that takes the place of a whole criterion: it compares two turns as it likes."""

    compares: bool = True

    def __init__(self, check: Check, evidence: str) -> None:
        self._check = check
        self._evidence = evidence

    def mismatch(self, actual: Turn, expected: Turn) -> str | None:
        if actual.absent or expected.absent:
            return "actual or expected invocation is nil"
        return self._check(actual, expected)

    def lacking(self, actual: Turn, expected: Turn) -> str | None:
        """Return why the compared field of a turn is not usable as evidence; None if it is."""
        reason = expected.lacks(self._evidence)
        return f"expected {reason}" if reason else actual.lacks(self._evidence)


def checking(what: str, function: Callable[..., Any]) -> Callable[..., str | None]:
    """Return the function as a check: None if it returned True, otherwise the reason of the mismatch.

    The check raises ComparisonError, which says `what` failed, for an exception or any other result.
    """

    def check(*args: Any) -> str | None:
        found = _called(what, function, *args)
        if isinstance(found, bool):
            return None if found else f"{what} found a difference"
        if isinstance(found, str) and found:
            return found
        raise ComparisonError(
            f"{what} returned {found!r:.200}; expected True, False or the reason of the mismatch"
        )

    return check


def named(names: Names | None, kind: Kind, name: str) -> Check:
    """Return the check that a criterion names; raise MetricError where criteria cannot name one."""
    if names is None:
        raise MetricError(
            f"{kind}.compareName is '{name}', which has no effect here: only the metrics "
            "final_response_avg_score and tool_trajectory_avg_score have comparisons of your own"
        )
    return names.comparison(kind, name)


def _called(what: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (Exception, SystemExit) as error:  # user code: fails this turn, not the run
        raise ComparisonError(f"{what} failed: {type(error).__name__}: {error}") from error
