"""Tell a name that is only mentioned: a variable that is read, a part of an ARN, a postcode's name."""

from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.names.secret_names import is_postcode
from evaltap.recorder.privacy.text.span import Span

_RE = patterns("mentions")


def is_reference(text: str, start: int, end: int) -> bool:
    """Return whether a name is that of a variable that is read here, or part of an ARN."""
    before = text[start - 1]
    if before == ":":
        return text[start - 13 : start - 1].isdigit()
    if text[start:end].strip("-") == "secret" and text[end : end + 1] == "=":
        # What `gcloud` is given is a name.
        return "gcloud " in text[max(0, start - 160) : start]
    if before == "$":
        return _RE.referred.match(text, end) is None
    if text[start - 2 : start] == "${" and text[end : end + 2] in (":?", ":+"):
        return True
    return (
        "}" in text[end : end + 84]
        and _RE.rest_of_template.match(text, end) is not None
        and _RE.in_template.search(text, max(0, start - 44), start) is not None
    )


def is_postcode_in_text(text: str, start: int, end: int, span: Span) -> bool:
    """Return whether a value is a postcode by its name, or by the words of an address around it."""
    value = text[slice(*span)]
    if not value[:1].isdigit() or "pin" not in text[max(0, start - 4) : end].lower():
        return False
    around = text[max(0, start - 120) : start] + text[span[1] : span[1] + 80]
    is_parted = "code" in (text[start:end].lower(), text[end + 1 : end + 5].lower())
    name = "pin code" if is_parted else text[start:end]
    return is_postcode(name, value, _RE.around.findall(around.lower()))
