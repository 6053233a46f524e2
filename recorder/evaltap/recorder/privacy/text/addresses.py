"""Find e-mail addresses in text: plain, URL-encoded or spelled out."""

import re
from collections.abc import Iterator

from evaltap.recorder.privacy.lexicon import lists, patterns

_RE = patterns("addresses")
_WORDS = lists("addresses")

Address = tuple[int, int, str]

_ENTITIES = ("&#64;", "&#x40;", "&commat;")

_SPELT = ("dot", "[@]", "(@)", "at]", "at)", "at}", "at>", "_at_")


def addresses(text: str, lower: str) -> Iterator[Address]:
    """Yield the e-mail addresses of a text with their normal form."""
    if "@" in text or "%40" in text or ("&" in text and any(one in lower for one in _ENTITIES)):
        for at in _RE.at.finditer(text):
            yield from _around(text, at)
    for sign in _SPELT:  # a loop: a generator costs three times as much
        if sign in lower:
            break
    else:
        return
    for match in _RE.spelt.finditer(text):
        host = _RE.dots.sub(".", match[2])
        if (
            re.fullmatch(r"(?:[\w-]+\.)+[a-zA-Z]{2,24}", host)
            and host.rsplit(".", 1)[-1].lower() in _WORDS.tops
        ):
            yield *match.span(), f"{_RE.dots.sub('.', match[1])}@{host}".casefold()


def _is_code(local: str, after: str) -> bool:
    """Return whether a name before the sign is code, or the user of a Git remote."""
    return local in _WORDS.code and (local != "git" or after in (":", "/"))


def _around(text: str, sign: re.Match[str]) -> Iterator[Address]:
    name = _RE.local.match(text[max(0, sign.start() - 256) : sign.start()][::-1])
    host = _RE.host.match(text, sign.end())
    if name is None or host is None:
        return
    local, end = name[0][::-1], host.end()
    place = _RE.normal.sub(".", host[0]).casefold()
    top = place.rsplit(".", 1)[-1]
    if (
        top in _WORDS.files
        or _RE.version.match(place)
        or (" " in f"{sign[0]}{host[0]}" and top not in _WORDS.tops)
    ):
        return
    if not local.startswith('"'):
        # Markup, code or query syntax before an address is not part of it.
        local = re.split(r"[=?&/]", local)[-1]
        if local[:1] == "$" or local[-1:] == "}":
            return  # `https://$TOKEN@host`
        if local == "password" and text[sign.start() - 9 : sign.start() - 8] == ":":
            return  # `https://user:password@host`
        local = local.lstrip("'*`{|}.#!$^~-")
    if not local or _is_code(local, text[end : end + 1]):
        return
    yield sign.start() - len(local), end, f"{local}@{place}".casefold()
