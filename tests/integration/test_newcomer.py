"""The first hour with evaltap, in a browser: record, see, find, decide, review, take along, score."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.builders.program import Program
from support.worlds.newcomer_agent import ASKED, order_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser
AGENT = Path(__file__).parents[1] / "support/worlds/newcomer_agent.py"
SESSIONS = 40
METRICS = [
    {
        "metricName": "tool_trajectory_avg_score",
        "threshold": 1,
        "criterion": {"toolTrajectory": {"defaultStrategy": {"name": {}, "arguments": {}}}},
    }
]


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


EXPECTED = {
    "evalSetId": "golden",
    "evalCases": [
        {
            "evalId": f"refund-{order_of(number)}",
            "conversation": [
                {
                    "invocationId": "1",
                    "userContent": {
                        "role": "user",
                        "content": ASKED.format(order_id=order_of(number)),
                    },
                    "tools": [
                        call("get_order", order_id=order_of(number)),
                        call("refund", order_id=order_of(number), amount=10),
                    ],
                }
            ],
        }
        for number in range(SESSIONS)
    ],
}


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """A running `evaltap up` in a folder of its own, with metrics and references."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("metrics.json").write_text(json.dumps(METRICS))
    Path("golden.evalset.json").write_text(json.dumps(EXPECTED))
    running = Program(
        ["up", "--metrics", "metrics.json", "--references", "golden.evalset.json", "--port", "0",
         "--ui", "127.0.0.1:0"], tmp_path,
    )  # fmt: skip
    running.wait_for(lambda: "/login#" in running.output and "OTLP_ENDPOINT" in running.output)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def record(up: Program, sessions: int = SESSIONS) -> None:
    """Run the agent in a shell that has the lines which `evaltap up` printed."""
    lines = dict(re.findall(r"export (\w+)=(\S+)", up.output))
    subprocess.run(
        [sys.executable, str(AGENT), str(sessions)], env={**os.environ, **lines}, check=True
    )


def press(page: "Page", key: str) -> None:
    """Press a key that leads to another page."""
    with page.expect_navigation():
        page.keyboard.press(key)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_turns_without_metrics_say_how_to_score_them(
    browser: "Browser", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.sync_api import expect

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    traces = "http://localhost:16686/trace/{trace_id}"
    up = Program(["up", "--port", "0", "--ui", "127.0.0.1:0", "--trace-url", traces], tmp_path)
    try:
        up.wait_for(lambda: "/login#" in up.output and "OTLP_ENDPOINT" in up.output)
        record(up, 2)
        page = browser.new_page()
        page.goto(re.findall(r"http://\S+/login#\S+", up.output)[0])
        expect(page.locator("text=Nothing has been scored")).to_be_visible(timeout=30_000)
        expect(page.locator("main")).to_contain_text("start it again with --metrics metrics.json")
        page.goto(page.url + "cases")
        page.click("[data-row] >> nth=0")
        expect(page.locator(".verdicts")).to_contain_text("start it again with --metrics")
        trace = page.locator(".turn-head a:has-text('trace')").get_attribute("href") or ""
        assert re.fullmatch(r"http://localhost:16686/trace/[0-9a-f]{32}", trace)
        page.close()
        assert up.stop() == 0
    finally:
        up.process.kill()
        up.process.wait()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_from_the_first_start_to_a_score_of_the_set_that_was_made(
    browser: "Browser", up: Program, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 1280, "height": 800})
    found = re.search(r"(http://\S+/login#\S+)", up.output)
    assert found is not None
    page.goto(found[1])
    expect(page.locator(".empty")).to_contain_text("Waiting for the first turn")
    shown = page.inner_text(".empty pre")
    assert f"OTLP_ENDPOINT={re.findall('http://127[0-9.:]+', up.output)[0]}" in shown

    record(up)

    # The page that waited becomes the overview by itself, and moves until all have landed.
    expect(page.locator(".tiles dd").first).to_have_text(f"{SESSIONS}", timeout=30_000)
    expect(page.locator(".reasons .times").first).to_contain_text("5", timeout=30_000)

    page.click(".reasons a")  # the first click
    expect(page.locator("[data-row]")).to_have_count(5)
    page.click("[data-row] >> nth=0")  # the second: the step is there, without scrolling
    step = page.locator(".step.changed")
    assert "10" in step.locator("del").inner_text()
    assert "100" in step.locator("ins").inner_text()
    place = step.bounding_box()
    assert place is not None
    assert 0 < place["y"] < 800 - place["height"]

    press(page, "=")
    press(page, "=")
    assert "is expected" in page.inner_text(".verdicts")
    page.keyboard.press("b")
    page.wait_for_selector("text=In basket")

    for key in "gu":
        page.keyboard.press(key)
    page.wait_for_url("**/review")
    page.fill("#fill", "status:passed")
    press(page, "Enter")
    page.click(".queues button")
    for key in "aaxas":
        page.wait_for_selector(".decide")
        press(page, key)
    assert "6 decided by you" in page.inner_text(".total")  # and the one that was expected before

    page.goto(page.url.partition("/review")[0] + "/cases?q=reviewed:approved")
    while page.locator("[data-row]").count() < 4:  # the list is a second behind
        page.reload()
    page.check("[data-action=pick-all]")
    press(page, "b")
    for key in "gb":
        page.keyboard.press(key)
    page.wait_for_url("**/basket")
    with page.expect_download() as download:
        page.click("text=/Download \\d+ cases/")
    download.value.save_as(tmp_path / "basket.evalset.json")
    page.close()

    assert up.stop() == 0
    scored = Program(
        ["score", "cases.duckdb", "--references", "basket.evalset.json", "--metrics", "metrics.json",
         "--json"], tmp_path,
    )  # fmt: skip
    code = scored.wait()
    summary = json.loads(scored.output.splitlines()[-1])
    assert "4 of 40 cases joined" in scored.output  # three that were approved, and the expected one
    assert code == 3, scored.output  # the others have no reference
    assert summary["metrics"][0]["passed"] == 4
