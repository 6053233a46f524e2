"""Compare recorded turns with the ground truth next to captured spans.

The rules are those of tests/data/spans/README.md: results are compared after decoding and without
their framework's envelope, content that is not in the spans must be reported as missing, and framework
tools may be kept or dropped.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SPANS = Path(__file__).parents[2] / "data" / "spans"
COVERAGE: dict[str, Any] = json.loads((SPANS / "COVERAGE.json").read_text())
UNSEEN = ("missing", "redacted", "truncated")


def captures() -> list[str]:
    """Return the names of all captured cases: `<variant>/<scenario>`."""
    return sorted(COVERAGE)


def files_of(name: str) -> list[Path]:
    """Return the telemetry files of a capture."""
    candidates = [SPANS / f"{name}.otlp.json", SPANS / f"{name}.logs.otlp.json"]
    return [path for path in candidates if path.exists()]


def truth_of(name: str) -> dict[str, Any]:
    """Return the ground truth of a capture."""
    truth: dict[str, Any] = json.loads((SPANS / f"{name}.expected.json").read_text())
    return truth


def differences(name: str, cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what in the recorded turns contradicts the truth; empty when nothing does."""
    truth = truth_of(name)
    if len(cases) != len(truth["turns"]):
        return [f"{len(cases)} turns instead of {len(truth['turns'])}"]
    found: list[str] = []
    for number, (want, case) in enumerate(zip(truth["turns"], cases, strict=True)):
        found += [f"t{number} {item}" for item in _Turn(name, truth, number).check(want, case)]
    return found


class _Turn:
    def __init__(self, name: str, truth: Mapping[str, Any], number: int) -> None:
        self.absent = [
            item.split("(")[0] for item in COVERAGE[name]["not_in_spans"] if "(in logs)" not in item
        ]
        self.truth, self.number = truth, number
        self.captured = truth.get("content_captured", True)

    def check(self, want: Mapping[str, Any], case: Mapping[str, Any]) -> list[str]:
        (turn,) = case["actualConversation"]
        found = [] if case["evalMode"] == "trace" else [f"mode {case['evalMode']}"]
        found += self._session(want, case, turn)
        found += self._words("userContent", "user", want["user"], turn)
        found += self._words("finalResponse", "final", want["final_response"], turn)
        said = [message["content"] for message in turn.get("intermediateResponses", [])]
        if self.captured and said != want.get("intermediate_responses", []):
            found.append(f"intermediate {said}")
        if want.get("error") and turn["telemetry"]["status"] != "error":
            found.append(f"status {turn['telemetry']['status']}")
        return found + self._tools(want, turn)

    def _missing(self, what: str) -> bool:
        return not self.captured or f"t{self.number}.{what}" in self.absent

    def _session(
        self, want: Mapping[str, Any], case: Mapping[str, Any], turn: Mapping[str, Any]
    ) -> list[str]:
        session_id = want.get("session_id") or self.truth["session_id"]
        flag = turn.get("capture", {}).get("sessionId")
        if any(item.startswith("session_id=") for item in self.absent) or session_id is None:
            return [] if flag == "synthesized" else [f"session id flag {flag}"]
        right = case["evalId"] == session_id and flag is None
        return [] if right else [f"session id {case['evalId']} ({flag})"]

    def _words(self, key: str, short: str, want: Any, turn: Mapping[str, Any]) -> list[str]:
        have = turn.get(key, {}).get("content")
        if self._missing(short):
            flag = turn.get("capture", {}).get(key)
            flagged = want is None or flag in UNSEEN
            return [] if have is None and flagged else [f"{key} {have!r} ({flag})"]
        if want is None:
            return [] if have is None else [f"{key} invented: {have!r}"]
        return [] if have is not None and same(want, have) else [f"{key} {have!r}"]

    def _tools(self, want: Mapping[str, Any], turn: Mapping[str, Any]) -> list[str]:
        optional = self.truth.get("optional_tools", [])
        have = [tool for tool in turn.get("tools", []) if tool["name"] not in optional]
        true = [tool for tool in want["tools"] if tool["name"] not in optional]
        names = [tool["name"] for tool in have]
        if names != [tool["name"] for tool in true]:
            return [f"tools {names}"]
        return [
            f"{tool['name']}: {item}"
            for tool, seen in zip(true, have, strict=True)
            for item in self._tool(tool, seen)
        ]

    def _tool(self, true: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
        name, found = true["name"], []
        if true["id"] and not self._missing(f"{name}.id") and seen.get("id") != true["id"]:
            found.append(f"id {seen.get('id')}")
        if self._missing(f"{name}.args"):
            found += [] if "arguments" not in seen else ["arguments invented"]
        elif not same(true["arguments"], seen.get("arguments")):
            found.append(f"arguments {seen.get('arguments')}")
        if true["error"] is not None:
            return found + self._error(name, true["error"], seen)
        if self._missing(f"{name}.result"):
            found += [] if "result" not in seen else ["result invented"]
        elif not same(unwrap(true["result"]), unwrap(seen.get("result"))):
            found.append(f"result {seen.get('result')}")
        return found

    def _error(self, name: str, true: Mapping[str, Any], seen: Mapping[str, Any]) -> list[str]:
        if "error" not in seen:
            return ["error not marked"]
        return [
            f"error {part}: {seen['error']}"
            for part in ("type", "message")
            if true.get(part)
            and not self._missing(f"{name}.error.{part}")
            and true[part] not in seen["error"].get(part, "")
        ]


def decode(value: Any) -> Any:
    """Decode JSON text, also twice over; other text only loses its margins."""
    while isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value.strip()
    return value


def unwrap(value: Any) -> Any:
    """Take a result out of ADK's `{"result": x}`."""
    value = decode(value)
    return (
        decode(value["result"]) if isinstance(value, dict) and set(value) == {"result"} else value
    )


def same(one: Any, other: Any) -> bool:
    """Compare JSON values; 10 equals 10.0."""
    one, other = decode(one), decode(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return (type(one) is type(other) and one == other) or (
        isinstance(one, int | float) and isinstance(other, int | float) and one == other
    )
