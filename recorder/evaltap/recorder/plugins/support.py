"""Shared by all plugins: access to a recorder, a guard around callbacks, bounded reading of values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import ParamSpec, Protocol, TypeVar

from evaltap.recorder.copying import MAX_VALUES, name, text
from evaltap.recorder.foreign import listed
from evaltap.recorder.protocols import Observing

_MAX_TEXT_BYTES = 131_072
"""Twice the default of `field_max_bytes`, so that the recorder still truncates and marks the text."""


class HasRecorder(Protocol):
    """A plugin; `guarded` reports its faults to its recorder."""

    _recorder: Observing


_P = ParamSpec("_P")
_T = TypeVar("_T")


def guarded(
    plugin: HasRecorder, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T | None:
    """Run a step of a plugin; its exceptions are counted and never reach the agent."""
    try:
        return step(*args, **kwargs)
    except Exception as error:
        # Frameworks propagate exceptions from hooks, and a recorder fault must not fail the agent.
        name = getattr(step, "__name__", type(step).__name__).lstrip("_")
        plugin._recorder.report_fault(f"{type(plugin).__name__}.{name}", error)
        return None


def recorder_for(log: str | None, recorder: Observing | None) -> Observing:
    """Return the given recorder, or a new one for the log."""
    if recorder is not None:
        return recorder
    from evaltap.recorder.recorder import Recorder

    return Recorder(log)


def release(recorder: Observing, *, owned: bool) -> None:
    """Close a recorder that the plugin created; only flush one that it was given."""
    if owned:
        recorder.close()
    else:
        recorder.flush()


def text_of(value: object) -> str:
    """Return an agent's answer as bounded text, other types as JSON; none of the answer's code runs."""
    return value if isinstance(value, str) else text(value, _MAX_TEXT_BYTES)[0] or "null"


def first_of(values: Mapping[str, object], keys: Sequence[str]) -> str | None:
    """Return the first value that is neither missing nor empty as a short text."""
    found = (values.get(key) for key in keys)
    return next((name(one) for one in found if not _is_empty(one)), None)


def _is_empty(value: object) -> bool:
    # Only exact types are checked: `bool(value)` may run the value's code.
    return value is None or (type(value) in (str, int, bool) and not value)


def first_items(values: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    """Return the items of a state that are recorded, and one more to show that there were more."""
    items: list[tuple[str, object]]
    if isinstance(values, dict):
        items = listed(partial(_items_of, values), MAX_VALUES + 1)
    else:
        items = list(islice(values.items(), MAX_VALUES + 1))
    return [(key if type(key) is str else str(name(key)), one) for key, one in items]


def _items_of(values: dict[str, object]) -> Iterator[tuple[str, object]]:
    return iter(dict.items(values))
