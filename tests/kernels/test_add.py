"""add gives the reference's bits: each product rounded before the sum, at every width, in any threads."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kv_case import assert_bits, eager, variants

from octavo.platforms.reference.ops import ReferenceOps


@pytest.mark.parametrize(("name", "level"), variants("add"))
def test_sum_has_the_reference_bits(name: str, level: str) -> None:
    ops, reference = eager(level, threads=2), ReferenceOps()
    rng = np.random.default_rng(1)
    for rows, width in ((1, 1), (3, 7), (9, 64), (33, 100)):
        a, b = (rng.standard_normal((rows, width)).astype(np.float32) for _ in range(2))
        for scale_a, scale_b in ((1.0, 1.0), (0.3, 1.0), (1.0, 12.1), (0.7, -0.7)):
            found, wanted = (o.add(a, b, scale_a=scale_a, scale_b=scale_b) for o in (ops, reference))
            assert_bits(found, wanted, f"{name} {rows}x{width} {scale_a} {scale_b}")
    assert ops.last_variant("add") == name
