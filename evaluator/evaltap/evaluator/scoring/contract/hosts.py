"""Find the server of a URL, and decide which servers may receive a key from the environment.

Files may come from untrusted people.  A key from the environment is therefore sent only to the server that
the environment names, or to the provider that issued it, and never to a server named only by a file.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit


class Provider(NamedTuple):
    """A provider with an OpenAI-compatible address, and the environment variables that hold its keys."""

    url: str
    keys: tuple[str, ...]
    judge: str = ""
    """The model that judges if none is named."""


PROVIDERS: Final = {
    "openai": Provider("https://api.openai.com/v1", ("OPENAI_API_KEY",), "gpt-4o-mini"),
    "anthropic": Provider(
        "https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY",), "claude-haiku-4-5"
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "gemini-2.5-flash",
    ),
    "hunyuan": Provider("https://api.hunyuan.cloud.tencent.com/v1", ("HUNYUAN_API_KEY",)),
}
OPENAI_URL: Final = PROVIDERS["openai"].url
"""The server for a key without a URL, for judges and embeddings."""
KNOWN_URLS: Final = tuple(provider.url for provider in PROVIDERS.values())

_PORTS: Final = {"http": 80, "https": 443}


def origin(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port of a URL; None if the text does not name a server."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or _PORTS.get(parts.scheme)


def host_of(url: str) -> str:
    """Return host and port for display, without path, user or query, which may contain secrets."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return "an address that is not a URL"
    host = parts.hostname or "an address without a host"
    return f"{host}:{port}" if port else host


def among(url: str, trusted: Iterable[str]) -> bool:
    """Return whether the URL names the same server as one of the trusted URLs."""
    where = origin(url)
    return where is not None and any(origin(one) == where for one in trusted if one)
