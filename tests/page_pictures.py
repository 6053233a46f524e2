"""Takes the pictures of the page for the documentation: python tests/page_pictures.py FOLDER."""

import shutil
import sys
import tempfile
from pathlib import Path

from page_server import served
from page_store import GENEROUS, support_store

PICTURES = {"page-overview": "/?range=24h", "page-case": f"/case?set=live&id={GENEROUS}&app=shop"}


def take(folder: Path) -> None:
    """Write a picture for each page."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        place = Path(temporary)
        with served(support_store(place / "store", count=120), place) as site:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            page = browser.new_page(viewport={"width": 1200, "height": 760}, color_scheme="light")
            page.goto(site.link())
            page.wait_for_url(f"{site.site.address}/")
            for name, path in PICTURES.items():
                page.goto(site.site.address + path)
                page.screenshot(path=folder / f"{name}.png")
            browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
