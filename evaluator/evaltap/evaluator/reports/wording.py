"""Readable reasons.

Scores retain the wording of tRPC-Agent-Go's comparisons, which its result files use too.  Reports and the
command line use a shorter form: `refund: amount 100, expected 10`.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_CALLS: Final = re.compile(
    r"tool trajectory mismatch: match tools: (?:\d+ errors occurred:\n\t\* cannot match all left vertices"
    r"(?P<listed>(?:\n\t\* (?:[^\n]|\n(?!\t\* |\n))*)+)(?:\n\n|\Z)"
    r"|(?P<first>tool id .*?)(?=; turns? \d|\Z))",
    re.DOTALL,
)
_COUNTS: Final = re.compile(
    r"tool trajectory mismatch: validate tool counts: number of tool calls mismatch: "
    r"actual\((?P<made>\d+)\) (?P<sign><|!=) expected\((?P<wanted>\d+)\)"
)
_CALL: Final = re.compile(
    r"tool id (?P<id>\S*) with name (?P<name>.*?) mismatch(?:: (?P<why>.*))?", re.DOTALL
)
_PART: Final = re.compile(r"(?P<part>name|arguments|result): (?P<rest>.*)", re.DOTALL)
_STEP: Final = re.compile(r"compare (?P<step>\[\d+\]|[^:]*): (?P<rest>.*)", re.DOTALL)
_VALUES: Final = re.compile(
    r"(?P<what>number|value|array length) mismatch: "
    r"actual\((?P<actual>.*)\) != expected\((?P<expected>.*)\)",
    re.DOTALL,
)
_KEY: Final = re.compile(
    r"key (?P<key>.*) (?:selected by onlyTree )?is missing in (?P<side>actual|expected)", re.DOTALL
)
_KINDS: Final = re.compile(r"actual is (?P<actual>.*), expected is (?P<expected>.*)", re.DOTALL)
_TEXT: Final = re.compile(
    r"text mismatch: source (?P<actual>.*?) (?:"
    r"and target (?P<equal>.*?) do not match"
    r"|does not contain target (?P<contained>.*?)"
    r"|does not match regex (?P<regex>.*?))(?=; turns? \d|; \w+ mismatch: |\Z)",
    re.DOTALL,
)


def readable(reason: str) -> str:
    """Return a reason with the wording of comparisons shortened; other text is unchanged."""
    if " mismatch" not in reason:
        return reason
    reason = _COUNTS.sub(_counts, reason)
    reason = _CALLS.sub(_calls, reason)
    return _TEXT.sub(_text, reason)


class RubricReason(NamedTuple):
    """The verdict of one sample of a judge on one rubric."""

    sample: tuple[str, int]
    """The turn's invocation id and the number of the sample."""
    rubric_id: str
    score: float | None
    reason: str


def with_rubrics(reason: str, verdicts: Iterable[RubricReason]) -> str:
    """Return a reason in which each rubric's reason follows its id: `helpful 0: no refund · grounded 1`.

    A score contains the reasons of its rubrics one per line, as in tRPC-Agent-Go.
    """
    samples: dict[tuple[str, int], list[RubricReason]] = {}
    for one in verdicts:
        if one.rubric_id and one.score is not None:
            samples.setdefault(one.sample, []).append(one)
    found = {"\n".join(one.reason for one in rows): rows for rows in samples.values()}
    if not (texts := sorted(filter(str.strip, found), key=len, reverse=True)):
        return reason
    any_text = re.compile("|".join(map(re.escape, texts)))
    return any_text.sub(lambda match: " · ".join(map(_rubric, found[match[0]])), reason)


def _rubric(one: RubricReason) -> str:
    told = one.reason.strip() if one.score != 1 else ""
    return f"{one.rubric_id} {one.score:g}{': ' if told else ''}{told}"


def _counts(found: re.Match[str]) -> str:
    made, wanted = int(found["made"]), found["wanted"]
    calls = "1 tool call" if made == 1 else f"{made} tool calls"
    return f"{calls}, expected {'at least ' if found['sign'] == '<' else ''}{wanted}"


def _calls(found: re.Match[str]) -> str:
    listed = found["listed"]
    calls = listed.split("\n\t* ")[1:] if listed else [found["first"]]
    return "; ".join(dict.fromkeys(map(_call, calls)))


def _call(text: str) -> str:
    if (found := _CALL.fullmatch(text.strip())) is None:
        return text
    if not found["why"]:
        return f"{found['name']}: expected, not called"
    return f"{found['name']}: {_difference(found['why'])}"


def _difference(why: str) -> str:
    part = _PART.fullmatch(why)
    if part is None or part["part"] == "name":
        return _TEXT.sub(_text, why)
    path, rest = ("result" if part["part"] == "result" else ""), part["rest"]
    while step := _STEP.fullmatch(rest):
        path, rest = _joined(path, step["step"]), step["rest"]
    return _leaf(path, rest, part["part"])


def _leaf(path: str, rest: str, part: str) -> str:
    name = path or part
    if values := _VALUES.fullmatch(rest):
        actual, expected = values["actual"], values["expected"]
        if values["what"] == "array length":
            return (
                f"{name} has {actual} {'item' if actual == '1' else 'items'}, expected {expected}"
            )
        return f"{name} {actual}, expected {expected}"
    if key := _KEY.fullmatch(rest):
        missing = key["side"] == "actual"
        return f"{_joined(path, key['key'])} {'missing' if missing else 'not expected'}"
    if kinds := _KINDS.fullmatch(rest):
        return f"{name} is {kinds['actual']}, expected {kinds['expected']}"
    return f"{name}: {rest}"


def _joined(path: str, step: str) -> str:
    return f"{path}{'' if not path or step.startswith('[') else '.'}{step}"


def _text(found: re.Match[str]) -> str:
    if found["equal"] is not None:
        return f"answer {found['actual']}, expected {found['equal']}"
    if found["contained"] is not None:
        return f"answer {found['actual']} does not contain {found['contained']}"
    return f"answer {found['actual']} does not match the pattern {found['regex']}"
