"""Find passwords among command arguments: `curl -u bob:x`, `mysql -px`, `docker login -p x`.

Short options are listed by command; `--password x` and `PGPASSWORD=x` need no list, as they are
names like any other.
"""

import re
from collections.abc import Iterator, Sequence

from evaltap.recorder.privacy.lexicon import patterns, words
from evaltap.recorder.privacy.text.commands.positions import (
    password_places,
    passwords_with_user,
)
from evaltap.recorder.privacy.text.cookies import may_tell_session
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import is_code, is_placeholder

_RE = patterns("commands")

_AFTER_COLON = frozenset(words("commands.after_colon"))
_OPTIONS: dict[str, tuple[str, ...]] = {
    # the whole next word, or the rest of this one
    "mysql": ("-p",), "mysqldump": ("-p",), "mysqladmin": ("-p",), "mysqlimport": ("-p",), "mariadb": ("-p",),
    "docker": ("-p",), "podman": ("-p",), "buildah": ("-p",), "skopeo": ("-p",), "helm": ("-p",), "nerdctl": ("-p",),
    "sshpass": ("-p",), "mongo": ("-p",), "mongosh": ("-p",), "mongodump": ("-p",), "mongorestore": ("-p",),
    "mongoexport": ("-p",), "mongoimport": ("-p",), "cqlsh": ("-p",), "oc": ("-p",), "az": ("-p",), "cf": ("-p",),
    "couchbase-cli": ("-p",), "xfreerdp": ("/p:",), "rdesktop": ("-p",),
    "redis-cli": ("-a",), "sqlcmd": ("-P",), "bcp": ("-P",), "isql": ("-P",), "tsql": ("-P",), "osql": ("-P",),
    "zip": ("-P",), "unzip": ("-P",), "7z": ("-p",), "7za": ("-p",), "rar": ("-hp", "-p"), "unrar": ("-p",),
    "ldapsearch": ("-w",), "ldapmodify": ("-w",), "ldapadd": ("-w",), "ldapwhoami": ("-w",), "ldappasswd": ("-w", "-s"),
    "useradd": ("-p",), "usermod": ("-p",), "adduser": ("-p",), "impacket": ("-p",), "crackmapexec": ("-p",),
    "netexec": ("-p",), "nxc": ("-p",), "evil-winrm": ("-p",), "mosquitto_pub": ("-P",), "mosquitto_sub": ("-P",),
    "snmpwalk": ("-A", "-X", "-c"), "snmpget": ("-A", "-X", "-c"), "ssh-keygen": ("-N", "-P"), "ipmitool": ("-P",),
    "vault": (), "psexec": ("-p",), "snowsql": ("-p",),
    "keytool": ("-storepass", "-keypass"), "openssl": ("-passin", "-passout", "-k", "-K"), "curlftpfs": ("-o",),
    "wpa_passphrase": (), "net": (), "htpasswd": (), "rabbitmqctl": (), "chpasswd": (), "smbclient": (), "rclone": (),
    "curl": ("-b", "--cookie", "--oauth2-bearer"), "http": (), "https": (), "wget": (), "npm": (), "git": (), "aws": (), "vncpasswd": (), "smbmap": ("-p",),
    "hydra": ("-p",), "mount": (), "ftp": (), "nmcli": (), "cmdkey": (), "gpg": (), "gh": (), "twine": ("-p",), "bw": (), "etcdctl": (), "sqlplus": (),
    "ncftpput": ("-p",), "ncftpget": ("-p",), "racadm": ("-p",), "cypher-shell": ("-p",), "beeline": ("-p",),
    "doctl": ("-t",), "security": ("-w",), "cargo": (), "xh": (), "schtasks": ("/rp",), "lftp": (), "mc": (), "wandb": (), "poetry": (),
    "expdp": (), "impdp": (), "rpcclient": (), "dotnet": (), "ansible-vault": (), "networksetup": (), "winexe": (), "echo": (), "printf": (),
}  # fmt: skip
_COMMAND = re.compile(
    r"(?<![\w.-])(?:"
    + "|".join(sorted(map(re.escape, _OPTIONS), key=len, reverse=True))
    + r")(?:\.exe)?(?=\s)"
)
_NAMES = frozenset(_OPTIONS)
_BLANKS = dict.fromkeys(map(ord, "`$(/|;&\"'"), " ")
_MOST_ARGUMENTS = 48


def in_commands(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of passwords in the command lines of a text."""
    if "<<<" in text:
        yield from _read_by_secret(text, _RE.here_string)
    if "', '" in text or '", "' in text:
        yield from _in_lists(text)
    if "echo " in lower or "printf " in lower:
        for pattern in (_RE.printed, _RE.printed_pair):
            for printed in pattern.finditer(text):
                yield printed.span(1)
        if "<(" in text:
            yield from _read_by_secret(text, _RE.substituted)
    if " " not in text:
        return
    if _NAMES.isdisjoint(lower.translate(_BLANKS).split()):
        return
    done = 0
    for match in _COMMAND.finditer(lower):
        if match.start() < done:
            continue
        name = match[0].removesuffix(".exe")
        if name in ("echo", "printf"):
            yield from _echoed(text, match.start())
            continue
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
    if name in _OPTIONS:
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


def _echoed(text: str, start: int) -> Iterator[Span]:
    for pattern in (_RE.echoed, _RE.chpasswd):
        match = pattern.search(text, start, start + 400)
        if match is not None and not _stands_for(match[1]):
            yield from (match.span(group) for group in range(1, (match.lastindex or 0) + 1))
            return


def _passwords(name: str, words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    options = _OPTIONS[name]
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        for option in options:
            if word in ("-b", "--cookie") and not may_tell_session(following.strip("\"'")):
                continue
            if word == option and _may_be_password(name, following):
                yield from _whole(index + 1, following)
            elif word.startswith(option) and len(word) > len(option) + 2 and len(option) <= 3:
                yield from _rest(index, word, len(option))
        if word in _AFTER_COLON and following:
            yield from _behind_colon(index + 1, following)
        elif word.startswith(("-u", "--user=", "-U")) and ":" in word:
            yield from _behind_colon(index, word)
    for index, start in password_places(name, words):
        yield from _whole(index, words[index], start)
    yield from passwords_with_user(name, words)


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
