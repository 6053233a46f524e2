"""Pictures of every page are in the documentation, small and up to date."""

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from evaltap.evaluator.page.routes import PAGES
from support.programs import page_pictures
from support.servers import chromium

DOCS = Path(__file__).parents[3] / "docs" / "how-to"
MOST_BYTES = 3_000_000
MOST_DIFFERENCE = 12.0
"""Of 255, on average over a picture: other fonts and other times stay below, another layout does not."""


def test_every_page_has_its_pictures_and_all_of_them_are_small() -> None:
    taken = {file.name: file.stat().st_size for file in page_pictures.FOLDER.glob("*.png")}

    wanted = {
        f"{name}-{screen}.png" for name in page_pictures.PAGES for screen in page_pictures.SCREENS
    }
    assert set(taken) == wanted
    assert sum(taken.values()) < MOST_BYTES
    shown = {path.partition("?")[0] for path in page_pictures.PAGES.values()}
    assert {route.path for route in PAGES} - {"/why"} <= shown  # the same page as /delivery


def test_the_documentation_shows_each_page() -> None:
    text = (DOCS / "browser.md").read_text("utf-8")

    used = set(re.findall(r"pictures/([a-z-]+)-(?:light|dark|phone)\.png", text))
    assert used == set(page_pictures.PAGES)


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_pictures_are_of_the_page_as_it_is(tmp_path: Path) -> None:
    """When this fails, look at the new pictures and take them with support/programs/page_pictures.py."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not chromium.browser_path():
        pytest.skip(chromium.NONE)
    page_pictures.take(tmp_path)

    wrong = []
    for file in sorted(tmp_path.glob("*.png")):
        now, stored = pixels(file), pixels(page_pictures.FOLDER / file.name)
        height = min(len(now), len(stored))
        difference = float(np.abs(now[:height] - stored[:height]).mean())
        if abs(len(now) - len(stored)) > 0.2 * height or difference > MOST_DIFFERENCE:
            wrong.append(f"{file.name}: {len(stored)} and {len(now)} lines, {difference:.1f} apart")
    assert wrong == []


def pixels(file: Path) -> NDArray[np.int16]:
    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB")).astype(np.int16)  # int takes thirty times as long
