"""Recipes choose the turns that become cases; they are JSON files or built in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from evaltap.schemas.data import Json
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import read_bytes
from evaltap.schemas.files.validation import describe
from evaltap.schemas.known import check_known
from evaltap.schemas.text import did_you_mean_one_of

Expect: TypeAlias = Literal["none", "expected", "regression", "inputs", "scenario"]
Unit: TypeAlias = Literal["session", "turn"]

DIMENSIONS: Final[Mapping[str, str]] = {
    "tool_path": "tool_path",
    "app": "app",
    "service": "coalesce(service, '')",
    "model": "coalesce(models[1], '')",
    "version": "coalesce(version, '')",
    "outcome": "outcome",
    "day": "strftime(started_at, '%Y-%m-%d')",
    "week": "strftime(date_trunc('week', started_at), '%Y-%m-%d')",
}
"""The dimensions by which picks may stratify turns, as SQL over `curation_turns`."""

OF_CASES: Final = ("tool_path", "app", "model", "version", "language")
"""The dimensions that cases of an eval set have too."""

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "failed": ("metric", "limit"),
    "errors": ("limit",),
    "thumbs_down": ("limit",),
    "thumbs_up": ("limit",),
    "disagreement": ("metric", "limit"),
    "rare_tool": ("below", "limit"),
    "rare_path": ("below", "limit"),
    "slow": ("top", "limit"),
    "costly": ("top", "limit"),
    "long": ("top", "limit"),
    "uncovered": ("by", "against", "per", "limit"),
    "new": ("against", "limit"),
    "stratified": ("by", "per", "limit"),
    "approved": ("limit",),
    "random": ("count", "limit"),
}
"""The labels of picks, and the settings of each."""


@dataclass(frozen=True, slots=True)
class Pick:
    label: str
    metric: str = ""
    limit: int | None = None
    below: float = 0.01
    """For rare values: the share of the traffic below which a tool or path is rare."""
    top: float = 0.01
    by: tuple[str, ...] = ("tool_path",)
    per: int = 1
    """The number of cases for each value."""
    against: str = ""
    """An eval set whose values are already covered."""
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """The picks, their source, and the content of the cases."""

    name: str
    picks: tuple[Pick, ...]
    since: datetime | None = None
    until: datetime | None = None
    app: str = ""
    where: str = ""
    filter: str = ""
    seed: str = ""
    radius: float | None = 0.5
    """The radius of near-duplicates, of which one is kept; None keeps all."""
    semantic: float | None = None
    """The cosine of word vectors at which texts are near-duplicates too."""
    limit: int | None = None
    expect: Expect = "none"
    unit: Unit = "session"
    whole: bool = False
    """Whether sessions with missing turns are excluded."""
    metrics: tuple[str, ...] = ()
    """With `expected`: a turn that passed one of these may become a reference."""
    folder: Path = field(default=Path(), compare=False)
    """The folder to which paths in the recipe are relative."""

    def changed(self, **given: Any) -> "Recipe":
        """Return the recipe with values overridden by the command line."""
        return replace(self, **{key: value for key, value in given.items() if value is not None})

    def everything(self) -> "Recipe":
        """Return the recipe that takes all offered turns, including near-duplicates."""
        picks = tuple(replace(pick, count=None, limit=None) for pick in self.picks)
        return replace(self, picks=picks, limit=None, radius=None)


BUILT_IN: Final[Mapping[str, Recipe]] = {
    "representative": Recipe("representative", (Pick("random", count=100),)),
    "failures": Recipe(
        "failures",
        (Pick("failed", limit=100), Pick("errors", limit=50), Pick("thumbs_down", limit=50)),
    ),
    "regressions": Recipe("regressions", (Pick("failed", limit=100),), expect="regression"),
    "approved": Recipe("approved", (Pick("approved"),), expect="expected"),
    "coverage": Recipe(
        "coverage",
        (
            Pick("rare_tool", limit=50),
            Pick("rare_path", limit=50),
            Pick("stratified", by=("tool_path",), per=3),
        ),
    ),
}
"""Recipes for `--like`."""


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; raise FormatError that names the unknown or invalid key."""
    data = canonical.loads(read_bytes(path), path=str(path))
    recipe = _Reader(str(path)).recipe(data, path.stem.removesuffix(".recipe"))
    return replace(recipe, folder=path.parent)


def built_in(name: str) -> Recipe:
    """Return a built-in recipe; raise InputError for an unknown one."""
    check_known(name, BUILT_IN, f"--like {name}: unknown recipe")
    return BUILT_IN[name]


class _Reader:
    """Reads the parts of a recipe; error messages name its file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def recipe(self, data: Json, name: str) -> Recipe:
        given = self.object(data, "", _TOP)
        source = self.object(given.get("from", {}), "from", _FROM)
        collapse = given.get("collapse", {})
        if collapse is False:
            collapse = {"radius": None}
        alike = self.object(collapse, "collapse", ("radius", "semantic"))
        picks = given.get("pick")
        if not isinstance(picks, list) or not picks:
            raise self.wrong("pick", picks, "a list of picks")
        expect, unit = given.get("expect", "none"), given.get("unit", "session")
        if expect == "actual":
            expect = "expected"
        if expect not in get_args(Expect):
            raise self.wrong("expect", expect, f"one of {', '.join(get_args(Expect))}")
        if unit not in get_args(Unit):
            raise self.wrong("unit", unit, f"one of {', '.join(get_args(Unit))}")
        keeps_all = "radius" in alike and alike["radius"] is None
        return Recipe(
            self.value(given, "name", name),
            tuple(self.pick(one, f"pick[{place}]") for place, one in enumerate(picks)),
            since=self.time(source, "since"),
            until=self.time(source, "until"),
            app=self.value(source, "app", ""),
            where=self.value(source, "where", ""),
            filter=self.value(source, "filter", ""),
            seed=self.value(given, "seed", ""),
            radius=None if keeps_all else self.value(alike, "radius", 0.5),
            semantic=self.value(alike, "semantic", 0.0) if "semantic" in alike else None,
            limit=self.value(given, "limit", None),
            expect=cast(Expect, expect),
            unit=unit,
            whole=self.value(given, "whole", False),
            metrics=self.names(given, "metrics"),
        )

    def pick(self, data: Json, place: str) -> Pick:
        label = data.get("label") if isinstance(data, dict) else None
        if not isinstance(label, str) or label not in _FIELDS:
            shown = repr(label)[:60] if isinstance(label, str) else describe(label)
            hint = did_you_mean_one_of(str(label), _FIELDS)
            raise FormatError(f"found {shown}; {hint}", path=self._path, place=f"{place}.label")
        given = self.object(data, place, ("label", *_FIELDS[label]))
        by = self.names(given, "by") or ("tool_path",)
        known = OF_CASES if label == "uncovered" else (*DIMENSIONS, "language")
        for name in by:
            if name not in known:
                raise self.wrong(f"{place}.by", name, f"one of {', '.join(known)}")
        if label in ("uncovered", "new") and not given.get("against"):
            raise self.wrong(f"{place}.against", None, "an eval set file")
        return Pick(
            label,
            metric=self.value(given, "metric", ""),
            limit=self.value(given, "limit", None),
            below=self.value(given, "below", 0.01),
            top=self.value(given, "top", 0.01),
            by=by,
            per=self.value(given, "per", None) or 1,
            against=self.value(given, "against", ""),
            count=self.value(given, "count", None),
        )

    def object(self, data: Json, place: str, known: Sequence[str]) -> Mapping[str, Json]:
        if not isinstance(data, dict):
            raise self.wrong(place or "the recipe", data, "an object")
        for key in data:
            if key not in known:
                hint = did_you_mean_one_of(key, known)
                raise FormatError(f"unknown key `{key}`; {hint}", path=self._path, place=place)
        return data

    def value(self, given: Mapping[str, Json], key: str, default: Json) -> Any:  # as the default
        """Return a value of the default's type; None is the default of whole numbers."""
        expected, is_valid = _FORMS[type(default)]
        value = given.get(key, default)
        if not is_valid(value):
            raise self.wrong(key, value, expected)
        return float(value) if isinstance(default, float) else value

    def names(self, given: Mapping[str, Json], key: str) -> tuple[str, ...]:
        value = given.get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise self.wrong(key, value, "a name, or a list of names")
        return tuple(found)

    def time(self, given: Mapping[str, Json], key: str) -> datetime | None:
        if not (written := self.value(given, key, "")):
            return None
        try:
            found = datetime.fromisoformat(written)
        except ValueError:
            raise self.wrong(
                key, written, "a time, e.g. 2026-11-01 or 2026-11-01T12:00:00Z"
            ) from None
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def wrong(self, place: str, found: Json, expected: str) -> FormatError:
        shown = repr(found)[:60] if isinstance(found, str) else describe(found)
        return FormatError(f"found {shown}; expected {expected}", path=self._path, place=place)


_TOP: Final = (
    "name", "from", "pick", "seed", "collapse", "limit", "expect", "unit", "whole", "metrics",
)  # fmt: skip
_FROM: Final = ("since", "until", "app", "where", "filter")
_FORMS: Final[Mapping[type, tuple[str, Callable[[Json], bool]]]] = {
    str: ("a text", lambda one: isinstance(one, str)),
    bool: ("true or false", lambda one: isinstance(one, bool)),
    float: ("a number from 0 to 1", lambda one: type(one) in (int, float) and 0 <= one <= 1),
    type(None): (
        "a whole number, 1 or more",
        lambda one: one is None or (type(one) is int and one >= 1),
    ),
}
"""What a setting must be, and whether it is, by the type of its default."""
