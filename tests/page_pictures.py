"""Takes the pictures of the page: python tests/page_pictures.py FOLDER [all].

Without `all` those of the documentation; with it every page, light, dark and on a phone.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from evaltap.evaluator.page.security.access import Person
from page_server import SAME, Served, served
from page_store import GENEROUS, support_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CASE: Final = f"set=live&id={GENEROUS}&app=shop"
DOCUMENTED: Final = {
    "page-overview": "/?range=24h",
    "page-case": f"/case?{CASE}",
    "page-basket": "/basket",
}
EVERY: Final = {
    "overview": "/?range=24h",
    "cases": "/cases",
    "failed": "/cases?q=status:failed+tool:get_order&sort=worst",
    "none": "/cases?q=tool:none+status:failed",
    "case": f"/case?{CASE}",
    "expected": f"/expected?{CASE}",
    "runs": "/runs",
    "run": "/run?id={run}",
    "compare": "/compare",
    "review": "/review?at={item}",
    "queues": "/review",
    "basket": "/basket",
    "coverage": "/coverage",
    "judges": "/judges",
    "delivery": f"/delivery?id={GENEROUS}",
    "alerts": "/alerts",
    "changes": "/changes",
    "settings": "/settings",
    "nowhere": "/nowhere",
    "login": "/login",
}
SCREENS: Final = {"light": (1280, 800), "dark": (1280, 800), "phone": (390, 844)}


def work(site: Served, count: int) -> dict[str, str]:
    """Do what people do, so that every page has something to show; return what pages are asked for."""

    site.cookies["admin"] = site.access.log_in(Person("ann", "admin"))

    def post(path: str, **form: str) -> str:
        return site.ask(path, "POST", headers=SAME, form=form).headers["Location"] or ""

    post("/review/add", q="status:failed")
    at = post("/review/next").partition("at=")[2].partition("&")[0]
    for number in range(4):
        action = ("approve", "reject")[number % 2]
        at = post("/review/decide", item=at, action=action).partition("at=")[2].partition("&")[0]
    post("/basket/pick", case=urlencode({"app": "shop", "set": "live", "id": GENEROUS}))
    for number in (count - 3, count - 2, count - 5, count - 6):
        key = urlencode({"app": "shop", "set": "live", "id": f"s-{number:03d}"})
        post("/basket/pick", case=key)
        if number > count - 6:
            seen = site.ask(f"/expected?{key}").text.partition('name="seen" value="')[2][:16]
            post("/expected/use", **{"case": key, "seen": seen, "turn-1": "1"})
    run = site.ask("/runs?format=json").text.partition('"run_id":"')[2].partition('"')[0]
    return {"item": at, "run": run}


def take(folder: Path, *, every: bool = False) -> None:
    """Write a picture for each page."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        place = Path(temporary)
        store = support_store(place / "store", count=120)
        golden = place / "golden.evalset.json"
        golden.write_text('{"evalSetId": "golden", "evalCases": []}')
        with served(store, place, sets=(golden,)) as site:
            names = work(site, 120)
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            if every:
                for screen in SCREENS:
                    _pictures(browser, site, folder, EVERY, screen, names)
            else:
                _pictures(browser, site, folder, DOCUMENTED, "", names)
            browser.close()


def _pictures(
    browser: "Browser",
    site: Served,
    folder: Path,
    pages: dict[str, str],
    screen: str,
    names: dict[str, str],
) -> None:
    width, height = SCREENS.get(screen, (1200, 760))
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if screen == "dark" else "light",
    )
    page.goto(site.link())
    page.wait_for_url(f"{site.site.address}/")
    for name, path in pages.items():
        page.goto(site.site.address + path.format(**names))
        ending = f"-{screen}" if screen else ""
        page.screenshot(path=folder / f"{name}{ending}.png", full_page=bool(screen))
    page.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), every="all" in sys.argv[2:])
