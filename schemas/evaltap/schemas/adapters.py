"""Criteria of evaluators that live outside of evaltap (evaltap's own parts of a metric)."""

from typing import Annotated

from evaltap.schemas.base import FreeObject, Keep, WireModel


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
