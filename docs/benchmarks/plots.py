"""Draws rows of dots over one axis as SVG, readable on light and on dark pages: for the simulations."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

LABELS, AXIS, RIGHT = 270, 470, 30
ROW, TOP, LEGEND = 26, 46, 34
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .small { font-size: 12px; fill: #59636e }
.line { stroke: #d1d9e0 } .band { fill: #1a7f37; opacity: .14 } .mark { stroke: #1a7f37; stroke-width: 1.5 }
.main { fill: #0969da; stroke: #0969da } .other { fill: none; stroke: #0969da; stroke-width: 1.6 }
.naive { fill: none; stroke: #bc4c00; stroke-width: 1.8 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .line { stroke: #3d444d }
  .band { fill: #3fb950; opacity: .2 } .mark { stroke: #3fb950 }
  .main { fill: #4493f8; stroke: #4493f8 } .other { stroke: #4493f8 } .naive { stroke: #f0883e }
}
"""


@dataclass(frozen=True)
class Dots:
    """A series: one value for each row, None where there is none."""

    name: str
    look: str
    """main, a filled dot; other, a ring; naive, a cross."""
    values: Sequence[float | None]


@dataclass(frozen=True)
class Axis:
    """What is read below."""

    name: str
    low: float
    high: float
    ticks: Sequence[float]
    unit: str = " %"

    def at(self, value: float) -> float:
        """Return where a value is; beyond the ends at the end."""
        inner = min(max(value, self.low), self.high)
        return LABELS + AXIS * (inner - self.low) / (self.high - self.low)


def draw(
    path: Path,
    title: str,
    rows: Sequence[str],
    series: Sequence[Dots],
    axis: Axis,
    target: tuple[float, float] | None = None,
) -> None:
    """Write a plot; `target` is a range that is aimed at, or a limit where both ends are equal."""
    bottom = TOP + ROW * len(rows)
    width, height = LABELS + AXIS + RIGHT, bottom + 44 + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{escape(title)}"><style>{_STYLE}</style>',
        f'<text class="title" x="12" y="22">{escape(title)}</text>',
    ]
    if target is not None:
        low, high = (axis.at(one) for one in target)
        parts.append(
            f'<line class="mark" x1="{low:.1f}" x2="{low:.1f}" y1="{TOP - 8}" y2="{bottom}"/>'
            if low == high
            else f'<rect class="band" x="{low:.1f}" y="{TOP - 8}" width="{high - low:.1f}"'
            f' height="{bottom - TOP + 8}"/>'
        )
    for tick in axis.ticks:
        x, shown = axis.at(tick), f"{tick:g}{axis.unit}"
        parts += [
            f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>',
            f'<text class="small" x="{x:.1f}" y="{bottom + 19}" text-anchor="middle">{shown}</text>',
        ]
    parts.append(f'<text class="small" x="12" y="{bottom + 19}">{escape(axis.name)}</text>')
    for place, row in enumerate(rows):
        y = TOP + ROW * place + ROW / 2
        parts.append(f'<line class="line" x1="{LABELS}" x2="{LABELS + AXIS}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{LABELS - 12}" y="{y + 4}" text-anchor="end">{escape(row)}</text>')
        parts += [
            _dot(one.look, axis.at(value), y)
            for one in reversed(series)
            if (value := one.values[place]) is not None
        ]
    x = 18.0
    for one in series:
        parts.append(_dot(one.look, x, height - 18))
        parts.append(f'<text x="{x + 12}" y="{height - 14}">{escape(one.name)}</text>')
        x += 40 + 7.2 * len(one.name)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", "utf-8")


def _dot(look: str, x: float, y: float) -> str:
    if look == "naive":
        return f'<path class="naive" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
    return f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{4 if look == "main" else 4.5}"/>'
