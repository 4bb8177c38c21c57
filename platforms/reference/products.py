"""The contract's matrix products in numpy: float `dot32` and the integer products of block formats.

Invariants: each output depends on its own row and column only, and its operations are in the contract's order, whatever
the batch. Integer sums are exact, hence computed by float64 matrix products (every partial sum is below 2^53).
Sources: Intel's TDPBF16PS pseudo-code for the order of `dot32`; ggml for the block formats (octavo.quant.formats).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.reference.f32 import F32, add, div, flush, fma32, mul
from octavo.quant.fp8 import E4M3FN, E8M0
from octavo.quant.mx import e8m0_above, e8m0_codes
from octavo.quant.parts import QuantizedParts

BLOCK = 32
CHUNK_ELEMENTS = 1 << 19
"""Elements of the chains computed at once: enough to hide numpy's cost per call, few enough for the cache."""


def dot32(x: F32, w: F32) -> F32:
    """[..., M, K] x [..., N, K] -> [..., M, N]; leading axes broadcast.

    Blocks of 32 along K (the last padded with zeros): e = fma chain over even k from +0, o = over odd k,
    acc = acc + (e + o) from +0. K = 0 gives +0.
    """
    x, w = _pad(flush(x)), _pad(flush(w))
    lead = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    rows, cols, k = x.shape[-2], w.shape[-2], x.shape[-1]
    out = np.zeros((*lead, rows, cols), np.float32)
    if out.size == 0 or k == 0:
        return out
    exact = _products_are_exact(x, w)
    per_row = max(out.size // rows * (k // BLOCK) * 2, 1)
    step = max(CHUNK_ELEMENTS // per_row, 1)
    for start in range(0, rows, step):
        out[..., start : start + step, :] = _dot(x[..., start : start + step, :], w, exact)
    return out


def _pad(x: F32) -> F32:
    pad = -x.shape[-1] % BLOCK
    return np.concatenate([x, np.zeros((*x.shape[:-1], pad), np.float32)], axis=-1) if pad else x


def _dot(x: F32, w: F32, exact: bool) -> F32:
    """Both chains of all blocks side by side: [2 chains, blocks, ..., M, N]."""
    a = _chains(x)[..., :, None]
    b = _chains(w)[..., None, :]
    chains = np.zeros(np.broadcast_shapes(a.shape[1:], b.shape[1:]), np.float32)
    for i in range(BLOCK // 2):
        # a product of bfloat16 values is exact in float32: then multiply and add round once, as fma does
        chains = add(chains, mul(a[i], b[i])) if exact else fma32(a[i], b[i], chains)
    sums = add(chains[0], chains[1])
    acc: F32 = np.zeros_like(sums[0])
    for block in sums:
        acc = add(acc, block)
    return acc


def _chains(x: F32) -> F32:
    """[..., M, K] -> [16 steps, 2 chains, K / 32 blocks, ..., M]."""
    parts = x.reshape(*x.shape[:-1], -1, BLOCK // 2, 2)
    return np.ascontiguousarray(np.moveaxis(parts, (-2, -1, -3), (0, 1, 2)))


def _products_are_exact(x: F32, w: F32) -> bool:
    """True if both hold bfloat16 values whose products can neither overflow nor be denormal."""
    if np.any(np.ascontiguousarray(x).view(np.uint32) & 0xFFFF) or np.any(
        np.ascontiguousarray(w).view(np.uint32) & 0xFFFF
    ):
        return False
    low, high = 1.0, 1.0
    for values in (np.abs(x), np.abs(w)):
        some = values[values > 0]
        if some.size == 0:
            return bool(np.isfinite(x).all() and np.isfinite(w).all())
        low, high = low * float(some.min()), high * float(some.max())
    return low >= 2.0**-126 and high < 2.0**100  # NaN compares false


def padded(x: F32, to: int) -> F32:
    """x [M, K] with zeros behind, up to a multiple of `to` inputs."""
    return np.pad(x, ((0, 0), (0, -x.shape[1] % to)))


def quantize_rows(x: F32, group: int) -> tuple[NDArray[np.int8], F32]:
    """int8 codes [M, K] and scales [M, K / group] of finite rows: s = amax / 127, q = half-even(x / s), s = 0 gives 0."""
    groups = flush(x).reshape(x.shape[0], x.shape[1] // group, group)
    scale = div(np.abs(groups).max(axis=-1), np.float32(127))
    with np.errstate(all="ignore"):
        q = np.rint(np.divide(groups, scale[..., None], dtype=np.float32))
        q = np.where(scale[..., None] > 0, np.clip(q, -127, 127), 0).astype(np.int8)
    return q.reshape(x.shape), scale


def integer_dot(x: F32, w: QuantizedParts) -> F32:
    """[M, K] x [N, K] -> [M, N] by the formula of the weight's format; blocks in ascending order."""
    if w.format.code != "int":
        return float_codes_dot(x, w)
    if w.format.has_scales_apart:
        return _apart_dot(x, w)
    block = w.format.block_size
    q, scale = quantize_rows(x, block)
    rows, blocks = scale.shape
    qx = q.reshape(rows, blocks, block).astype(np.float64)
    codes = _integer_weights(w).reshape(w.codes.shape[0], blocks, block)
    if w.sub_mins is not None:
        minima = np.repeat(w.sub_mins.astype(np.float64), w.format.group, axis=-1).reshape(codes.shape)
    acc = np.zeros((rows, codes.shape[0]), np.float32)
    for g in range(blocks):
        s_a = scale[:, g, None]
        acc = fma32(_to_f32(qx[:, g] @ codes[:, g].T), mul(s_a, w.d[None, :, g]), acc)
        if w.m is not None:
            acc = fma32(_to_f32(qx[:, g].sum(axis=-1, keepdims=True)), mul(s_a, w.m[None, :, g]), acc)
        if w.dmin is not None:
            acc = fma32(_to_f32(qx[:, g] @ minima[:, g].T), -mul(s_a, w.dmin[None, :, g]), acc)
    return acc


def quantize_f8(x: F32, group: int, *, is_mx: bool) -> tuple[F32, F32]:
    """(numbers E4M3 [M, K], scales [M, K / group]) of finite rows: s = amax / 448, q = e4m3(x / s), s = 0 gives 0; with `is_mx`
    s is the least power of two from 2^-126 on with amax <= 448 s."""
    groups = flush(x).reshape(x.shape[0], x.shape[1] // group, group)
    peak = np.abs(groups).max(axis=-1)
    scale = E8M0[np.maximum(e8m0_above(peak, E4M3FN.largest), 1)] if is_mx else div(peak, np.float32(E4M3FN.largest))
    with np.errstate(all="ignore"):
        ratio = np.where(
            scale[..., None] > 0, flush(np.divide(groups, scale[..., None], dtype=np.float32)), np.float32(0)
        )
    return E4M3FN.decode(E4M3FN.encode(ratio)).reshape(x.shape), scale.astype(np.float32)


def float_codes_dot(x: F32, w: QuantizedParts) -> F32:
    """Weights of small floats: `dot32` of codes per group, as `quant/formats.py` says; inputs in the same groups."""
    is_mx = w.format.name.startswith("mx")
    group = w.format.group or -(-w.codes.shape[1] // BLOCK) * BLOCK
    q, scale = quantize_f8(padded(x, group), group, is_mx=is_mx)
    numbers = padded(w.numbers(), group)
    if not w.format.group:
        return mul(dot32(q, numbers), mul(scale, flush(w.d).T))
    acc = np.zeros((len(x), len(numbers)), np.float32)
    for g in range(scale.shape[1]):
        some = slice(g * group, (g + 1) * group)
        p = dot32(q[:, some], numbers[:, some])
        if is_mx:
            first, second = _halves(w.d[:, g])
            acc = fma32(mul(mul(p, first), scale[:, g, None]), second, acc)
        else:
            acc = fma32(p, mul(scale[:, g, None], flush(w.d[None, :, g])), acc)
    return acc


def _halves(powers: F32) -> tuple[F32, F32]:
    """Two normal powers of two whose product is 2^-127 .. 2^127."""
    code = e8m0_codes(powers).astype(np.int64)
    first = code >> 1
    return np.ldexp(np.float32(1), first - 63).astype(np.float32), np.ldexp(np.float32(1), code - first - 64).astype(
        np.float32
    )


def _apart_dot(x: F32, w: QuantizedParts) -> F32:
    """Codes with scales apart: one sum for the whole row, or one per group, the last of which may be short."""
    group = w.format.group or w.codes.shape[1]
    q, scale = quantize_rows(padded(x, group), group)
    integers, d = w.integers().astype(np.float64), flush(w.d)
    if not w.format.group:
        return mul(_to_f32(q.astype(np.float64) @ integers.T), mul(scale, d.T))
    acc = np.zeros((len(x), len(integers)), np.float32)
    for g in range(scale.shape[1]):
        some = slice(g * group, min((g + 1) * group, integers.shape[1]))
        isum = q[:, some].astype(np.float64) @ integers[:, some].T
        acc = fma32(_to_f32(isum), mul(scale[:, g, None], d[None, :, g]), acc)
    return acc


def _integer_weights(w: QuantizedParts) -> NDArray[np.float64]:
    """Codes with the zero point off, times the integer sub-scale of their group: exact integers."""
    codes = w.codes.astype(np.float64) - w.format.zero_point
    if w.sub_scales is not None:
        codes *= np.repeat(w.sub_scales.astype(np.float64), w.format.group, axis=-1)
    return codes


def _to_f32(isum: NDArray[np.float64]) -> F32:
    """float(int32): exact integers rounded once."""
    return isum.astype(np.float32)
