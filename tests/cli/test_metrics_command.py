"""`evaltap metrics` lists the available evaluators, and prints metrics files that work."""

import json
from pathlib import Path

import pytest

from evaltap.evaluator import Registry
from evaltap.evaluator.scoring.evaluators.catalogue import GROUPS, described
from support.builders.cases import make_case, make_turn
from support.builders.commands import Evaltap


def test_each_installed_evaluator_is_listed_in_80_columns(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = evaltap("metrics")

    listed = {
        line.split()[0] for line in out.splitlines() if line.startswith("  ") and line[2] > " "
    }
    assert (code, listed) == (0, set(Registry().names()))
    assert max(map(len, out.splitlines())) <= 80


def test_the_example_is_a_metrics_file_that_scores(evaltap: Evaltap) -> None:
    Path("c.jsonl").write_text(json.dumps(make_case("s-1", turns=[make_turn()])) + "\n")
    Path("m.json").write_text(
        evaltap("metrics", "trajectory_max_calls", "trajectory_no_loop", "--example")[1]
    )

    code, out, _ = evaltap("score", "c.jsonl", "--metrics", "m.json", "--json")

    assert code == 0
    names = [metric["metric_name"] for metric in json.loads(out)["metrics"]]
    assert names == ["trajectory_max_calls", "trajectory_no_loop"]


def test_a_name_is_described_with_what_it_needs(evaltap: Evaltap) -> None:
    (found,) = json.loads(evaltap("metrics", "state_match", "--json")[1])

    assert found["needs"] == "the state, an expected one"
    assert '"metricName": "state_match"' in evaltap("metrics", "state_match")[1]


@pytest.mark.parametrize(
    ("name", "hint"), [("trajectory_f2", "did you mean 'trajectory_f1'?"), ("x", "lists them")]
)
def test_an_unknown_name_is_refused(evaltap: Evaltap, name: str, hint: str) -> None:
    code, _, err = evaltap("metrics", name)

    assert code == 2
    assert f"no evaluator named '{name}'" in err
    assert hint in err


def test_each_description_is_in_a_group_that_is_printed() -> None:
    for one in described():
        assert one.group in GROUPS
        assert "" not in (one.measures, one.needs)


def test_an_evaluator_of_another_package_is_listed_by_its_first_line() -> None:
    def politeness(metric: object) -> object:
        """Say please.

        And thank you.
        """
        return metric

    found = described(Registry({"politeness": politeness}))[-1]  # type: ignore[dict-item]

    assert (found.name, found.group, found.measures) == ("politeness", "installed", "Say please.")
