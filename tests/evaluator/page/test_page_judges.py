"""The figures of a judge on the page agree with figures counted by hand."""

import json
from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from evaltap.evaluator.page.request import key_text
from evaltap.evaluator.store.database import Store
from support.builders.reports import score_into, write_cases
from support.servers.page_server import SAME, Served, served
from support.worlds.page_store import RUBRICS, support_cases, support_store

JUDGED: Final = [f"s-{number:03d}" for number in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)]
REJECTED: Final = {"s-000", "s-001", "s-007"}


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Path, dict[str, bool]]:
    """A store in which a judge gave one vote on each of ten turns, and what it passed."""
    path = support_store(tmp_path, count=14)
    asked = count()
    metric = deepcopy(RUBRICS)
    metric["criterion"]["llmJudge"]["judgeModel"]["numSamples"] = 1  # type: ignore[index]

    def votes() -> str:
        score = 0 if next(asked) % 3 == 0 else 1
        ids = ("no-promise", "names-order")
        scores = [{"id": name, "score": score, "reason": "so"} for name in ids]
        return json.dumps({"rubricScores": scores})

    cases = [
        one | {"source": {"revision": 1}} for one in support_cases(14) if one["evalId"] in JUDGED
    ]
    with Store(path) as store:
        score_into(store, write_cases(tmp_path, cases, "judged.jsonl"), [metric], votes)
        found = store.rows(
            "SELECT eval_id, status = 'passed' FROM latest_turn_scores"
            " WHERE metric_name = 'llm_rubric_response' AND eval_id IN $ids",
            {"ids": JUDGED},
        )
    return path, dict(found)


@pytest.fixture
def page(judged: tuple[Path, dict[str, bool]], tmp_path: Path) -> Iterator[Served]:
    with served(judged[0], tmp_path) as found:
        yield found


def review(page: Served) -> None:
    """Decide on every judged turn: reject three, approve the others."""

    def post(path: str, **form: str) -> str:
        return page.ask(path, "POST", headers=SAME, form=form).headers["Location"] or ""

    for name in JUDGED:
        post("/review/add", case=key_text(("shop", "live", name)))
    at = post("/review/next")
    for _ in JUDGED:
        item = at.partition("at=")[2].partition("&")[0]
        name = json.loads(page.ask(f"/review?at={item}&format=json").body)["data"]["item"][
            "eval_id"
        ]
        at = post("/review/decide", item=item, action="reject" if name in REJECTED else "approve")


def shown(page: Served) -> dict[str, Any]:
    (judge,) = json.loads(page.ask("/judges?format=json").body)["data"]["judges"]
    return dict(judge)


@pytest.mark.slow
def test_the_figures_of_a_judge_are_those_counted_by_hand(
    judged: tuple[Path, dict[str, bool]], page: Served
) -> None:
    passes = judged[1]
    assert sorted(passes) == JUDGED
    assert set(passes.values()) == {True, False}
    review(page)

    pairs = [(passes[name], name not in REJECTED) for name in JUDGED]
    same = sum(judge == person for judge, person in pairs) / len(pairs)
    judge_rate, rate = (sum(one) / len(pairs) for one in zip(*pairs, strict=True))
    chance = judge_rate * rate + (1 - judge_rate) * (1 - rate)
    false_passes = sum(judge and not person for judge, person in pairs)
    one = next(one for one in shown(page)["calibrated"] if one["level"] == "turns")["calibration"]

    assert one["agreement"]["value"] == pytest.approx(same)
    assert one["kappa"]["value"] == pytest.approx((same - chance) / (1 - chance))
    assert one["false_pass_rate"]["value"] == pytest.approx(false_passes / len(REJECTED))
    assert one["agreement"]["interval"]["low"] < same < one["agreement"]["interval"]["high"]
    text = page.ask("/judges").text
    assert f"<b>{100 * same:.1f} %</b>" in text
    assert '<b>10</b> <span class="soft">7 pass, 3 fail</span>' in text
    assert "too few labels" in text


@pytest.mark.slow
def test_disagreements_show_the_question_with_false_passes_first(
    judged: tuple[Path, dict[str, bool]], page: Served
) -> None:
    review(page)
    openings = {
        one["evalId"]: one["actualConversation"][0]["userContent"]["content"]
        for one in support_cases(14)
    }

    found = shown(page)["disagreements"]

    wrong = {name for name, passes in judged[1].items() if passes == (name in REJECTED)}
    assert {one["eval_id"] for one in found} == wrong
    assert [one["judge_passes"] for one in found] == sorted(
        (one["judge_passes"] for one in found), reverse=True
    )
    assert all(one["opening"] == openings[one["eval_id"]] for one in found)
    for one in found:
        assert page.ask(one["href"]).status == 200


def test_what_a_judge_cost_is_counted_from_its_answers(
    judged: tuple[Path, dict[str, bool]], page: Served
) -> None:
    (use,) = shown(page)["use"]

    assert use["calls"] == 4 * 5 + len(JUDGED)  # the last four turns were judged with five samples
    assert use["errors"] == 0
    assert "No turn that it judged has been reviewed" in page.ask("/judges").text
