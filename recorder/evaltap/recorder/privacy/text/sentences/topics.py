"""Words that follow a secret's name in a sentence about it: `the password policy`."""

import re

from evaltap.recorder.privacy.text.normalization import listed

OF_WHAT = frozenset(
    listed("""
policy policies manager field fields hash hashes hashing reset resets length size rule rules hint type format strength
generator prompt box form page requirement requirements authentication protected protection expiry expired expires
history change changed changes limit count counter column algorithm encryption check validation error errors failure
failed attempt attempts name names id ids owner created version versions usage provider providers import mode modes endpoint endpoints where file not nicht no non pas ne nie не
""")
)
"""What stands after such a word is about the password, not the password."""


def is_about(text: str, end: int) -> bool:
    """Return whether the name is only the first of two: `the password policy`."""
    following = _FOLLOWING.match(text, end)
    return following is not None and following[1].lower() in OF_WHAT


_FOLLOWING = re.compile(r"[ ]([a-z]{2,20})")
