"""The policy of each field, custom rules, and the evaluators that still work."""

from typing import Any

import orjson
import pytest

from evaltap.recorder import FieldPolicy, PatternRedactor, RecorderConfig, custom_rule
from evaltap.schemas.errors import ConfigurationError
from support.builders.cases import make_case, make_tool, make_turn

KEY = b"k" * 32
WORDS = "the secret garden"
FIELDS: dict[str, list[Any]] = {
    "userContent": ["userContent"],
    "finalResponse": ["finalResponse"],
    "intermediateResponses": ["intermediateResponses"],
    "contextMessages": ["contextMessages"],
    "toolArguments": ["tools", 0, "arguments"],
    "toolResults": ["tools", 0, "result"],
    "errorMessages": ["tools", 0, "error"],
}


def full_case(words: str = WORDS) -> dict[str, Any]:
    tool = make_tool(
        arguments={"q": words, "n": 5},
        result={"rows": [words]},
        error={"type": "E", "message": words},
    )
    message = {"role": "assistant", "content": words}
    turn = make_turn(
        userContent={"role": "user", "content": words},
        answer=words,
        tools=[tool],
        intermediateResponses=[message],
        contextMessages=[message],
        telemetry={"error": {"type": "E", "message": words}},
    )
    session = {"appName": "a", "userId": f"user of {words}", "state": {"note": words}}
    return make_case(turns=[turn], sessionInput=session, contextMessages=[message])


def redacted(policy: str, case: dict[str, Any] | None = None) -> dict[str, Any]:
    redactor = PatternRedactor(KEY, policy=FieldPolicy.parse(policy))
    return redactor(full_case() if case is None else case)[0]


def part(case: dict[str, Any], path: list[Any]) -> Any:
    found: Any = case["actualConversation"][0]
    for step in path:
        found = found.get(step) if isinstance(found, dict) else found[step]
    return found


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("action", ["keep", "redact", "hash", "drop"])
def test_an_action_changes_its_field_and_no_other(field: str, action: str) -> None:
    plain = full_case()

    case = redacted(f"{field}={action}", plain)

    untouched = action in ("keep", "redact")
    for name, path in FIELDS.items():
        same = part(case, path) == part(plain, path)
        assert same is (name != field or untouched), name
    if not untouched:
        assert WORDS not in orjson.dumps(part(case, FIELDS[field])).decode()


def test_what_is_kept_is_not_even_looked_at() -> None:
    case = full_case("write to bob@example.com")

    kept = redacted(",".join(f"{name}=keep" for name in (*FIELDS, "state", "userId")), case)

    assert kept == case


@pytest.mark.parametrize("action", ["hash", "drop"])
def test_user_and_state_can_be_hidden(action: str) -> None:
    session = redacted(f"state={action},userId={action}")["sessionInput"]

    assert WORDS not in orjson.dumps(session).decode()
    assert session["appName"] == "a"
    assert ("userId" in session) is (action == "hash")


def test_metadata_leaves_names_structure_and_comparable_arguments() -> None:
    case = redacted("metadata")

    (turn,) = case["actualConversation"]
    (tool,) = turn["tools"]
    assert WORDS not in orjson.dumps(case).decode()
    assert tool["name"] == "get_order"
    assert set(tool["arguments"]) == {"q", "n"}
    assert all(value.startswith("<hash:") for value in tool["arguments"].values())
    assert tool["capture"] == {"result": "redacted", "error": "redacted"}
    assert tool["error"]["type"] == turn["telemetry"]["error"]["type"] == "E"


def test_equal_arguments_hash_equal_in_both_conversations_and_twice_is_once() -> None:
    case = full_case()
    expected = make_turn(tools=[make_tool(arguments={"n": 5.0, "q": WORDS})])

    hashed = redacted("metadata", {**case, "conversation": [expected]})

    (actual_tool,) = hashed["actualConversation"][0]["tools"]
    (expected_tool,) = hashed["conversation"][0]["tools"]
    assert actual_tool["arguments"] == expected_tool["arguments"]
    assert redacted("metadata", hashed) == hashed
    other = PatternRedactor(b"x" * 32, policy=FieldPolicy.parse("metadata"))(case)[0]
    assert part(other, FIELDS["toolArguments"]) != actual_tool["arguments"]


def test_a_number_and_its_text_hash_differently() -> None:
    tool = make_tool(arguments={"a": 5, "b": "5", "c": True, "d": None})

    case = redacted("toolArguments=hash", make_case(turns=[make_turn(tools=[tool])]))

    arguments = part(case, FIELDS["toolArguments"])
    assert arguments["a"] != arguments["b"]
    assert (arguments["c"], arguments["d"]) == (True, None)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("userContent=hide", "userContent is 'hide'; expected one of keep, hash, redact, drop"),
        ("answer=drop", "'answer=drop' is invalid"),
        ("userContent", "'userContent' is invalid"),
        ("userContent=drop,metadata", "'metadata' is invalid"),
    ],
)
def test_a_policy_that_cannot_be_read_says_why(policy: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="redaction policy") as caught:
        FieldPolicy.parse(policy)
    assert said in str(caught.value)

    with pytest.raises(ConfigurationError, match="redaction_policy"):
        RecorderConfig(log="log.db", redaction_policy=policy)


def test_what_cannot_be_read_in_the_environment_hides_more_not_less(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVALTAP_REDACTION_POLICY", "userContent=hide")
    monkeypatch.setenv("EVALTAP_REDACTION_RULES", "{")

    config = RecorderConfig(log="log.db")

    assert config.redaction_policy == "metadata"
    written = PatternRedactor(KEY, rules=config.custom_rules()).value(WORDS)
    assert written.startswith("<unreadable_rules:")
    assert PatternRedactor(KEY, rules=config.custom_rules()).value(written) == written
    assert "EVALTAP_REDACTION_POLICY" in caplog.text


class TestRules:
    """Rules of one's own."""

    def test_a_match_becomes_a_pseudonym_of_its_kind_wherever_it_stands(self) -> None:
        redact = PatternRedactor(KEY, rules=[custom_rule("order_number", r"ORD-\d{6}")])

        value = redact.value({"ORD-111111": ["see ORD-123456!", '{"a": "ORD-123456"}']})

        written = orjson.dumps(value).decode()
        assert "ORD-" not in written
        assert written.count("<order_number:") == 3

    def test_only_the_group_is_replaced_and_short_words_are_looked_at(self) -> None:
        redact = PatternRedactor(
            KEY, rules=[custom_rule("name", r"Mr (\w+)", "person"), custom_rule("code", "^abc$")]
        )

        assert redact.value("ask Mr Smith").startswith("ask Mr <person:")
        assert redact.value({"k": "abc"})["k"].startswith("<code:")

    @pytest.mark.parametrize(
        ("pattern", "said"),
        [
            ("(", "not a regular expression"),
            ("a*", "matches an empty text"),
            ("(a+)+b", "too many ways"),
            ("(?:x|(?:a*b?)){20,}c", "too many ways"),
            ("(?=(a+)*)b", "too many ways"),
            ("x" * 1001, "at most 1000"),
        ],
    )
    def test_a_pattern_that_would_do_harm_is_refused(self, pattern: str, said: str) -> None:
        with pytest.raises(ConfigurationError, match="redaction rule 'mine'") as caught:
            custom_rule("mine", pattern)
        assert said in str(caught.value)

    def test_they_come_from_the_configuration(self) -> None:
        rules = r'{"order": "ORD-\\d+", "staff": {"pattern": "E\\d{5}", "kind": "employee"}}'

        config = RecorderConfig(log="log.db", redaction_rules=rules)

        written = config.redactor(KEY).value("ORD-1 by E12345")
        assert written.startswith("<order:")
        assert "<employee:" in written

    @pytest.mark.parametrize("rules", ["[]", "{", '{"a": 1}', '{"A B": "x"}'])
    def test_what_is_no_rule_is_refused(self, rules: str) -> None:
        with pytest.raises(ConfigurationError, match="redaction_rules"):
            RecorderConfig(log="log.db", redaction_rules=rules)
