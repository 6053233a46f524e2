"""Shorten recorded text for reasons and reports."""


def quoted(text: str, limit: int = 200) -> str:
    """Return a quoted text, cut in the middle if it is long."""
    if len(text) <= limit:
        return repr(text)
    half = limit // 2
    return f"{text[:half]!r}…{text[-half:]!r} ({len(text)} code points)"


def cut(text: str, limit: int) -> str:
    """Return a text; if it is too long, its beginning and the number of missing characters."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def one_line(text: str, limit: int) -> str:
    """Return a text on one line, cut at `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
