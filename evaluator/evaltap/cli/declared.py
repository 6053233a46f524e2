"""A command's options, each declared once: as a field of the command's dataclass.

    @dataclass(slots=True, kw_only=True, repr=False)
    class PruneOptions:
        \"\"\"The store to prune, and the age of the sessions to delete.

        example: evaltap store prune cases.duckdb --older-than 90d --dry-run
        \"\"\"

        db: Path = store()
        older_than: timedelta = option("--older-than AGE", "delete older sessions, e.g. 90d")
        dry_run: bool = option("--dry-run", "only count what would be deleted")

The parser, the values from variables and `evaltap.toml`, the help and the reference page are derived from it:

- No option is set or printed once it is parsed; code for `frozen` and `repr` would make each start slower.
- Fields are in the order of the help. The docstring's first line is for readers of the code; what follows is
  printed in the help as it stands, 80 columns wide.
- The annotation decides how a text becomes a value, unless `parse` does: `int` is 1 or more, `timedelta` an
  age, `bool` a switch, `Literal` lists the choices, a tuple takes several values. An argument or option is
  required unless it has a `default`, or its annotation has one: None for `| None`, False for `bool`, the
  empty tuple.
- `variable` names an environment variable that is read if the argument is not given, and only here. `setting`
  is a variable without an argument. `Declared` explains what else can be declared.
- A field without a declaration is no option: the command sets it.
- Options that commands share are a dataclass of their own, used as `group(Kind)`, or a function that returns
  the field. Both are in `options/shared.py`.
- Actions of a command (`evaltap store dlq list`) are named in its `ACTIONS`.

To add a command:

1. Declare `NameOptions` in the module of its group in `options/` (`set` and `store` have one each).
2. Give it a line in `GROUPS` or `FAMILIES` in `main.py`.
3. Write `commands/NAME.py` with `run(options)`. Its imports stand at its top, because the module is imported
   only to run the command. Declarations import neither pydantic nor DuckDB, so that help is quick.
4. Run `python tests/support/programs/reference.py`.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from inspect import cleandoc
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from evaltap.cli.values import duration, moment, positive
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.text import did_you_mean_one_of

UNSET: Final = object()
STORE: Final = "EVALTAP_STORE"
STORE_FILE: Final = "cases.duckdb"
"""The store that `init` and `up` create; commands without a store argument read it if it exists."""

Options = TypeVar("Options")
Kind = type[Any]  # a command's dataclass, or a class with ACTIONS


class Action(NamedTuple):
    """An action of a command: a summary for the list of actions, and its options."""

    summary: str
    kind: Kind


class Actions(NamedTuple):
    """The actions of a command by name; the class that has them is the command without an action, if any."""

    named: Mapping[str, Action]
    metavar: str = "ACTION"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What a field declares besides its type."""

    flags: tuple[str, ...] = ()
    metavar: str | None = None
    help: str = ""
    default: object = UNSET
    parse: Callable[[str], object] | None = None
    """Returns the value of a text, or raises ArgumentTypeError."""
    variable: str = ""
    reads: bool = False
    """Whether it names the store that a command reads: `cases.duckdb` by default, if that exists."""
    many: bool = False
    """Whether `parse` returns one of several values. A variable separates them with commas."""
    adds: bool = False
    """Whether arguments are added to the values of the variable, instead of replacing them."""
    nargs: str | None = None
    """How many words an option takes, as for argparse."""
    const: str | None = None
    """The value of an option that is given without one."""
    title: str = ""
    """The heading in the help."""
    either: str = ""
    """Of the options with the same name here, only one can be given."""
    required: bool = False
    """Whether one must be given, although its type has a default or it is one of `either`."""

    def text(self) -> str:
        """Return the value of the variable, or the usual store if a store is read and it exists."""
        text = os.environ.get(self.variable, "").strip() if self.variable else ""
        if not text and self.variable == STORE and self.reads and Path(STORE_FILE).is_file():
            return STORE_FILE
        return text


class _Group(NamedTuple):
    """Declares the options of another dataclass."""

    title: str


def option(usage: str, help: str, **declared: Any) -> Any:  # those of Declared; the field's type
    """Declare an option, by its names and placeholder as the help shows them: `-n, --limit N`."""
    words = re.split(",? ", usage)
    flags = tuple(word for word in words if word.startswith("-"))
    metavar = " ".join(words[len(flags) :]) or None
    return _field(Declared(flags=flags, metavar=metavar, help=help, **declared))


def argument(metavar: str, help: str, **declared: Any) -> Any:  # as `option`
    """Declare a positional argument, by its placeholder."""
    return _field(Declared(metavar=metavar, help=help, reads=True, **declared))


def setting(variable: str, parse: Callable[[str], object] | None = None) -> Any:  # as `option`
    """Declare a value that only a variable or `evaltap.toml` can give."""
    return _field(Declared(variable=variable, parse=parse))


def group(kind: type[Options], title: str = "") -> Options:
    """Declare the options of another dataclass, under a heading of their own if `title` is given."""
    return cast("Options", field(metadata={"declared": _Group(title)}))


def _field(declared: Declared) -> Any:  # the field's type
    return field(metadata={"declared": declared})


def configure(parser: argparse.ArgumentParser, kind: Kind) -> None:
    """Give a parser the options, the actions and the help of a command."""
    _, _, parser.epilog = cleandoc(kind.__doc__ or "").partition("\n\n")
    if is_dataclass(kind):
        _add_options(parser, kind)
        parser.set_defaults(options=kind)
    actions: Actions | None = getattr(kind, "ACTIONS", None)
    if actions is None:
        return
    children = parser.add_subparsers(
        dest="action", metavar=actions.metavar, prog=parser.prog, required=not is_dataclass(kind)
    )
    for name, (summary, child) in actions.named.items():
        configure(children.add_parser(name, **described(summary)), child)


def described(summary: str) -> dict[str, Any]:  # of add_parser
    """Return the arguments of `add_parser` for a command that does what the summary says."""
    return {
        "help": summary,
        "description": f"{summary[0].upper()}{summary[1:]}.",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _add_options(parser: argparse.ArgumentParser, kind: Kind, title: str = "") -> None:
    types = get_type_hints(kind)
    for one in fields(kind):
        declared = one.metadata.get("declared")
        if isinstance(declared, _Group):
            _add_options(parser, types[one.name], declared.title or title)
        elif isinstance(declared, Declared) and declared.help:
            _add(parser, one.name, declared, _Type.of(types[one.name]), declared.title or title)


_PARSERS: Final[Mapping[object, Callable[[str], object]]] = {
    int: positive,
    float: float,
    Path: Path,
    datetime: moment,
    timedelta: duration,
}


class _Type(NamedTuple):
    """What an annotation says."""

    scalar: Any  # the type of one value
    several: bool
    optional: bool
    choices: Sequence[str] | None

    @classmethod
    def of(cls, hint: Any) -> "_Type":  # an annotation
        parts = [part for part in get_args(hint) if part is not NoneType]
        optional = get_origin(hint) in (Union, UnionType) and len(parts) < len(get_args(hint))
        scalar = parts[0] if optional else hint
        several = get_origin(scalar) is tuple
        if several:
            scalar = get_args(scalar)[0]
        if get_origin(scalar) is Literal:
            return cls(str, several, optional, get_args(scalar))
        return cls(scalar, several, optional, None)

    def parser(self, declared: Declared) -> Callable[[str], object] | None:
        """Return what turns a text into a value; None if it stays a text."""
        return declared.parse or _PARSERS.get(self.scalar)

    def default(self, declared: Declared) -> object:
        """Return the value if nothing is given; UNSET if something must be."""
        if declared.default is not UNSET or (declared.required and not declared.either):
            return declared.default
        if self.scalar is bool:
            return False
        return None if self.optional else () if self.several else UNSET


def _add(
    parser: argparse.ArgumentParser, name: str, declared: Declared, kind: _Type, title: str
) -> None:
    default = kind.default(declared)
    given: dict[str, Any] = {"help": declared.help, "default": argparse.SUPPRESS}  # of add_argument
    if kind.scalar is bool:
        given["action"] = "store_false" if default is True else "store_true"
    else:
        given["metavar"] = declared.metavar
        given["type"] = kind.parser(declared)
        given["choices"] = kind.choices
    place = _place(parser, declared, title)
    if declared.flags:
        given["dest"] = name
        given["required"] = default is UNSET and not declared.either
        if declared.nargs:
            given["nargs"] = declared.nargs
        elif declared.many or (kind.several and declared.parse is None):
            given["action"] = "append"
        if declared.const is not None:
            given |= {"nargs": "?", "const": declared.const}
        action = place.add_argument(*declared.flags, **given)
    else:
        several = "*" if declared.default == () else "+"
        given["nargs"] = several if kind.several else "?" if kind.optional else None
        if given["nargs"] == "?":
            given["default"] = None  # argparse would parse SUPPRESS like a text
        action = place.add_argument(name, **given)
    vars(action)["declared"] = declared


def _place(parser: argparse.ArgumentParser, declared: Declared, title: str) -> Any:
    """Return the parser, or the group of it that an option belongs to."""
    place: Any = parser
    if title:
        titled = (one for one in parser._action_groups if one.title == title)
        place = next(titled, None) or parser.add_argument_group(title)
    if not declared.either:
        return place
    groups = vars(parser).setdefault("either", {})
    if declared.either not in groups:
        groups[declared.either] = place.add_mutually_exclusive_group(required=declared.required)
    return groups[declared.either]


def options_of(kind: type[Options], given: Mapping[str, object]) -> Options:
    """Return the options: as given, otherwise from their variable, otherwise the default.

    Raises ConfigurationError for a variable that is not a value of its option.
    """
    types = get_type_hints(kind)
    values: dict[str, Any] = {}  # of the fields
    for one in fields(kind):  # type: ignore[arg-type]  # TypeVars cannot be bound to dataclasses
        declared = one.metadata.get("declared")
        if isinstance(declared, _Group):
            values[one.name] = options_of(types[one.name], given)
        elif isinstance(declared, Declared):
            values[one.name] = _value(one, declared, _Type.of(types[one.name]), given)
        elif one.name in given:
            values[one.name] = given[one.name]
    return kind(**values)


def _value(
    one: "Field[Any]", declared: Declared, kind: _Type, given: Mapping[str, object]
) -> object:
    value = given.get(one.name, UNSET)
    if isinstance(value, list):
        value = tuple(value)
    elif value is None and not declared.flags:
        value = UNSET  # an argument that may be missing
    text = declared.text() if value is UNSET or declared.adds else ""
    if not text:
        return kind.default(declared) if value is UNSET else value
    try:
        found = _parsed(text, declared, kind)
    except argparse.ArgumentTypeError as error:
        raise ConfigurationError(f"{declared.variable}: {error}") from None
    return (*found, *value) if isinstance(found, tuple) and isinstance(value, tuple) else found


def _parsed(text: str, declared: Declared, kind: _Type) -> object:
    parse = kind.parser(declared) or str
    if kind.choices and text not in kind.choices:
        raise argparse.ArgumentTypeError(
            f"found {text!r}; {did_you_mean_one_of(text, kind.choices)}"
        )
    if not kind.several:
        return parse(text)
    if declared.many:
        return tuple(parse(part.strip()) for part in text.split(",") if part.strip())
    found = parse(text)
    return tuple(found) if isinstance(found, list) else (found,)
