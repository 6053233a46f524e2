"""Find e-mail addresses in text: plain, URL-encoded or spelled out."""

import re
from collections.abc import Iterator

from evaltap.recorder.privacy.text.normalization import listed

Address = tuple[int, int, str]

_MARKS = "\u0300-\u036f\u0900-\u0dff\u0e00-\u0e7f"  # combining marks, which are part of letters
_AT = re.compile(r"[ ]?(?:@|%40|&#64;|&#[xX]40;|&commat;)[ ]?")
_LOCAL = re.compile(r"[\w.+!#$&'*/=?^`{|}~" + _MARKS + r"-]{1,256}+|\"[^\"\r\n<>]{1,64}\"")
"""Matched on the reversed text before the sign."""
_HOST = re.compile(
    r"(?:[^\W_][\w"
    + _MARKS
    + r"-]{0,62}+(?:\.|%2[eE]|&#46;|[ ]?[\[(](?:\.|dot)[\])][ ]?|[ ](?:dot|DOT)[ ])){1,8}(?:xn--[a-z0-9-]{2,40}|[^\W\d_](?:[^\W\d_]|["
    + _MARKS
    + r"]){1,23})|\[(?:IPv6:)?[0-9a-fA-F.:]{7,45}\]|localhost\b"
)
_SPELT = re.compile(
    r"(?i)(?<![\w.+-])([\w.+-]{1,64}+(?:[ ]?(?:\[dot\]|\(dot\)|\{dot\})[ ]?[\w.+-]{1,64}+){0,3})"
    r"[ ]{0,2}(?:\[at\]|\(at\)|\{at\}|<at>|\[@\]|\(@\)|_at_| at |\[ at \]|\( at \))[ ]{0,2}"
    r"([\w-]{1,63}+(?:[ ]{0,2}(?:\[dot\]|\(dot\)|\{dot\}|<dot>|\[\.\]|\(\.\)|_dot_| dot |\.|\[ dot \]|\( dot \))[ ]{0,2}[\w-]{1,63}+){1,5})"
)
_WORDS = re.compile(
    r"(?i)[ ]{0,2}(?:\[ ?dot ?\]|\( ?dot ?\)|\{dot\}|<dot>|\[\.\]|\(\.\)|_dot_| dot )[ ]{0,2}"
)
_ENTITIES = ("&#64;", "&#x40;", "&commat;")
_FILES = frozenset(listed("""
png jpg jpeg gif webp svg css js mjs ts tsx jsx json html htm md txt tgz gz zip tar exe dll py rb php
java yml yaml xml pdf so whl map vue ico bmp mp4 mp3
"""))  # fmt: skip
_CODE = frozenset(
    listed("""
this return super break continue git
""")
)
_VERSION = re.compile(r"v?\d+\.\d|\d+x\.")


def addresses(text: str, lower: str) -> Iterator[Address]:
    """Yield the e-mail addresses of a text with their normal form."""
    if "@" in text or "%40" in text or ("&" in text and any(one in lower for one in _ENTITIES)):
        for sign in _AT.finditer(text):
            yield from _around(text, sign)
    if _may_be_spelt(lower):
        for match in _SPELT.finditer(text):
            host = _WORDS.sub(".", match[2])
            if (
                re.fullmatch(r"(?:[\w-]+\.)+[a-zA-Z]{2,24}", host)
                and host.rsplit(".", 1)[-1].lower() in _TOPS
            ):
                name = _WORDS.sub(".", match[1])
                yield *match.span(), f"{name}@{host}".casefold()


def _may_be_spelt(lower: str) -> bool:
    return (
        "dot" in lower
        or "[@]" in lower
        or "(@)" in lower
        or ("]" in lower and "at]" in lower)
        or (")" in lower and "at)" in lower)
        or ("}" in lower and "at}" in lower)
        or (">" in lower and "at>" in lower)
        or ("_" in lower and "_at_" in lower)
    )


def _around(text: str, sign: re.Match[str]) -> Iterator[Address]:
    name = _LOCAL.match(text[max(0, sign.start() - 256) : sign.start()][::-1])
    host = _HOST.match(text, sign.end())
    if name is None or host is None:
        return
    local, end = name[0][::-1], host.end()
    place = _NORMAL.sub(".", host[0]).casefold()
    top = place.rsplit(".", 1)[-1]
    if (
        top in _FILES
        or _VERSION.match(place)
        or (" " in f"{sign[0]}{host[0]}" and top not in _TOPS)
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
    if not local or (local in _CODE and (local != "git" or text[end : end + 1] in (":", "/"))):
        return
    yield sign.start() - len(local), end, f"{local}@{place}".casefold()


_NORMAL = re.compile(r"%2e|&#46;|[ ]?[\[(](?:\.|dot)[\])][ ]?|[ ]dot[ ]", re.IGNORECASE)
_TOPS = frozenset(listed("""
com org net edu gov mil int info biz io ai co dev app me tv xyz online site tech cloud shop blog name
pro email example test de uk us eu fr es it nl be ch at pl se no dk fi ie pt gr cz sk hu ro bg hr si rs
ua ru tr il in cn jp kr tw hk sg my th vn id ph au nz za ng ke eg br mx ar cl ca pe is lt lv ee lu
"""))  # fmt: skip
