"""Estimates of traffic that the product itself recorded and sampled, against a truth that numpy drew."""

from pathlib import Path

import numpy as np
import pytest

from support.builders.commands import runner
from support.worlds.recorded_traffic import Coverage, draw
from support.worlds.traffic import binomial_bounds

SETS = 12


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_intervals_hold_the_truth_of_what_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, evaltap = np.random.default_rng(31), runner(capsys)
    sets = []
    for number in range(SETS):
        (folder := tmp_path / str(number)).mkdir()
        if (one := draw(rng, folder, evaltap, most=1500)) is not None:
            sets.append(one)

    found = Coverage(sets)

    bias, error = found.bias
    assert abs(bias) < 3.3 * error
    for what, held in found.held.items():
        # Slices of a set share its sessions' luck: their number counts for less than it is.
        low, _ = binomial_bounds(min(len(held), SETS), 0.94)
        assert found.share(what) >= low, what
    sampled = [one for one in sets if one.report["weighted"]]
    assert len(sampled) > SETS / 4
    for one in sampled:
        (report,) = one.report["metrics"]
        assert report["pass_rate"] == pytest.approx(one.estimate["rate"])
        assert f"{report['pass_rate']:.1%}" in one.printed
