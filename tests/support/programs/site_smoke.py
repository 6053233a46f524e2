"""The built site shows code as code: no fence was read as text.  `./run docs` runs this.

python tests/support/programs/site_smoke.py site
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

INFO = re.compile(r"\w+ \w+=\S+\n")
"""The first line of a fence that became code within a sentence."""


class Article(HTMLParser):
    """The texts of a page's article, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._depth = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._depth += tag == "article"

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "article"

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.texts.append(data)


def literal_fences(site: Path) -> Iterator[str]:
    """Yield the place of each fence that was not read as code."""
    pages = sorted(site.rglob("*.html"))
    if not pages:
        yield f"{site}: no pages"
    for page in pages:
        for text in Article(page.read_text()).texts:
            if "```" in text or INFO.match(text):
                yield f"{page}: {' '.join(text.split())[:80]}"


if __name__ == "__main__":
    found = list(literal_fences(Path(sys.argv[1])))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(1 if found else 0)
