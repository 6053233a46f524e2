"""The web page in a real Chromium: every page in both themes and on a phone, by keyboard, with attacks."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson
import pytest

from evaltap.cli.main import main
from support.builders.cases import write_log
from support.corpora.page_attacks import MANY, attack_cases
from support.programs.page_pictures import work
from support.servers.page_server import Served, served
from support.worlds.page_store import GENEROUS, support_store
from support.worlds.replayed_shop import replayed_store
from support.worlds.shop import Asked, records

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]
AXE = Path(__file__).parents[2] / "data" / "axe" / "axe.min.js"
CASE = f"/case?set=live&id={GENEROUS}&app=shop"
PAGES = [
    "/",
    "/?range=30d",
    "/?from=2026-11-23T06:00&to=2026-11-23T09:00",
    "/?from=never&to=2026-11-23",
    "/cases",
    "/cases?q=status:failed&sort=worst",
    "/cases?q=stats:x",
    "/cases?q=tool:none",
    CASE,
    f"{CASE}&view=raw",
    "/review",
    "/runs",
    "/experiments",
    "/coverage",
    f"/expected?set=live&id={GENEROUS}&app=shop",
    "/basket",
    "/basket?as=inputs&format=huggingface",
    "/judges",
    "/changes",
    "/settings",
    "/compare?show=all",
    "/delivery?id=s-too-generous",
    "/why?id=nothing",
    "/alerts",
    "/nowhere",
]
OF_A_REPLAY = [
    "/experiments",
    "/experiment?id={id}",
    "/experiment?id={id}&show=forked",
    "/experiment?id={id}&case=s-fork",
    "/experiment?id={id}&case=s-extra",
    "/experiment?id={id}&case=s-none",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The page of a support agent's store."""
    folder = tmp_path_factory.mktemp("page")
    golden = folder / "golden.evalset.json"
    golden.write_text('{"evalSetId": "golden", "evalCases": []}')
    with served(support_store(folder, count=60), folder, sets=(golden,)) as found:
        work(found, ["s-057", "s-058", "s-055", "s-054"])
        yield found


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a replay, with its HTML file beside it."""
    return replayed_store(tmp_path_factory.mktemp("replayed"))


@pytest.fixture(scope="module")
def replayed(replay: Path) -> Iterator[Served]:
    """The page of a store with a replay."""
    with served(replay, replay.parent) as found:
        yield found


def of_replay(site: Served, path: str) -> str:
    """Return a page of the only experiment."""
    (found,) = orjson.loads(site.ask("/experiments?format=json").body)["data"]["experiments"]
    return path.format(id=found["experiment_id"])


class Visitor:
    """A browser that is logged in, with what its pages complained of and asked for."""

    def __init__(self, browser: "Browser", site: Served, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**options)
        self.site = site
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.context.on("request", lambda request: self.asked.append(request.url))
        name, _, secret = site.cookie("admin").partition("=")
        name = name.removeprefix("__Host-")
        self.context.add_cookies([{"name": name, "value": secret, "url": site.site.address}])

    def open(self, path: str) -> "Page":
        """Open a page of the site."""
        self.page.goto(self.site.site.address + path)
        return self.page

    def check(self, *, leave: bool = True) -> None:
        """Assert that nothing was complained of and nothing foreign was asked for; leave, or go on."""
        meant = ("404 (Not Found)", "400 (Bad Request)")  # pages that say what is wrong
        wrong = [text for text in self.said if not any(one in text for one in meant)]
        foreign = [url for url in self.asked if not url.startswith(self.site.site.address)]
        self.said.clear()
        self.asked.clear()
        assert (wrong, foreign) == ([], [])
        if leave:
            self.context.close()


@pytest.fixture(scope="module")
def visitor(browser: "Browser", site: Served) -> Iterator[Visitor]:
    """One who goes from page to page: a newcomer costs as much as what is looked at on most of them."""
    found = Visitor(browser, site)
    yield found
    found.context.close()


@pytest.fixture(scope="module")
def replay_visitor(browser: "Browser", replayed: Served) -> Iterator[Visitor]:
    """One who goes from page to page of the replay."""
    found = Visitor(browser, replayed)
    yield found
    found.context.close()


@pytest.fixture(scope="module")
def plain_visitor(browser: "Browser", site: Served) -> Iterator[Visitor]:
    """One who goes from page to page on a phone, without script."""
    found = Visitor(
        browser, site, java_script_enabled=False, viewport={"width": 360, "height": 800}
    )
    yield found
    found.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_pages_are_quiet_fit_and_can_be_read_by_everybody(visitor: Visitor, path: str) -> None:
    assert_fits(visitor, path)


@pytest.mark.slow
@pytest.mark.parametrize("path", OF_A_REPLAY)
def test_experiments_are_quiet_fit_and_can_be_read_by_everybody(
    replay_visitor: Visitor, path: str
) -> None:
    assert_fits(replay_visitor, of_replay(replay_visitor.site, path))


@pytest.mark.slow
def test_the_file_of_a_replay_fits_loads_nothing_and_can_be_read_by_everybody(
    browser: "Browser", replay: Path
) -> None:
    context = browser.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.goto(replay.with_name("replay.html").as_uri())
    for one in page.locator("summary").all():
        one.evaluate("summary => { summary.parentElement.open = true }")

    assert_can_be_read(page)
    assert asked == [page.url]
    context.close()


def assert_fits(visitor: Visitor, path: str) -> None:
    """Assert that a page is quiet, fits any width and can be read by everybody."""
    visitor.page.set_viewport_size({"width": 1280, "height": 720})
    page = visitor.open(path)

    assert page.evaluate("document.getElementsByTagName('*').length") < 1_500
    assert_can_be_read(page)
    visitor.check(leave=False)


CHANGED_BY: list[tuple[Literal["light", "dark"], int, list[str]]] = [
    ("light", 1360, []),
    ("dark", 1360, ["color-contrast"]),
    ("light", 360, ["scrollable-region-focusable"]),
]
"""How a page may look, and the rules of axe that it may break by that alone; none: all rules."""


def assert_can_be_read(page: "Page") -> None:
    """Assert that a page fits the width and breaks no rule of accessibility, however it looks."""
    page.evaluate(AXE.read_text("utf-8"))
    for scheme, width, rules in CHANGED_BY:
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # no colour in between
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (scheme, width)
        found = page.evaluate("options => axe.run(options)", {"runOnly": rules} if rules else {})
        wrong = [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found["violations"]]
        assert wrong == [], (scheme, width)


def test_dragging_over_a_chart_chooses_a_span_that_is_a_link(
    browser: "Browser", site: Served
) -> None:
    visitor = Visitor(browser, site, viewport={"width": 1280, "height": 800})
    page = visitor.open("/?range=24h&app=shop")
    place = page.locator(".plot svg").first.bounding_box()
    assert place is not None
    page.mouse.move(place["x"] + place["width"] / 4, place["y"] + 50)
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 60)
    with page.expect_navigation():
        page.mouse.up()

    assert "app=shop&from=2026-11-22T18%3A1" in page.url
    shown = page.inner_text(".until")
    assert shown.startswith("22 Nov 18:1")
    other = visitor.context.new_page()
    other.goto(page.url)
    assert other.inner_text(".until") == shown
    page.go_back()
    assert page.inner_text(".spans [aria-current]") == "24h"
    visitor.check()


def test_the_figures_under_the_pointer_are_those_of_the_table(
    browser: "Browser", site: Served
) -> None:
    visitor = Visitor(browser, site, viewport={"width": 1280, "height": 800})
    page = visitor.open("/?range=24h&app=shop")
    chart = page.locator("figure.chart").nth(1)  # the pass rate
    before = chart.locator("[data-readout]").inner_text()
    row = chart.locator("[data-place]").first
    place, plot = int(row.get_attribute("data-place") or 0), chart.locator("svg").bounding_box()
    assert plot is not None
    buckets = int(chart.get_attribute("data-buckets") or 1)

    page.mouse.move(plot["x"] + plot["width"] * (place + 0.5) / buckets, plot["y"] + 50)

    at, rate, interval = row.locator("td").all_text_contents()
    shown = f"{at} · pass rate {rate} · 95 % interval {interval}"
    assert chart.locator("[data-readout]").inner_text() == shown
    page.mouse.move(5, 5)
    assert chart.locator("[data-readout]").inner_text() == before
    assert chart.locator(".hair").count() == 0
    visitor.check()


@pytest.mark.parametrize("path", ["/", "/review", "/alerts"])
def test_the_bar_of_a_phone_shows_where_one_is(browser: "Browser", site: Served, path: str) -> None:
    visitor = Visitor(browser, site, viewport={"width": 360, "height": 800})
    page = visitor.open(path)

    here = page.locator(".bar nav [aria-current]").bounding_box()
    bar = page.locator(".bar nav").bounding_box()
    assert here is not None
    assert bar is not None
    assert bar["x"] <= here["x"]
    assert here["x"] + here["width"] <= bar["x"] + bar["width"]
    visitor.check()


def test_what_is_missing_makes_no_page_of_a_phone_wider(browser: "Browser", tmp_path: Path) -> None:
    first, _, third = records([Asked("Hello?")] * 3)
    write_log(tmp_path / "log.db", [first, third])
    store = tmp_path / "x.duckdb"
    main(["consume", "--log", str(tmp_path / "log.db"), "--db", str(store), "--until-idle"])

    with served(store, tmp_path) as site:
        visitor = Visitor(browser, site, viewport={"width": 360, "height": 800})
        page = visitor.open("/cases")

        assert page.locator(".bar .missing").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        visitor.check()


@pytest.mark.slow
def test_the_filter_survives_what_is_done_to_a_case(browser: "Browser", tmp_path: Path) -> None:
    with served(support_store(tmp_path, count=20), tmp_path) as site:
        visitor = Visitor(browser, site)
        page = visitor.open("/cases?q=status:failed&sort=worst")
        page.click("[data-row] >> nth=0")
        page.wait_for_url("**/case?*")
        following = page.locator("[data-action=next-page]").get_attribute("href")
        for key in ("=", "="):
            with page.expect_navigation():
                page.keyboard.press(key)
        assert "is expected" in page.inner_text(".verdicts")
        assert page.locator("[data-action=next-page]").get_attribute("href") == following
        with page.expect_navigation():
            page.click("text=Undo mine")
        assert page.locator("text=is expected").count() == 0
        page.keyboard.press("Escape")
        page.wait_for_url("**/cases?*")
        assert page.locator("#q").input_value() == "status:failed"
        visitor.check()


@pytest.mark.slow
def test_numbers_move_while_the_page_is_open_and_pause_stops_them(
    browser: "Browser", tmp_path: Path
) -> None:
    class Counter:
        version = 1

    live = Counter()
    with served(support_store(tmp_path, count=3), tmp_path, live=live) as site:
        visitor = Visitor(browser, site)
        page = visitor.open("/")
        with page.expect_response("**part=live"):
            pass
        page.evaluate("document.querySelector('.tiles').dataset.old = 'yes'")
        with page.expect_response("**part=live"):
            live.version += 1
        assert page.locator("#live-state").inner_text() == "live"
        page.keyboard.press(".")
        assert page.locator("#live-state").inner_text().startswith("paused at")
        assert "from=" in page.url  # what is shown now, for others
        page.wait_for_timeout(500)  # what was under way
        before = len(visitor.asked)
        live.version += 1
        page.wait_for_timeout(2_500)
        assert visitor.asked[before:] == []
        others = [visitor.context.new_page() for _ in range(3)]
        for other in others:
            other.goto(site.site.address)
        others[0].wait_for_timeout(2_000)
        streams = sum(url.endswith("/ticks") for url in visitor.asked)
        assert streams == 1
        visitor.check()


@pytest.mark.slow
def test_a_refresh_that_fails_keeps_the_figures_and_is_repeated(
    browser: "Browser", tmp_path: Path
) -> None:
    class Counter:
        version = 1

    live = Counter()
    with served(support_store(tmp_path, count=3), tmp_path, live=live) as site:
        page = Visitor(browser, site).open("/")
        with page.expect_response("**part=live"):
            pass
        tiles = page.locator(".tiles").inner_text()
        slow = "<html><body><header>evaltap</header>This took too long</body></html>"
        page.route("**part=live", lambda route: route.fulfill(status=504, body=slow))
        with page.expect_response("**part=live"):
            live.version += 1
        state = page.locator("#live-state")
        state.get_by_text("stale, retrying").wait_for()
        assert page.locator(".tiles").inner_text() == tiles
        assert page.locator("header").count() == 1
        page.unroute("**part=live")
        with page.expect_response("**part=live"):
            pass
        state.get_by_text("live", exact=True).wait_for()


@pytest.mark.slow
def test_keys_lead_from_the_list_to_the_difference_and_back(
    browser: "Browser", site: Served
) -> None:
    visitor = Visitor(browser, site)
    page = visitor.open("/cases?q=tool:refund")
    press = page.keyboard.press

    press("j")
    press("Enter")
    page.wait_for_url("**/case?*")
    press("]")
    assert page.evaluate("document.activeElement.className") == "step changed"
    press("]")
    assert page.evaluate("document.activeElement.className") == "step missing"
    press("[")
    assert page.evaluate("document.activeElement.className") == "step changed"
    press("d")
    assert page.locator("details.equal[open]").count() > 0
    press("?")
    assert page.locator("dialog[open]").count() == 1
    press("Escape")
    press("Escape")
    page.wait_for_url("**/cases?*")
    assert page.evaluate("document.activeElement.hasAttribute('data-row')")
    press("/")
    page.keyboard.type(" g c")
    assert page.locator("#q").input_value() == " g c"  # selected, and no key acts while typing
    visitor.check()


@pytest.mark.slow
def test_nine_turns_are_reviewed_by_keys_alone(browser: "Browser", tmp_path: Path) -> None:
    with served(support_store(tmp_path, count=20), tmp_path) as site:
        visitor = Visitor(browser, site)
        page = visitor.open("/cases")
        press = page.keyboard.press
        press("g")
        press("u")
        page.wait_for_url("**/review")
        page.fill("#fill", "latency:>0ms")
        press("Enter")
        page.wait_for_selector(".queues")
        page.wait_for_load_state()  # the script handles keys
        press("s")
        for number in range(9):
            page.wait_for_selector(".decide")
            if number == 3:
                press("c")
                page.keyboard.type("too terse, axs")
                press("Escape")
            with page.expect_navigation():
                press("axs"[number % 3])
        assert "9 decided by you" in page.inner_text(".total")
        with page.expect_navigation():
            press("u")
        assert "8 decided by you" in page.inner_text(".total")
        visitor.check()


def test_single_keys_can_be_turned_off(browser: "Browser", site: Served) -> None:
    visitor = Visitor(browser, site)
    page = visitor.open("/cases")
    page.keyboard.press("?")
    page.uncheck("#keys-on")
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("?")
    page.keyboard.press("j")
    assert page.locator("dialog[open]").count() == 0
    assert not page.evaluate("document.activeElement.hasAttribute('data-row')")
    visitor.check()


@pytest.mark.slow
def test_attacks_are_text(browser: "Browser", tmp_path: Path) -> None:
    chosen = MANY[:: len(MANY) // 10]
    with served(support_store(tmp_path, cases=attack_cases(chosen)), tmp_path) as site:
        visitor = Visitor(browser, site)
        page = visitor.open("/cases?sort=oldest")
        count = page.locator("[data-row]").count()
        assert count == len(chosen)
        seen = set()
        for number in range(count):
            page.locator("[data-row]").nth(number).click()
            page.wait_for_url("**/case?*")
            page.keyboard.press("d")
            assert page.evaluate("window.hacked") is None
            seen.add(page.locator("h1").inner_text()[:5])
            page.go_back()
        assert seen == {f"{number:05d}" for number in range(count)}
        visitor.open("/")
        assert page.evaluate("window.hacked") is None
        visitor.check()


def test_the_printed_link_logs_in_and_its_code_is_gone(browser: "Browser", site: Served) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.link())
    page.wait_for_url(f"{site.site.address}/")
    (cookie,) = context.cookies()
    assert cookie.get("name") == f"__Host-evaltap-{site.site.port}"
    assert [cookie.get(name) for name in ("httpOnly", "secure", "sameSite")] == [True, True, "Lax"]
    assert "#" not in page.evaluate("history.length + location.href")
    context.close()


def test_the_theme_is_kept(browser: "Browser", site: Served) -> None:
    visitor = Visitor(browser, site, color_scheme="light")
    page = visitor.open("/cases")
    page.click(".menu > summary")
    page.click("button[value=dark]")
    page.wait_for_selector("html[data-theme=dark]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 16, 20)"
    assert page.url.endswith("/cases")
    visitor.check()


@pytest.mark.parametrize("path", PAGES)
def test_every_page_can_be_read_without_script(plain_visitor: Visitor, path: str) -> None:
    page = plain_visitor.open(path)

    assert page.locator("h1").count() == 1
    assert page.locator("h1").is_visible()
    assert len(page.inner_text("main")) > 30
    for one in page.locator("button:visible").all():  # what needs a script is not offered
        assert one.get_attribute("type") != "button", one.inner_text()


@pytest.mark.slow
def test_a_fork_is_found_by_keys_and_read_without_script(
    browser: "Browser", replayed: Served
) -> None:
    visitor = Visitor(browser, replayed)
    page = visitor.open("/")
    press = page.keyboard.press
    press("g")
    press("e")
    page.wait_for_url("**/experiments")
    press("j")
    press("Enter")
    page.wait_for_url("**/experiment?*")
    page.click('[data-row]:text("s-fork")')
    page.wait_for_url("**case=s-fork")
    press("]")
    assert page.evaluate("document.activeElement.className") == "fork"
    press("t")
    press("Escape")
    page.wait_for_url(lambda url: "case=" not in url)
    visitor.check()

    plain = Visitor(browser, replayed, java_script_enabled=False)
    page = plain.open(of_replay(replayed, "/experiment?id={id}&case=s-fork"))
    assert "no recorded result" in page.inner_text("td.fork >> nth=0")
    plain.check()


@pytest.mark.slow
def test_pages_can_be_read_without_script(browser: "Browser", site: Served) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.site.address}/cases")
    page.fill("#code", site.link().partition("#")[2])
    page.click("button.primary")
    page.fill("#q", "tool:refund")
    page.click("button.primary")
    page.click("[data-row]")
    assert "not called" in page.inner_text(".step.missing")
    context.close()
