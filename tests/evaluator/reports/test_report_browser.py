"""The HTML report in a real Chromium: it opens, is searched and used by keyboard, and runs no foreign
code."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from evaltap.evaluator.reports.formats import write_report
from evaltap.evaluator.reports.model import Report, Source, Usage, VoteCell
from evaltap.evaluator.reports.summary import Summary
from support.builders.cases import RESPONSE, RUBRIC, TRAJECTORY, make_case, make_tool, make_turn
from support.builders.reports import report_of, rubric_answer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

AXE = Path(__file__).parents[2] / "data" / "axe" / "axe.min.js"
ATTACK = (
    "<script>window.hacked = 1</script></script><img src=x onerror=window.hacked=1>"
    "<svg onload=window.hacked=1>\u202e{{7*7}}]]>--><a href='javascript:window.hacked=1'>"
)


class Opened:
    """A page with what it asked for and what it complained of."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def rows(self) -> list[str]:
        """Return the ids of the cases that are listed, in their order."""
        return self.page.locator(".row .id").all_text_contents()

    def wait_for_rows(self, count: int) -> None:
        """Wait until so many cases are listed; the page's policy lets no other way of waiting in."""
        from playwright.sync_api import expect

        expect(self.page.locator(".row")).to_have_count(count, timeout=30_000)


Open = Callable[..., Opened]


@pytest.fixture
def open_report(browser: "Browser", tmp_path: Path) -> Iterator[Open]:
    """Write a report and open it; afterwards it must have loaded nothing and complained of nothing."""
    opened: list[tuple[Opened, Path]] = []
    contexts = []

    def open_it(
        report: Report, *, width: int = 1200, dark: bool = False, script: bool = True
    ) -> Opened:
        path = tmp_path / f"report-{len(opened)}.html"
        write_report(report, path)
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        contexts.append(context)
        found = Opened(context.new_page())
        found.page.goto(path.as_uri())
        opened.append((found, path))
        return found

    yield open_it
    try:
        for found, path in opened:
            assert found.said == []
            assert found.asked == [path.as_uri()]
    finally:
        for context in contexts:
            context.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Three cases: one that fails, one that passes, one that lacks its evidence; judged, too."""
    use = {"costUsd": 0.25, "latencyMs": 1500}
    failing = [make_tool(arguments={"order_id": "B"}), make_tool("send")]
    hidden = make_turn(answer=None, capture={"finalResponse": "redacted"}, telemetry=use)
    cases = [
        make_case("good", conversation=[make_turn()]),
        make_case("bad", [make_turn(tools=failing)], conversation=[make_turn(answer="else")]),
        make_case("hidden", [hidden], conversation=[make_turn()]),
    ]
    return report_of(
        tmp_path_factory.mktemp("report"),
        cases,
        [TRAJECTORY, RESPONSE, RUBRIC],
        answer=lambda: rubric_answer(1, "the judge's own words"),
    )


def many(report: Report, count: int) -> Report:
    """Return a report of so many cases, each with an id of its own."""
    kinds = len(report.cases)
    cases = tuple(replace(report.cases[n % kinds], eval_id=f"case-{n:05}") for n in range(count))
    return replace(report, cases=cases, case_counts={"failed": count})


def nothing() -> Report:
    empty = Summary(None, 0, (), (), ())
    return Report(Source("x", None), "2026-11-21T12:00", empty, (), (), (), Usage(0), None, ())


@pytest.mark.slow
def test_opening_a_case_shows_calls_side_by_side_votes_and_answers(
    report: Report, open_report: Open
) -> None:
    opened = open_report(report)
    assert opened.rows() == ["bad", "good", "hidden"]

    opened.page.locator(".row", has_text="bad").click()

    details = opened.page.locator(".entry[open] > .case")
    calls = details.locator(".diff .step")
    assert [text.strip()[-1] for text in calls.locator(".mark").all_inner_texts()] == ["≠", "+"]
    assert calls.nth(0).locator("del").inner_text() == '"A-100"'
    assert calls.nth(0).locator("ins").inner_text() == '"B"'
    assert 'order_id: expected "A-100", found "B"' in (calls.nth(0).text_content() or "")
    assert "the judge's own words" in details.locator(".rubric").first.inner_text()
    assert details.locator(".answers .words").all_text_contents() == ["else", "done"]
    details.locator("summary", has_text="1 answer").click()
    assert "sample 1" in details.locator(".verdict .plain").first.inner_text()


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)], ids=["wide", "narrow"])
def test_a_report_can_be_read_by_everybody(
    report: Report, open_report: Open, width: int, dark: bool
) -> None:
    page = open_report(report, width=width, dark=dark).page
    page.locator(".row").first.click()

    page.evaluate(AXE.read_text("utf-8"))
    found = page.evaluate("axe.run()")

    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]] == []


def test_a_case_is_opened_and_closed_by_keyboard_alone(report: Report, open_report: Open) -> None:
    page = open_report(report).page

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the cases"
    page.keyboard.press("Enter")
    for _ in range(5):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    case = page.locator(".entry").first.locator("> .case")
    assert case.is_visible()
    page.keyboard.press("Enter")
    assert not case.is_visible()


def test_cases_are_searched_filtered_and_sorted(report: Report, open_report: Open) -> None:
    opened = open_report(report)
    page, search = opened.page, opened.page.locator("#search")

    search.fill("redacted")
    opened.wait_for_rows(1)
    assert opened.rows() == ["hidden"]
    assert page.locator("#count").inner_text() == "1 of 3 cases"
    search.fill("")
    page.locator("#status").select_option("failed")
    assert opened.rows() == ["bad"]
    page.locator("#status").select_option("not_evaluated")
    assert opened.rows() == ["hidden"]
    page.locator("#status").select_option("passed")
    page.locator("#metric").select_option(label="tool_trajectory_avg_score")
    assert opened.rows() == ["good", "hidden"]
    page.locator("#status").select_option("")
    page.locator("#sort").select_option("latency")
    assert opened.rows()[0] == "hidden"
    page.locator("#sort").select_option("id")
    assert opened.rows() == ["bad", "good", "hidden"]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)], ids=["wide", "narrow"])
@pytest.mark.parametrize("count", [0, 1, 100, 5_000])
def test_any_number_of_cases_opens_at_any_width(
    report: Report, open_report: Open, count: int, width: int, dark: bool
) -> None:
    opened = open_report(many(report, count) if count else nothing(), width=width, dark=dark)

    assert len(opened.rows()) == min(count, 100)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    if count == 5_000:
        # A click with the mouse misses its target where a busy browser still moves it.
        opened.page.locator("#more").dispatch_event("click")
        opened.wait_for_rows(200)
        assert len(opened.rows()) == 200
        opened.page.locator("#search").fill("case-00498")
        opened.wait_for_rows(1)
        opened.page.locator(".row").click()
        opened.page.locator(".turn").first.wait_for()
        assert opened.page.locator(".turn:visible").count() == 1
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [1200, 390])
def test_long_names_and_many_metrics_do_not_widen_the_page(
    open_report: Open, tmp_path: Path, width: int
) -> None:
    long = "unbroken" * 40
    turn = make_turn(
        long, answer=long, tools=[make_tool(long, arguments={long: long}, result=long)]
    )
    case = make_case(long, [turn, turn], conversation=[make_turn(), make_turn()], evalSetId=long)
    names = [f"{long}{number}" for number in range(30)]
    metrics = [
        TRAJECTORY | {"metricName": n, "evaluatorName": TRAJECTORY["metricName"]} for n in names
    ]

    page = open_report(report_of(tmp_path, [case], [*metrics, RESPONSE]), width=width).page

    assert page.locator(".verdict").count() == 31
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_quote_leads_to_where_it_was_said_and_one_that_was_not_is_called_so(
    report: Report, open_report: Open
) -> None:
    case = report.cases[0]
    turn = case.evidence[0].invocation_id
    votes = (
        VoteCell(turn, 1, "r", 1, "because", "done", evidence_found=True),
        VoteCell(turn, 2, "r", 1, "because", "made up", evidence_found=False, confidence=0.4),
    )
    cells = (replace(case.cells[0], votes=votes),)

    page = open_report(replace(report, cases=(replace(case, cells=cells),))).page

    page.locator("a", has_text="evidence 1 in the conversation").click()
    assert page.locator("mark:target").inner_text() == "done"
    page.locator("summary", has_text="all 2 votes").click()
    assert "made up" in page.locator(".rubric").inner_text()
    assert "not found in the trace" in page.locator(".rubric").inner_text()
    assert page.locator(".vote").nth(1).get_attribute("title") == "sample 2: yes, confidence 0.4"


def test_recorded_text_never_runs(open_report: Open, tmp_path: Path) -> None:
    turn = make_turn(
        ATTACK,
        answer=ATTACK,
        tools=[make_tool(ATTACK, arguments={ATTACK: ATTACK}, result=ATTACK)],
        userContent={"role": "user", "content": ATTACK},
        capture={ATTACK: "redacted"},
        telemetry={"models": [ATTACK], "error": {"type": ATTACK, "message": ATTACK}},
    )
    session = {"appName": ATTACK, "userId": ATTACK}
    case = make_case(
        ATTACK, [turn], conversation=[make_turn(answer="x")], evalSetId=ATTACK, sessionInput=session
    )
    metrics = [
        TRAJECTORY | {"metricName": ATTACK, "evaluatorName": TRAJECTORY["metricName"]},
        RUBRIC,
    ]
    hostile = report_of(tmp_path, [case], metrics, answer=lambda: rubric_answer(0, ATTACK))

    opened = open_report(hostile)

    shown = opened.page.locator(".entry > .case")
    assert shown.is_visible()  # the only case is open from the start
    for one in shown.locator("summary").all():
        one.click()
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.evaluate("document.images.length") == 0
    hrefs = opened.page.evaluate("[...document.links].map((link) => link.getAttribute('href'))")
    assert all(href.startswith("#") for href in hrefs)
    assert "<script>window.hacked = 1</script>" in shown.inner_text()
    assert "⟦U+202E⟧{{7*7}}" in shown.inner_text()


def test_the_policy_of_the_page_stops_what_would_get_in_all_the_same(
    report: Report, open_report: Open
) -> None:
    opened = open_report(report)

    blocked = opened.page.evaluate(
        """() => {
          const caught = [];
          const attempt = (action) => { try { action(); } catch (error) { caught.push(error.name); } };
          attempt(() => document.body.setAttribute("onclick", "window.hacked = 1"));
          attempt(() => { document.body.innerHTML += "<img src=x onerror=window.hacked=1>"; });
          document.body.click();
          return caught;
        }"""
    )

    assert blocked == ["TypeError", "TypeError"]
    assert opened.page.evaluate("window.hacked") is None
    assert opened.said
    opened.said.clear()  # what this test provoked


def test_without_scripts_the_overview_is_there_and_cases_open(
    report: Report, open_report: Open
) -> None:
    page = open_report(report, script=False).page

    text = page.locator("body").inner_text()
    assert "1 of 3 cases did not pass" in text
    assert "66.7 %" in text
    assert page.locator("#toolbar").is_hidden()
    page.locator(".row", has_text="bad").click()
    assert page.locator(".entry[open] .diff ins").first.inner_text() == '"B"'


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Two cases that their users' words and their tools tell apart."""
    refund = make_turn(
        userContent={"role": "user", "content": "I want my money back for A-110"},
        tools=[make_tool("refund", arguments={"order_id": "A-110", "amount": 12})],
    )
    expected = [
        make_turn(tools=[make_tool("refund", arguments={"amount": 21, "order_id": "A-110"})])
    ]
    cases = [
        make_case("s-014", [refund], conversation=expected),
        make_case("s-015", conversation=[make_turn(answer="else")]),
    ]
    return report_of(tmp_path_factory.mktemp("told"), cases, [TRAJECTORY, RESPONSE])


@pytest.mark.parametrize(
    ("search", "rows"),
    [
        ("money back", ["s-014"]),
        ("tool:refund", ["s-014"]),
        ("tool:get_order status:failed", ["s-015"]),
        ("metric:trajectory", ["s-014", "s-015"]),
        ("tool:nothing", []),
    ],
)
def test_the_users_words_and_fields_are_searched(
    open_report: Open, told: Report, search: str, rows: list[str]
) -> None:
    opened = open_report(told)

    assert "I want my money back for A-110" in opened.page.locator(".row-main").all_text_contents()
    opened.page.fill("#search", search)
    opened.wait_for_rows(len(rows))
    assert sorted(opened.rows()) == rows


@pytest.mark.slow
def test_a_link_opens_its_case(open_report: Open, told: Report) -> None:
    opened = open_report(told)
    opened.page.locator(".row", has_text="s-014").click()
    link = opened.page.evaluate("location.hash")

    again = open_report(told)
    again.page.evaluate("(hash) => { location.hash = hash; }", link)

    again.page.locator(".entry[open] > .case").wait_for()
    assert again.page.locator(".entry[open] .id").all_text_contents() == ["s-014"]
    assert "money back" in again.page.locator(".entry[open] > .case").inner_text()


def test_a_reason_shows_its_cases(open_report: Open, told: Report) -> None:
    opened = open_report(told)
    reason = opened.page.locator(".reasons li", has_text="amount 12, expected 21")

    reason.locator("a").click()
    opened.wait_for_rows(1)

    assert opened.rows() == ["s-014"]
    opened.page.locator("#clear").click()
    opened.wait_for_rows(2)


def test_keys_search_go_through_cases_and_their_differences(
    open_report: Open, told: Report
) -> None:
    opened = open_report(told)
    focused = (
        "document.activeElement.querySelector('.id')?.textContent ?? document.activeElement.id"
    )

    opened.page.keyboard.press("j")
    first = opened.page.evaluate(focused)
    opened.page.keyboard.press("j")
    second = opened.page.evaluate(focused)
    opened.page.keyboard.press("k")

    assert [first, second] == opened.rows()
    assert opened.page.evaluate(focused) == first
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.press("]")
    assert opened.page.locator(".step:focus").count() == 1
    opened.page.keyboard.press("?")
    assert opened.page.locator("dialog[open]").count() == 1
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("/")
    assert opened.page.evaluate(focused) == "search"
