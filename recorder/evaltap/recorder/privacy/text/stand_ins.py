"""Recognize what stands where a secret would: placeholders, variables, look-ups in code, remarks.

None of these is a secret, whatever name is in front of it: `password = var.db_password`,
`password: (sensitive value)`, `token: ${{ secrets.TOKEN }}`, `credentials: /etc/app/key.json`.
"""

from evaltap.recorder.privacy.lexicon import patterns, words

_RE = patterns("stand_ins")

_WORDS = frozenset(words("stand_ins.words"))
_VARIABLES = words("stand_ins.variables")
"""How variables, and addresses in a store of secrets, begin."""


def is_placeholder(value: str) -> bool:
    """Return whether a value only stands in for a secret: `${TOKEN}`, `null`, `***`."""
    plain = value.strip().lower()
    return plain in _WORDS or is_variable(value) or not any(map(str.isalnum, plain))


def is_variable(value: str) -> bool:
    """Return whether a value refers to a variable: `${TOKEN}`, `$TOKEN`, `os.environ["TOKEN"]`."""
    plain = value.strip()
    if plain.lower().startswith(_VARIABLES):
        return _RE.monospaced.fullmatch(plain) is None
    return plain[:1] in ("$", "@") and _RE.shell_variable.match(plain) is not None


def is_code(value: str) -> bool:
    """Return whether an unquoted word is an expression or a type: `get_secret()`, `user.pw`."""
    return bool(_RE.code.fullmatch(value) or _RE.types.fullmatch(value))


def stands_here(text: str, at: int) -> bool:
    """Return whether a remark, a file, a version or a template's field starts here."""
    return _RE.stands.match(text, at) is not None


def is_expression(text: str, at: int) -> bool:
    """Return whether a look-up, a call or a type of a program starts here."""
    return _RE.expression.match(text, at) is not None


def monospaced(text: str, at: int) -> tuple[int, int] | None:
    """Return the span of a password in Jira's `{{x}}` that starts here."""
    match = _RE.monospaced.match(text, at)
    return match.span(1) if match is not None else None


def is_stand_in(value: str) -> bool:
    """Return whether all of a value is a variable, a mask, a remark or a version.

    Stricter than `is_placeholder`: for a value that a secret's name would hide whatever it looks like.
    """
    return _RE.all_of_it.fullmatch(value) is not None and _RE.monospaced.fullmatch(value) is None


_OF_MESSAGES = frozenset(words("stand_ins.of_messages"))


def is_message(value: str) -> bool:
    """Return whether it is what a form says of a field: `This field is required.`"""
    if _RE.sentence.fullmatch(value) is None:
        return False
    return not _OF_MESSAGES.isdisjoint(word.strip(".,:;!?()").lower() for word in value.split())
