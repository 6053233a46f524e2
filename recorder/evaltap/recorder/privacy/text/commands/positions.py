"""Where commands have a password that no option marks: `vault login x`, `net user bob x`."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaltap.recorder.privacy.text.names.secret_names import Name, kind_of_name


class _Position(NamedTuple):
    """Where a command has its password: the number of a plain word, or the option before it."""

    command: str
    words: tuple[str, ...]
    """The first plain words; `x*` is any word that starts with x."""
    place: int | tuple[str, ...]
    name: int | None = None
    """The number of the plain word that must be the name of a secret."""
    needs: str = ""
    """A word that must also be there; `-b` also within other flags."""


_BY_OPTION = ("-b", "--body")
_POSITIONS = (
    _Position("ansible-vault", ("encrypt_string",), 1),
    _Position("aws", ("ssm", "put-parameter"), ("--value",), needs="SecureString"),
    _Position("az", ("keyvault", "secret", "set"), ("--value",)),
    _Position("bw", ("login",), 2),
    _Position("bw", ("unlock",), 1),
    _Position("dotnet", ("user-secrets", "set"), 3, name=2),
    _Position("gh", ("secret", "set"), _BY_OPTION),
    _Position("htpasswd", ("*",), -1, needs="-b"),
    _Position("isql", ("*", "*"), 2),
    _Position("mc", ("admin", "user", "add"), 5),
    _Position("mc", ("alias", "set"), 5),
    _Position("mc", ("config", "host", "add"), 6),
    _Position("net", ("use", "*"), 2),
    _Position("net", ("user", "*"), 2),
    _Position("networksetup", ("*", "*"), 2, needs="-setairportnetwork"),
    _Position("npm", ("config", "set"), 3, name=2),
    _Position("cargo", ("login",), 1),
    _Position("poetry", ("publish",), ("-p",)),
    _Position("poetry", ("config", "http-basic.*"), 3),
    _Position("poetry", ("config", "pypi-token.*"), 2),
    _Position("rabbitmqctl", ("add_user",), 2),
    _Position("rabbitmqctl", ("change_password",), 2),
    _Position("rclone", ("obscure",), 1),
    _Position("security", ("unlock-keychain",), ("-p",)),
    _Position("security", ("create-keychain",), ("-p",)),
    _Position("security", ("import",), ("-P",)),
    _Position("vault", ("login",), 1),
    _Position("wandb", ("login",), -1),
    _Position("wpa_passphrase", ("*",), -1),
)
_JOINED = {
    "lftp": (("-u", "--user"), ","),
    "rpcclient": (("-U", "--user"), "%"),
    "smbclient": (("-U", "--user"), "%"),
    "winexe": (("-U", "--user"), "%"),
    "expdp": (None, "/"),
    "impdp": (None, "/"),
    "sqlplus": (None, "/"),
}
"""Commands that take user and password in one word: after which option (None: the first plain word),
and the sign between the two."""


def password_places(name: str, words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of a command's words that are passwords, and where in the word they begin."""
    plain = [index for index, word in enumerate(words) if not word.startswith("-")]
    for position in _POSITIONS:
        if position.command == name and _applies(position, words, plain):
            place = _place(position, words, plain)
            if place is not None:
                yield place


def passwords_with_user(name: str, words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the number and span of passwords in one word with the user: `sqlplus bob/x@db`."""
    if name not in _JOINED:
        return
    options, sign = _JOINED[name]
    first = next((index for index, word in enumerate(words) if not word.startswith("-")), None)
    for index, word in enumerate(words):
        is_marked = words[index - 1] in options if options else index == first
        at = word.find(sign)
        end = len((word if options else word.partition("@")[0]).rstrip("'\""))
        if is_marked and 0 < at < end - 1:
            yield index, at + 1, end


def _applies(position: _Position, words: Sequence[str], plain: Sequence[int]) -> bool:
    first = [words[index] for index in plain[: len(position.words)]]
    if len(first) < len(position.words) or not all(map(_fits, first, position.words)):
        return False
    if position.name is not None and position.name < len(plain):
        named = words[plain[position.name]].strip("\"'")
        if kind_of_name(named) is not Name.SECRET:
            return False
    needs = position.needs
    is_flag = len(needs) == 2
    return (
        not needs or needs in words or (is_flag and any(_has_flag(one, needs[1]) for one in words))
    )


def _fits(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted


def _has_flag(word: str, flag: str) -> bool:
    return word[:1] == "-" and word[:2] != "--" and flag in word


def _place(
    position: _Position, words: Sequence[str], plain: Sequence[int]
) -> tuple[int, int] | None:
    if isinstance(position.place, tuple):
        for index, word in enumerate(words):
            if word in position.place and index + 1 < len(words):
                return index + 1, 0
            if word[:2] in position.place and len(word) > 4:
                return index, 2  # `-b'x'`
        return None
    given = len(position.words)
    # Of `net use \\\\server\\share x /user:bob` the share counts, but no switch behind it.
    rest = [index for index in plain[given:] if words[index][:1] not in ("/", "\\")]
    if position.place < 0:
        return (rest[-1], 0) if rest else None
    places = [*plain[:given], *rest]
    return (places[position.place], 0) if position.place < len(places) else None
