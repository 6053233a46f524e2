"""Test entries for redaction: each consists of a secret and a value that contains it.

The data lies in `tests/data/redaction`; keys, passwords and numbers are drawn from a seed.
Nothing here depends on how the redactor works: an entry is found if its secret is gone.
"""

import base64
import gzip
import html
import re
import string
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from support.corpora.leak_corpus import Maker

FOLDER = Path(__file__).parents[2] / "data" / "redaction"
_LETTERS = string.ascii_letters + string.digits
_ALPHABETS = {
    "a": _LETTERS,
    "h": "0123456789abcdef",
    "H": "0123456789ABCDEF",
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "d": string.digits,
    "b": _LETTERS + "+/",
    "w": _LETTERS + "_-",
}


class Entry(NamedTuple):
    """A secret, the JSON value that holds it, and the promise that it belongs to."""

    group: str
    secret: str
    value: Any


def entries(seed: int) -> list[Entry]:
    """Return all entries; the same seed makes the same ones."""
    made: list[Entry] = []
    for make in (
        _vendor_keys, _named_values, _pairs_and_tables, _sentences, _settings, _nested, _marked_lines, _encoded, _tokens_and_keys,
        _mails, _phones, _cards, _accounts,
    ):  # fmt: skip
        made += make(RandomKeys(seed))
    return made


def harmless() -> list[str]:
    """Return lines in which nothing is to be found."""
    lines = (FOLDER / "harmless.txt").read_text("utf-8").splitlines()
    tools = (FOLDER / "harmless_tools.txt").read_text("utf-8").splitlines()
    return [
        *(one.replace("\\n", "\n") if "|" in one or "," in one else one for one in lines if one),
        *(one.replace("\\n", "\n") for one in tools),
    ]


def is_found(entry: Entry, redacted: Any) -> bool:
    """Return whether the secret of an entry is gone from what became of its value."""
    secret = orjson.dumps(entry.secret)[1:-1]
    return secret not in orjson.dumps(redacted)


class RandomKeys(Maker):
    """Makes keys of a format, and passwords as people choose them."""

    def key(self, form: str) -> str:
        """Return a key of a form such as `sk-{a:48}`."""
        parts = form.split("{")
        made = [parts[0]]
        for part in parts[1:]:
            kind, _, rest = part.partition(":")
            length, _, behind = rest.partition("}")
            made += (self.any(int(length), _ALPHABETS[kind]), behind)
        return "".join(made)

    def password(self) -> str:
        """Return a password: a word with a number, random characters, or both with signs."""
        kind = self.random.randrange(4)
        if kind == 0:
            return self.word()
        if kind == 1:
            return self.any(self.random.randrange(10, 24))
        if kind == 2:
            return f"{self.word().title()[:-1]}{self.random.choice('#$*_.-')}{self.any(3)}"
        return f"{self.any(4)}-{self.any(4)}-{self.any(4)}"

    def any(self, length: int, alphabet: str = _LETTERS) -> str:
        """Return random characters, as random as a key's are."""
        body = "".join(self.random.choice(alphabet) for _ in range(length))
        return f"{body[: length - 2]}A7" if alphabet == _LETTERS and length > 2 else body


@cache
def _rows(name: str) -> tuple[tuple[str, str], ...]:
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    parted = (line.partition("\t") for line in lines if line and not line.startswith("#"))
    return tuple((first, rest) for first, _, rest in parted)


_KEY_SENTENCES = (
    "I tried it with {} but it failed",
    "here you go: {}",
    "({})",
    "> {}\nthanks",
    "`{}` does not work any more, can you look?",
    "Traceback: ApiError: 401 for {}.",
    "- first\n- {}\n- last",
    "我用了 {} 但是失败了",
)


def _vendor_keys(make: RandomKeys) -> Iterator[Entry]:
    for index, (service, form) in enumerate(_rows("formats.tsv")):
        key = make.key(form)
        sentence = _KEY_SENTENCES[index % len(_KEY_SENTENCES)].replace("{}", key)
        name = "".join(c if c.isalnum() else "_" for c in service.upper())
        yield Entry("key with a mark, in a sentence", key, sentence)
        yield Entry("key with a mark, under a plain key", key, {"rows": [{"value": key, "n": 1}]})
        yield Entry("key with a mark, as NAME_API_KEY", key, f"{name}_API_KEY={key}")
        yield Entry(
            "key with a mark, in a header", key, f"curl -H 'x-api-key: {key}' https://x.example"
        )
    unmarked = [
        "cohere",
        "mistral",
        "deepgram",
        "assemblyai",
        "azure_openai",
        "datadog",
        "algolia",
        "cloudflare",
        "coinbase",
        "contentful",
    ]
    unmarked += [
        "fastly",
        "freshbooks",
        "intercom",
        "jfrog",
        "launchdarkly",
        "okta",
        "plaid",
        "rapidapi",
        "sendbird",
        "serpapi",
        "snowflake",
    ]
    unmarked += [
        "spotify",
        "twitch",
        "twitter",
        "zendesk",
        "mailjet",
        "deepl",
        "newsapi",
        "openweather",
        "finnhub",
    ]
    for service in unmarked:
        for form in ("{h:32}", "{a:40}", "{l:36}"):
            key = make.key(form)
            yield Entry("key without a mark, named", key, f"{service.upper()}_API_KEY={key}")
            yield Entry("key without a mark, named", key, {f"{service}_key": key})
            yield Entry("key without a mark, named", key, f"{service}: {key}")
            yield Entry(
                "key without a mark, named", key, f"my {service} key is {key}, please use it"
            )


def _named_values(make: RandomKeys) -> Iterator[Entry]:
    for language, listed in _rows("names.tsv"):
        group = f"value under its name, {'English' if language == 'English' else 'other languages'}"
        for name in listed.split(","):
            secret = make.password()
            yield Entry(group, secret, {"user": "bob", name: secret})
            secret = make.any(24)
            yield Entry(group, secret, f'sent {{"{name}": "{secret}"}} to the server')
            secret = make.any(30)
            yield Entry(group, secret, f"{name}={secret}")


def _pairs_and_tables(make: RandomKeys) -> Iterator[Entry]:
    group = "name and value apart"
    names = (
        "password",
        "DB_PASSWORD",
        "api_key",
        "Authorization",
        "contraseña",
        "client_secret",
        "密码",
        "pin_code",
    )
    for name in names:
        for label, held in (
            ("name", "value"), ("key", "value"), ("Name", "Value"), ("field", "value"), ("header", "value"),
            ("id", "value"), ("label", "text"), ("param", "val"), ("key", "content"), ("name", "stringValue"),
            ("ParameterKey", "ParameterValue"), ("headerName", "headerValue"), ("OptionName", "Value"),
            ("setting_name", "setting_value"),
        ):  # fmt: skip
            secret = make.password()
            yield Entry(
                group, secret, {"env": [{label: "HOST", held: "db"}, {label: name, held: secret}]}
            )
        secret = make.password()
        yield Entry(group, secret, [["user", "bob"], [name, secret]])
        yield Entry(group, secret, {"headers": [["accept", "json"], [name, secret]]})
        yield Entry(group, secret, [name, secret])
        yield Entry(
            group, secret, {"columns": ["user", name], "rows": [["bob", secret], ["eve", "x1y2z3"]]}
        )
        yield Entry(group, secret, [["user", name, "n"], ["bob", secret, 1], ["eve", "x1y2z3", 2]])
        yield Entry(group, secret, f"{{'name': '{name}', 'value': '{secret}'}}")
    for name in ("토큰", "access_token", "jeton", "токен"):
        for secret in (make.any(6), make.password()):
            yield Entry(group, secret, {name: {"value": secret}})
    for make_value in (
        lambda secret: {"op": "add", "path": "/spec/password", "value": secret},
        lambda secret: {"prompt": "Password:", "response": secret},
        lambda secret: {"selector": "#password", "value": secret},
        lambda secret: {"element": "Password field", "text": secret},
        lambda secret: {"password[0]": secret},
        lambda secret: {"secret_1": secret},
        lambda secret: {"pswd": secret},
        lambda secret: {"auth": ["bob", secret]},
        lambda secret: {"loc": ["body", "password"], "msg": "too short", "input": secret},
        lambda secret: {"field": "password", "rejectedValue": secret},
        lambda secret: {"PropertyName": "Password", "AttemptedValue": secret},
        lambda secret: {"target": {"name": "password"}, "value": secret},
        lambda secret: {"Feld": "Kennwort", "Wert": secret},
        lambda secret: {"nombre": "clave", "valor": secret},
        lambda secret: {"nom": "mdp", "valeur": secret},
        lambda secret: {"nome": "senha", "valor": secret},
        lambda secret: {"имя": "пароль", "значение": secret},
        lambda secret: {"名称": "密码", "值": secret},
        lambda secret: {"admin_password": {"type": "string", "sensitive": True, "value": secret}},
        lambda secret: {"columns": ["id", "pin_code"], "rows": [{"values": [1, secret]}]},
        lambda secret: ["Host", "shop.example", "X-Auth-Token", secret + "-42-x9", "Via", "1.1 p"],
        lambda secret: {"API key (staging)": secret},
        lambda secret: {"locator": "#login-password", "value": secret},
        lambda secret: {"flag": "--api-key", "value": secret},
        lambda secret: {"variableName": "DB_PASSWORD", "variableValue": secret},
        lambda secret: {"fieldId": "password", "fieldLabel": "Password", "fieldValue": secret},
        lambda secret: {"property": "password", "oldValue": secret, "newValue": ""},
        lambda secret: {"control": "txtPassword", "value": secret},
        lambda secret: {"entries": [["password", secret], ["user", "bob"]]},
        lambda secret: {"項目": "パスワード", "値": secret},
        lambda secret: {"basicAuth": f"bob:{secret}"},
    ):
        secret = make.password()
        yield Entry(group, secret, make_value(secret))
    for name in ("password", "api_key", "passwort", "senha", "token_secret"):
        secret = make.password()
        for table in (
            f"user,{name},role\nbob,{secret},admin\n",
            f"{name},user\n{secret},bob\n",
            f'"user","{name}"\n"bob","{secret}"\n',
            f"user;{name}\nbob;{secret}\n",
            f"user\t{name}\nbob\t{secret}\n",
            f"| user | {name} |\n|---|---|\n| bob | {secret} |\n",
            f" id | {name} | role\n----+---------+------\n  1 | {secret} | admin\n(1 row)\n",
            f"+----+----------+\n| id | {name} |\n+----+----------+\n| 1 | {secret} |\n+----+----------+\n",
        ):
            yield Entry("table", secret, table)
    for words in (
        ["mysql", "-u", "root", "-p{}"], ["docker", "login", "-u", "bob", "-p", "{}"], ["app", "--password", "{}"],
        ["app", "--api-key", "{}"], ["curl", "-u", "bob:{}", "https://x.example"], ["sshpass", "-p", "{}", "ssh", "h"],
        ["app", "--token={}"],
    ):  # fmt: skip
        secret = make.password()
        yield Entry(group, secret, {"argv": [word.replace("{}", secret) for word in words]})


def _sentences(make: RandomKeys) -> Iterator[Entry]:
    for language, sentence in _rows("sentences.tsv"):
        group = (
            f"password in a sentence, {'English' if language == 'English' else 'other languages'}"
        )
        for _ in range(3):
            secret = make.password()
            if "PIN" in sentence or "verification" in sentence:
                secret = make.digits(6)
            yield Entry(group, secret, sentence.replace("{}", secret))


def _settings(make: RandomKeys) -> Iterator[Entry]:
    for kind, line in _rows("settings.tsv"):
        for _ in range(3):
            secret = make.password()
            text = line.replace("\\n", "\n").replace("{}", secret)
            yield Entry(f"password in a {kind}", secret, text)
            yield Entry(f"password in a {kind}", secret, {"log": f"step 1\n{text}\nstep 3"})


def _marked_lines(make: RandomKeys) -> Iterator[Entry]:
    for line in (FOLDER / "marked.txt").read_text("utf-8").splitlines()[1:]:
        text = line.replace("\\n", "\n").replace("\\t", "\t")
        for secret in re.findall(r"⟦(.*?)⟧", text):
            yield Entry("marked line", secret, text.replace("⟦", "").replace("⟧", ""))


def _nested(make: RandomKeys) -> Iterator[Entry]:
    for depth in range(1, 6):
        for name in ("password", "apiKey", "contraseña", "phone"):
            secret = make.digits(10) if name == "phone" else make.password()
            value: Any = {name: secret}
            for _ in range(depth):
                value = {"body": orjson.dumps(value).decode(), "n": 1}
            yield Entry("JSON in JSON", secret, value)


_ENCODINGS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("base64", lambda text: base64.b64encode(text.encode()).decode()),
    ("base64url", lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")),
    ("hex", lambda text: text.encode().hex()),
    ("hex, upper case", lambda text: text.encode().hex().upper()),
    ("hex with blanks", lambda text: text.encode().hex(" ")),
    ("percent", lambda text: quote(text, safe="")),
    ("every character in percent", lambda text: "".join(f"%{byte:02X}" for byte in text.encode())),
    (
        "gzip in base64",
        lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode(),
    ),
    ("base32", lambda text: base64.b32encode(text.encode()).decode()),
    ("entities", lambda text: "".join(f"&#{ord(c)};" for c in text)),
    ("hexadecimal entities", lambda text: "".join(f"&#x{ord(c):x};" for c in text)),
    ("markup", lambda text: html.escape(text)),
    ("unicode escapes", lambda text: "".join(f"\\u{ord(c):04x}" for c in text)),
    ("byte escapes", lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode())),
    ("quoted-printable", lambda text: "".join(f"={byte:02X}" for byte in text.encode())),
    ("UTF-16 in base64", lambda text: base64.b64encode(text.encode("utf-16-le")).decode()),
)


def _encoded(make: RandomKeys) -> Iterator[Entry]:
    def texts() -> Iterator[tuple[str, str]]:
        secret = make.password()
        yield secret, f"password={secret}"
        secret = make.password()
        yield secret, f'{{"user": "bob", "password": "{secret}"}}'
        secret = "ghp_" + make.any(36)
        yield secret, secret
        secret = f"{make.any(8).lower()}@mail.example.com"
        yield secret, f"write to {secret} today"

    for name, encode in _ENCODINGS:
        for secret, text in texts():
            for value in (encode(text), {"data": f"payload: {encode(text)} end"}):
                shown = secret if secret in encode(text) else encode(text)
                yield Entry("encoded", shown, value)
            if name in ("base64", "base64url", "hex", "percent"):
                for _, outer in (
                    _ENCODINGS[:1] + _ENCODINGS[2:3] + _ENCODINGS[5:6] + _ENCODINGS[7:8]
                ):
                    yield Entry("encoded twice", outer(encode(text)), {"data": outer(encode(text))})


def _tokens_and_keys(make: RandomKeys) -> Iterator[Entry]:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(orjson.dumps(value)).decode().rstrip("=")

    head = part({"alg": "HS256", "typ": "JWT"})
    for body in ({"sub": "1", "name": "bob"}, {"iss": "x", "exp": 1700000000}):
        token = f"{head}.{part(body)}.{make.any(43)}"
        for text in (
            "{}",
            "token {} expired",
            "https://x.example/cb#id_token={}",
            "Authorization: Bearer {}",
            '{"t":"{}"}',
        ):
            yield Entry("JWT", token, text.replace("{}", token))
    sealed = f"{head}.{make.any(60)}.{make.any(16)}.{make.any(80)}.{make.any(22)}"
    yield Entry("JWT", sealed, f"the session is {sealed} now")
    yield Entry(
        "JWT", f"{head}.{part({'sub': '1'})}.", f"unsigned {head}.{part({'sub': '1'})}. here"
    )
    lines = [make.key("{b:64}") for _ in range(5)]
    written = "\n".join(lines)
    for kind in ("RSA PRIVATE KEY", "PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY",
                 "DSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK"):  # fmt: skip
        text = f"-----BEGIN {kind}-----\n{written}\n-----END {kind}-----\n"
        yield Entry("private key", lines[2], text)
        yield Entry("private key", lines[2], {"key": text.replace("\n", "\\n")})
        yield Entry("private key", lines[2], {"lines": text.splitlines()})
        yield Entry("private key", lines[2], f"-----BEGIN {kind}-----\n{written}")
    putty = ("PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: bob\nPublic-Lines: 2\nAAAA\nAAAA\n"
             f"Private-Lines: 5\n{written}\nPrivate-MAC: {make.key('{h:64}')}\n")  # fmt: skip
    yield Entry("private key", lines[2], putty)
    for name in ("d", "p", "q", "dp", "dq", "qi"):
        secret = make.any(43)
        yield Entry("private key", secret, {"kty": "RSA", "n": "x", "e": "AQAB", name: secret})
    secret = make.any(43)
    yield Entry("private key", secret, {"keys": [{"kty": "oct", "k": secret}]})
    yield Entry(
        "private key",
        secret,
        {"type": "service_account", "private_key_id": "1", "private_key": secret},
    )
    yield Entry(
        "private key", secret, {"cert": f"MIIEvQIBADANBgkqhkiG9w0BAQEFAASC{secret}{secret}{secret}"}
    )
    for scheme in (
        "postgres",
        "mysql",
        "mongodb",
        "redis",
        "amqp",
        "https",
        "ftp",
        "smtp",
        "clickhouse",
        "ldap",
        "ssh",
        "s3",
    ):
        secret = make.password()
        yield Entry(
            "password in an address", secret, f"{scheme}://bob:{secret}@host.example.com:1234/x"
        )
        yield Entry(
            "password in an address", secret, {"url": f"{scheme}://bob:{secret}@host/x?y=1"}
        )
        yield Entry(
            "password in an address",
            quote(secret + "@/", safe=""),
            f"{scheme}://b:{quote(secret + '@/', safe='')}@h",
        )


def _mails(make: RandomKeys) -> Iterator[Entry]:
    name = f"alice{make.digits(3)}"
    for address in (
        f"{name}@example.com", f"{name}.smith@example.co.uk", f"{name}+tag@example.org", f"{name}_x@sub.mail.example.net",
        f"{name.upper()}@EXAMPLE.COM", f"o'{name}@example.ie", f"{name}@exämple.de", f"müller{name}@example.de",
        f"用户{name}@例子.公司", f"{name}@xn--80ak6aa92e.xn--p1ai", f"почта{name}@пример.рф", f"{name}@example.photography",
        f'"{name} smith"@example.com', f"{name}@[192.168.2.1]", f"{name}/x=y@example.com", f"{name}!x@example.com",
        f"{name}@1und1.de", f"a.{name}-b@ex-ample.com", f"{name}@example.travel", f"उपयोगकर्ता{name}@उदाहरण.भारत",
    ):  # fmt: skip
        for text in (
            "{}",
            "write to {} please",
            "Alice Smith <{}>",
            "mailto:{}?subject=x",
            "({})",
            "cc: {}, bob",
            "{}.",
        ):
            yield Entry("e-mail", address, text.replace("{}", address))
        yield Entry("e-mail", address, {"contact": {"note": f"x {address} y"}})
        yield Entry("e-mail", address, {address: 1})
    plain = f"{name}@example.com"
    for written in (
        plain.replace("@", "%40"), plain.replace("@", "&#64;"), plain.replace("@", "&#x40;"), plain.replace("@", "＠"),
        plain.replace("@", " [at] ").replace(".com", " [dot] com"), plain.replace("@", "(at)"),
        plain.replace("@", " at ").replace(".com", " dot com"), plain.replace("@", "\\u0040"),
    ):  # fmt: skip
        yield Entry("e-mail, encoded or spelt", written, f"it is {written}, write soon")
    yield Entry("e-mail", plain, f"https://x.example/unsubscribe?email={plain}&x=1")
    yield Entry("e-mail", plain, f"user={plain};role=admin")
    yield Entry("e-mail", plain, f"sip:{plain}")


_PHONE_SENTENCES = (
    "Please call me at {} after six.",
    "My phone number is {}.",
    "You can reach me on {} until Friday",
    "mobile: {}",
    "Tel. {}",
    "Her new number: {} (work phone)",
    "text me: {}",
    "WhatsApp {} please",
    "Ring {} and ask for Bob",
    "Contact: Bob, {}, Berlin (phone)",
)


def _phones(make: RandomKeys) -> Iterator[Entry]:
    rows = (
        line.split("\t") for line in (FOLDER / "phones.tsv").read_text("utf-8").splitlines()[1:]
    )
    names = (
        "phone",
        "mobile",
        "phoneNumber",
        "msisdn",
        "tel",
        "telefono",
        "telefon",
        "cell",
        "fax",
        "contact_number",
    )
    words = dict(_rows("phone_words.tsv"))
    for index, (country, _, national, international, e164) in enumerate(rows):
        for offset in (0, 3, 7):
            sentence = _PHONE_SENTENCES[(index + offset) % len(_PHONE_SENTENCES)]
            yield Entry("phone in a sentence", national, sentence.replace("{}", national))
        for word in filter(None, words.get(country, "").split(",")):
            yield Entry("phone beside its word", national, f"{word}: {national}")
            yield Entry("phone beside its word", national, f"Anna, {word} {national}, Oslo")
            yield Entry("phone in data", national, {word.strip(". ").lower(): national})
        sentence = _PHONE_SENTENCES[index % len(_PHONE_SENTENCES)]
        yield Entry("phone in a sentence", international, sentence.replace("{}", international))
        yield Entry("phone in a sentence", e164, f"they said {e164} is right")
        name = names[index % len(names)]
        digits = "".join(filter(str.isdigit, national))
        yield Entry("phone in data", digits, {"customer": {name: digits}})
        yield Entry("phone in data", national, {name: national, "country": "X"})
        yield Entry("phone in data", e164[1:], {"rows": [{name: int(e164[1:])}]})
        yield Entry("phone in data", e164, {"to": f"whatsapp:{e164}"})
        yield Entry("phone in data", digits, f"name,{name},city\nBob,{digits},Berlin\n")
        yield Entry("phone in data", digits, {"name": name, "value": digits})
        yield Entry("phone in data", digits, f'got {{"{name}": "{digits}"}} back')
        yield Entry("phone in data", digits, {"columns": ["id", name], "rows": [[1, digits]]})


_CARDS = (
    ("4", 16), ("51", 16), ("55", 16), ("2221", 16), ("2720", 16), ("34", 15), ("37", 15), ("6011", 16), ("65", 16),
    ("644", 16), ("3528", 16), ("3589", 16), ("300", 14), ("36", 14), ("38", 14), ("62", 16), ("62", 19), ("4", 19),
    ("5018", 16), ("5020", 16), ("6304", 18), ("6759", 16), ("6761", 19), ("2200", 16), ("2204", 16),
    ("60", 16), ("9792", 16), ("8600", 16), ("5067", 16),
)  # fmt: skip
_GROUPS = {
    14: (4, 6, 4), 15: (4, 6, 5), 16: (4, 4, 4, 4), 18: (4, 4, 4, 4, 2), 19: (4, 4, 4, 4, 3),
}  # fmt: skip


def _cards(make: RandomKeys) -> Iterator[Entry]:
    for prefix, length in _CARDS:
        number = make.card(prefix, length)
        forms = [number]
        ends = [*accumulate(_GROUPS[length])]
        parts = [number[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        forms += (sign.join(parts) for sign in (" ", "-", "."))
        for form in forms:
            yield Entry("card", form, f"pay with {form} now")
            yield Entry("card", form, {"note": f"a,{form},12/27"})
            yield Entry("card", form, {"value": form})
        yield Entry("card", number, {"rows": [{"n": int(number)}]})
        yield Entry("card", number, {"charged_at": number, "card_id": number})
        yield Entry("card", number, {"order_id": number})
        yield Entry("card", number, f"card {number} exp 12/27 cvv 123")


def _accounts(make: RandomKeys) -> Iterator[Entry]:
    for country, form in _IBANS.items():
        body = make.key(form)
        digits = "".join(str(int(c, 36)) for c in f"{body}{country}00")
        iban = f"{country}{98 - int(digits) % 97:02}{body}"
        spaced = " ".join(iban[at : at + 4] for at in range(0, len(iban), 4))
        dashed = spaced.replace(" ", "-")
        yield Entry("IBAN", iban, iban)
        yield Entry("IBAN", spaced, f"transfer to {spaced} please")
        yield Entry("IBAN", iban, f"IBAN: {iban}.")
        yield Entry("IBAN", dashed, f"konto {dashed}")
        yield Entry("IBAN", iban.lower(), {"account": iban.lower()})
    for _ in range(10):
        area, group, serial = (
            make.random.randrange(100, 660),
            make.random.randrange(10, 99),
            make.random.randrange(1000, 9999),
        )
        ssn = f"{area}-{group}-{serial}"
        yield Entry("SSN", ssn, f"it is {ssn}.")
        yield Entry("SSN", ssn.replace("-", ""), f"my SSN is {ssn.replace('-', '')}")
        yield Entry("SSN", ssn.replace("-", " "), f"social security number {ssn.replace('-', ' ')}")
        yield Entry("SSN", ssn.replace("-", ""), {"ssn": ssn.replace("-", "")})


_IBANS = {
    "AD": "{d:8}{u:12}", "AE": "{d:19}", "AL": "{d:8}{u:16}", "AT": "{d:16}", "AZ": "ABCD{u:20}", "BA": "{d:16}",
    "BE": "{d:12}", "BG": "ABCD{d:6}{u:8}", "BH": "ABCD{u:14}", "BR": "{d:23}P1", "BY": "ABCD{d:4}{u:16}", "CH": "{d:5}{u:12}",
    "CR": "{d:18}", "CY": "{d:8}{u:16}", "CZ": "{d:20}", "DE": "{d:18}", "DK": "{d:14}", "DO": "ABCD{d:20}", "EE": "{d:16}",
    "EG": "{d:25}", "ES": "{d:20}", "FI": "{d:14}", "FO": "{d:14}", "FR": "{d:10}{u:11}{d:2}", "GB": "ABCD{d:14}", "GE": "AB{d:16}",
    "GI": "ABCD{u:15}", "GL": "{d:14}", "GR": "{d:7}{u:16}", "GT": "ABCD{u:20}", "HR": "{d:17}", "HU": "{d:24}", "IE": "ABCD{d:14}",
    "IL": "{d:19}", "IQ": "ABCD{d:15}", "IS": "{d:22}", "IT": "X{d:10}{u:12}", "JO": "ABCD{d:4}{u:18}", "KW": "ABCD{u:22}",
    "KZ": "{d:3}{u:13}", "LB": "{d:4}{u:20}", "LI": "{d:5}{u:12}", "LT": "{d:16}", "LU": "{d:3}{u:13}", "LV": "ABCD{u:13}",
    "MC": "{d:10}{u:11}{d:2}", "MD": "{u:20}", "ME": "{d:18}", "MK": "{d:3}{u:10}{d:2}", "MR": "{d:23}", "MT": "ABCD{d:5}{u:18}",
    "MU": "ABCD{d:19}MUR", "NL": "ABCD{d:10}", "NO": "{d:11}", "PK": "ABCD{u:16}", "PL": "{d:24}", "PS": "ABCD{u:21}", "PT": "{d:21}",
    "QA": "ABCD{u:21}", "RO": "ABCD{u:16}", "RS": "{d:18}", "SA": "{d:2}{u:18}", "SE": "{d:20}", "SI": "{d:15}", "SK": "{d:20}",
    "SM": "X{d:10}{u:12}", "TN": "{d:20}", "TR": "{d:6}{u:16}", "UA": "{d:6}{u:19}", "VG": "ABCD{d:16}", "XK": "{d:16}",
}  # fmt: skip
