"""rope gives the reference's bits for both pairings, partial rotation and any head size."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, batch_of, eager, levels, same_bits, variants

from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.types import Batch, Rope

SHAPES = ((32, 32), (64, 64), (80, 32), (80, 80), (96, 48), (128, 128), (256, 64), (20, 10), (64, 2))


def batch(lengths: list[tuple[int, int]]) -> Batch:
    return batch_of(lengths, np.zeros((len(lengths), 1), np.int32))


def rope_of(rotary_dim: int, interleaved: bool) -> Rope:
    half = rotary_dim // 2
    return Rope(tuple(10000.0 ** (-i / half) for i in range(half)), rotary_dim, 1.25, interleaved, 4096)


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "pairs"])
@pytest.mark.parametrize(("name", "level"), variants("rope"))
def test_rotation_has_the_reference_bits(name: str, level: str, interleaved: bool) -> None:
    ops, reference = eager(level, threads=2), ReferenceOps()
    step = batch([(0, 5), (700, 1), (31, 3)])
    rng = np.random.default_rng(1)
    for head_dim, rotary_dim in SHAPES:
        x = rng.standard_normal((9, 3 * head_dim)).astype(np.float32)
        rope = rope_of(rotary_dim, interleaved)
        for platform in (ops, reference):
            platform.begin(step)
        assert_bits(ops.rope(x, rope, heads=3), reference.rope(x, rope, heads=3), f"{name} {head_dim}/{rotary_dim}")
    assert ops.last_variant("rope") == name


@pytest.mark.parametrize("level", levels("rope"))
def test_values_behind_the_rotated_part_pass_unchanged(level: str) -> None:
    ops = eager(level)
    ops.begin(batch([(10, 4)]))
    x = np.random.default_rng(2).standard_normal((4, 2 * 48)).astype(np.float32)
    y = ops.rope(x, rope_of(16, False), heads=2)
    rest, moved = y.reshape(4, 2, 48)[..., 16:], y.reshape(4, 2, 48)[..., :16]
    assert_bits(rest, x.reshape(4, 2, 48)[..., 16:])
    assert not same_bits(moved, x.reshape(4, 2, 48)[..., :16])


@pytest.mark.parametrize("level", levels("rope"))
def test_the_row_position_decides_not_the_row(level: str) -> None:
    """A token rotated alone at position 37 equals the same token inside a prompt."""
    ops = eager(level)
    x = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
    ops.begin(batch([(0, 64)]))
    whole = ops.rope(x, rope_of(64, False), heads=1)
    ops.begin(batch([(37, 1)]))
    assert_bits(ops.rope(x[37:38], rope_of(64, False), heads=1), whole[37:38])
