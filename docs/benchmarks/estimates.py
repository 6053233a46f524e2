"""How far estimates from sampled traffic are off, and how often their 95 % intervals cover the truth.

Traffic with a known pass rate is drawn and sampled (tests/support/worlds/traffic.py) and estimated by
`evaltap.evaluator.analysis.stats`, many times for each setting.  Beside it: the rate of the recorded turns
as they are, and a Wilson interval with Kish's effective size, which knows weights and no sessions.

    python docs/benchmarks/estimates.py [--rounds 2000] [--seed 2026] [--plot docs/assets/estimates.svg]
    python docs/benchmarks/estimates.py --recorded 200    # through recorder, log, store and command line
"""

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from evaltap.cli.main import main as evaltap

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from plots import Axis, Dots, draw

from support.proofs.estimate_coverage import SETTINGS, Tally
from support.worlds.recorded_traffic import Coverage, Drawn
from support.worlds.recorded_traffic import draw as draw_recorded
from support.worlds.traffic import Setting


def main() -> None:
    """Print a table in Markdown, and draw how often the intervals cover."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--plot", type=Path, help="also draw it, as SVG")
    parser.add_argument(
        "--recorded", type=int, metavar="SETS", help="data sets of 50 to 5,000 turns"
    )
    options = parser.parse_args()
    if options.recorded:
        _print_recorded(options.recorded, options.seed)
        return
    tallies = {
        name: (setting, Tally(setting, options.rounds, options.seed))
        for name, setting in SETTINGS.items()
    }
    print(
        "| setting | turns | sessions scored | bias, points | width, points | covers the process |"
        " covers the traffic | bias unweighted | Kish covers |\n|---|---|---|---|---|---|---|---|---|"
    )
    for name, (setting, found) in tallies.items():
        cells = (
            f"{name}, {setting.rate:.0%} pass",
            f"{setting.turns:,}",
            f"{found.sessions:.0f}",
            f"{100 * found.bias:+.2f}",
            f"{100 * found.width:.1f}",
            f"{found.process / found.rounds:.1%}",
            f"{found.traffic / found.rounds:.1%}" if _is_sampled(setting) else "point",
            f"{100 * found.bias_unweighted:+.1f}",
            f"{found.kish / found.rounds:.1%}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    if options.plot:
        _draw(options.plot, tallies)


def _is_sampled(setting: Setting) -> bool:
    return setting.head * setting.scored < 1


def _draw(path: Path, tallies: Mapping[str, tuple[Setting, Tally]]) -> None:
    found = [tally for _, tally in tallies.values()]
    traffic = [
        100 * tally.traffic / tally.rounds if _is_sampled(setting) else None
        for setting, tally in tallies.values()
    ]
    series = [
        Dots("the process", "main", [100 * one.process / one.rounds for one in found]),
        Dots("this traffic", "other", traffic),
        Dots("Wilson with Kish's size", "naive", [100 * one.kish / one.rounds for one in found]),
    ]
    axis = Axis("intervals that cover", 72, 100, (75, 80, 85, 90, 95, 100))
    draw(path, "How often 95 % intervals hold the truth", list(tallies), series, axis, (93, 97))


def _print_recorded(sets: int, seed: int) -> None:
    """Record and estimate traffic with the product itself, and print how often its intervals hold."""
    rng = np.random.default_rng(seed)
    found = Coverage(one for _ in range(sets) if (one := _recorded(rng)) is not None)
    bias, error = found.bias
    print(f"{len(found.errors)} data sets: off by {100 * bias:+.2f} points (+- {100 * error:.2f})")
    for what, held in found.held.items():
        print(f"{what}: {found.share(what):.1%} of {len(held):,} intervals hold")


def _recorded(rng: np.random.Generator) -> Drawn | None:
    with tempfile.TemporaryDirectory() as folder:
        return draw_recorded(rng, Path(folder), _evaltap)


def _evaltap(*arguments: str) -> tuple[int, str, str]:
    said, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
        code = evaltap(arguments)
    return code, said.getvalue(), complaints.getvalue()


if __name__ == "__main__":
    main()
