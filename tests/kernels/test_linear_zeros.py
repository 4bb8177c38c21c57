"""linear_bf16, linear_f16, linear_f32: the sign of a zero is the contract's, whatever kernels begin their chains with.

A chain begins with fma to +0, so a block of products that are all -0 adds +0: a sum that was flushed to -0 becomes +0. A kernel
that begins with the product itself adds -0 and leaves -0.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.harness import Kernel, same_bits, variants
from tests.kernels.panels import stored
from tests.kernels.test_linear import Case, formats_of, multiply, reference

SMALL = np.float32(2.0**-14)  # a normal float16
STEP = np.float32(2.0**-112)  # times SMALL: the smallest normal float32
#: what the first two blocks of a row sum to, in units of 2^-126: flushed to -0, flushed to +0, +0, and what remains as it is
FIRST_BLOCKS = ((1, -1.5), (1.5, -1), (1, -1), (1, -3), (-1, 1.5), (-1.5, 1), (0, -0.0), (-0.0, -0.0))


def inputs(k: int, rows: int) -> np.ndarray:
    """Zeros of both signs, row by row, but for one value in each of the first two blocks."""
    x = np.zeros((rows, k), np.float32)
    for r in range(rows):
        x[r] = np.float32(-0.0 if r // len(FIRST_BLOCKS) % 2 else 0.0)
        first = FIRST_BLOCKS[r % len(FIRST_BLOCKS)]
        x[r, 0], x[r, 32] = STEP * np.float32(first[0]), STEP * np.float32(first[1])
    return x


def weights(n: int, k: int) -> np.ndarray:
    """Ones of either sign: all alike, by even and odd inputs, and mixed; SMALL where the inputs are not zero."""
    signs = np.random.default_rng(1).choice(np.array([-1, 1], np.float32), (n, k))
    for o in range(n - 4):
        signs[o, 0::2] = -1 if o & 1 else 1
        signs[o, 1::2] = -1 if o & 2 else 1
    signs[:, [0, 32]] = SMALL
    return signs


def case_of(name: str, n: int, k: int) -> Case:
    raw = stored(name, n, k).copy()
    values = weights(n, k)
    if name == "f32":
        raw.view(np.float32)[:] = values
    elif name == "f16":
        raw.view(np.float16)[:] = values.astype(np.float16)
    else:
        raw.view(np.uint16)[:] = (values.view(np.uint32) >> 16).astype(np.uint16)
    return Case(name, n, k, raw)


@pytest.mark.parametrize("kernel", variants("linear_bf16", "linear_f16", "linear_f32"))
@pytest.mark.parametrize("k", [64, 96, 70, 160])
def test_zeros_have_the_signs_of_the_reference(kernel: Kernel, k: int) -> None:
    case, x = case_of(formats_of(kernel)[0], 33, k), inputs(k, 17)
    want = reference(case, x)
    is_negative = np.signbit(want[want == 0])
    assert is_negative.any() == (k == 64) and not is_negative.all(), "a later block of zeros makes -0 to +0"
    for rows in (1, 2, 3, 4, 6, 17):
        for threads in (1, 2):
            got = multiply(kernel, case, x[:rows], threads)
            assert same_bits(got, want[:rows]), (rows, threads)
