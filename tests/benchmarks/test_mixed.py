"""Gaps between tokens are those of the streams, before, while and after a long prompt is computed."""

from __future__ import annotations

import argparse

import pytest
from benchmarks.mixed import Run, floor, own_ratios, quantile, rows, run
from tests.engine.fake_executable import make_core

from octavo.engine.cost import CostModel
from octavo.engine.pace import Pace


@pytest.mark.parametrize(("share", "wanted"), [(0.5, 50), (0.99, 99), (0.0, 1), (1.0, 100)])
def test_quantile_is_a_value_that_so_many_do_not_exceed(share: float, wanted: float) -> None:
    assert quantile([float(value) for value in range(100, 0, -1)], share) == wanted
    assert quantile([3.0], share) == 3.0


def test_the_limit_is_half_again_the_pace_of_the_streams() -> None:
    core = make_core(vocab=41_000, max_seqs=4)
    core.scheduler.pace = Pace(CostModel([1e-3] * 7, doubt=0.1), 1e9)
    args = argparse.Namespace(
        streams=2, context=6, prompt=30, steps=5, itl_ms=None, times=1.5, threads=1, model="fake", realtime=0.0
    )
    made = run(core, args)
    assert {name: len(gaps) for name, gaps in made.before.items()} == {"s0": 5, "s1": 5}
    assert len(made.during["s0"]) >= 2 and len(made.after["s0"]) == 5 and not core.has_work
    own = quantile([gap for gaps in made.before.values() for gap in gaps], 0.5)
    assert core.scheduler.pace.itl_s == pytest.approx(1.5e-3 * own)


def test_ratios_are_to_the_streams_own_median() -> None:
    made = Run({"s0": [10.0, 10.0, 40.0]}, {"s0": [12.0] * 98 + [15.0, 99.0]}, {"s0": [12.0]}, prefill_s=2.0, floor=1.1)
    assert own_ratios(made, "s0")[49] == pytest.approx(12 / 11) and own_ratios(made, "s0")[99] == 99 / 12
    args = argparse.Namespace(streams=1, context=6, prompt=30, threads=1, model="fake")
    found = {row["name"]: row["median"] for row in rows("paced", made, args)}
    assert found["mixed.paced.ratio"] == 1.5 and found["mixed.paced.own_ratio"] == pytest.approx(15 / 11.98, rel=1e-4)
    assert found["mixed.paced.spread"] == 1.25 and found["mixed.paced.floor"] == 1.1
    assert found["mixed.paced.p50"] == 12.0 and found["mixed.paced.prefill"] == 2.0


@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_floor_is_at_least_one(num_threads: int) -> None:
    assert floor(num_threads, 0.01, num=20) >= 1.0
