"""Secrets to plant: sixty formats, random but for the seed, and the places in which they hide."""

import base64
import random
import string
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
PLANTED_AT_LEAST = 8
"""Characters of the shortest secret: shorter ones would be found by chance."""


class Planted(NamedTuple):
    """A secret, the text that holds it and the name of its format."""

    format: str
    secret: str
    text: str


class Maker:
    """Makes secrets of every format; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def any(self, length: int, alphabet: str = LETTERS) -> str:
        """Return random characters, a digit and a capital letter among them where the alphabet has them."""
        body = "".join(self.random.choice(alphabet) for _ in range(length))
        return body if alphabet is not LETTERS else f"{body[: length - 2]}A7"

    def digits(self, length: int) -> str:
        """Return digits that begin with no zero."""
        return str(self.random.randrange(10 ** (length - 1), 10**length))

    def card(self, prefix: str, length: int, groups: tuple[int, ...] = ()) -> str:
        """Return a card number with a right check digit, in groups."""
        body = prefix + self.any(length - len(prefix) - 1, "0123456789")
        total = 0
        for index, digit in enumerate(reversed(body)):
            number = int(digit) * (2 if index % 2 == 0 else 1)
            total += number - 9 if number > 9 else number
        whole = body + str(-total % 10)
        parts, start = [], 0
        for size in groups:
            parts.append(whole[start : start + size])
            start += size
        return " ".join(parts) if parts else whole

    def iban(self) -> str:
        """Return a German account with right check digits."""
        account = self.digits(18)
        check = 98 - int(account + "131400") % 97
        return f"DE{check:02}{account}"

    def word(self) -> str:
        """Return something that a person would take for a password."""
        return f"{self.random.choice(_WORDS)}{self.digits(6)}!"

    def planted(self, number: int) -> Iterator[Planted]:
        """Yield secrets, format by format in turn."""
        names = list(FORMATS)
        for index in range(number):
            name = names[index % len(names)]
            make, template = FORMATS[name]
            secret = make(self)
            yield Planted(name, secret, template.replace("{}", secret))


_WORDS = ("tulip", "correct", "horse", "battery", "staple", "garden", "winter", "monkey")

FORMATS: dict[str, tuple[Callable[[Maker], str], str]] = {
    "aws access key": (lambda m: "AKIA" + m.any(16, UPPER), "{}"),
    "aws secret key": (lambda m: m.any(40), "aws_secret_access_key = {}"),
    "gcp api key": (lambda m: "AIza" + m.any(35), "key={}"),
    "gcp access token": (lambda m: "ya29." + m.any(60), "{}"),
    "gcp client secret": (lambda m: "GOCSPX-" + m.any(28), "{}"),
    "github token": (lambda m: "ghp_" + m.any(36), "{}"),
    "github fine-grained": (lambda m: f"github_pat_{m.any(22)}_{m.any(59)}", "{}"),
    "gitlab token": (lambda m: "glpat-" + m.any(20), "{}"),
    "slack bot token": (lambda m: f"xoxb-{m.digits(12)}-{m.digits(13)}-{m.any(24)}", "{}"),
    "slack app token": (lambda m: f"xapp-1-A01-{m.digits(10)}-{m.any(30)}", "{}"),
    "slack webhook": (lambda m: f"T{m.any(8, UPPER)}/B{m.any(8, UPPER)}/{m.any(24)}",
                      "https://hooks.slack.com/services/{}"),
    "discord webhook": (lambda m: f"{m.digits(18)}/{m.any(68)}", "https://discord.com/api/webhooks/{}"),
    "stripe key": (lambda m: "sk_live_" + m.any(24), "{}"),
    "stripe webhook": (lambda m: "whsec_" + m.any(32), "{}"),
    "openai key": (lambda m: "sk-" + m.any(48), "{}"),
    "openai project key": (lambda m: "sk-proj-" + m.any(60), "{}"),
    "anthropic key": (lambda m: "sk-ant-api03-" + m.any(80), "{}"),
    "hugging face": (lambda m: "hf_" + m.any(34), "{}"),
    "groq": (lambda m: "gsk_" + m.any(50), "{}"),
    "replicate": (lambda m: "r8_" + m.any(37), "{}"),
    "sendgrid": (lambda m: f"SG.{m.any(22)}.{m.any(43)}", "{}"),
    "twilio": (lambda m: "SK" + m.any(32, HEX), "{}"),
    "mailgun": (lambda m: "key-" + m.any(32, HEX), "{}"),
    "mailchimp": (lambda m: m.any(32, HEX) + "-us12", "{}"),
    "npm": (lambda m: "npm_" + m.any(36), "{}"),
    "pypi": (lambda m: "pypi-AgEIcHlwaS5vcmc" + m.any(60), "{}"),
    "docker hub": (lambda m: "dckr_pat_" + m.any(27), "{}"),
    "digitalocean": (lambda m: "dop_v1_" + m.any(64, HEX), "{}"),
    "shopify": (lambda m: "shpat_" + m.any(32, HEX), "{}"),
    "square": (lambda m: "sq0atp-" + m.any(22), "{}"),
    "atlassian": (lambda m: "ATATT3" + m.any(60), "{}"),
    "databricks": (lambda m: "dapi" + m.any(32, HEX), "{}"),
    "new relic": (lambda m: "NRAK-" + m.any(27, UPPER), "{}"),
    "linear": (lambda m: "lin_api_" + m.any(40), "{}"),
    "telegram": (lambda m: "AA" + m.any(33), "123456789:{}"),
    "vault": (lambda m: "hvs." + m.any(60), "{}"),
    "grafana": (lambda m: "glsa_" + m.any(32), "{}"),
    "postman": (lambda m: f"PMAK-{m.any(24, HEX)}-{m.any(34, HEX)}", "{}"),
    "azure storage": (lambda m: m.any(86), "AccountName=x;AccountKey={}==;"),
    "azure signature": (lambda m: m.any(44), "https://x.blob.example/c?sv=1&sig={}"),
    "jwt": (lambda m: f"eyJ{m.any(30)}.eyJ{m.any(40)}.{m.any(43)}", "{}"),
    "private key": (lambda m: m.any(64),
                    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----"),
    "ssh key": (lambda m: m.any(70), "-----BEGIN OPENSSH PRIVATE KEY-----\n{}"),
    "dsn": (lambda m: m.any(14), "postgres://admin:{}@db.internal:5432/prod"),
    "redis url": (lambda m: m.any(12), "redis://:{}@cache:6379/0"),
    "bearer": (lambda m: m.any(40), "Authorization: Bearer {}"),
    "basic": (lambda m: base64.b64encode(f"alice:{m.any(12)}".encode()).decode(), "Authorization: Basic {}"),
    "cookie": (lambda m: m.any(32), "Cookie: sid={}; theme=dark"),
    "password assignment": (lambda m: m.word(), "password={}"),
    "password in a sentence": (lambda m: m.word(), "The password is {}"),
    "password in environment": (lambda m: m.any(16), "export DB_PASSWORD={}"),
    "password flag": (lambda m: m.any(16), "mysql --password {} -u root"),
    "token in url": (lambda m: m.any(30), "https://x.example/cb?access_token={}&x=1"),
    "e-mail": (lambda m: f"{m.any(9).lower()}@mail{m.digits(3)}.example.com", "write to {} today"),
    "visa": (lambda m: m.card("4", 16, (4, 4, 4, 4)), "{}"),
    "mastercard": (lambda m: m.card("55", 16), "pay with {} now"),
    "amex": (lambda m: m.card("37", 15, (4, 6, 5)), "{}"),
    "iban": (lambda m: m.iban(), "{}"),
    "phone": (lambda m: f"+49 17{m.digits(1)} {m.digits(7)}", "{}"),
    "social security number": (lambda m: f"{m.random.randrange(100, 660)}-{m.random.randrange(10, 99)}"
                               f"-{m.random.randrange(1000, 9999)}", "{}"),
}  # fmt: skip

KEY_NAMES = (
    "password", "db_password", "apiKey", "x-api-key", "client_secret", "accessToken", "Authorization",
    "private_key", "connection_string", "cvv",
)  # fmt: skip


def hidden(planted: Planted) -> Iterator[Any]:
    """Yield JSON values that hide the text, each in another way."""
    text = planted.text
    once = orjson.dumps({"note": f"see {text}"}).decode()
    yield f"see {text}\nplease"
    yield {"rows": [{"note": text, "n": 1}]}
    yield once
    yield {"body": orjson.dumps([once]).decode()}
    yield {f"{text}": 1}
    yield [["a", [text]], {"b": {"c": [{"d": text}]}}]
    yield f"line one\n  Traceback: ValueError: {text}\n  at x.py:3"


def encoded(planted: Planted) -> tuple[str, str]:
    """Return the text in base64 and what must not be seen of it: all of it."""
    plain = base64.b64encode(f"the value is {planted.text} for now".encode()).decode()
    return plain, plain


def traces_of(secrets: dict[str, str], content: bytes) -> dict[str, str]:
    """Return the secrets (and their formats) that occur in content, in time linear in its length."""
    size = PLANTED_AT_LEAST
    probes: dict[bytes, list[str]] = {}
    for secret in secrets:
        probes.setdefault(secret.encode()[:size], []).append(secret)
    met = {window for i in range(len(content)) if (window := content[i : i + size]) in probes}
    return {
        secret: secrets[secret]
        for window in met
        for secret in probes[window]
        if secret.encode() in content
    }
