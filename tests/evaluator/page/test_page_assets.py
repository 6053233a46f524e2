"""Third-party files of the page: the published bytes, with their licences."""

import hashlib
from importlib.resources import files

import pytest

from evaltap.evaluator.page.rendering import asset, assets

STATIC = files("evaltap.evaluator.page") / "static"
STYLE = files("evaltap.evaluator.reports.html") / "static" / "style.css"


@pytest.mark.parametrize(
    ("name", "begins"),
    [("htmx.min.js", "a0abb04f2f45a1f8"), ("hx-csp.min.js", "a7e1e6711ae6c3e5")],
)
def test_vendored_files_are_those_of_htmx_4_0_1(name: str, begins: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest().startswith(begins)


def test_the_licence_comes_with_them() -> None:
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE").read_text()


def test_addresses_change_with_the_content() -> None:
    address = asset("style.css")
    digest = hashlib.sha256(STYLE.read_bytes()).hexdigest()
    assert address == f"/static/style.{digest[:12]}.css"
    assert assets()[address].name == "style.css"


def test_scripts_and_style_are_small() -> None:
    assert sum(file.stat().st_size for file in assets().values() if file.suffix == ".js") < 60_000


def test_every_block_of_the_style_sheet_is_closed() -> None:
    text = STYLE.read_text("utf-8")
    assert text.count("{") == text.count("}")
