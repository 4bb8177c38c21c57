"""How far a platform that is not held to the reference's bits may be from it, in the self-test's cases.

A bound is a share of the reference's largest value. Float32 sums in another order differ by some units of 2^-24 of it;
weights that meet int8 inputs have exact sums and differ by less. Softmax weights rounded to bfloat16 (bf16, int8 and fp8 KV) can
round the other way, a step of 2^-8 each; so can keys that were rotated before they are stored, a step of 2^-11 in float16.
Ids and ranks are right or wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT32 = 4e-6
BF16_WEIGHTS = 6e-3
F16_KEYS = 5e-4
EXACT = 0.0
_ROUNDED = (
    *("attention bf16", "attention int8", "attention fp8", "attention of many rows", "copy_blocks"),
    *("rope and append bf16", "rope and append int8", "rope and append fp8", "varlen attention bf16"),
)
_EXACT = ("greedy head", "sample", "gather_rows")


def bound(case: str) -> float:
    """Of a case of `platforms.selftest.cases`, by its name."""
    if case.startswith(_EXACT):
        return EXACT
    if case == "rope and append f16":
        return F16_KEYS
    return BF16_WEIGHTS if case.startswith(_ROUNDED) else FLOAT32


def too_far(case: str, got: Sequence[NDArray[Any]], want: Sequence[NDArray[Any]]) -> str:
    """'' or what is wrong with a case's results."""
    allowed = bound(case)
    for one, other in zip(got, want, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{one.dtype}{list(one.shape)} instead of {other.dtype}{list(other.shape)}"
        if not np.array_equal(np.isnan(one), np.isnan(other)):
            return "values that are not numbers"
        a, b = (np.nan_to_num(x.astype(np.float64)) for x in (one, other))
        most = max(float(np.abs(b).max(initial=0)), 1e-30)
        gap = float(np.abs(a - b).max(initial=0)) / most
        if gap > allowed:
            return f"off by {gap:.1e} of the largest value, {allowed:.0e} allowed"
    return ""
