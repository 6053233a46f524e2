"""Write a comparison to a file; the extension of the file name selects the format."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from evaltap.evaluator.reports.compare.data import comparison_data
from evaltap.evaluator.reports.compare.model import Comparison
from evaltap.evaluator.reports.formats import format_of
from evaltap.schemas.files.documents import write_bytes


def write_comparison(found: Comparison, path: Path) -> None:
    """Write a comparison; raise InputError for an unknown extension or if writing fails."""
    text = _WRITERS[format_of(path)](found)
    write_bytes(path, text.encode("utf-8", "replace"))


def _json(found: Comparison) -> str:
    return json.dumps(comparison_data(found), ensure_ascii=False, indent=1) + "\n"


def _html(found: Comparison) -> str:
    from evaltap.evaluator.reports.compare.html import comparison_page

    return comparison_page(found)


def _junit(found: Comparison) -> str:
    from evaltap.evaluator.reports.compare.junit import comparison_junit

    return comparison_junit(found)


def _markdown(found: Comparison) -> str:
    from evaltap.evaluator.reports.compare.markdown import comparison_markdown

    return comparison_markdown(found)


_WRITERS: Final[Mapping[str, Callable[[Comparison], str]]] = {
    "html": _html,
    "json": _json,
    "junit": _junit,
    "markdown": _markdown,
}
