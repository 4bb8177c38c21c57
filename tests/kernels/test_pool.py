"""pool gives the reference's bits for cls, last and mean, plain and normalised, on ragged sequences."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, batch_of, eager, levels, same_bits, variants

from octavo.platforms.reference.ops import ReferenceOps

LENGTHS = [(0, 1), (0, 17), (0, 2), (0, 64)]


def step() -> object:
    return batch_of(LENGTHS, np.zeros((len(LENGTHS), 1), np.int32))


@pytest.mark.parametrize("normalize", [False, True], ids=["plain", "normalised"])
@pytest.mark.parametrize("mode", ["cls", "last", "mean"])
@pytest.mark.parametrize(("name", "level"), variants("pool"))
def test_pool_has_the_reference_bits(name: str, level: str, mode: str, normalize: bool) -> None:
    ops, reference = eager(level, threads=2), ReferenceOps()
    for width in (1, 8, 21, 64, 384):
        x = np.random.default_rng(width).standard_normal((84, width)).astype(np.float32)
        for platform in (ops, reference):
            platform.begin(step())
        found, wanted = (o.pool(x, mode, normalize=normalize) for o in (ops, reference))
        assert found.shape == (4, width)
        assert_bits(found, wanted, f"{name} {mode} width {width}")
    assert ops.last_variant("pool") == name


@pytest.mark.parametrize("level", levels("pool"))
def test_a_zero_vector_normalises_to_zero_and_nan_stays_in_its_sequence(level: str) -> None:
    x = np.random.default_rng(1).standard_normal((84, 32)).astype(np.float32)
    x[0] = 0
    x[3, 4] = np.nan
    ops, reference = eager(level), ReferenceOps()
    for platform in (ops, reference):
        platform.begin(step())
    y = ops.pool(x, "mean", normalize=True)
    assert_bits(y, reference.pool(x, "mean", normalize=True))
    assert not y[0].any() and np.isnan(y[1]).all() and np.isfinite(y[2:]).all()


@pytest.mark.parametrize("level", levels("pool"))
def test_the_mean_adds_in_token_order(level: str) -> None:
    """Large and small values in another order give another float32 sum; the contract names one."""
    x = (10.0 ** np.random.default_rng(2).uniform(-4, 4, (84, 64))).astype(np.float32)
    ops = eager(level)
    ops.begin(step())
    forward = ops.pool(x, "mean")
    total = np.zeros(64, np.float32)
    for row in x[20:]:
        total = (total + row).astype(np.float32)
    assert_bits(forward[3], total / np.float32(64))
    assert not same_bits(ops.pool(np.concatenate([x[:20], x[:19:-1]]), "mean")[3], forward[3])
