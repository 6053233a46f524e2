"""Words that follow a secret's name in a sentence about it: `the password policy`."""

from evaltap.recorder.privacy.lexicon import patterns, words

_RE = patterns("topics")

OF_WHAT = frozenset(words("topics.of_what"))
"""What stands after such a word is about the password, not the password."""


def is_about(text: str, end: int) -> bool:
    """Return whether the name is only the first of two: `the password policy`."""
    following = _RE.following.match(text, end)
    return following is not None and following[1].lower() in OF_WHAT
