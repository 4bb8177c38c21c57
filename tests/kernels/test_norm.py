"""rms_norm and layer_norm give the reference's bits at every level, per head, with and without weights, on views."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, eager, levels, same_bits, variants

from octavo.platforms.reference.ops import ReferenceOps

WIDTHS = (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 80, 576, 1000)


def rows_of(count: int, width: int, seed: int = 3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((count, width)) * 3).astype(np.float32)


@pytest.mark.parametrize(("name", "level"), variants("rms_norm"))
def test_rms_norm_has_the_reference_bits_at_any_width(name: str, level: str) -> None:
    ops, reference = eager(level), ReferenceOps()
    for width in WIDTHS:
        x, weight = rows_of(5, width), rows_of(1, width, 4)[0]
        for w in (None, weight):
            assert_bits(ops.rms_norm(x, w, 1e-5), reference.rms_norm(x, w, 1e-5), f"{name} width {width}")
    assert ops.last_variant("rms_norm") == name


@pytest.mark.parametrize(("name", "level"), variants("rms_norm"))
def test_heads_are_normed_apart(name: str, level: str) -> None:
    ops, reference = eager(level, threads=2), ReferenceOps()
    x, weight = rows_of(9, 6 * 40), rows_of(1, 40, 4)[0]
    found = ops.rms_norm(x, weight, 1e-6, heads=6)
    assert_bits(found, reference.rms_norm(x, weight, 1e-6, heads=6), name)
    assert not same_bits(found, ops.rms_norm(x, np.tile(weight, 6), 1e-6)), "heads were normed together"


@pytest.mark.parametrize(("name", "level"), variants("layer_norm"))
def test_layer_norm_has_the_reference_bits_with_any_of_its_parts_missing(name: str, level: str) -> None:
    ops, reference = eager(level), ReferenceOps()
    for width in WIDTHS:
        x, weight, bias = rows_of(4, width), rows_of(1, width, 5)[0], rows_of(1, width, 6)[0]
        for w in (None, weight):
            for b in (None, bias):
                assert_bits(ops.layer_norm(x, w, b, 1e-12), reference.layer_norm(x, w, b, 1e-12), f"{name} {width}")
    assert ops.last_variant("layer_norm") == name


@pytest.mark.parametrize("level", levels("rms_norm"))
def test_special_rows_do_as_the_reference_does(level: str) -> None:
    x = rows_of(6, 48)
    x[0] = 0
    x[1, 5] = np.inf
    x[2, 7] = np.nan
    x[3] = 1e-39  # denormal: counts as zero
    x[4] = 3e38
    ops, reference = eager(level), ReferenceOps()
    assert_bits(ops.rms_norm(x, None, 1e-6), reference.rms_norm(x, None, 1e-6), "rms_norm")
    assert_bits(ops.layer_norm(x, None, None, 1e-6), reference.layer_norm(x, None, None, 1e-6), "layer_norm")


@pytest.mark.parametrize("level", levels("rms_norm"))
def test_one_and_two_threads_agree(level: str) -> None:
    x = rows_of(301, 72)
    assert_bits(eager(level, threads=2).rms_norm(x, None, 1e-5), eager(level).rms_norm(x, None, 1e-5))
