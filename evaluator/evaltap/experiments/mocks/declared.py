"""Mocks that a case declares: `toolMock.actual` of a turn, as in tRPC-Agent-Go."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaltap.evaluator.scoring.criteria.content.json_value import compile_json
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.formats.metric import JsonCriterion

Side: TypeAlias = Literal["actual", "expected"]
"""Whose tools are mocked: those of the agent under test, or of the agent that gives the reference."""


@dataclass(frozen=True, slots=True)
class DeclaredMock:
    """One mocked call of a tool: which arguments it answers, and with what."""

    name: str
    arguments: CaseData | None
    """`ignore`, `expected`, `onlyTree`, `ignoreTree`, `numberTolerance`; None matches any arguments."""
    result: Json = None
    prompt: str = ""
    """The instruction of a model that invents the result."""

    def matches(self, arguments: Json) -> bool:
        """Return whether it answers a call with these arguments."""
        given = self.arguments
        if given is None or given.get("ignore"):
            return True
        criterion = {
            name: given[name] for name in ("onlyTree", "ignoreTree") if given.get(name)
        } | {"numberTolerance": given.get("numberTolerance") or 0}
        check = compile_json(JsonCriterion.model_validate(criterion))
        return check(arguments, given.get("expected")) is None


def declared_mocks(
    turn: CaseData, place: str, problems: list[str], side: Side = "actual"
) -> Iterator[DeclaredMock]:
    """Yield the mocks of a turn for the agent or, as `expected`, for the one that gives its reference.

    What is wrong with a mock is added to the problems.
    """
    for number, one in enumerate((turn.get("toolMock") or {}).get(side) or (), 1):
        if problem := _problem(one):
            problems.append(f"{place} toolMock.{side} {number}: {problem}")
            continue
        generator = one.get("llmGenerator") or {}
        yield DeclaredMock(
            one["name"], one.get("arguments"), one.get("result"), generator.get("prompt") or ""
        )


def _problem(mock: CaseData | None) -> str:
    if not isinstance(mock, dict):
        return "is null"
    arguments, generator = mock.get("arguments"), mock.get("llmGenerator")
    if not (mock.get("name") or "").strip():
        return "has no name"
    if (mock.get("result") is None) == (generator is None):
        return "needs either a result or an llmGenerator"
    if generator is not None and not (generator.get("prompt") or "").strip():
        return "has an llmGenerator without a prompt"
    return _arguments_problem(arguments) if arguments is not None else ""


def _arguments_problem(arguments: CaseData) -> str:
    trees = [name for name in ("onlyTree", "ignoreTree") if arguments.get(name)]
    if arguments.get("ignore"):
        given = [
            name for name in ("expected", "numberTolerance") if arguments.get(name) is not None
        ]
        others = ", ".join([*given, *trees])
        return f"ignores its arguments, and has {others} all the same" if others else ""
    if arguments.get("expected") is None:
        return "has arguments without expected"
    if len(trees) == 2:
        return "has both onlyTree and ignoreTree; keep one"
    if (arguments.get("numberTolerance") or 0) < 0:
        return "has a negative numberTolerance"
    return ""
