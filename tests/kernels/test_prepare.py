"""prepare_*: rows brought into a weight format's input form, bit for bit, at every level."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.harness import FIXED, Kernel, aligned, run, same_bits, variants

from octavo.platforms.reference import f32

#: inputs per scale, per sum; 0: of the whole row
INT8 = {
    "prepare_i8g32": (32, 32), "prepare_i8g64": (64, 64), "prepare_i8g128": (128, 128), "prepare_i8g256": (256, 16),
    "prepare_i8row": (0, 0),
}  # fmt: skip


def sizes_of(op: str, k: int) -> tuple[int, int]:
    """Inputs per scale and per sum of rows of k inputs; a whole row is padded to 64."""
    group, per_sum = INT8.get(op, (32, 32))
    row = -(-k // 64) * 64
    return group or row, per_sum or row


def prepare(kernel: Kernel, x: np.ndarray, threads: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, k = x.shape
    group, per_sum = sizes_of(kernel.op, k)
    width = -(-k // group) * group
    q = aligned((rows, width + 32), np.uint16 if kernel.op == "prepare_bf16" else np.int8)
    q[:] = 77
    lds = width // group + 1
    scales, sums = aligned((rows, lds), np.float32), aligned((rows, lds * (group // per_sum)), np.int32)
    is_bf16 = kernel.op == "prepare_bf16"
    fields = {
        "x": x, "ldx": x.strides[0] // 4, "k": k, "q": q, "ldq": q.shape[1], "scales": None if is_bf16 else scales,
        "sums": None if is_bf16 else sums, "lds": lds, "rows": (FIXED, rows),
    }  # fmt: skip
    run(kernel, fields, threads=threads)
    assert (q[:, width:] == 77).all()
    return q[:, :width], scales[:, : width // group], sums[:, : width // per_sum]


def expected(op: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    group, per_sum = sizes_of(op, x.shape[1])
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % group)))
    groups = f32.flush(padded).reshape(len(x), -1, group)
    with np.errstate(all="ignore"):
        s = f32.div(np.abs(groups).max(axis=2), np.float32(127))
        q = np.where(s[..., None] > 0, np.rint(np.divide(groups, s[..., None], dtype=np.float32)), 0)
    q = np.nan_to_num(q).astype(np.int8).reshape(len(x), -1)
    return q, s, q.reshape(len(x), -1, per_sum).sum(axis=2, dtype=np.int32)


def rows_of(k: int) -> np.ndarray:
    """Normal rows, and rows of zeros, denormals, ties, one huge value, tiny peaks."""
    rng = np.random.default_rng(k)
    x = rng.standard_normal((9, k)).astype(np.float32)
    x[1] = 0
    x[2] = np.float32(1e-40)
    x[3] = rng.integers(-127, 128, k) + np.float32(0.5)  # with a peak of 127 every quotient is a tie
    x[3, 0] = 127
    x[4, -1] = -3e38
    x[5] *= np.float32(1e-37)
    x[6] = -127
    x[7] *= np.float32(2.0**-122)  # amax / 127 is flushed
    return x


@pytest.mark.parametrize("kernel", variants(*INT8))
@pytest.mark.parametrize("k", [32, 256, 288, 512, 2304, 5, 64, 100])
def test_int8_codes_scales_and_sums(kernel: Kernel, k: int) -> None:
    x = rows_of(k)
    for threads in (1, 2):
        q, s, sums = prepare(kernel, x, threads)
        want_q, want_s, want_sums = expected(kernel.op, x)
        assert same_bits(s, want_s)
        assert np.array_equal(q, want_q)
        assert np.array_equal(sums, want_sums)
    assert np.abs(q.astype(np.int32)).max() == 127


@pytest.mark.parametrize("kernel", variants(*INT8))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_group_that_is_not_finite_has_scale_nan_and_hurts_no_other(kernel: Kernel, bad: float) -> None:
    x = rows_of(512)
    clean = prepare(kernel, x)
    x[0, 300] = bad
    q, s, sums = prepare(kernel, x)
    group, per_sum = sizes_of(kernel.op, 512)
    at = 300 // group
    assert np.isnan(s[0, at])
    assert not q[0, at * group : (at + 1) * group].any()
    assert not sums[0, at * group // per_sum : (at + 1) * group // per_sum].any()
    s[0, at] = clean[1][0, at]
    assert same_bits(s, clean[1])
    assert np.array_equal(q[1:], clean[0][1:])


@pytest.mark.parametrize("kernel", variants("prepare_bf16"))
@pytest.mark.parametrize("k", [1, 31, 32, 33, 100, 2100])
def test_bf16_rounds_half_to_even_and_pads_with_zeros(kernel: Kernel, k: int) -> None:
    rng = np.random.default_rng(k)
    x = rng.integers(0, 2**32, (5, k), np.uint32).view(np.float32)  # every kind of float32
    q, _, _ = prepare(kernel, x, threads=2)
    widened = q[:, :k].astype(np.uint32) << 16
    assert same_bits(widened.view(np.float32), f32.to_bf16(x))  # any NaN for a NaN
    assert not q[:, k:].any()


@pytest.mark.parametrize("kernel", variants("prepare_bf16", *INT8))
def test_rows_may_be_strided(kernel: Kernel) -> None:
    wide = rows_of(512)
    x = wide[:, :256]
    got, want = prepare(kernel, x), prepare(kernel, np.ascontiguousarray(x))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("kernel", variants(*INT8))
def test_codes_are_true_quotients(kernel: Kernel) -> None:
    """Inputs that lie halfway between two codes at scales with an inexact reciprocal: x * (1 / s) would round some elsewhere."""
    scales = np.arange(3, 253, 2, dtype=np.float32)
    halves = np.arange(256, dtype=np.float32) % 120 + np.float32(0.5)
    x = scales[:, None] * halves
    x[:, ::32] = 127 * scales[:, None]
    by_reciprocal = np.rint(x * (np.float32(1) / scales)[:, None])
    assert (by_reciprocal != np.rint(x / scales[:, None])).any(), "these inputs cannot tell"
    q, s, _ = prepare(kernel, x)
    assert (s == scales[:, None]).all()
    assert np.array_equal(q, np.rint(x / scales[:, None]).astype(np.int8))


@pytest.mark.parametrize("kernel", variants("prepare_bf16"))
def test_bf16_ties_go_to_the_even_neighbour(kernel: Kernel) -> None:
    high = np.arange(0x0080, 0x7F80, 3, dtype=np.uint32)
    x = ((high << np.uint32(16)) | np.uint32(0x8000)).view(np.float32)[None]
    q, _, _ = prepare(kernel, x)
    assert np.array_equal(q[0, : x.size], (high + (high & 1)).astype(np.uint16))


@pytest.mark.parametrize("kernel", variants("prepare_bf16"))
def test_bf16_of_every_upper_half(kernel: Kernel) -> None:
    """All exponents, signs, denormals, infinities and NaN, with lower halves around a tie and at the ends."""
    high = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    lows = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    x = (high[None] | lows[:, None]).view(np.float32)
    q, _, _ = prepare(kernel, x)
    assert same_bits((q[:, : high.size].astype(np.uint32) << 16).view(np.float32), f32.to_bf16(x))
