"""The examples in the docstrings of public names do what they say."""

import doctest
from importlib import import_module

import pytest

ROOMS = ("schemas", "recorder", "evaluator", "evaluator.stats", "api")


def examples() -> list[doctest.DocTest]:
    """Return the public names whose docstring, or that of a method, holds an example."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found: list[doctest.DocTest] = []
    for room in ROOMS:
        module = import_module(f"evaltap.{room}")
        for name in module.__all__:
            public = getattr(module, name)
            found += finder.find(
                public, f"evaltap.{room}.{name}", module=False, globs={name: public}
            )
    return [one for one in found if one.examples]


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
def test_an_example_does_what_it_says(example: doctest.DocTest) -> None:
    told: list[str] = []

    failed, _ = doctest.DocTestRunner(verbose=False).run(example, out=told.append)

    assert not failed, "".join(told)


def test_names_that_users_begin_with_have_an_example() -> None:
    told = {example.name.removeprefix("evaltap.") for example in examples()}

    assert told >= {
        "recorder.Recorder",
        "recorder.tool",
        "evaluator.evaluate_case",
        "evaluator.Func",
        "evaluator.TurnEvaluator",
        "evaluator.ScriptedJudge",
        "evaluator.Gate",
        "evaluator.revise",
        "evaluator.stats.pass_at_k",
        "api.evaluate",
    }
