"""The browser for tests of the page and of reports."""

import os
import shutil

# Chromium without windows takes half the time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = [
    "--no-sandbox",  # in containers tests often run as root, where there is none
    "--disable-gpu",
    "--disable-software-rasterizer",  # a third of the time of a page, and draws nothing that we have
]
NONE = f"no browser: none of {', '.join(BROWSERS)} is on the path (EVALTAP_TEST_BROWSER)"


def browser_path() -> str:
    """Return the browser that EVALTAP_TEST_BROWSER names, or the first on the path; empty: there is none."""
    given = os.environ.get("EVALTAP_TEST_BROWSER")
    return given or next(filter(None, map(shutil.which, BROWSERS)), "")
