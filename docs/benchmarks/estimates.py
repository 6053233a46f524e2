"""How far estimates from sampled traffic are off, and how often their 95 % intervals cover the truth.

Traffic with a known pass rate is drawn and sampled (tests/traffic.py) and estimated by
`evaltap.evaluator.stats`, many times for each setting.  Beside it: the rate of the recorded turns as they
are, and a Wilson interval with Kish's effective size, which knows weights and no sessions.

    python docs/benchmarks/estimates.py [--rounds 2000] [--seed 2026]
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from estimate_coverage import SETTINGS, Tally
from traffic import Setting

HARD = {
    "rare failures, few long sessions": Setting(
        turns=2000, longest=20, rate=0.98, correlation=0.2, head=0.2
    ),
    "unlike sessions, all recorded": Setting(turns=300, longest=8, rate=0.98, correlation=0.2),
}
"""Where the intervals are known to be too narrow."""


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    print(
        "| setting | turns | sessions scored | bias, points | width, points | covers the process |"
        " covers the traffic | bias unweighted | Kish covers |\n|---|---|---|---|---|---|---|---|---|"
    )
    for name, setting in (SETTINGS | HARD).items():
        found = Tally(setting, options.rounds, options.seed)
        cells = (
            f"{name}, {setting.rate:.0%} pass",
            f"{setting.turns:,}",
            f"{found.sessions:.0f}",
            f"{100 * found.bias:+.2f}",
            f"{100 * found.width:.1f}",
            f"{found.process / found.rounds:.1%}",
            f"{found.traffic / found.rounds:.1%}" if setting.head * setting.scored < 1 else "point",
            f"{100 * found.bias_unweighted:+.1f}",
            f"{found.kish / found.rounds:.1%}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
