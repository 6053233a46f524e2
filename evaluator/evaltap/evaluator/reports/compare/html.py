"""A comparison as a section of the HTML report, and as a separate page."""

from markupsafe import Markup

from evaltap.evaluator.reports.compare import wording
from evaltap.evaluator.reports.compare.model import Comparison
from evaltap.evaluator.reports.html import policy_hash, stylesheet, templates

_PACKAGE = "evaltap.evaluator.reports.compare"
_STATUS = {
    "regression": "failed",
    "below_minimum": "failed",
    "inconclusive": "error",
    "improvement": "passed",
    "pass": "passed",
}


def comparison_section(found: Comparison) -> Markup:
    """Return the section; it only needs the style of the report."""
    text = (
        templates(_PACKAGE)
        .get_template("sections.html.j2")
        .render(
            found=found,
            status=_STATUS[found.verdict],
            headline=wording.headline(found),
            sides=wording.sides(found),
            groups=list(wording.groups(found)),
            listed=list(wording.listed(found)),
            words=wording,
        )
    )
    return Markup(text)


def comparison_page(found: Comparison) -> str:
    """Return the section as a self-contained page; it loads nothing and runs no script."""
    style = stylesheet()
    return (
        templates(_PACKAGE)
        .get_template("compare.html.j2")
        .render(
            headline=wording.headline(found),
            sections=comparison_section(found),
            style=Markup(style),
            style_hash=policy_hash(style),
        )
    )
