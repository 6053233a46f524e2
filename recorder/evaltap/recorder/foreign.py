"""Describe objects that are not JSON types without running any of their Python code.

Such code may sleep, never return, exhaust memory, raise what no guard can catch, or change the
container being copied. So attributes are looked up by hand: the values of an instance or slot are
read, attributes computed by C code are called, properties are not. Models and dataclasses become
their fields, numpy scalars numbers; arrays, images, frames and streams become their type, shape and
size; anything else becomes its type name.
"""

import datetime
import decimal
import enum
import gc
import io
import mmap
import pathlib
import re
import sys
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any, TypeVar

T = TypeVar("T")

MAX_FIELDS = 300
_TRIES = 20
_MAX_NAME = 200
_MAX_DIMENSIONS = 16
_MAX_DIGITS_BYTES = 500
_MAX_CAUSES = 3
_MAX_ERRORS = 50
_MAX_TEXT = 100_000
_VALIDATION = (("pydantic_core", "ValidationError"),)
_OWN_TEXTS = tuple(
    kind.__dict__["__str__"]
    for kind in (
        BaseException,
        KeyError,
        OSError,
        ImportError,
        UnicodeDecodeError,
        UnicodeEncodeError,
    )
)
_ABSENT = object()
_mro = type.__dict__["__mro__"].__get__
_class_dict = type.__dict__["__dict__"].__get__
_qualname = type.__dict__["__qualname__"].__get__
_module = type.__dict__["__module__"].__get__


def type_name(value: object) -> str:
    """Return `<Name>`, the type of an object."""
    return f"<{_name_of(type(value))}>"


def view(value: object) -> object:
    """Return a text, number, list or dict that represents the object; contents are not copied."""
    kind = type(value)
    if (known := _KNOWN.get(id(kind))) is not None:
        try:
            return known(value)
        except ValueError:  # a released memoryview, a closed mmap
            return type_name(value)
    for as_view in _VIEWS:
        if (seen := as_view(value, kind)) is not _ABSENT:
            return seen
    return type_name(value)


def stands_for_object(text: str) -> bool:
    """Return whether a text is what `view` makes of bytes, an array, an image or an object without fields."""
    return _STAND_IN.fullmatch(text) is not None


_STAND_IN = re.compile(
    r"<(?:\w+, (?:about )?)?\d+ bytes>"
    r"|<[\w.]+ \([\d, ]*\)(?: \w+)?>"
    r"|<\w+ \d+x\d+ \w+>"
    r"|<[\w.<>]*[A-Z]\w*[a-z]\w*>"
)


def base_count(kind: type) -> int:
    """Return how many classes a failing attribute lookup has to search."""
    return len(_mro(kind))


def error_name(error: object) -> str:
    """Return an exception's module and class, or the class alone for a builtin."""
    kind = type(error)
    module = _module(kind)
    return _name_of(kind) if module == "builtins" else f"{module}.{_name_of(kind)}"


def error_text(error: Any, depth: int = 0) -> str | None:
    """Return an exception's text: its `str` if that is Python's own, otherwise its first argument."""
    kind = type(error)
    if _is_one_of(kind, _VALIDATION):
        return _validation(error)
    args = BaseException.__dict__["args"].__get__(error)
    first = args[0] if args else None
    if issubclass(type(first), BaseException) and depth < _MAX_CAUSES:
        return error_text(first, depth + 1)
    str_method = class_attribute(kind, "__str__")
    filename = attribute(error, "filename")
    if any(str_method is own for own in _OWN_TEXTS) and all(map(_is_short, (*args[:9], filename))):
        return str(error) or None
    if type(first) is str:
        return first
    message = attribute(error, "message")
    return message if type(message) is str else None


def _validation(error: Any) -> str:
    """Return pydantic's errors without their inputs, which are the caller's objects."""
    count = error.error_count()
    if count <= _MAX_ERRORS and all(_is_plain_input(one["input"]) for one in error.errors()):
        return str(error)
    found = error.errors(include_input=False, include_url=False) if count <= _MAX_ERRORS else []
    lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found]
    return "\n".join([f"{count} validation errors for {error.title}", *lines])


def _is_plain_input(value: Any) -> bool:
    """Return whether the `repr` of a validated input is short and Python's own."""
    if type(value) is dict and len(value) <= _MAX_ERRORS:
        return all(_is_short(one) for pair in value.items() for one in pair)
    return _is_short(value)


def _is_short(value: Any) -> bool:
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= _MAX_TEXT
    if kind is int:
        return bool(value.bit_length() <= 64)
    return value is None or kind is float or kind is bool or id(kind) in _PATH_IDS


def attribute(value: object, name: str) -> Any:
    """Return an attribute of the instance, a slot or C code; None if reading it would run Python code."""
    found = class_attribute(type(value), name)
    if type(found) in (GetSetDescriptorType, MemberDescriptorType):
        try:
            return found.__get__(value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            # An empty slot, or native code that failed: a Rust extension's panic is not an
            # Exception.
            return None
    return _attributes(value).get(name)


def class_attribute(kind: type, name: str) -> Any:
    """Return the raw attribute of a class or its bases, or None."""
    for base in _mro(kind):
        if (found := _class_dict(base).get(name, _ABSENT)) is not _ABSENT:
            return found
    return None


def _attributes(value: object) -> dict[str, Any]:
    """Return an instance's live `__dict__`, or an empty dict."""
    found = class_attribute(type(value), "__dict__")
    held = found.__get__(value) if type(found) is GetSetDescriptorType else None
    return held if type(held) is dict else {}


def _name_of(kind: type) -> str:
    return str(_qualname(kind))[:_MAX_NAME]


def _as_class(value: Any, kind: type) -> object:
    return f"<class {_name_of(value)}>" if issubclass(kind, type) else _ABSENT


def _as_bytes(value: Any, kind: type) -> object:
    if issubclass(kind, bytes):
        return f"<{bytes.__len__(value)} bytes>"
    if issubclass(kind, bytearray):
        return f"<{bytearray.__len__(value)} bytes>"
    return _ABSENT


def _as_member(value: object, kind: type) -> object:
    return _attributes(value).get("_value_") if issubclass(kind, enum.Enum) else _ABSENT


def _as_model(value: object, kind: type) -> object:
    """Return a pydantic model's fields, without the excluded ones."""
    declared = class_attribute(kind, "__pydantic_fields__")
    if type(declared) is not dict:
        return _ABSENT
    fields = _first(_attributes(value))
    extra = attribute(value, "__pydantic_extra__")
    if type(extra) is dict:
        fields.update(_first(extra))
    last, exclude = None, None
    for name, field in _first(declared).items():
        if type(field) is not last:  # usually all of one type: check it once
            last, exclude = type(field), class_attribute(type(field), "exclude")
        if (
            exclude.__get__(field) is True
            if type(exclude) is MemberDescriptorType
            else attribute(field, "exclude") is True
        ):
            fields.pop(name, None)
    if class_attribute(kind, "__pydantic_root_model__") is True:
        return fields.get("root")
    return fields


def _as_dataclass(value: object, kind: type) -> object:
    declared = class_attribute(kind, "__dataclass_fields__")
    if type(declared) is not dict:
        return _ABSENT
    names = [name for name in _first(declared) if type(name) is str and not name.startswith("_")]
    held = _attributes(value)
    return {name: held[name] if name in held else attribute(value, name) for name in names}


def _as_secret(value: object, kind: type) -> object:
    names = [_name_of(base) for base in _mro(kind)[:4]]
    return "**********" if "SecretStr" in names or "SecretBytes" in names else _ABSENT


def _as_scalar(value: object, kind: type) -> object:
    """Return a numpy scalar as a number."""
    numpy = sys.modules.get("numpy")
    names = vars(numpy) if type(numpy) is ModuleType else {}
    bases = [names.get(name) for name in ("number", "bool_")]
    if not any(type(base) is type and issubclass(kind, base) for base in bases):
        return _ABSENT
    number = class_attribute(kind, "item")(value)
    return number if type(number) in (int, float, bool, complex) else _ABSENT


def _as_shaped(value: Any, kind: type) -> object:
    """Return the type, shape and element type of an array, tensor or table."""
    shape: Any = attribute(value, "shape")
    if shape is None and _is_one_of(kind, _FRAMES):
        shape = value.shape
    sizes: Any = shape  # a tuple subclass: never call its methods
    if not issubclass(type(sizes), tuple) or tuple.__len__(sizes) > _MAX_DIMENSIONS:
        return _ABSENT
    sides = [side for side in tuple.__iter__(sizes) if type(side) is int]
    dtype = attribute(value, "dtype")
    element: Any = attribute(dtype, "type") if dtype is not None else None
    of = f" {_name_of(element)}" if issubclass(type(element), type) else ""
    return f"<{_name_of(kind)} ({', '.join(map(str, sides))}){of}>"


_FRAMES = (("pandas", "DataFrame"), ("polars", "DataFrame"))
"""Tables whose `shape` is Python code that only reads lengths: allowed for exactly these types."""


def _is_one_of(kind: type, names: tuple[tuple[str, str], ...]) -> bool:
    """Return whether a class is one of these by identity: any class may bear their names."""
    for module_name, name in names:
        module = sys.modules.get(module_name)
        if type(module) is ModuleType and vars(module).get(name) is kind:
            return True
    return False


def _as_image(value: object, kind: type) -> object:
    """Return the type, size and mode of a Pillow image."""
    held = _attributes(value)
    size, mode = held.get("_size"), held.get("_mode")
    if type(size) is tuple and len(size) == 2 and type(mode) is str and len(mode) < 20:
        width, height = (side if type(side) is int else 0 for side in size)
        return f"<{_name_of(kind)} {width}x{height} {mode}>"
    return _ABSENT


def listed(iterate: Callable[[], Iterator[T]], room: int) -> list[T]:
    """Return the first items of a dict or set that other threads may change meanwhile.

    Listing is one step of C code, but the garbage collector may run Python code in it, and so may
    other threads. Raises RuntimeError if the container keeps changing.
    """
    for _ in range(_TRIES - 1):
        with suppress(RuntimeError):
            return list(islice(iterate(), room))
    return list(islice(iterate(), room))


def _first(values: dict[Any, Any]) -> dict[Any, Any]:
    return dict(listed(lambda: iter(dict.items(values)), MAX_FIELDS))


_VIEWS: tuple[Callable[[Any, type], object], ...] = (
    _as_class,
    _as_bytes,
    _as_member,
    _as_secret,
    _as_model,
    _as_dataclass,
    _as_scalar,
    _as_shaped,
    _as_image,
)


def _decimal(value: decimal.Decimal) -> str:
    return str(value) if value.__sizeof__() < _MAX_DIGITS_BYTES else "<Decimal>"


def _moment(value: datetime.datetime | datetime.time) -> str:
    """Return it in ISO format, without a custom tzinfo: its offset may run Python code."""
    own = value.tzinfo is not None and id(type(value.tzinfo)) not in _ZONES
    return (value.replace(tzinfo=None) if own else value).isoformat()


def _proxied(value: object) -> object:
    """Return the dict behind a mappingproxy; a proxy of any other mapping would run its code."""
    (behind,) = gc.get_referents(value)
    return behind if issubclass(type(behind), dict) else type_name(value)


_ZONES = frozenset(map(id, (datetime.timezone, zoneinfo.ZoneInfo)))
_PATHS = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
_PATH_IDS = frozenset(map(id, _PATHS))
_KNOWN: dict[int, Callable[[Any], object]] = {
    id(decimal.Decimal): _decimal,
    id(uuid.UUID): str,
    id(complex): str,
    id(datetime.datetime): _moment,
    id(datetime.time): _moment,
    id(datetime.date): datetime.date.isoformat,
    id(datetime.timedelta): str,
    id(MappingProxyType): _proxied,
    id(memoryview): lambda value: f"<{value.nbytes} bytes>",
    id(mmap.mmap): lambda value: f"<mmap, {len(value)} bytes>",
    id(io.BytesIO): lambda value: f"<BytesIO, about {value.__sizeof__()} bytes>",
    id(io.StringIO): lambda value: f"<StringIO, about {value.__sizeof__()} bytes>",
    **{id(kind): str for kind in _PATHS},
}
"""Converters for standard library types, by type identity: hashing a type may run metaclass code."""
