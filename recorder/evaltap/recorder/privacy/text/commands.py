"""Find passwords among command arguments: `curl -u bob:x`, `mysql -px`, `docker login -p x`.

What a command takes is in the rows of `commands.tsv`: a password in or behind an option; behind an option
or as the n-th plain word (the last: -1) of a call that begins with certain words; joined to a user by a sign.
`--password x` and `PGPASSWORD=x` need no row, as they are names like any other.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from evaltap.recorder.privacy.findings import Span
from evaltap.recorder.privacy.lexicon import compiled, lists, patterns, rows
from evaltap.recorder.privacy.text.secret_names import Name, kind_of_name
from evaltap.recorder.privacy.text.value_kinds import is_code, is_placeholder
from evaltap.recorder.privacy.text.values import may_tell_session

_RE = patterns("commands")
_WORDS = lists("commands")


class _Form(NamedTuple):
    """A form in which a command takes a password."""

    begins: tuple[str, ...]
    """The first plain words; `x*` is any word that starts with x."""
    how: str
    where: tuple[str, ...]
    """Options; the number of a plain word."""
    needs: str
    """A word that must also be there; `-b` also within other flags. Of joined ones the sign."""
    name: str
    """The number of the plain word that must be the name of a secret."""


@cache
def _commands() -> dict[str, tuple[_Form, ...]]:
    """Return the forms of each command; some have none but `-u user:x`."""
    found: dict[str, tuple[_Form, ...]] = {}
    for command, begins, how, where, needs, name in rows("commands"):
        form = _Form(tuple(begins.split()), how, tuple(where.split()), needs, name)
        found[command] = (*found.get(command, ()), form)
    return found


@cache
def _command() -> re.Pattern[str]:
    names = sorted(map(re.escape, _commands()), key=len, reverse=True)
    return compiled(rf"(?<![\w.-])(?:{'|'.join(names)})(?:\.exe)?(?=\s)")


_WORDS_APART = bytes(
    ord(chr(one).lower()) if 31 < one < 127 and chr(one) not in "`$(/|;&\"'" else 32
    for one in range(256)
)
_MOST_ARGUMENTS = 48


@cache
def _names() -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Return the names of commands, and of those that take a password without an option that begins `-`."""
    all_names = {name.encode(): forms for name, forms in _commands().items()}
    plain = (name for name, forms in all_names.items() if not all(map(_needs_option, forms)))
    return frozenset(all_names), frozenset(plain)


def _needs_option(form: _Form) -> bool:
    if form.how in ("option", "behind"):
        return all(one[0] == "-" for one in form.where)
    return bool(form.where) if form.how == "joined" else not form.how or form.needs[:1] == "-"


def has_command(content: bytes) -> bool:
    """Return whether a text in UTF-8 may have a command that is given a password."""
    words = content.translate(_WORDS_APART).split()
    names, plain = _names()
    return not names.isdisjoint(words) and (
        not plain.isdisjoint(words) or any(one[0] == 45 for one in words)
    )


WORDS = frozenset(word for name, *_ in rows("commands") for word in re.findall("[a-z]+", name))
"""Words of the names of commands."""
A_COMMAND = "a command"


def in_commands(text: str, lower: str, triggers: Collection[str]) -> Iterator[Span]:
    """Yield the spans of passwords in the command lines of a text."""
    if "<<<" in text:
        yield from _read_by_secret(text, _RE.here_string)
    if "', '" in text or '", "' in text:
        yield from _in_lists(text)
    if "<(" in text:
        yield from _read_by_secret(text, _RE.substituted)
    if A_COMMAND not in triggers or " " not in text:
        return
    done = 0
    for match in _command().finditer(lower):
        if match.start() < done:
            continue
        name = match[0].removesuffix(".exe")
        words: list[Span] = []
        at = match.end()
        while len(words) < _MOST_ARGUMENTS and (found := _RE.argument.match(text, at)) is not None:
            words.append(found.span(1))
            at = found.end()
        done = at
        for index, start, end in _passwords(name, [text[a:b] for a, b in words]):
            yield words[index][0] + start, words[index][0] + end


def in_arguments(arguments: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the index and span of each password among the words of one command."""
    name = arguments[0].rsplit("/", 1)[-1].lower().removesuffix(".exe")
    if name in _commands():
        for index, start, end in _passwords(name, arguments[1:]):
            yield index + 1, start, end


def _in_lists(text: str) -> Iterator[Span]:
    """Yield the passwords of commands written as a list: `['mysql', '-px']`."""
    for written in _RE.list.finditer(text):
        items = list(_RE.item.finditer(written[1]))
        arguments = [item[item.lastindex or 0] for item in items]
        for index, start, end in in_arguments(arguments):
            at = written.start(1) + items[index].start() + 1
            yield at + start, at + end


def _read_by_secret(text: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    """Yield what a command that reads a secret is given: `pass insert x <<< y`, `login <(echo y)`."""
    for match in pattern.finditer(text):
        line = text[
            max(text.rfind("\n", 0, match.start()) + 1, match.start() - 200) : match.start()
        ]
        if _RE.reads_secret.search(line) is not None and not _stands_for(match[1]):
            yield match.span(1)


def _passwords(name: str, words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the numbers of a command's words with a password, and where in the word it is."""
    forms = _commands()[name]
    options = [option for form in forms if form.how == "option" for option in form.where]
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        yield from _of_options(name, options, index, word, following)
        if word in _WORDS.after_colon and following:
            yield from _behind_colon(index + 1, following)
        elif word.startswith(("-u", "--user=", "-U")) and ":" in word:
            yield from _behind_colon(index, word)
    yield from _of_forms(forms, words)


def _of_forms(forms: Sequence[_Form], words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the passwords among the words that are no options."""
    plain = [index for index, word in enumerate(words) if not word.startswith("-")]
    for form in forms:
        if form.how == "joined":
            yield from _joined(form, words, plain)
        elif form.how in ("word", "behind") and _applies(form, words, plain):
            place = (_behind if form.how == "behind" else _nth)(form, words, plain)
            if place is not None:
                yield from _whole(place[0], words[place[0]], place[1])


def _of_options(
    name: str, options: Sequence[str], index: int, word: str, following: str
) -> Iterator[tuple[int, int, int]]:
    """Yield the password of an option: the following word, or the rest of this one."""
    if word in ("-b", "--cookie") and not may_tell_session(following.strip("\"'")):
        return
    for option in options:
        if word == option and _may_be_password(name, following):
            yield from _whole(index + 1, following)
        elif word.startswith(option) and len(word) > len(option) + 2 and len(option) <= 3:
            yield from _rest(index, word, len(option))


def _applies(form: _Form, words: Sequence[str], plain: Sequence[int]) -> bool:
    first = [words[index] for index in plain[: len(form.begins)]]
    if len(first) < len(form.begins) or not all(map(_fits, first, form.begins)):
        return False
    if form.name and int(form.name) < len(plain):
        named = words[plain[int(form.name)]].strip("\"'")
        if kind_of_name(named) is not Name.SECRET:
            return False
    needs = form.needs
    is_flag = len(needs) == 2
    return (
        not needs or needs in words or (is_flag and any(_has_flag(one, needs[1]) for one in words))
    )


def _fits(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted


def _has_flag(word: str, flag: str) -> bool:
    return word[:1] == "-" and word[:2] != "--" and flag in word


def _behind(form: _Form, words: Sequence[str], plain: Sequence[int]) -> tuple[int, int] | None:
    for index, word in enumerate(words):
        if word in form.where and index + 1 < len(words):
            return index + 1, 0
        if word[:2] in form.where and len(word) > 4:
            return index, 2  # `-b'x'`
    return None


def _nth(form: _Form, words: Sequence[str], plain: Sequence[int]) -> tuple[int, int] | None:
    given, place = len(form.begins), int(form.where[0])
    # Of `net use \\\\server\\share x /user:bob` the share counts, but no switch behind it.
    rest = [index for index in plain[given:] if words[index][:1] not in ("/", "\\")]
    if place < 0:
        return (rest[-1], 0) if rest else None
    places = [*plain[:given], *rest]
    return (places[place], 0) if place < len(places) else None


def _joined(
    form: _Form, words: Sequence[str], plain: Sequence[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield passwords in one word with the user: `sqlplus bob/x@db`, `smbclient -U bob%x`."""
    for index, word in enumerate(words):
        is_marked = words[index - 1] in form.where if form.where else index in plain[:1]
        at = word.find(form.needs)
        end = len((word if form.where else word.partition("@")[0]).rstrip("'\""))
        if is_marked and 0 < at < end - 1:
            yield index, at + 1, end


def _may_be_password(name: str, word: str) -> bool:
    if word[:1] in ("", "-") or _RE.ports.fullmatch(word):
        return False
    # `mysql -p shop` prompts for the password: the word is a database.
    return not (name.startswith(("mysql", "mariadb")) and word.replace("_", "").isalpha())


def _whole(index: int, word: str, start: int = 0) -> Iterator[tuple[int, int, int]]:
    start += len(word[start:]) - len(word[start:].lstrip("\"'"))
    if word.startswith("pass:", start):
        start += len("pass:")
    end = len(word.rstrip("\"',)`"))
    if (
        end - start >= 3
        and not _stands_for(word[start:end])
        and not word.startswith(("env:", "file:"))
    ):
        yield index, start, end


def _rest(index: int, word: str, start: int) -> Iterator[tuple[int, int, int]]:
    start += len(word[start:]) - len(word[start:].lstrip("\"'="))
    end = len(word.rstrip("\"',)`"))
    value = word[start:end]
    # `-p3306:3306` and `-path` are not passwords
    if (
        end - start >= 3
        and not _stands_for(value)
        and not re.fullmatch(r"[\d:./]+|ort.*|ath.*|rint.*", value)
    ):
        yield index, start, end


def _behind_colon(index: int, word: str) -> Iterator[tuple[int, int, int]]:
    start = word.find(":") + 1
    end = len(word.rstrip("\"',)`"))
    if start > 0 and end - start >= 1 and not _stands_for(word[start:end]) and "//" not in word:
        yield index, start, end


def _stands_for(value: str) -> bool:
    return is_placeholder(value) or is_code(value) or value.startswith("$")
