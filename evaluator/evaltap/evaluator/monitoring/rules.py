"""A monitoring file, read and checked."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from evaltap.evaluator.estimates.scope import SIGNALS
from evaltap.evaluator.estimates.slices import SLICES, condition
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import read_bytes
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.monitor import MonitorFile, Watch
from evaltap.schemas.text import did_you_mean

SILENCE: Final = "silence"


def read_rules(path: Path) -> MonitorFile:
    """Return the rules of a file; raises FormatError with the place for a key or value that is none."""
    rules = parse(MonitorFile, canonical.loads(read_bytes(path), path=str(path)), path=str(path))
    if not rules.watch:
        raise FormatError("no `watch`; add at least one", path=str(path))
    names = Counter(watch.name for watch in rules.watch)
    for place, watch in enumerate(rules.watch):
        where = f"watch[{place}]"
        if not watch.name or names[watch.name] > 1:
            raise FormatError(
                f"`name` is {watch.name!r}; give each watch a name of its own",
                path=str(path),
                place=where,
            )
        if problem := _problem(watch, f"{path}: {where}"):
            raise FormatError(problem, path=str(path), place=where)
    return rules


def chance_of(watch: Watch, rules: MonitorFile) -> float:
    """Return a watch's chance of a false alarm a month: its own, or an equal part of the file's."""
    if watch.false_alarms_per_month is not None:
        return watch.false_alarms_per_month
    sharing = sum(
        one.false_alarms_per_month is None and one.signal != SILENCE for one in rules.watch
    )
    return rules.false_alarms_per_month / sharing


def where_of(watch: Watch, within: Mapping[str, str]) -> str:
    """Return the condition of a watch, and of a slice within it, in SQL."""
    return " AND ".join(
        condition(name, value, where=f"watch '{watch.name}'")
        for name, value in (*watch.where.items(), *within.items())
    )


def _problem(watch: Watch, where: str) -> str:
    known = (*SIGNALS, SILENCE)
    if watch.signal not in known:
        hint = did_you_mean(watch.signal, known) or f"expected one of {', '.join(known)}"
        return f"no signal {watch.signal!r}; {hint}"
    of_metric = watch.signal in SIGNALS and SIGNALS[watch.signal].of_metric
    if of_metric and not watch.metric:
        return f"`{watch.signal}` needs a `metric`; name one"
    if watch.metric and not of_metric:
        return f"`metric` does not go with `{watch.signal}`; leave it out"
    if watch.signal == SILENCE and watch.by:
        return "`by` does not go with `silence`; leave it out"
    for name in watch.by:
        if name not in SLICES:
            hint = did_you_mean(name, SLICES) or f"expected of {', '.join(SLICES)}"
            return f"`by`: no slice {name!r}; {hint}"
    for name, value in watch.where.items():
        condition(name, value, where=where)
    return ""
