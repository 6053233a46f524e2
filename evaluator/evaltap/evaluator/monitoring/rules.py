"""Read and validate a monitoring file."""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from pydantic.alias_generators import to_camel

from evaltap.evaluator.analysis.estimates.scope import SIGNALS, SLICES, condition
from evaltap.evaluator.monitoring.measures import MEANS, signal_of, unit_of
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import read_bytes
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.monitor import AlertReceiver, Condition, MonitorFile, ScoreRule, Watch
from evaltap.schemas.known import check_known
from evaltap.schemas.text import did_you_mean, did_you_mean_one_of

SILENCE: Final = "silence"
UNITS: Final = ("turn", "session")
SEVERITIES: Final = ("critical", "error", "warning", "info")
_LEARNING: Final = ("smallest_change", "baseline_days", "false_alarms_per_month")
"""Settings that only apply to watches that learn a baseline."""
PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "webhook": ("url",),
    "alertmanager": ("url",),
    "slack": ("url",),
    "pagerduty": ("routing_key",),
    "command": ("argv",),
}
"""Types of receivers, and the settings that each requires."""
_GO_WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "url": ("webhook", "alertmanager", "slack", "pagerduty"),
    "headers": ("webhook", "alertmanager"),
    "routing_key": ("pagerduty",),
    "argv": ("command",),
    "allow_private": ("webhook", "alertmanager", "slack", "pagerduty"),
    "repeat_hours": ("webhook", "slack", "pagerduty", "command"),
}
_SECRET: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")


def read_rules(path: Path) -> MonitorFile:
    """Return the rules of a file; raise FormatError with the position of an invalid key or value."""
    rules = parse(MonitorFile, canonical.loads(read_bytes(path), path=str(path)), path=str(path))
    if not rules.watch and not rules.score:
        raise FormatError(
            "found neither `watch` nor `score`; expected at least one", path=str(path)
        )
    for place, problem in _problems(rules, path):
        if problem:
            raise FormatError(problem, path=str(path), place=place)
    return rules


def _problems(rules: MonitorFile, path: Path) -> Iterator[tuple[str, str]]:
    """Yield each place in the file with its problem, empty if there is none."""
    rule_names = Counter(rule.name for rule in rules.score)
    for number, rule in enumerate(rules.score):
        place = f"score[{number}]"
        yield place, _rule_problem(rule, rule_names, f"{path}: {place}")
    receivers = Counter(name_of(one, number) for number, one in enumerate(rules.alerts))
    for number, receiver in enumerate(rules.alerts):
        problem = _receiver_problem(receiver)
        if not problem and receivers[name_of(receiver, number)] > 1:
            problem = (
                f"`name` is {receiver.name!r}, which another receiver has; expected a unique name"
            )
        yield f"alerts[{number}]", problem
    yield "evidenceUrl", _evidence_problem(rules.evidence_url)
    names = Counter(watch.name for watch in rules.watch)
    for number, watch in enumerate(rules.watch):
        place = f"watch[{number}]"
        yield place, _problem(watch, names, f"{path}: {place}")


def check_metrics(rules: MonitorFile, metrics: Sequence[str], path: Path) -> None:
    """Raise InputError for a watch or a rule on a metric that is not scored."""
    named = [(f"watch {one.name!r}", one.metric) for one in rules.watch if one.metric]
    for rule in rules.score:
        named += [(f"score {rule.name!r}", metric) for metric in rule.metrics]
        named += [(f"score {rule.name!r}", one.failed) for one in rule.always if one.failed]
    for place, metric in named:
        scored = f"scored are {', '.join(metrics)}"
        check_known(metric, metrics, f"{path}: {place}: no metric {metric!r}", scored)


def name_of(receiver: AlertReceiver, place: int) -> str:
    """Return the name under which the deliveries to the receiver at this index are stored."""
    return receiver.name or f"{receiver.type}-{place}"


def chance_of(watch: Watch, rules: MonitorFile) -> float:
    """Return a watch's probability of a false alarm per month: its own, or an equal part of the file's."""
    if watch.false_alarms_per_month is not None:
        return watch.false_alarms_per_month
    sharing = sum(one.false_alarms_per_month is None and learns(one) for one in rules.watch)
    return rules.false_alarms_per_month / sharing


def learns(watch: Watch) -> bool:
    return watch.signal != SILENCE and not watch.has_limit


def where_of(watch: Watch, within: Mapping[str, str]) -> str:
    """Return the condition of a watch, and of a slice within it, as SQL."""
    return " AND ".join(
        condition(name, value, where=f"watch '{watch.name}'")
        for name, value in (*watch.where.items(), *within.items())
    )


def _signal_problem(watch: Watch) -> str:
    known = (*SIGNALS, *MEANS, SILENCE)
    if watch.signal not in known:
        hint = did_you_mean_one_of(watch.signal, known)
        return f"unknown signal {watch.signal!r}; {hint}"
    of_metric = watch.signal != SILENCE and signal_of(watch).of_metric
    if of_metric and not watch.metric:
        return f"`{watch.signal}` needs a `metric`; name one"
    if watch.metric and not of_metric:
        return f"`{watch.signal}` takes no `metric`; leave it out"
    return ""


def _problem(watch: Watch, names: Mapping[str, int], where: str) -> str:
    if not watch.name or names[watch.name] > 1:
        return f"`name` is {watch.name!r}; expected a unique, non-empty name"
    if problem := _signal_problem(watch):
        return problem
    if watch.severity and watch.severity not in SEVERITIES:
        hint = did_you_mean_one_of(watch.severity, SEVERITIES)
        return f"unknown severity {watch.severity!r}; {hint}"
    try:
        watch.silence_ends  # noqa: B018  # raises for an invalid time
    except ValueError:
        return f"`silencedUntil` is {watch.silenced_until!r}; expected a time, e.g. 2026-11-24T18:00:00Z"
    if problem := _silence_problem(watch):
        return problem
    if problem := _limit_problem(watch):
        return problem
    for name in watch.by:
        if name not in SLICES:
            hint = did_you_mean_one_of(name, SLICES)
            return f"`by`: unknown slice {name!r}; {hint}"
    for name, value in watch.where.items():
        condition(name, value, where=where)
    return ""


def _silence_problem(watch: Watch) -> str:
    given = watch.model_fields_set
    if watch.signal != SILENCE:
        return "`minutes` needs the signal `silence`; leave it out" if "minutes" in given else ""
    for key in ("by", *_LEARNING):
        if key in given:
            return f"`silence` takes no `{to_camel(key)}`; leave it out"
    return ""


def _limit_problem(watch: Watch) -> str:
    given = watch.model_fields_set
    if not watch.has_limit:
        return "`hours` needs `below` or `above`; add one" if "hours" in given else ""
    if watch.signal == SILENCE:
        return "`silence` takes no `below` or `above`; its limit is `minutes`"
    for key in ("below", "above"):
        limit = getattr(watch, key)
        if limit is not None and limit > 1 and unit_of(watch) in ("", "score"):
            return f"`{key}` is {limit:g}; expected 0 to 1"
    for key in _LEARNING:
        if key in given:
            return f"`{to_camel(key)}` does not work with a fixed limit; leave one of them out"
    return ""


def _rule_problem(rule: ScoreRule, names: Mapping[str, int], where: str) -> str:
    if not rule.name or names[rule.name] > 1:
        return f"`name` is {rule.name!r}; expected a unique, non-empty name"
    if not rule.metrics:
        return "no `metrics`; expected at least one"
    if rule.unit not in ("", *UNITS):
        return f"`unit` is {rule.unit!r}; {did_you_mean(rule.unit, UNITS) or 'expected turn or session'}"
    if rule.budget is not None and (rule.budget.usd_per_day or rule.budget.calls_per_day) is None:
        return "`budget` has no limit; expected `usdPerDay` or `callsPerDay`"
    if "language" in rule.where:
        return "`where`: the language of a turn is not known before it is scored; use another slice"
    for number, one in enumerate(rule.always):
        if not one.model_fields_set or one == Condition():
            return f"`always[{number}]` is empty; expected a condition"
        if one.failed in rule.metrics:
            return f"`always[{number}]`: {one.failed!r} depends on itself; name a metric of another rule"
    for name, value in rule.where.items():
        condition(name, value, where=where)
    return ""


def _receiver_problem(receiver: AlertReceiver) -> str:
    """Return the problem with a receiver's settings, empty if there is none; secrets are not resolved."""
    if receiver.type not in _KEYS:
        return f"`type` is {receiver.type!r}; {did_you_mean_one_of(receiver.type, _KEYS)}"
    for key in _KEYS[receiver.type]:
        if not getattr(receiver, key):
            return f"{receiver.type} needs `{to_camel(key)}`"
    for key, types in _GO_WITH.items():
        given = key in receiver.model_fields_set and getattr(receiver, key)
        if given and receiver.type not in types:
            return f"{receiver.type} takes no `{to_camel(key)}`; leave it out"
    secret = {"slack": receiver.url, "pagerduty": receiver.routing_key}.get(receiver.type)
    if secret is not None and not _SECRET.search(secret):
        key = to_camel(_KEYS[receiver.type][0])
        return (
            f"`{key}` is a secret; put it in an environment variable and refer to it as ${{NAME}}"
        )
    return _address_problem(receiver)


def _address_problem(receiver: AlertReceiver) -> str:
    """Return the problem with an address, as far as it is in the file and not in a variable."""
    try:
        parts = urlsplit(receiver.url)
        secret = _SECRET.search(parts.netloc) or _SECRET.match(receiver.url)
    except ValueError:
        return "the address is invalid; expected https://host/path"
    if not receiver.url or secret:
        return ""
    return address_problem(parts, private=receiver.allow_private)


def _evidence_problem(template: str) -> str:
    try:
        template.format(app="", eval_id="")
    except (KeyError, IndexError, ValueError):
        return f"{template!r}; expected an address with {{app}} and {{eval_id}}"
    return ""


def start_of(store: StoreReader, watch: str) -> datetime | None:
    """Return the aware time before which turns do not count for a watch; None if all turns count."""
    found = store.rows(
        "SELECT since FROM watch_starts WHERE watch = $watch ORDER BY noted_at DESC LIMIT 1",
        {"watch": watch},
    )
    return found[0][0].replace(tzinfo=UTC) if found else None


def alarmed_watches(store: StoreReader) -> list[str]:
    """Return the names of the watches that have raised an alarm."""
    return [name for (name,) in store.rows("SELECT DISTINCT watch FROM alerts ORDER BY watch")]


def rebase(store: Store, watch: str, since: datetime) -> None:
    """Make a watch learn its baseline again, beginning at an aware time."""
    moment = stored_time(since)
    with store.transaction():
        store.append("watch_starts", [(watch, moment, store.now())])


def address_problem(parts: SplitResult, *, private: bool) -> str:
    """Return the problem with a receiver's address, without revealing it; empty if there is none."""
    host = host_of(parts)
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        return (
            "the address is invalid or contains a password; expected https://host/path, with"
            " secrets in `headers` as ${NAME}"
        )
    if parts.scheme == "http" and not (private or is_local(host)):
        return (
            "the address is http, which anybody on the way reads; expected https, or `allowPrivate`"
            " for a host in your own network"
        )
    if parts.scheme == "http" and address_is(host, "is_global"):
        return "the address is http, and its host is not in a private network; expected https"
    return ""


def host_of(parts: SplitResult) -> str:
    """Return the host of an address; empty if it has none."""
    return (parts.hostname or "").rstrip(".")


def is_local(host: str) -> bool:
    """Return whether a host name means this machine."""
    return host == "localhost" or address_is(host, "is_loopback")


def address_is(address: str, what: str) -> bool:
    """Return a property of an IP address; False for text that is not an IP address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return bool(getattr(mapped or found, what))
