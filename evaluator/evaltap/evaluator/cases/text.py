"""Recorded text within limits, for reasons and reports that people read."""


def quoted(text: str, limit: int = 200) -> str:
    """Return a text in quotes, cut in the middle when it is long."""
    if len(text) <= limit:
        return repr(text)
    half = limit // 2
    return f"{text[:half]!r}…{text[-half:]!r} ({len(text)} code points)"


def cut(text: str, limit: int) -> str:
    """Return a text, or its beginning and how much is missing."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def one_line(text: str, limit: int) -> str:
    """Return a text on one line, cut at so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
