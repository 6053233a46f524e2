"""The filter language: words and `field:value` terms, parsed without a database.

    refund late "exact words"  tool:refund  -tool:search  status:failed  score:f1<0.5  since:24h  sort:worst

A case must meet every term; commas in a value mean "one of these"; a minus in front excludes.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean, did_you_mean_one_of

_TERM: Final = re.compile(
    r'\s*(?P<minus>-?)(?:(?P<field>[A-Za-z_]+):)?(?P<value>(?:"[^"]*"|[^\s"])+)'
)
_BOUND: Final = re.compile(r"(?P<name>.+?)(?P<operator><=|>=|=|<|>)(?P<value>.+)")

SORTS: Final = ("newest", "oldest", "worst", "cost", "latency", "score")

OF_RUNS: Final = frozenset({"environment", "version", "run", "set", "id"})
"""The fields that name runs on cases, which a list of traffic leaves out otherwise."""

FIELDS: Final[Mapping[str, str]] = {
    "status": "failed, error, not_evaluated or crashed under any metric, passed (some passed, the others were"
    " not evaluated) or unscored; crashed runs also match failed and error",
    "metric": "NAME=STATUS: the status under one metric",
    "score": "NAME<0.5: the score under one metric; also <=, >, >=, =",
    "tool": "a tool that was called; * matches any characters",
    "path": '"a > b": the tools of a turn, in order',
    "error": "the type of a failure of the run or of a tool; * as above",
    "gap": "a field that was not fully captured, e.g. finalResponse",
    "feedback": "up, down or any",
    "cost": ">0.01: cost of the session in US dollars, as far as it is known",
    "latency": ">5s, >800ms: the slowest turn",
    "turns": ">=3: turns of the session",
    "calls": ">10: tool calls of the session",
    "tokens": ">4k: input and output tokens of the session",
    "app": "the application",
    "user": "the user's id, as recorded",
    "model": "a model; * as above",
    "set": "the eval set",
    "id": "the eval id; * as above",
    "service": "the service that recorded it",
    "version": "the agent's version",
    "environment": "where the agent ran, e.g. production",
    "tag": "a tag of the recorder",
    "run": "a scoring run that scored it",
    "reason": "words in the reason of a verdict other than passed",
    "reviewed": "no, yes, approved, edited or rejected: the reviewers' latest decision",
    "label": "a label from reviewers; * as above",
    "since": "24h, 7d, 2026-11-01 or 2026-11-02T12:00 (UTC): turns at or after this time",
    "from": "the same as since",
    "to": "turns before this time",
    "in": "all: also search for words in arguments, results and errors of tools",
    "sort": ", ".join(SORTS),
}
"""The fields of a term, and the form of their values."""

NAMED: Final = frozenset({"metric", "score"})
NUMBERS: Final = frozenset({"cost", "latency", "turns", "calls", "tokens"})
_SCALES: Final[Mapping[str, Mapping[str, float]]] = {
    "latency": {"": 1.0, "ms": 1.0, "s": 1e3, "m": 6e4},
    "tokens": {"": 1.0, "k": 1e3, "m": 1e6},
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "status": ("failed", "error", "not_evaluated", "crashed", "passed", "unscored"),
    "feedback": ("up", "down", "any"),
    "reviewed": ("no", "yes", "approved", "edited", "rejected"),
    "in": ("all",),
    "sort": SORTS,
}


@dataclass(frozen=True, slots=True)
class Term:
    """One condition; `field` is empty for words."""

    field: str
    values: tuple[str, ...]
    negated: bool = False
    name: str = ""
    """The metric, for `metric` and `score`."""
    operator: str = "="
    number: float = 0.0
    """The bound, for numbers: in US dollars, milliseconds, or a count."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A parsed filter; without terms it selects every case."""

    terms: tuple[Term, ...] = ()
    sort: str = "newest"
    everywhere: bool = False
    """Whether words are also searched in arguments, results and errors of tools."""
    text: str = ""
    """The filter as written."""

    @property
    def names_runs(self) -> bool:
        """Whether a term may mean runs on cases."""
        return any(term.field in OF_RUNS for term in self.terms)


NO_FILTER: Final = Filter()
MOST_TERMS: Final = 200
"""DuckDB reads no deeper expression."""


def parse_filter(text: str) -> Filter:
    """Parse a filter; raise InputError that names the unknown field or the invalid value."""
    terms: list[Term] = []
    sort, everywhere, place = "newest", False, 0
    while text[place:].strip():
        found = _TERM.match(text, place)
        rest = "" if found is None else text[found.end() : found.end() + 1].strip()
        if found is None or rest:
            shown = rest or text[place:].strip()
            raise _wrong(text, f"unbalanced quotation mark at {shown[:20]!r}")
        place = found.end()
        term = _term(text, found["minus"] == "-", found["field"], found["value"])
        if term.field == "sort":
            sort = term.values[0]
        elif term.field == "in":
            everywhere = True
        else:
            terms.append(term)
        if len(terms) > MOST_TERMS:
            raise _wrong(text[:100], f"more than {MOST_TERMS} terms")
    return Filter(tuple(terms), sort, everywhere, text.strip())


def quoted(value: str) -> str:
    """Return a value in the syntax of filters, with ? for quotation marks, which values cannot contain."""
    plain = value.replace('"', "?")
    bare = plain and all(letter.isalnum() or letter in "-_./@#" for letter in plain)
    return plain if bare else f'"{plain}"'


def _term(text: str, negated: bool, field: str | None, written: str) -> Term:
    if field is None:
        return Term("", (written.replace('"', ""),), negated)
    name = field.lower()
    if name not in FIELDS:
        raise _wrong(
            text,
            f"unknown field {field!r}; {did_you_mean_one_of(name, FIELDS)}; put words that contain a"
            " colon in quotes",
        )
    if name in NAMED:
        return _of_metric(text, name, negated, written.replace('"', ""))
    if name in NUMBERS:
        return _of_number(text, name, negated, written)
    values = tuple(_split(written))
    if not all(values):
        raise _wrong(text, f"{field}: without a value; expected {FIELDS[name]}")
    known = _CHOICES.get(name)
    for value in values if known else ():
        if value not in (known or ()):
            hint = did_you_mean_one_of(value, known or ())
            raise _wrong(text, f"unknown value {value!r}; {hint}")
    return Term(name, values, negated)


def _of_metric(text: str, field: str, negated: bool, written: str) -> Term:
    if (found := _BOUND.fullmatch(written)) is None:
        raise _wrong(text, f"{field}:{written}; expected {FIELDS[field]}")
    if field == "score":
        number = _number(text, field, found["value"])
        return Term(field, (), negated, found["name"], found["operator"], number)
    values = tuple(found["value"].split(","))
    known = [one for one in _CHOICES["status"] if one != "unscored"]
    if found["operator"] != "=" or not set(values) <= set(known):
        raise _wrong(
            text,
            f"{field}:{written}; {_hints(values, known)}expected NAME=STATUS with {', '.join(known)}",
        )
    return Term(field, values, negated, found["name"])


def _hints(found: Iterable[str], known: Collection[str]) -> str:
    """Return suggestions for the unknown words, each followed by a space."""
    hints = [did_you_mean(one, known) for one in found if one not in known]
    return "".join(f"{hint} " for hint in hints if hint)


def _of_number(text: str, field: str, negated: bool, written: str) -> Term:
    found = re.fullmatch(r"(<=|>=|=|<|>)?(.+)", written)
    number = _number(text, field, found[2] if found else "")
    return Term(field, (), negated, operator=(found and found[1]) or "=", number=number)


def _number(text: str, field: str, written: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)([a-z]*)", written.lower())
    scale = _SCALES.get(field, {"": 1.0}).get(found[2]) if found else None
    if found is None or scale is None:
        raise _wrong(text, f"{field}: {written!r} is not a number; expected {FIELDS[field]}")
    return float(found[1]) * scale


def _split(written: str) -> list[str]:
    """Return the values between commas; commas in quotes belong to a value."""
    parts = re.findall(r'(?:"[^"]*"|[^,"])+|(?<=,)(?=,|$)|^(?=,)', written)
    return [part.replace('"', "") for part in parts]


def _wrong(text: str, what: str) -> InputError:
    return InputError(f"filter {text.strip()!r}: {what}")
