"""What the recorder leaves free of a disk."""

import shutil
from pathlib import Path

from evaltap.recorder.delivery.free_space import reserve, shortage

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40


def test_a_small_disk_keeps_a_twentieth_and_a_large_one_a_gibibyte() -> None:
    assert reserve(100 * MIB) == 5 * MIB
    assert reserve(20 * GIB) == GIB
    assert reserve(4 * TIB) == GIB


def test_a_shortage_is_described_with_what_is_free_and_what_must_be(tmp_path: Path) -> None:
    total = shutil.disk_usage(tmp_path).total

    assert shortage(tmp_path, 0) is None
    described = shortage(tmp_path, total + GIB)
    assert described is not None
    assert "MiB must stay free" in described
