"""Check whether a text is one well-formed XML document.

Nothing is expanded and nothing is fetched: using an entity declared inside the document is an error, so a
small text cannot expand into a large one.
"""

from collections.abc import Callable
from xml.parsers import expat

from evaltap.schemas.formats.metric import XmlCriterion


def compile_xml(criterion: XmlCriterion) -> Callable[[str], str | None]:
    """Return the check of the actual text; `skip` is the only strategy, as nothing is compared."""
    if criterion.ignore:
        return lambda _: None
    if not criterion.match_strategy:
        return lambda _: "xml match strategy is empty; expected skip"
    if criterion.match_strategy != "skip":
        return lambda _: f"invalid match strategy {criterion.match_strategy}; expected skip"
    return malformed if criterion.valid else lambda _: None


def malformed(text: str) -> str | None:
    """Return why `text` is not one XML document; None if it is."""
    parser = expat.ParserCreate(encoding="utf-8")
    parser.buffer_text = True

    def declared(version: str, encoding: str | None, _standalone: int) -> None:
        if version != "1.0":
            raise ValueError(f"unsupported version {version}; expected 1.0")
        if encoding is not None and encoding.lower() != "utf-8":
            raise ValueError(f"unsupported encoding {encoding}; expected utf-8")

    def other(data: str) -> None:
        # With a default handler in place, expat reports an internal entity instead of expanding it.
        if data.startswith("&"):
            raise ValueError(f"undefined entity {data}")

    parser.XmlDeclHandler = declared
    parser.CharacterDataHandler = lambda _: None
    parser.DefaultHandler = other
    try:
        parser.Parse(text.strip(" \t\r\n").encode(), True)
    except (expat.ExpatError, ValueError) as error:
        return f"invalid xml: {error}"
    return None
