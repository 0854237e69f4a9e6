"""Sharded series: predicted from one node and two, better than by the efficiency of two, kept."""

import numpy as np

from testbed.recordings import unpacked
from validation.sharded import (
    GIVEN,
    NCCL,
    TABLES,
    Changed,
    changes_table,
    compare_changes,
    compare_gathers,
    compare_sharded,
    series,
    table,
)

FOLDERS = unpacked(GIVEN)


def test_series_are_within_the_goal():
    found = [compare_sharded(folder) for folder in sorted(FOLDERS.iterdir())]
    errors, kept = (np.abs(np.concatenate(own)) for own in zip(*[(c.errors, kept) for c, kept in found], strict=True))
    assert errors.mean() < 0.03
    assert errors.max() < 0.06
    assert kept.mean() > 0.08
    assert all(c.coverage == 1 for c, _ in found)
    text = table(found)
    assert f"**{errors.mean():.1%}**" in text
    assert text.count("\n") == 2 + len(found) + 1


def test_nccl_series_are_predicted():
    """Of HSDP, whose eight ranks hold each other up most, only that it beats the efficiency kept."""
    found = {folder.name: compare_sharded(folder) for folder in series(unpacked(NCCL))}
    assert len(found) == 7
    hybrid, kept = found.pop("nccl-hsdp")
    assert np.abs(hybrid.errors).max() < min(0.17, np.abs(kept).max())
    errors, kept = (
        np.abs(np.concatenate(own)) for own in zip(*[(c.errors, k) for c, k in found.values()], strict=True)
    )
    assert errors.mean() < 0.03
    assert errors.max() < 0.07
    assert kept.min() > 0.15
    assert all(c.coverage == 1 for c, _ in found.values())


def test_accumulation_over_nccl_is_predicted():
    folder = unpacked(NCCL) / "nccl-fsdp"
    changed = compare_changes(folder)
    assert [one.workers for one in changed] == [2, 4]
    assert max(abs(one.error) for one in changed) < 0.03


def test_measured_gathers_narrow_a_table():
    for name in TABLES:
        errors = compare_gathers(unpacked(NCCL) / name)
        assert abs(errors["with gathers"]) < 0.07
        assert abs(errors["alone"]) > 0.2


def test_changes_are_judged_by_rounds():
    comparison, _ = compare_sharded(FOLDERS / "fsdp-gpt8-60")
    rate = float(comparison.curve.iterations_per_second[0])
    one = Changed("series", {"accumulation": 4}, 3, rate / 1.1, comparison.curve)
    assert abs(one.error - 0.1) < 1e-9
    assert '{"accumulation": 4} | 3 | +10.0%' in changes_table([one])
