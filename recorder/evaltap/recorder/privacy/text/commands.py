"""Find passwords among command arguments: `curl -u bob:x`, `mysql -px`, `docker login -p x`.

Short options are listed by command; `--password x` and `PGPASSWORD=x` need no list, as they are
names like any other.
"""

import re
from collections.abc import Iterator, Sequence

from evaltap.recorder.privacy.text.normalization import listed
from evaltap.recorder.privacy.text.secret_names import Name, kind_of_name
from evaltap.recorder.privacy.text.value_kinds import is_code, is_placeholder

Span = tuple[int, int]

_AFTER_COLON = frozenset(
    listed("""
-u --user --proxy-user -U --auth -a
""")
)
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
    "doctl": ("-t",), "security": ("-w",), "schtasks": ("/rp",), "lftp": (), "mc": (), "wandb": (), "poetry": (),
    "expdp": (), "impdp": (), "rpcclient": (), "dotnet": (), "echo": (), "printf": (),
}  # fmt: skip
_COMMAND = re.compile(
    r"(?<![\w.-])(?:"
    + "|".join(sorted(map(re.escape, _OPTIONS), key=len, reverse=True))
    + r")(?:\.exe)?(?=\s)"
)
_WITHOUT_OPTION = (
    "pass",
    "net user",
    "rabbitmqctl",
    "vault login",
    "bw ",
    "sqlplus ",
    "mc ",
    "wandb ",
    "poetry ",
    "rclone ",
    "expdp ",
    "impdp ",
    "kinit",
)
_ARGUMENT = re.compile(
    r"[ \t]*(?:\\\n[ \t]*)?((?:[^\s\"'|;&<>]|\"[^\"\n]{0,1024}\"|'[^'\n]{0,1024}'){1,1024})"
)
_PORTS = re.compile(r"[\d.]*:?\d{1,5}:\d{1,5}(?:/\w{3})?")
_NAMES = frozenset(_OPTIONS)
_BLANKS = dict.fromkeys(map(ord, "`$(/|;&\"'"), " ")
_MOST_ARGUMENTS = 48
_ECHOED = re.compile(
    r"(?:echo|printf)[ \t]+(?:-n[ \t]+|[\"']?%s(?:\\n)?[\"']?[ \t]+)?[\"']?([^\s\"'|]{3,256})[\"']?[ \t]*\|[^\n|]{0,80}(?:passw|sudo -S|login|kinit|cryptsetup)"
)
_HERE_STRING = re.compile(r"<<<[ \t]{0,4}[\"']?([^\s\"'$]{4,256})")
_READS_SECRET = re.compile(r"(?i)pass|login|secret|cryptsetup|kinit|token|sudo -S|(?<![\w.-])age ")
_PRINTED = re.compile(
    r"(?i)pass(?:word|phrase)?[-_ ]?(?:command|cmd|eval)[ \t=:]{1,3}[\"'](?:echo|printf)[ \t]+(?:-n[ \t]+)?([^\s\"'$|]{3,256})"
)
_PRINTED_PAIR = re.compile(
    r"pass\w{0,16}[ \t=]{1,3}<\((?:echo -e|printf)[ \t]+[\"']?[^\s\"']{1,64}[ \n]{1,2}([^\s\"'$)\\]{3,256})"
)
_CHPASSWD = re.compile(r"[\w.-]{1,64}:([^\s\"'|]{3,256})[\"']?[ \t]*\|[ \t]*(?:sudo )?chpasswd")


def in_commands(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of passwords in the command lines of a text."""
    if "<<<" in text:
        yield from _here_strings(text)
    if "echo " in lower or "printf " in lower:
        for pattern in (_PRINTED, _PRINTED_PAIR):
            for printed in pattern.finditer(text):
                yield printed.span(1)
    if " -" not in text and " /" not in text and not any(one in lower for one in _WITHOUT_OPTION):
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
        while len(words) < _MOST_ARGUMENTS and (found := _ARGUMENT.match(text, at)) is not None:
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


def _here_strings(text: str) -> Iterator[Span]:
    for match in _HERE_STRING.finditer(text):
        line = text[
            max(text.rfind("\n", 0, match.start()) + 1, match.start() - 200) : match.start()
        ]
        if _READS_SECRET.search(line) is not None and not _stands_for(match[1]):
            yield match.span(1)


def _echoed(text: str, start: int) -> Iterator[Span]:
    for pattern in (_ECHOED, _CHPASSWD):
        match = pattern.search(text, start, start + 400)
        if match is not None and not _stands_for(match[1]):
            yield match.span(1)
            return


def _passwords(name: str, words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    options = _OPTIONS[name]
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        for option in options:
            if word == option and _may_be_password(name, following):
                yield from _whole(index + 1, following)
            elif word.startswith(option) and len(word) > len(option) + 2 and len(option) <= 3:
                yield from _rest(index, word, len(option))
        if word in _AFTER_COLON and following:
            yield from _behind_colon(index + 1, following)
        elif word.startswith(("-u", "--user=", "-U")) and ":" in word:
            yield from _behind_colon(index, word)
    yield from _by_position(name, words)


def _may_be_password(name: str, word: str) -> bool:
    if word[:1] in ("", "-") or _PORTS.fullmatch(word):
        return False
    # `mysql -p shop` prompts for the password: the word is a database.
    return not (name.startswith(("mysql", "mariadb")) and word.replace("_", "").isalpha())


_MINIO = (
    (("alias", "set"), 5),
    (("config", "host", "add"), 6),
    (("admin", "user", "add"), 5),
)
"""Commands of MinIO's client, and which of their words is the secret."""


def _by_position(name: str, words: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield a command's positional passwords."""
    plain = [index for index, word in enumerate(words) if not word.startswith("-")]
    flags = "".join(
        word[1:] for word in words if word.startswith("-") and not word.startswith("--")
    )
    place: int | None = None
    if (name == "wpa_passphrase" and len(plain) > 1) or (name == "net" and words[:1] == ["user"]):
        place = plain[-1] if name == "wpa_passphrase" else next(iter(plain[2:3]), None)
    elif name == "net" and words[:1] == ["use"]:
        place = next((i for i in plain[2:] if not words[i].startswith(("/", "\\"))), None)
    elif name == "htpasswd" and "b" in flags and len(plain) > 1:
        place = plain[-1]
    elif (
        name == "rabbitmqctl"
        and words[:1] in (["add_user"], ["change_password"])
        and len(plain) > 2
    ):
        place = plain[2]
    elif name == "gh" and words[:2] == ["secret", "set"]:
        place = next((i + 1 for i, one in enumerate(words[:-1]) if one in ("-b", "--body")), None)
    elif name == "vault" and words[:1] == ["login"] and len(plain) > 1:
        place = plain[1]
    elif name == "mc":
        place = next((at for start, at in _MINIO if tuple(words[: len(start)]) == start), None)
        place = place if place is not None and place < len(words) else None
    elif name == "wandb" and words[:1] == ["login"] and len(plain) > 1:
        place = plain[-1]
    elif name == "rclone" and words[:1] == ["obscure"]:
        place = next(iter(plain[1:2]), None)
    elif name == "poetry" and words[:1] == ["config"]:
        where = words[1] if len(words) > 1 else ""
        if where.startswith(("http-basic.", "pypi-token.")):
            place = next(iter(plain[3:4] if where.startswith("http") else plain[2:3]), None)
    elif name == "dotnet" and words[:2] == ["user-secrets", "set"] and len(plain) > 3:
        place = plain[3] if kind_of_name(words[plain[2]].strip("\"'")) is Name.SECRET else None
    elif "--value" in words[:-1] and (
        (name == "az" and words[:3] == ["keyvault", "secret", "set"])
        or (name == "aws" and words[:2] == ["ssm", "put-parameter"] and "SecureString" in words)
    ):
        place = words.index("--value") + 1
    elif name == "isql" and len(plain) == 3:
        place = plain[2]
    elif name == "lftp":
        for index, word in enumerate(words):
            if words[index - 1] in ("-u", "--user") and 0 < word.find(",") < len(word) - 1:
                yield index, word.index(",") + 1, len(word.rstrip("'\""))
    elif name in ("sqlplus", "expdp", "impdp"):
        for index in plain[:1]:
            if (slash := words[index].find("/")) > 0:
                yield index, slash + 1, len(words[index].partition("@")[0])
    elif name == "bw" and words[:1] in (["unlock"], ["login"]):
        place = next(iter(plain[1:2] if words[0] == "unlock" else plain[2:3]), None)
    elif name in ("smbclient", "rpcclient"):
        for index, word in enumerate(words):
            if "%" in word[:-1] and words[index - 1] in ("-U", "--user"):
                yield index, word.index("%") + 1, len(word.rstrip("'\""))
    if place is not None:
        yield from _whole(place, words[place])


def _whole(index: int, word: str) -> Iterator[tuple[int, int, int]]:
    start = len(word) - len(word.lstrip("\"'"))
    for prefix in ("pass:",):
        if word.startswith(prefix, start):
            start += len(prefix)
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
