"""Find keys without a form of their own: long words beside a service's name, or that look random."""

import re
from collections import Counter
from collections.abc import Iterator
from math import log2

from evaltap.recorder.privacy.findings import Finding
from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.secret_formats import SERVICES

_NEAR = re.compile(
    r"(?:"
    + "|".join(SERVICES)
    + r"|key|token|secret|credential|passwor[dt]|clave|schl[üu]ssel|clé|chave)"
    r"(?![a-z]{0,3}(?:board|ring|note))[\w.-]{0,30}[\"'\s]{0,3}(?:[\w ]{0,24}[ ](?:is|was|=|use|ist)[ ]|(?:[ ](?:for|of|to)[ ][\w ]{1,20})?[=>:|?,(]{1,3}|[ ])[\"'`\s=>]{0,5}(?:[bru][\"'])?\Z"
)
_NEAR_WORDS = frozenset(
    listed("""
linked co new message private key keys apikey token tokens secret secrets credential credentials
""")
).union(SERVICES, ("password", "passwort", "clave", "chave", "schlüssel", "schlussel", "clé"))
_LOWER_WORD = re.compile(r"[^\W_]+")
_NO_KEY = re.compile(
    r"(?<![a-z])(?:(?:web)?socket|commit|revision|sha\d*|md5|digest|hash|checksum|trace|span|request|etag|uuid|guid|version|build|branch|tag"
    r"|cache|public|idempot\w*|partition|primary|file|path|image|url|run|job|host|name|region|model|bucket|channel|id|ids"
    r"|(?:next|continuation|page|starting|sync|sequence|request|idempotency|lock|forward|backward)[-_ ]?token)"
    r"[\w-]{0,8}(?:[ ](?:hit|miss|restored|saved|not found)?[ ]?(?:from|with|for|under)?[ ]?keys?)?[\"'\s]{0,3}[=:|>,]{0,3}[\"'\s]{0,4}\Z"
)
_KEY_ID = re.compile(r"(?:0x)?[0-9A-F]{8,40}")
_OF_KEY_ID = re.compile(r"(?:gpg|pgp|apt|import|sign|recv)[^\n]{0,30}key\W{0,3}(?:id\W{0,3})?\Z")
_CANDIDATE = re.compile(r"[A-Za-z0-9_+/=.:-](?<![A-Za-z0-9_+/=.:-].)[A-Za-z0-9_+/=:-]{13,512}+")


def beside_services(seen: str, lower: str) -> Iterator[Finding]:
    """Yield long words next to the name of a service, or the word key."""
    for match in _CANDIDATE.finditer(seen):
        begin = match.start()
        value = match[0]
        name, sign, rest = value.partition("=")
        if sign and rest.strip("=") and _NAME.fullmatch(name.lstrip("-")):
            if len(rest) < 14:
                continue  # another setting: `--region=eu-west-1`
            begin, value = begin + len(name) + 1, rest
        value = value.rstrip(".:")
        before = lower[max(0, begin - 72) : begin]
        if _NEAR_WORDS.isdisjoint(_LOWER_WORD.findall(before)) or not _is_random(value):
            continue
        if (
            _NEAR.search(before)
            and not _NO_KEY.search(before)
            and not (_KEY_ID.fullmatch(value) and _OF_KEY_ID.search(before))
            and seen[begin + len(value) : begin + len(value) + 1] != "("
            and _FILE_ENDING.match(seen, begin + len(value)) is None
        ):
            yield Finding("secret", begin, begin + len(value), value)


_FILE_ENDING = re.compile(
    r"\.(?:[a-z]{2,8}\.)?(?:gz|zst|bz2|xz|zip|tgz|csv|json|jsonl|parquet|logs?|txt|png|jpe?g|svg|pdf|html?|ya?ml|tar|dump|sql|pem|key|pub|crt|whl|jar|js|py|ts|css)\b"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z_.-]{1,40}\d?")
_TIME = re.compile(r"20\d\d-\d\d-\d\d(?!\w)|20\d\d-\d\d-\d\dT")
_HEX_ONLY = re.compile(r"[0-9a-fA-F-]+")


def _is_random(value: str) -> bool:
    digits = sum(map(str.isdigit, value))
    if (
        not digits
        or digits == len(value)
        or (value.count("/") > 2 and value[-1] != "=" and "+" not in value)
        or "://" in value
        or value.startswith(("http", "/", "arn:", "sha256:", "SHA256:", "MD5:"))
        or _TIME.match(value) is not None
    ):
        return False
    return _entropy(value) >= (
        2.5 if _HEX_ONLY.fullmatch(value) else 3.0
    ) and not _is_made_of_words(value)


def _is_made_of_words(value: str) -> bool:
    """Return whether it is a name with numbers: `gpt-4o-mini-2024-07-18`, `v1.2.3-rc4`."""
    parts = re.split(r"[-_./:]", value)
    return len(parts) > 2 and all(
        part.isalpha() or part.isdigit() or len(part) < 5 for part in parts
    )


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(n / total * log2(n / total) for n in Counter(value).values())


_RANDOM_WORD = re.compile(
    r"[A-Za-z0-9_+/=-](?<![A-Za-z0-9_+/=.-].)[A-Za-z0-9_+/=-]{19,512}+(?![\w.]*\.[a-z]{2,4}\b)"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def random_words(seen: str) -> Iterator[Finding]:
    """Yield words that look random: an opt-in rule."""
    for match in _RANDOM_WORD.finditer(seen):
        value = match[0]
        if _UUID.fullmatch(value) or not _is_random(value):
            continue
        hexadecimal = _HEX_ONLY.fullmatch(value) is not None
        if len(value) >= 32 if hexadecimal else _entropy(value) >= 3.7:
            yield Finding("opaque", *match.span(), value)
