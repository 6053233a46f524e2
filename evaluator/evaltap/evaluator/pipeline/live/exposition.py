"""Figures in the text format of Prometheus, with a bounded number of label values."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
OTHER: Final = "other"
MOST_VALUES: Final[Mapping[str, int]] = {
    "app": 50,
    "model": 50,
    "metric": 100,
    "slice": 20,
    "watch": 100,
    "reason": 50,
    "status": 10,
    "window": 5,
    "rule": 50,
    "le": 50,
    "version": 1,
}
"""How many values of a label are exposed: those with the largest samples; the rest become `other`."""

_DESCRIBED: Final = re.compile(r"^(# (?:HELP|TYPE) )(\S+)_total ", re.MULTILINE)
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(slots=True)
class Family:
    """A metric with its samples, by the values of its labels."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    samples: dict[tuple[str, ...], float] = field(default_factory=dict)
    suffixes: bool = False
    """The first label is a suffix of the name: `_bucket`, `_sum` or `_count` of a histogram."""

    def add(self, values: Sequence[str | None], figure: float | None) -> None:
        """Add a sample, unless it is unknown (None)."""
        if figure is not None:
            self.samples[tuple(value or "" for value in values)] = float(figure)


class SinceStart:
    """What counters of stored rows have grown by since they were seen first, as Prometheus wants them.

    Rows that are pruned or revised make their totals fall.  Prometheus takes that for a restart at zero, and
    would count all other rows once more.
    """

    def __init__(self) -> None:
        self.began_ns = time.time_ns()
        """When the counters began, in nanoseconds since 1970: OpenTelemetry wants to be told."""
        self._first: dict[str, dict[tuple[str, ...], float]] = {}
        self._shown: dict[str, dict[tuple[str, ...], float]] = {}

    def of(self, families: Iterable[Family]) -> list[Family]:
        """Return the families with counters that begin at zero and never fall, and gauges as they are."""
        return [
            one if one.kind == "gauge" else replace(one, samples=self._grown(one))
            for one in families
        ]

    def _grown(self, family: Family) -> dict[tuple[str, ...], float]:
        first = self._first.setdefault(family.name, dict(family.samples))
        shown = self._shown.setdefault(family.name, {})
        for values, total in family.samples.items():
            shown[values] = max(shown.get(values, 0.0), total - first.get(values, 0.0))
        return dict(shown)


def exposition(families: Iterable[Family]) -> str:
    """Return the families in Prometheus's text format."""
    return "\n".join(line for family in bounded(families) for line in _lines(family)) + "\n"


def open_metrics(text: str) -> str:
    """Convert Prometheus text to OpenMetrics, where counters are described without `_total`."""
    return _DESCRIBED.sub(r"\1\2 ", text) + "# EOF\n"


def bounded(families: Iterable[Family]) -> list[Family]:
    """Return the families with capped label values, and one more that counts the capped values."""
    capped: Counter[str] = Counter()
    families = list(families)
    counted: dict[str, Counter[str]] = {}
    for family in families:
        for place, label in enumerate(family.labels if family.kind == "counter" else ()):
            for values, figure in family.samples.items():
                counted.setdefault(label, Counter())[values[place]] += figure  # type: ignore[assignment]  # as below
    found = [_bounded(family, capped, counted) for family in families]
    cap = Family(
        "evaltap_label_values_capped_total",
        "counter",
        "Label values that are shown as other.",
        ("label",),
    )
    cap.samples = {(label,): float(count) for label, count in capped.items()}
    return [*found, cap]


def _bounded(family: Family, capped: Counter[str], counted: Mapping[str, Counter[str]]) -> Family:
    """Return a family whose rare label values are summed as `other`; of gauges they are left out.

    Gauges keep the values that counters have `counted` most: large ratios do not mean much traffic.
    """
    samples = family.samples
    for place, label in enumerate(family.labels):
        most = MOST_VALUES.get(label, 0)
        weights: Counter[str] = Counter()
        for values, figure in samples.items():
            weights[values[place]] += abs(figure)  # type: ignore[assignment]  # a Counter of floats
        if family.kind == "gauge" and label in counted:
            weights = Counter({value: counted[label][value] for value in weights})
        if len(weights) <= most or label in ("le", "part"):
            continue
        kept = {value for value, _ in weights.most_common(max(0, most - 1))}
        capped[label] += len(weights) - len(kept)
        bounded: dict[tuple[str, ...], float] = {}
        for values, figure in samples.items():
            value = values[place] if values[place] in kept else OTHER
            if value == OTHER and family.kind == "gauge":
                continue  # ratios do not add up
            key = (*values[:place], value, *values[place + 1 :])
            bounded[key] = bounded.get(key, 0.0) + figure
        samples = bounded
    return Family(family.name, family.kind, family.help, family.labels, samples, family.suffixes)


def _lines(family: Family) -> list[str]:
    lines = [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
    for values, figure in sorted(
        family.samples.items(), key=lambda sample: _series(family, sample[0])
    ):
        name, labels = family.name, dict(zip(family.labels, values, strict=True))
        if family.suffixes:
            name += labels.pop("part")
        shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items() if value)
        lines.append(f"{name}{{{shown}}} {figure:.12g}" if shown else f"{name} {figure:.12g}")
    return lines


def _series(family: Family, values: Sequence[str]) -> list[str]:
    """Return the labels that sort a sample; parts and buckets of a series keep their order."""
    return [
        value
        for label, value in zip(family.labels, values, strict=True)
        if label not in ("le", "part")
    ]


def _escaped(value: str) -> str:
    text = value[:200].replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text.encode("utf-8", "replace").decode()
