"""How long the HTML report takes to be written and to open, and what it looks like.

Cases are made up, scored for real (a scripted judge votes) and reported; Chromium opens the page from
disk.  What is measured is the work of the page's main thread, so that it holds on a busy machine.  The floor
is an empty page in the same browser, in turn.

    python docs/benchmarks/report_page.py [--cases 0 1 100 5000] [--rounds 5] [--pictures FOLDER]
"""

import argparse
import copy
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from evaltap.evaluator.pipeline.batch.files import FileScorer
from evaltap.evaluator.pipeline.batch.run import score_files
from evaltap.evaluator.reports.formats import write_report
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import ScriptedJudge
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas import EvalMetric

METRICS = [
    {"metricName": "trajectory_f1", "threshold": 0.9, "criterion": {"trajectory": {}}},
    {
        "metricName": "tool_trajectory_avg_score",
        "threshold": 1,
        "criterion": {"toolTrajectory": {"defaultStrategy": {"name": {}, "arguments": {}}}},
    },
    {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {"matchStrategy": "contains"}}},
    },
    {
        "metricName": "llm_rubric_response",
        "threshold": 1,
        "criterion": {
            "llmJudge": {
                "judgeModel": {"providerName": "openai", "modelName": "judge-1", "numSamples": 3},
                "rubrics": [{"id": "names-order", "content": {"text": "It names the order."}}],
            }
        },
    },
]
ANSWERS = [
    "Order {order} has shipped and arrives on Friday.",
    "Your refund for {order} is on its way.",
    "I am sorry, I could not find that order. Could you check the number?",
]


def write_cases(path: Path, count: int, rng: random.Random) -> None:
    """Write cases of one to three turns; in three of ten turns the calls differ from the reference."""
    with path.open("w") as file:
        for number in range(count):
            order = f"A-{100 + number}"
            actual, expected = [], []
            for turn in range(rng.choice([1, 1, 2, 3])):
                calls = [_call(order, rng) for _ in range(rng.randint(1, 5))]
                text = rng.choice(ANSWERS).format(order=order)
                said = {
                    "invocationId": f"turn-{turn + 1}",
                    "userContent": {"role": "user", "content": f"Where is order {order}?"},
                }
                actual.append(said | _made(calls, text, rng))
                wanted = text if rng.random() < 0.9 else f"Order {order} was cancelled."
                answer = {"role": "assistant", "content": wanted}
                expected.append(said | {"tools": _varied(calls, rng), "finalResponse": answer})
            case = {
                "evalId": f"support-{number:04}",
                "evalMode": "trace",
                "actualConversation": actual,
                "conversation": expected,
                "sessionInput": {"appName": "support", "userId": "u-1"},
            }
            file.write(json.dumps(case) + "\n")


def _call(order: str, rng: random.Random) -> dict[str, Any]:
    name, arguments = rng.choice(
        [
            ("get_order", {"order_id": order}),
            ("search_catalog", {"query": "blue shoes", "limit": 10, "filters": {"size": 42}}),
            ("refund", {"order_id": order, "amount": round(rng.uniform(5, 90), 2)}),
            ("send_mail", {"template": "refund_done", "order_id": order}),
        ]
    )
    return {"name": name, "arguments": arguments, "result": {"status": "ok"}}


def _made(calls: list[dict[str, Any]], text: str, rng: random.Random) -> dict[str, Any]:
    turn = {
        "tools": calls,
        "finalResponse": {"role": "assistant", "content": text},
        "telemetry": {
            "models": ["agent-model"],
            "inputTokens": rng.randint(300, 3000),
            "outputTokens": rng.randint(20, 400),
            "costUsd": round(rng.uniform(0.0004, 0.02), 5),
            "latencyMs": round(rng.lognormvariate(7.2, 0.6), 1),
        },
    }
    if rng.random() < 0.04:
        turn["finalResponse"] = {"role": "assistant", "content": ""}
        turn["capture"] = {"finalResponse": "redacted"}
    return turn


def _varied(calls: list[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    wanted, drawn = copy.deepcopy(calls), rng.random()
    if drawn < 0.12:
        wanted[-1]["arguments"] |= {"order_id": "A-1", "note": "late"}
    elif drawn < 0.2:
        wanted.append({"name": "log_contact", "arguments": {"channel": "chat"}})
    elif drawn < 0.26 and len(wanted) > 1:
        del wanted[0]
    elif drawn < 0.3:
        wanted.reverse()
    return wanted


def judge(rng: random.Random) -> Callable[[Any], str]:
    """Return a judge that says yes to four of five answers, and now and then nothing usable."""

    def answer(_: Any) -> str:
        if rng.random() < 0.02:
            return "I cannot say."
        good = rng.random() < 0.8
        reason = "The answer names the order." if good else "No order is named in the answer."
        return json.dumps(
            {"rubricScores": [{"id": "names-order", "score": int(good), "reason": reason}]}
        )

    return answer


def write_page(folder: Path, count: int) -> tuple[Path, float]:
    """Score cases and write the page; return it, and the CPU seconds of reading and writing the report."""
    rng = random.Random(7)
    cases = folder / "support.jsonl"
    write_cases(cases, count, rng)
    scripted = ScriptedJudge(judge(rng))
    services = Services(judge=lambda _: scripted)
    scorer = CaseScorer([EvalMetric.model_validate(m) for m in METRICS], services=services)
    page = folder / f"report-{count}.html"
    with Store(":memory:") as store:
        if count:
            score_files(
                store, FileScorer(scorer, [cases], workers=1), scorer, cases.name, print_nothing
            )
        begin = time.process_time()
        write_report(read_report(store, case_files=[cases]), page)
        return page, time.process_time() - begin


def print_nothing(_: int) -> None:
    """Take note of nothing."""


def opening_ms(browser: Browser, page: Path) -> float:
    """Return the time that the page's main thread works until the load event has ended."""
    context = browser.new_context()
    tab = context.new_page()
    session = context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    tab.goto(page.as_uri())
    found = session.send("Performance.getMetrics")["metrics"]
    context.close()
    return next(1000 * one["value"] for one in found if one["name"] == "TaskDuration")


def take_pictures(browser: Browser, page: Path, folder: Path) -> None:
    """Photograph the overview and a case, and the page in dark and on a narrow screen."""
    for name, scheme, width, height, opened in (
        ("overview", "light", 1240, 1010, False),
        ("case", "light", 1240, 960, True),
        ("dark", "dark", 1240, 1010, False),
        ("narrow", "dark", 390, 1600, True),
    ):
        context = browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": height},
        )
        tab = context.new_page()
        tab.goto(page.as_uri())
        if opened:
            _open_a_case(tab)
        tab.screenshot(path=folder / f"report-{name}.png")
        context.close()


def _open_a_case(tab: Page) -> None:
    """Open the first case of one turn with other arguments, and the votes about it."""
    rows = tab.locator(".row")
    for place in range(rows.count()):
        row = rows.nth(place)
        row.click()
        shown = tab.locator(".entry[open] > .case")
        if shown.locator(".turn").count() == 1 and shown.locator(".diff .changed").count():
            shown.locator(".verdict summary").last.click()
            row.evaluate("row => row.scrollIntoView()")
            return
        row.click()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, nargs="+", default=[0, 1, 100, 5_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    found = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        empty = folder / "empty.html"
        empty.write_text("<!doctype html><title>empty</title>")
        print(f"{'cases':>6} {'MB':>6} {'written':>9} {'opened':>9} {'empty':>9} {'ratio':>7}")
        for count in options.cases:
            page, seconds = write_page(folder, count)
            opened, floor = [], []
            for _ in range(options.rounds):
                floor.append(opening_ms(browser, empty))
                opened.append(opening_ms(browser, page))
            took, least = statistics.median(opened), statistics.median(floor)
            size = page.stat().st_size / 1e6
            print(
                f"{count:6,} {size:6.1f} {seconds:7.1f} s {took:6.0f} ms {least:6.0f} ms"
                f" {took / least:6.0f}x"
            )
            if options.pictures:
                options.pictures.mkdir(parents=True, exist_ok=True)
                take_pictures(browser, page, options.pictures)
        browser.close()


if __name__ == "__main__":
    main()
