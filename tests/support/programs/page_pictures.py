"""Take the pictures of the page for the documentation.

python tests/support/programs/page_pictures.py [FOLDER]

Every page, light, dark and on a phone, of one day of a support agent.
"""

import sys
import tempfile
from collections.abc import Collection
from contextlib import ExitStack, chdir
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2]))

from evaltap.evaluator.page.security.access import Person
from support.servers.chromium import ARGUMENTS, browser_path
from support.servers.page_server import SAME, Served, served
from support.worlds.page_store import GENEROUS
from support.worlds.picture_store import picture_store
from support.worlds.replayed_shop import replayed_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER: Final = Path(__file__).parents[3] / "docs" / "how-to" / "pictures"
CASE: Final = f"set=live&id={GENEROUS}&app=shop"
PAGES: Final = {
    "overview": "/?range=24h",
    "cases": "/cases",
    "cases-failed": "/cases?q=status:failed+tool:get_order&sort=worst",
    "cases-none": "/cases?q=tool:none+status:failed",
    "case": f"/case?{CASE}",
    "expected": f"/expected?{CASE}",
    "runs": "/runs",
    "run": "/run?id={run}",
    "compare": "/compare",
    "experiments": "/experiments",
    "experiment": "/experiment?id={experiment}",
    "beside": "/experiment?id={experiment}&case=s-fork",
    "review": "/review?at={item}",
    "review-queues": "/review",
    "basket": "/basket",
    "coverage": "/coverage?by=tool",
    "judges": "/judges",
    "delivery": f"/delivery?id={GENEROUS}",
    "alerts": "/alerts",
    "changes": "/changes",
    "settings": "/settings",
    "login": "/login",
}
OF_A_REPLAY: Final = ("experiments", "experiment", "beside")
"""The pages that are taken of a replay's store."""
SCREENS: Final = {"light": (1280, 800, 1200), "dark": (1280, 800, 1200), "phone": (360, 740, 1480)}
"""Width, height, and the most that a picture shows."""
COLOURS: Final = 64


def work(site: Served, ids: list[str], reviews: int = 4) -> dict[str, str]:
    """Do what people do, so that every page has something to show; return what pages are asked for."""

    site.cookies["admin"] = site.access.log_in(Person("ann", "admin"))
    for name, role in (("ben", "reviewer"), ("cleo", "viewer")):
        site.access.enrol(Person(name, role))

    def post(path: str, **form: str) -> str:
        answer = site.ask(path, "POST", headers=SAME, form=form)
        assert answer.status == 303, answer.text
        return answer.headers["Location"] or ""

    def review(query: str, most: int) -> str:
        post("/review/add", q=query)
        at = post("/review/next").partition("at=")[2].partition("&")[0]
        for number in range(most):
            if not at:
                break
            action = "reject" if number % 9 == 4 else "approve"
            decided = post("/review/decide", item=at, action=action)
            at = decided.partition("at=")[2].partition("&")[0]
        return at

    review("metric:llm_rubric_response=passed", reviews)
    review("metric:llm_rubric_response=failed", min(9, reviews))
    at = review("metric:trajectory_f1=failed", 3)
    post("/basket/pick", case=urlencode({"app": "shop", "set": "live", "id": GENEROUS}))
    for number, name in enumerate(ids):
        key = urlencode({"app": "shop", "set": "live", "id": name})
        post("/basket/pick", case=key)
        if number:
            seen = site.ask(f"/expected?{key}").text.partition('name="seen" value="')[2][:16]
            post("/expected/use", **{"case": key, "seen": seen, "turn-1": "1"})
    run = site.ask("/runs?format=json").text.partition('"run_id":"')[2].partition('"')[0]
    return {"item": at, "run": run}


def take(folder: Path) -> None:
    """Write the pictures of each page."""
    from playwright.sync_api import sync_playwright

    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as temporary,
        sync_playwright() as playwright,
        ExitStack() as opened,
    ):
        store, golden = picture_store(Path(temporary) / "work")
        opened.enter_context(chdir(store.parent))  # pages name files as they were given
        served_ = served(Path(store.name), Path(temporary), sets=(Path(golden.name),))
        site = opened.enter_context(served_)
        names = work(site, ["s-754", "s-755", "s-757", "s-750"], 50)
        browser = playwright.chromium.launch(executable_path=browser_path(), args=ARGUMENTS)
        for screen in SCREENS:
            _pictures(browser, site, folder, screen, names)
        take_replay(browser, folder, Path(temporary) / "replay")
        browser.close()


def take_replay(browser: "Browser", folder: Path, work_in: Path) -> None:
    """Write the pictures of the pages about experiments."""
    store = replayed_store(work_in)
    with chdir(store.parent), served(Path(store.name), work_in) as site:
        site.cookies["admin"] = site.access.log_in(Person("ann", "admin"))
        found = site.ask("/experiments?format=json").text
        names = {"experiment": found.partition('"experiment_id":"')[2].partition('"')[0]}
        for screen in SCREENS:
            _pictures(browser, site, folder, screen, names, OF_A_REPLAY)


def _pictures(
    browser: "Browser",
    site: Served,
    folder: Path,
    screen: str,
    names: dict[str, str],
    only: Collection[str] = PAGES.keys() - OF_A_REPLAY,
) -> None:
    width, height, most = SCREENS[screen]
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if screen == "dark" else "light",
    )
    page.goto(site.link())
    page.wait_for_url(f"{site.site.address}/")
    for name, path in PAGES.items():
        if name not in only:
            continue
        page.goto(site.site.address + path.format(**names))
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, screen)
        long = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size({"width": width, "height": max(height, min(long, most))})
        taken = Image.open(BytesIO(page.screenshot())).convert("RGB")
        taken.quantize(COLOURS, dither=Image.Dither.NONE).save(
            folder / f"{name}-{screen}.png", optimize=True
        )
        page.set_viewport_size({"width": width, "height": height})
    page.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
