"""Redaction on a corpus: secrets listed in redact.md are found, harmless text is unchanged, in linear
time."""

import time
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.recorder import PatternRedactor, custom_rule
from evaltap.schemas.errors import ConfigurationError
from support.corpora.redaction_corpus import FOLDER, RandomKeys, entries, harmless, is_found

REDACT = PatternRedactor(b"k" * 32)
ENTRIES = entries(1)
GROUPS = sorted({entry.group for entry in ENTRIES})


def test_the_corpus_is_large_and_each_entry_holds_its_secret() -> None:
    assert len(ENTRIES) > 6_000
    assert len(GROUPS) > 20
    assert not [entry for entry in ENTRIES if is_found(entry, entry.value)]


@pytest.mark.parametrize("group", GROUPS)
def test_at_least_99_of_100_of_what_is_claimed_are_found(group: str) -> None:
    of_group = [entry for entry in ENTRIES if entry.group == group]

    missed = [entry for entry in of_group if not is_found(entry, REDACT.value(entry.value))]

    assert len(missed) <= len(of_group) / 100, missed[:5]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_other_random_characters_are_found_as_well(seed: int) -> None:
    other = entries(seed)

    missed = Counter(e.group for e in other if not is_found(e, REDACT.value(e.value)))

    assert missed.total() <= len(other) / 1_000, missed


SHAPES = (
    "{a:9}", "{a:4}-{a:4}-{a:4}", "TIGER-{d:4}", "marble-harbor-{d:2}", "#{d:5}{a:3}", "!{a:7}%", "${a:9}", "/{a:11}",
    "{a:3}[{a:5}", "{d:10}", "{h:32}", "{b:40}", "Copper.{d:3}", "velvet/candle{d:2}", "@{a:8}",
)  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "text", ["password: {}", "password = {}", 'say "password": "{}" now', "PW={}\nX=1"]
)
def test_no_shape_of_a_password_hides_it_behind_its_name(text: str, shape: str) -> None:
    made = (RandomKeys(seed).key(shape) for seed in range(60))

    missed = [one for one in made if one in REDACT.value(text.replace("{}", one))]

    assert len(missed) <= 1, missed  # one in 60 may be a variable's name


@pytest.mark.slow
def test_at_most_one_harmless_line_in_a_hundred_is_touched() -> None:
    lines = harmless()

    touched = [line for line in lines if REDACT.value(line) != line]
    touched_in_data = [
        line
        for line in lines
        if REDACT.value({"rows": [{"text": line}]}) != {"rows": [{"text": line}]}
    ]

    assert len(lines) > 250
    assert len(touched) <= len(lines) / 100, touched
    assert len(touched_in_data) <= len(lines) / 100, touched_in_data


def test_what_was_redacted_once_is_not_redacted_again() -> None:
    once = [REDACT.value(one.value) for one in ENTRIES[:: len(ENTRIES) // 300]]

    assert [(one, again) for one in once if (again := REDACT.value(one)) != one] == []


class TestEntropy:
    """The rule that is off unless it was asked for."""

    UNMARKED = ("Zx8Kp2Lm9Qr4Tv6Wy1Bn3Df5Gh7Jk0ScUe2Ai4O", "a8f5f167f44f4964e6c998dee827110c")
    redact = PatternRedactor(b"k" * 32, entropy=True)

    @pytest.mark.parametrize("key", UNMARKED)
    def test_it_replaces_long_words_that_look_like_chance(self, key: str) -> None:
        value = {"value": key, "note": f"it answered {key} twice"}

        assert REDACT.value(value) == value
        assert key not in str(self.redact.value(value))

    def test_it_leaves_ordinary_words_and_uuids(self) -> None:
        for text in (
            "the internationalization_of_everything_2024 project",
            "123e4567-e89b-12d3-a456-426614174000",
            "gpt-4o-mini-2024-07-18 in eu-central-1",
            "path/to/some/module/with/a/long/name.py",
        ):
            assert self.redact.value(text) == text


PIECES = (
    "a", "1", "@", "a@a.", "%40", "password", "password ", "password=", "token: ", " is ", "eyJaaaaaaaaaa.", "://a:",
    "1 ", "+1 ", "0170 ", "DE89 ", "4111 ", "415-", "(", '"', "\\", "sk-a", "cookie: ", "authorization: ", "bearer ",
    "tel: ", "--a-", "A", "AAAA", ".", "<", "<email:", "\u00e4", "\U0001f600", "password is ", "key='", "'password', '",
    "<password>", "<tr><th>password</th></tr>", "<tr><td>", "password changed to ", "name=\"password\"\n\n", "=41=42", "[.]a", "name: password\n value", "a,password\n", "|password|\n", "a|", "curl -u a:", "mysql -p", "echo a | ",
    "&#1;", "&quot;", "%41", "=40", "\\u0041", "61 ", "AB=", "密码是", "пароль ", "phone 1", "call 123 4567 ", "card 4111 ",
    "(0", "0-0 ", "8 (", "\n", "-----BEGIN", "Private-Lines: 1\n", "a:b:1:c\n", "(a) values (a),", "identified by '",
    "Cohere key is a1b2c3d4e5f6g7", "key=a1b2c3d4e5f6g7 ", "$6$", "MIIE", "a1b2c3d4e5f6g7h8 ", "a at b dot ", "</td><td>",
    "log in with a/", "sign in as bob with ", "the password for the ", "x1y2 is the password ", "that's the password ",
    "clave de ", "d'accès ", "是密码", "pin code ",
    "copy a (password) from stdin;\n", "a\tpassword\n", "password\nab1cd2ef3\n", "password?\n", "<name>password</name><value>",
    "connect('a','b','", "assword send \"", "ftp user a b1\n", "\n{\"a\":", "</label><input value=", "['a', 'b', ",
    "1) \"password\"\n", "password - ", "(password) x1y2 (", "x1y2 into the password field ",
    'secret "a-b" ', "Value 'x1y2' at 'password' ", "password: (a ", "password: [a", "password = $a[", "password: {a: ", "password:\n  type: a\n  default: ",
    "- value: x1\n  name: password\n", "chpasswd:\n list: |\n a:b\n", "[password] x1y2 ", "61 c3 b1 61 62 ", "\\xc3\\xb1", "a=C3=B1", "a\\u00f1",
    "password, it is ", "-[ RECORD 1 ]\npassword | a\n", "key: a/b.c", "cookie: a=b; ", "password said:\n\n", "password was a1 and the new one is ", "%B4111111111111111^",
    "a/b1@//c:1/", "create user a identified by b ", "insert (password) values ('a, ", "password at /a/b/", "{{ password ", "${password",
    "reg add a /v pass ", "{{ password | default('", "sign_in('a', ", "assertEq('x1y2', ", "##vso[task.setvariable variable=password;", "password: 'a1' -> ",
    "password> ", "password: config(a) or ", "credentials('a', ", "bcrypt.hash('", "password 1: ",
)  # fmt: skip


class TestTime:
    """What hostile texts can cost: it grows with their length, and no faster."""

    MOST_SECONDS = 30.0
    """CPU for a megabyte; an honest one takes some tenths, what is quadratic takes hours."""

    @pytest.mark.slow
    @settings(max_examples=6)
    @given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join))
    def test_a_megabyte_of_anything_is_done_in_time(self, piece: str) -> None:
        text = (piece * 1_000_000)[:1_000_000]

        began = time.process_time()
        REDACT.value(text)

        assert time.process_time() - began < self.MOST_SECONDS

    @pytest.mark.slow
    def test_a_megabyte_of_words_that_differ_is_done_in_time(self) -> None:
        text = " ".join(map("".join, product("abcdefghijklmno", "aeiou", repeat=3)))[:1_000_000]

        began = time.process_time()
        REDACT.value(f"{text} = 1")

        assert time.process_time() - began < self.MOST_SECONDS

    @pytest.mark.slow
    @pytest.mark.parametrize("piece", ["a", "1", "a ", "1-", "a:", " ,", "aA1!", "\n", "id=a"])
    @pytest.mark.parametrize(
        "pattern", [r"\w+!", r"\w+@\w+\.\w+", r"\w+\s*:\s*\w+", r"(?s).+x", r"[^\s]+\.example\.com"]
    )
    def test_a_rule_of_ones_own_is_done_in_time(self, pattern: str, piece: str) -> None:
        rule = custom_rule("mine", pattern)
        text = (piece * 300_000)[:300_000]

        began = time.process_time()
        list(rule.find(text))

        assert time.process_time() - began < self.MOST_SECONDS / 3

    @pytest.mark.parametrize(
        "pattern",
        [
            "(?:a|aa)+b", r"\w+\w+\w+\w+\w+!", r"\s*,?\s*,?\s*,?\s*x", r"(\w+\s?)*!", "(a|a)*b", ".*.*.*x",
            r"(?:\d+)*x", "(x+x+)+y", r"\w+!\w+\w+@", "(.*?,){11}P", r"(\w*)\1\w*x", "(a+)+b",
        ],
    )  # fmt: skip
    def test_a_rule_that_could_take_longer_is_refused(self, pattern: str) -> None:
        with pytest.raises(ConfigurationError, match="too many ways"):
            custom_rule("mine", pattern)

    def test_a_rule_finds_what_stands_anywhere_in_a_long_text(self) -> None:
        rule = custom_rule("order", r"ORD-\d{6}")
        text = "".join(f"{'x' * (n % 300)} ORD-{n:06} " for n in range(500))

        found = [text[one.start : one.end] for one in rule.find(text)]

        assert found == [f"ORD-{n:06}" for n in range(500)]

    @pytest.mark.parametrize(
        ("pattern", "longest"),
        [
            (r"KEY-\w+", 60_000), (r"BEGIN[^E]+END", 3_900), (r"\w+!", 3_900), ("(?i)key-([a-z]+)", 60_000),
            ("ID[0-9]{3000}", 3_000), (r"(?:\d{4} )+END", 790), (r"\bKEY-\w++", 60_000),
        ],
    )  # fmt: skip
    def test_a_rule_finds_long_matches_whole(self, pattern: str, longest: int) -> None:
        rule = custom_rule("mine", pattern)
        shapes = {"KEY-": "KEY-{a}", "BEGIN": "BEGIN{a}END", "w+!": "{a}!", "key-": "KEY-{a}",
                  "ID": "ID{1}", "END": "{4}END"}  # fmt: skip
        shape = next(shape for sign, shape in shapes.items() if sign in pattern)
        for size in (1, 100, 127, 129, 255, 256, 257, 700, longest):
            value = shape.replace("{a}", "a" * (size - min(10, size - 1)))
            value = value.replace("{1}", "1" * 3_000).replace(
                "{4}", "1234 " * max(1, size // 5 - 1)
            )
            for before in (0, 1, 126, 300):
                text = f"{' ' * before}{value} and so on"

                found = [(one.start, one.end) for one in rule.find(text)]

                assert found in (
                    [(before, before + len(value))],
                    [(before + 4, before + len(value))],
                )

    def test_a_rule_that_could_never_match_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="shortest match has 5002 characters"):
            custom_rule("mine", "ID[0-9]{5000}")

    def test_no_rule_takes_the_end_of_what_it_read_for_the_end_of_the_text(self) -> None:
        text = "x" * 252 + "123456 and more " * 40

        for pattern in (r"\d{4}$", r"\d{4}\b.\Z", r"2345(?!6)", r"\d{4}\b4"):
            assert list(custom_rule("mine", pattern).find(text)) == []


def test_the_data_of_the_corpus_says_where_it_is_from() -> None:
    said = (FOLDER / "README.md").read_text("utf-8")

    assert all(path.name in said for path in FOLDER.iterdir() if path.name != "README.md")
    assert "Apache License 2.0" in said
    assert "MIT License" in said
