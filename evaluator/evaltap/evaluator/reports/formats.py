"""The formats of reports, by name and by file extension."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import write_bytes

if TYPE_CHECKING:
    from evaltap.evaluator.reports.model import Report

FORMATS: Final = ("html", "json", "junit", "markdown")

_ENDINGS: Final[Mapping[str, str]] = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".xml": "junit",
    ".md": "markdown",
    ".markdown": "markdown",
}


def format_of(path: Path, given: str | None = None) -> str:
    """Return the format of a report's file: the given one, or that of the extension."""
    found = given or _ENDINGS.get(path.suffix.lower())
    if found is None:
        raise InputError(
            f"{path}: unknown report format '{path.suffix}'; expected one of {', '.join(_ENDINGS)}"
        )
    return found


def render(report: "Report", name: str) -> str:
    match name:  # the module of a format is loaded where that format is written
        case "html":
            from evaltap.evaluator.reports.html.report import html

            return html(report)
        case "junit":
            from evaltap.evaluator.reports.junit import junit_xml

            return junit_xml(report)
        case "markdown":
            from evaltap.evaluator.reports.markdown import markdown

            return markdown(report)
    return json.dumps(report.data(), ensure_ascii=False, indent=1) + "\n"


def write_report(report: "Report", path: Path, name: str | None = None) -> None:
    """Write the report to a file; raise InputError with the reason if that fails."""
    write_bytes(path, render(report, format_of(path, name)).encode("utf-8", "replace"))
