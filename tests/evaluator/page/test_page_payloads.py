"""Recorded text is untrusted: it is shown as text, whatever its origin.

`EVALTAP_TEST_PAYLOADS` sets how many payloads are tried within bodies (default 36; there are 5,000).
"""

import itertools
import json
import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlencode

import pytest

from evaltap.evaluator.page.rendering import SCRIPTS
from support.corpora.page_attacks import BODIES, MANY, attack_cases
from support.servers.page_server import SAME, Served, served
from support.worlds.page_store import support_store

PAYLOADS = int(os.environ.get("EVALTAP_TEST_PAYLOADS", "36"))
ASKED = ("/", "/cases", "/case", "/compare", "/delivery", "/review", "/expected", "/basket", "/changes",
         "/judges")  # fmt: skip


class Found(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what no template of ours writes."""
        self.tags.append(tag)
        for name, value in attrs:
            scheme = name in ("href", "src", "action") and not (value or "").startswith(("/", "#"))
            if name.startswith(("on", "hx-")) or name in ("style", "srcdoc") or scheme:
                self.wrong.append(f"{tag} {name}={value}")


STRANGE = {"iframe", "math", "mi", "base", "style", "img", "x", "object", "embed"}


def check(page: Served, path: str) -> str:
    answer = page.ask(path, role="admin")
    for _ in range(5):
        if (
            answer.status != 504
        ):  # a query ran out of time, as it may while other work takes the processors
            break
        answer = page.ask(path, role="admin")
    assert answer.status in (200, 400, 404)
    found = Found()
    found.feed(answer.text)
    assert found.wrong == []
    assert not STRANGE & {*found.tags}
    assert found.tags.count("script") == len(SCRIPTS)
    assert found.tags.count("meta") == 4
    assert "\u202e" not in answer.text
    assert "\x00" not in answer.text
    return answer.text


def expect(page: Served, key: str) -> None:
    """Use what was done as expected, edited to be a payload."""
    seen = page.ask(f"/expected?{key}").text.partition('name="seen" value="')[2].partition('"')[0]
    form = {"case": key, "seen": seen, "turn-1": "1", "answer-1": key}
    assert page.ask("/expected/use", "POST", headers=SAME, form=form).status == 303


def visit(page: Served, payloads: list[str]) -> int:
    """Ask for every page with payloads in what it shows and in what it is asked for; count cases seen."""
    rows = json.loads(page.ask("/cases?format=json&sort=oldest").body)["data"]["rows"]
    assert rows
    for number, row in enumerate(rows):
        page.ask("/basket/pick", "POST", headers=SAME, form={"case": row["key"]})
        if number % 2:
            expect(page, row["key"])
    for path in (
        "/", "/cases", "/runs", "/delivery", "/alerts", "/review", "/judges", "/changes", "/basket",
        "/basket?as=recorded",
    ):  # fmt: skip
        check(page, path)
    keys = {
        (case["app"], case["eval_set_id"], case["eval_id"])
        for case in (row["case"] for row in rows)
    }
    for app, name, eval_id in keys:
        query = urlencode({"set": name, "id": eval_id, "app": app})
        check(page, f"/expected?{query}")
        assert "hacked=1" in check(page, f"/case?{query}") or "hacked" not in eval_id
    for number, text in enumerate(payloads):
        given = urlencode({"q": text, "id": text, "set": text, "app": text, "metric": text, "sort": text,
                           "after": text, "a": text, "b": text, "range": text, "at": text, "run": text,
                           "queue": text, "next": text, "view": text, "as": text, "format": text,
                           "name": text, "who": text, "added": text, "file": text})  # fmt: skip
        for path in ASKED[number % 2 :: 2]:  # a page escapes all texts alike
            check(page, f"{path}?{given}")
    return len(rows)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_nothing_recorded_becomes_markup(tmp_path: Path) -> None:
    every = [f"{one}{other}" for one, other in itertools.product(MANY, BODIES)][:5_000]
    payloads = [*MANY[:: len(MANY) // 24], *every[:: len(every) // PAYLOADS]]
    file = support_store(tmp_path, cases=attack_cases(payloads))
    with served(file, tmp_path) as page:
        page.ask("/review/add", "POST", headers=SAME, form={"q": "sort:newest"})
        seen = 0
        for start in range(0, len(payloads), 1_000):
            seen = visit(page, payloads[start : start + 60 : 3])
        for number, text in list(enumerate(payloads))[seen::5]:  # each takes a tenth of a second
            query = urlencode(
                {"set": f"set{text}", "id": f"{number:05d}{text}", "app": f"app{text}"}
            )
            check(page, f"/case?{query}")
