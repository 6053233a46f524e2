"""Redaction: planted secrets never survive, ordinary text is unchanged, and failures fail closed."""

import base64
import random
import string
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evaltap.recorder.delivery.redaction_key import shared_key
from evaltap.recorder.privacy.findings import PSEUDONYM
from evaltap.recorder.privacy.policy import withhold_content
from evaltap.recorder.privacy.pseudonyms import Pseudonyms, derived_key
from evaltap.recorder.privacy.redacted_values import FAILED
from evaltap.recorder.privacy.redactor import PatternRedactor
from support.builders.cases import make_case, make_tool, make_turn

REDACT = PatternRedactor(b"k" * 32)
_RANDOM = random.Random(7)


def rnd(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    return "".join(_RANDOM.choice(alphabet) for _ in range(length))


HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
BODY = rnd(64)

# What must not survive, and a text in which it stands.
PLANTED: dict[str, tuple[str, str]] = {
    name: (secret, text.replace("{}", secret))
    for name, secret, text in [
        ("aws access key", "AKIA" + rnd(16, UPPER), "{}"),
        ("aws secret key", rnd(40), "aws_secret_access_key = {}"),
        ("gcp api key", "AIza" + rnd(35), "key={}"),
        ("gcp access token", "ya29." + rnd(60), "{}"),
        ("gcp client secret", "GOCSPX-" + rnd(28), "{}"),
        ("github token", "ghp_" + rnd(36), "{}"),
        ("github fine-grained", f"github_pat_{rnd(22)}_{rnd(59)}", "{}"),
        ("gitlab token", "glpat-" + rnd(20), "{}"),
        ("slack bot token", f"xoxb-123456789012-1234567890123-{rnd(24)}", "{}"),
        ("slack app token", f"xapp-1-A01-123-{rnd(30)}", "{}"),
        ("slack webhook", f"T00000000/B00000000/{rnd(24)}", "https://hooks.slack.com/services/{}"),
        ("stripe key", "sk_live_" + rnd(24), "{}"),
        ("stripe webhook", "whsec_" + rnd(32), "{}"),
        ("openai key", "sk-" + rnd(48), "{}"),
        ("openai project key", "sk-proj-" + rnd(60), "{}"),
        ("anthropic key", "sk-ant-api03-" + rnd(80), "{}"),
        ("hugging face", "hf_" + rnd(34), "{}"),
        ("sendgrid", f"SG.{rnd(22)}.{rnd(43)}", "{}"),
        ("twilio", "SK" + rnd(32, HEX), "{}"),
        ("mailgun", "key-" + rnd(32, HEX), "{}"),
        ("npm", "npm_" + rnd(36), "{}"),
        ("pypi", "pypi-AgEIcHlwaS5vcmc" + rnd(60), "{}"),
        ("telegram", "AA" + rnd(33), "123456789:{}"),
        ("azure storage", rnd(86), "AccountName=x;AccountKey={}==;"),
        ("azure signature", rnd(44), "https://x.blob.example/c?sv=1&sig={}"),
        ("vault", "hvs." + rnd(90), "{}"),
        ("digitalocean", "dop_v1_" + rnd(64, HEX), "{}"),
        ("shopify", "shpat_" + rnd(32, HEX), "{}"),
        ("databricks", "dapi" + rnd(32, HEX), "{}"),
        ("jwt", f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{rnd(43)}", "{}"),
        ("pem", BODY, "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,A\n\n{}\n"
         "-----END RSA PRIVATE KEY-----"),
        ("pem cut off", BODY, "-----BEGIN PRIVATE KEY-----\\n{}"),
        ("ssh key", BODY, "-----BEGIN OPENSSH PRIVATE KEY-----\n{}"),
        ("dsn", "Sup3rS3cret!", "postgres://admin:{}@db.internal:5432/prod"),
        ("dsn without user", "p4ssw0rd-x", "redis://:{}@cache:6379/0"),
        ("dsn with encoded password", "p%40ssword", "mongodb+srv://u:{}@c.example.net"),
        ("bearer", rnd(40), "Authorization: Bearer {}"),
        ("bearer in curl", rnd(40), "curl -H 'authorization: bearer {}' https://x.example"),
        ("basic", base64.b64encode(b"alice:hunter2pass").decode(), "Authorization: Basic {}"),
        ("cookie", rnd(32), "Cookie: sid={}; theme=dark"),
        ("set-cookie", rnd(32), "Set-Cookie: sid={}; Path=/; HttpOnly"),
        ("password =", "hunter2", "password={}"),
        ("password :", "hunter2", "password: {}!"),
        ("password is", "hunter2", "The password is {}."),
        ("password in quotes", "hunter2", "log in with password '{}' please"),
        ("password in German", "hunter2", "Passwort: {}"),
        ("password, short", "hunter2", "pw is {} for now"),
        ("password in json text", "correct horse battery", 'got {"password": "{}"} back'),
        ("password in escaped json", "letmein99", r'got {\"password\": \"{}\"} back'),
        ("password in a repr", "abcd-1234", "{'api_key': '{}'}"),
        ("password in environment", "s3cr3t-value", "export DB_PASSWORD={}"),
        ("password as flag", "hunter22", "mysql --password {} -u root"),
        ("token in url", rnd(30), "https://x.example/cb?access_token={}&x=1"),
        ("ruby hash", "zzzyyyxxx111", 'client_secret => "{}"'),
        ("base64 of a secret", base64.b64encode(b"user=root password=hunter2 x").decode(), "{}"),
        ("e-mail", "alice.smith+test@example.co.uk", "{}"),
        ("e-mail in brackets", "bob@example.com", "Bob <{}>"),
        ("e-mail in a url", "carol%40example.com", "https://x.example/?u={}&v=1"),
        ("e-mail with umlauts", "müller@exämple.de", "{}"),
        ("visa", "4111 1111 1111 1111", "{}"),
        ("visa without blanks", "4111111111111111", "pay with {} now"),
        ("visa in csv", "4111111111111111", "7,{},12/25"),
        ("visa before a date", "4111 1111 1111 1111", "{} 12/25 123"),
        ("mastercard", "5555-5555-5555-4444", "{}"),
        ("amex", "3782 822463 10005", "{}"),
        ("iban", "DE89 3704 0044 0532 0130 00", "{}"),
        ("iban without blanks", "GB82WEST12345698765432", "{}"),
        ("iban before words", "FR14 2004 1010 0505 0001 3M02 606", "{} and more"),
        ("phone, international", "+49 170 1234567", "{}"),
        ("phone, compact", "+442079460958", "{}"),
        ("phone, us", "(415) 555-2671", "{}"),
        ("phone, us dashes", "415-555-2671", "a,{},b"),
        ("phone, german", "0170 1234567", "{}"),
        ("phone, french", "06 12 34 56 78", "{}"),
        ("phone, named", "5551234567", "phone: {}"),
        ("social security number", "123-45-6789", "{}"),
    ]
}  # fmt: skip


def settings_of(text: str) -> Iterator[Any]:
    """Return the text in the places where content hides."""
    yield text
    yield f"see {text} please"
    yield f"line\n{text}\nend"
    yield {"rows": [{"note": f"x {text} y"}]}
    yield orjson.dumps({"text": text}).decode()
    yield {"a": orjson.dumps([orjson.dumps({"b": f"x {text} y"}).decode()]).decode()}
    yield orjson.dumps(orjson.dumps({"twice": text}).decode()).decode()


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_planted_survives_wherever_it_stands(name: str) -> None:
    secret, text = PLANTED[name]

    for value in settings_of(text):
        written = orjson.dumps(REDACT.value(value)).decode()

        assert secret not in written.replace("\\\\", "\\"), value


@pytest.mark.parametrize(
    "name",
    [
        "password", "Password", "db_password", "DB-PASSWORD", "userPassword", "passwd", "secret",
        "client_secret", "clientSecret", "api_key", "apiKey", "x-api-key", "X-Api-Key", "apikeys",
        "Authorization", "proxy-authorization", "auth_token", "accessToken", "refresh_token",
        "aws_secret_access_key", "private_key", "cookie", "Set-Cookie", "cvv", "card_number",
        "ssn", "pin", "otp", "connection_string", "credentials", "password2", "stripe_secret",
    ],
)  # fmt: skip
def test_a_key_that_names_a_secret_hides_any_value(name: str) -> None:
    for value in ("tulip", 4711, ["tulip", "rose"], {"inner": "tulip"}):
        redacted = REDACT.value({"outer": [{name: value, "colour": "red"}]})

        written = orjson.dumps(redacted).decode()
        assert "tulip" not in written
        assert "4711" not in written
        assert "red" in written


@pytest.mark.parametrize(
    "value",
    [
        {"password": None, "secret": "", "api_key": True, "credentials": {}},
        {"max_tokens": 4096, "inputTokens": 12, "token": "the", "next": {"page": 3}},
        {"keyboard": "qwerty", "monkey": "banana", "secretary": "Jane", "passenger": "Bo"},
        {"tokenizer": "bpe", "author": "Jane", "authority": "city", "pinned": "yes"},
    ],
)
def test_a_key_that_only_sounds_like_a_secret_hides_nothing(value: dict[str, Any]) -> None:
    assert REDACT.value(value) == value


STANDS_FOR_A_SECRET = [
    "${DB_PASSWORD}", "$DB_PASSWORD", "{{ password }}", "%DB_PASSWORD%", "<password>", "[FILTERED]",
    "(sensitive value)", "********", "Bearer ${TOKEN}", "^9.0.2", "This field is required.",
]  # fmt: skip


@pytest.mark.parametrize("value", STANDS_FOR_A_SECRET)
def test_what_only_stands_for_a_secret_stays_under_its_name(value: str) -> None:
    assert REDACT.value({"password": value}) == {"password": value}
    assert REDACT.value(f'password: "{value}"') == f'password: "{value}"'


@pytest.mark.parametrize(
    "value",
    [
        "${DB_PASSWORD:-tulip42}", "{{ pw | default('tulip42') }}", "<tulip42>", "(tulip42)", "[tulip42]",
        "$tulip42", "tulip42.0.1", "{db:tulip42}", "You must use tulip42.", "%tulip42%",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_stand_in_is_hidden(value: str) -> None:
    assert "tulip42" not in orjson.dumps(REDACT.value({"password": value})).decode()


@pytest.mark.parametrize("name", ["existingSecret", "secretName", "tlsSecret", "pullSecret"])
def test_the_name_of_a_secret_in_a_store_stays(name: str) -> None:
    value = {name: "redis-auth", "secret": {"secretName": "redis-tls-2", "optional": True}}

    assert REDACT.value(value) == value
    assert REDACT.value(f"  {name}: redis-auth\n") == f"  {name}: redis-auth\n"


ORDINARY_TEXTS = """
Where is order A-100? It was due on 2024-05-06 at 14:30.
The total is 1,234,567.89 EUR, VAT 19 %, discount 12.5.
Invoice 2024-000123 of 03/04/2024 over 99.90 is paid.
Version 1.2.3-rc.4 of 10.0.0.1 replaces 192.168.100.200.
Please reset your password: follow the link in the mail.
The password must have 12 characters, the token limit is 4096 tokens.
I forgot my password and my token expired.
Your secret is safe with us. What is the secret of good bread?
Fill in the password "field", the secret 'sauce' is in the key "name" and the pwm fan.
The passenger was at gate B42 at 09:15 on flight LH 2342.
Build 20240506.1234567 took 1234567 ms; 10000000 rows in 3600 s.
Tracking number 1Z999AA10123456784, SKU 4006381333931, ISBN 978-3-16-148410-0.
UUID 123e4567-e89b-12d3-a456-426614174000, sha 3f786850e387550fdab836ed7e6dc881de23001b.
Trace 4bf92f3577b34da6a3ce929d0e0e4736, span 00f067aa0ba902b7, pid 12345678.
Timestamps: 1700000000, 1700000000000, 1700000000000000, 1700000000000000000.
Room 101, 2nd floor, 12345 Berlin, Hauptstr. 12-14, opening 08:00-18:30.
call tool get_order with {"order_id": "1234567890123", "qty": 2} and retry 3 times
Basic authentication and bearer of bad news; cookie: chocolate chip; Cookie policy.
Meet me @ noon, follow @handle, decorator @property, price@10, a@b.
Coordinates 52.520008, 13.404954; ratio 16:9; range 100-200-3000; 3.14159265358979.
The keys are sk-ating, akia is a town, ghp_ is a prefix, and xoxo means love.
SELECT id, name FROM users WHERE id = 42 AND created_at > '2024-01-01T00:00:00Z';
def f(x): return x[0:3] + x[-1]  # see RFC 2119, section 4.1.2
https://example.com/path/to/page?id=123&lang=en#section-2
order 4512345678901 and order 100000000000000 and customer 5012345678
""".strip().splitlines()


@pytest.mark.parametrize("text", ORDINARY_TEXTS)
def test_ordinary_business_text_stays_as_it_is(text: str) -> None:
    assert REDACT.value(text) == text
    assert REDACT.value({"text": text, "rows": [text]}) == {"text": text, "rows": [text]}


def test_at_most_one_ordinary_number_in_a_hundred_is_taken_for_something_else() -> None:
    numbers = random.Random(11)
    made = [
        f"{word} {numbers.randrange(10 ** (length - 1), 10**length)}"
        for word in ("order", "ref", "customer", "at", "#")
        for length in range(4, 21)
        for _ in range(60)
    ]

    touched = [text for text in made if REDACT.value(text) != text]

    assert len(touched) <= len(made) // 100, touched


def test_numbers_and_identifiers_keep_their_digits() -> None:
    value = {
        "timestamp": 1700000000000,
        "time_ns": 1700000000000000000,
        "order_id": "4111111111111112",
        "orderIds": ["order-4111111111111111"],
        "userId": "0170 1234567",
        "price": 12.5,
        "count": 4111111111111112,
    }

    assert REDACT.value(value) == value
    assert REDACT.value({"number": 4111111111111111}) != {"number": 4111111111111111}


@pytest.mark.parametrize("name", ["card_id", "charged_at", "order_id", "number"])
@pytest.mark.parametrize("number", ["4111111111111111", "4111 1111 1111 1111", 4111111111111111])
def test_a_card_is_found_whatever_its_key_says(name: str, number: Any) -> None:
    assert str(REDACT.value({name: number})[name]).startswith("<card:")


def test_identities_of_a_case_survive_unless_they_are_sensitive() -> None:
    tool = make_tool(id="call_4111111111111111", parentId="call-0170-1234567")
    plain = make_case("session-4111111111111111", [make_turn("inv-415-555-2671", tools=[tool])])
    named = make_case("alice@example.com", sessionInput={"userId": "Alice@Example.com"})

    kept, _ = REDACT(plain)
    hidden, _ = REDACT(named)

    assert kept == plain
    assert hidden["evalId"] == hidden["sessionInput"]["userId"]
    assert hidden["evalId"].startswith("<email:")


def test_equal_values_become_equal_pseudonyms_and_another_key_makes_others() -> None:
    other = PatternRedactor(b"x" * 32)
    written = REDACT.value(["Bob@example.com", "bob@EXAMPLE.com", "bob@example.org"])

    assert written[0] == written[1] != written[2]
    assert other.value("bob@example.com") != written[0]
    assert REDACT.value("+49 170 1234567") == REDACT.value("+49-170-1234567")


@pytest.mark.slow
def test_two_hundred_thousand_addresses_have_as_many_pseudonyms() -> None:
    pseudonyms = Pseudonyms(b"k" * 32)

    tokens = {pseudonyms.token("email", f"user{n}@example.com") for n in range(200_000)}

    assert len(tokens) == 200_000
    assert all(map(PSEUDONYM.fullmatch, tokens))


fragments = st.sampled_from(
    [text for _, text in PLANTED.values()]
    + ORDINARY_TEXTS
    + ["<email:ab12cd34ef56>", "<", ">", '"', "\\"]
)
texts = st.lists(fragments | st.text(max_size=12), max_size=4).map("".join) | st.text(max_size=60)
scalars = texts | st.integers(0, 10**17) | st.floats(allow_nan=False) | st.booleans() | st.none()
names = st.sampled_from(["password", "api_token", "phone", "card", "count", "name", "", "--token"])
rows = st.integers(1, 3).flatmap(
    lambda width: st.lists(
        st.lists(names | scalars, min_size=width, max_size=width), min_size=1, max_size=4
    )
)
tables = rows | st.fixed_dictionaries({"columns": st.lists(names, max_size=3), "rows": rows})
values = tables | st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


AWS = "aws_secret_access_key = HF4vUCsMehGAkWvj7FAc9QeWJKY40uvSwMFLZDe1"


@given(values)
@example("password=password=hunter2")
@example([["+49 170 1234567", 1_000_000]])
@example([["a", 1], ["b", 2]])
@example([AWS, "0"])
@example("phone: 4155552671 0170 1234567")
@example({"token": "3780 800364 10005{"})
@example({"Passwort: hunter2 = hunter3 = hunter4": "AKIAEDN581U33XTPLPFTAKIAEDN581U33XTPLPFT"})
@example({f"Passwort: hunter2{2 * AWS}": "AKIAEDN581U33XTPLPFTAKIAEDN581U33XTPLPFT"})
def test_redacting_twice_changes_nothing_more(value: Any) -> None:
    once = REDACT.value(value)

    assert REDACT.value(once) == once


@given(texts, texts)
def test_an_address_is_found_whatever_stands_around_it(before: str, after: str) -> None:
    text = f"{before} canary@example.com {after}".encode("utf-8", "replace").decode()

    written = orjson.dumps(REDACT.value(text))

    assert b"canary@example.com" not in written


def test_json_that_says_a_key_twice_hides_neither_value() -> None:
    assert "hunter2" not in REDACT.value('{"password": "hunter2", "password": ""}')


def test_keys_of_objects_are_redacted_and_none_is_lost() -> None:
    redacted = REDACT.value({"a@x.de": 1, "A@x.de": 2, "plain": 3})

    assert sorted(redacted.values()) == [1, 2, 3]
    assert "@" not in orjson.dumps(redacted).decode()


class Unreadable(str):
    """A text on which every rule trips."""

    def lower(self) -> str:
        raise RuntimeError("hunter2")


def test_a_value_that_cannot_be_redacted_is_given_up_and_its_field_marked() -> None:
    tool = make_tool(arguments={"q": Unreadable("my password is hunter2"), "n": 1})
    case = make_case(
        turns=[make_turn(tools=[tool], finalResponse={"content": Unreadable("x: " * 9)})]
    )

    redacted, report = REDACT(case)

    turn = redacted["actualConversation"][0]
    assert turn["tools"][0]["arguments"] == {"q": FAILED, "n": 1}
    assert turn["tools"][0]["capture"] == {"arguments": "redacted"}
    assert turn["capture"] == {"finalResponse": "redacted"}
    assert report.failures == 2


def test_a_pseudonym_within_a_text_does_not_mark_the_field() -> None:
    case = make_case(turns=[make_turn(answer="write to a@example.com")])

    redacted, report = REDACT(case)

    assert "capture" not in redacted["actualConversation"][0]
    assert report.replaced == {"email": 1}
    assert case["actualConversation"][0]["finalResponse"]["content"] == "write to a@example.com"


def test_depth_beyond_the_stack_is_given_up_not_passed() -> None:
    deep: Any = "alice@example.com"
    for _ in range(5_000):
        deep = [deep]

    redacted, report = REDACT(make_case(turns=[make_turn(tools=[make_tool(arguments=deep)])]))

    assert redacted["actualConversation"][0]["tools"][0]["arguments"] == FAILED
    assert report.failures == 1


@pytest.mark.parametrize(
    "piece",
    [
        "a", "1", "@", "a@", "a.", "a@a.", "%40", "password", "password ", "password=", "token=",
        "token: ", "secret is ", " is ", "eyJ", "eyJaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----",
        "://a:", "http://a:", "1 ", "+1 ", "0170 ", "DE", "DE89 ", "4111 ", "415-", "(", '"', "\\",
        "sk-", "sk-a", "xoxb-", "cookie:", "cookie: ", "authorization: ", "bearer ", "tel: ",
        "AKIA", "--a-", "--token ", "[{", '{"a":', "[[", "A", "AAAA", "-", "_", ".", "<", "<email:",
        "dp.", "pat", "AC", "\u00e4", "\U0001f600",
    ],
)  # fmt: skip
def test_hostile_input_of_100_kb_is_done_in_time(piece: str) -> None:
    text = (piece * 100_000)[:100_000]

    began = time.process_time()
    REDACT.value(text)

    # An honest 100 KB takes some 10 ms; what is quadratic takes minutes.
    assert time.process_time() - began < 20


class TestWithheldContent:
    """The mode for those who may not store conversations."""

    def test_it_keeps_structure_and_numbers_and_says_what_it_took(self) -> None:
        tool = make_tool(
            result="secret words", durationMs=5, error={"type": "E", "message": "words"}
        )
        turn = make_turn(
            answer="secret words",
            tools=[tool],
            intermediateResponses=[{"role": "assistant", "content": "secret words"}],
            telemetry={"inputTokens": 3, "error": {"type": "E", "message": "secret words"}},
        )
        case = make_case(
            turns=[turn], sessionInput={"appName": "a", "state": {"x": "secret words"}}
        )

        kept = withhold_content(case)

        written = orjson.dumps(kept).decode()
        (kept_turn,) = kept["actualConversation"]
        assert "words" not in written
        assert "A-100" not in written
        assert kept_turn["tools"][0]["name"] == "get_order"
        assert kept_turn["tools"][0]["durationMs"] == 5
        assert kept_turn["tools"][0]["capture"] == dict.fromkeys(
            ("arguments", "result", "error"), "redacted"
        )
        assert set(kept_turn["capture"]) == {
            "userContent", "finalResponse", "intermediateResponses",
        }  # fmt: skip
        assert kept_turn["telemetry"]["inputTokens"] == 3


class TestKey:
    """The key of the pseudonyms."""

    def test_it_is_made_once_and_readable_by_its_owner_only(self, tmp_path: Path) -> None:
        path = tmp_path / "log.db.key"

        first, second = shared_key(path), shared_key(path)

        assert first == second
        assert len(first) == 32
        assert path.stat().st_mode & 0o777 == 0o600
        assert [entry.name for entry in tmp_path.iterdir()] == ["log.db.key"]

    def test_a_file_that_is_no_key_is_not_used(self, tmp_path: Path) -> None:
        path = tmp_path / "log.db.key"
        path.write_bytes(b"short")

        with pytest.raises(OSError, match="delete the file"):
            shared_key(path)

    def test_a_secret_stands_for_one_key_on_every_host(self) -> None:
        assert derived_key("a long secret text") == derived_key("a long secret text")
        assert derived_key("a long secret text") != derived_key("another secret text")
