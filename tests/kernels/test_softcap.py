"""softcap gives the reference's bits, over rows wider than one unit of work and for values that saturate."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, eager, levels, variants

from octavo.platforms.reference.ops import ReferenceOps


@pytest.mark.parametrize(("name", "level"), variants("softcap"))
def test_softcap_has_the_reference_bits(name: str, level: str) -> None:
    ops, reference = eager(level, threads=2), ReferenceOps()
    rng = np.random.default_rng(1)
    for width in (1, 3, 8, 17, 2047, 2048, 2049, 5000):
        x = (rng.standard_normal((3, width)) * 40).astype(np.float32)
        for cap in (30.0, 50.0, 0.7):
            assert_bits(ops.softcap(x, cap), reference.softcap(x, cap), f"{name} width {width} cap {cap}")
    assert ops.last_variant("softcap") == name


@pytest.mark.parametrize("level", levels("softcap"))
def test_special_values_do_as_the_reference_does(level: str) -> None:
    x = np.array([[0.0, -0.0, np.inf, -np.inf, np.nan, 1e-39, 1e30, -1e30, 18.75, 18.7499]], np.float32)
    assert_bits(eager(level).softcap(x, 30.0), ReferenceOps().softcap(x, 30.0))
