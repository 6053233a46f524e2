"""A page with `--mask-content viewer`: viewers see figures, but no recorded text."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from evaltap.evaluator.curation.values import DIMENSIONS
from evaltap.evaluator.page.routes import PAGES
from evaltap.evaluator.store.database import Store
from support.builders.cases import make_tool, make_turn
from support.builders.reports import score_into, write_cases
from support.servers.page_server import Served, served
from support.worlds.page_store import GENEROUS, RUBRICS, support_cases, support_store

CANARY = "kanarienvogel"
KEY = f"set=live&id={GENEROUS}&app=shop"


def sung(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case whose every recorded text holds the word."""
    turns = []
    for turn in case["actualConversation"]:
        tools = [
            make_tool(
                one["name"], arguments={"note": CANARY, f"by_{CANARY}": 1}, result={"note": CANARY},
                **({"error": {"type": "Timeout", "message": CANARY}} if place == 1 else {}),
            )
            for place, one in enumerate(turn["tools"])
        ]  # fmt: skip
        turns.append(
            {**turn, "tools": tools, "userContent": {"role": "user", "content": f"{CANARY}?"},
             "finalResponse": {"role": "assistant", "content": f"{CANARY}."}}
        )  # fmt: skip
    crash = make_turn("crash", CANARY, tools=[], creationTimestamp=turns[-1]["creationTimestamp"] + 5,
                      telemetry={"status": "error", "error": {"type": "E", "message": CANARY}})  # fmt: skip
    return case | {
        "actualConversation": [*turns, crash], "conversation": [*case["conversation"], crash],
    }  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("masked")
    cases = [sung(case) for case in support_cases(3)]
    path = support_store(folder, cases=cases)
    judged = [case | {"source": {"revision": 9}} for case in cases]
    with Store(path) as store:
        answer = {
            "rubricScores": [
                {"id": one, "score": 0, "reason": CANARY, "evidence": CANARY}
                for one in ("no-promise", "names-order")
            ]
        }
        score_into(
            store, write_cases(folder, judged), [RUBRICS], lambda: orjson.dumps(answer).decode()
        )
    with served(path, folder, masks=True) as found:
        yield found


def paths() -> list[str]:
    """Return every page that a viewer may open, with what opens more of it."""
    plain = [route.path for route in PAGES if route.role == "viewer"]
    coverage = [f"/coverage?by={name}" for name in DIMENSIONS]
    runs = [
        "/compare?show=all",
        "/cases?sort=worst",
        "/cases?q=tool:refund",
        "/delivery?id=" + GENEROUS,
    ]
    case = [f"/case?{KEY}", f"/case?{KEY}&view=raw", f"/case?{KEY}&metric=trajectory_f1"]
    return [
        *(one for one in plain if one not in ("/case", "/run", "/experiment")),
        *coverage,
        *runs,
        *case,
    ]


@pytest.mark.parametrize("path", paths())
@pytest.mark.parametrize("form", ["", "json"])
def test_a_viewer_sees_no_word_of_what_was_recorded(page: Served, path: str, form: str) -> None:
    asked = f"{path}{'&' if '?' in path else '?'}format={form}" if form else path

    seen = page.ask(asked, role="viewer")

    assert seen.status == 200
    assert CANARY not in seen.text.lower(), seen.text[
        (at := seen.text.lower().find(CANARY)) - 300 : at + 50
    ]


def test_a_reviewer_sees_them_and_a_viewer_sees_where_they_are(page: Served) -> None:
    assert CANARY in page.ask(f"/case?{KEY}", role="reviewer").text
    masked = page.ask(f"/case?{KEY}", role="viewer").text
    assert "(hidden)" in masked
    assert "refund" in masked  # which tools were called is no content


@pytest.mark.parametrize("query", [CANARY, f"-{CANARY}", f"reason:{CANARY}", f"in:all+{CANARY}"])
def test_how_many_cases_hold_a_word_is_not_told(page: Served, query: str) -> None:
    everything = orjson.loads(page.ask("/cases?format=json", role="viewer").body)["data"]

    found = orjson.loads(page.ask(f"/cases?format=json&q={query}", role="viewer").body)["data"]

    assert found["matched"] == everything["matched"]
    assert "hidden from viewers" in found["problems"][0]
