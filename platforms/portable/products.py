"""The linear products over panels of 32 outputs: `dot32` for float weights, exact integer sums for block formats.

A panel holds its outputs side by side for every input ([panels, inputs, 32]), so that LLVM turns the innermost loop into the
chip's vectors. Each output is computed whole by one thread, in the contract's order (platforms/ops.py, linear). Inputs arrive
padded with zeros to whole blocks; k counts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.platforms.portable.jit import ZERO, flush, fma, from_bits, inline, kernel

LANES = 32
BLOCK = 32


@inline
def widen(w: Any) -> Any:
    """A stored weight as float32: itself, or the bfloat16 whose bits it is."""
    return flush(from_bits(np.int32(np.int32(w) << np.int32(16))))


@kernel
def dot_f32(x: Any, panels: Any, first: Any, last: Any, y: Any) -> None:
    """y[:, 32 p : 32 p + 32] = dot32 of rows x [M, K] with panels p in [first, last), float32."""
    even, odd, acc = np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for p in range(first, last):
        for row in range(x.shape[0]):
            acc[:] = ZERO
            for block in range(0, x.shape[1], BLOCK):
                even[:] = ZERO
                odd[:] = ZERO
                for k in range(block, block + BLOCK, 2):
                    a, b = x[row, k], x[row, k + 1]
                    for lane in range(LANES):
                        even[lane] = flush(fma(a, panels[p, k, lane], even[lane]))
                        odd[lane] = flush(fma(b, panels[p, k + 1, lane], odd[lane]))
                for lane in range(LANES):
                    acc[lane] = flush(acc[lane] + flush(even[lane] + odd[lane]))
            y[row, LANES * p : LANES * p + LANES] = acc


@kernel
def dot_bf16(x: Any, panels: Any, first: Any, last: Any, y: Any) -> None:
    """The same with weights as bfloat16 bits (uint16)."""
    even, odd, acc = np.empty(LANES, np.float32), np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    for p in range(first, last):
        for row in range(x.shape[0]):
            acc[:] = ZERO
            for block in range(0, x.shape[1], BLOCK):
                even[:] = ZERO
                odd[:] = ZERO
                for k in range(block, block + BLOCK, 2):
                    a, b = x[row, k], x[row, k + 1]
                    for lane in range(LANES):
                        even[lane] = flush(fma(a, widen(panels[p, k, lane]), even[lane]))
                        odd[lane] = flush(fma(b, widen(panels[p, k + 1, lane]), odd[lane]))
                for lane in range(LANES):
                    acc[lane] = flush(acc[lane] + flush(even[lane] + odd[lane]))
            y[row, LANES * p : LANES * p + LANES] = acc


@kernel
def dot_integer(
    q: Any, s: Any, asum: Any, panels: Any, d: Any, m: Any, has_m: Any, first: Any, last: Any, y: Any
) -> None:
    """Block formats whose minimum is a float, or absent: q int8 [M, K], s and asum [M, blocks], d and m [panels, blocks, 32].

    panels int8 or int16 [panels, K, 32]: codes without zero point, times their integer sub-scale. Per block in order
    acc = fma(float(isum), s * d, acc), then with a minimum acc = fma(float(asum), s * m, acc).
    """
    num_blocks = s.shape[1]
    size = q.shape[1] // num_blocks
    acc, isum = np.empty(LANES, np.float32), np.empty(LANES, np.int32)
    for p in range(first, last):
        for row in range(q.shape[0]):
            acc[:] = ZERO
            for g in range(num_blocks):
                isum[:] = 0
                for k in range(g * size, g * size + size):
                    a = np.int32(q[row, k])
                    for lane in range(LANES):
                        isum[lane] += a * np.int32(panels[p, k, lane])
                scale = s[row, g]
                for lane in range(LANES):
                    acc[lane] = flush(fma(np.float32(isum[lane]), flush(scale * d[p, g, lane]), acc[lane]))
                if has_m:
                    total = np.float32(asum[row, g])
                    for lane in range(LANES):
                        acc[lane] = flush(fma(total, flush(scale * m[p, g, lane]), acc[lane]))
            y[row, LANES * p : LANES * p + LANES] = acc


@kernel
def dot_rows(q: Any, s: Any, panels: Any, d: Any, first: Any, last: Any, y: Any) -> None:
    """One scale per row of inputs and per output: q int8 [M, K], s [M, 1], panels int8 [panels, K, 32], d [panels, 1, 32];
    y = float(isum) * (s * d)."""
    isum = np.empty(LANES, np.int32)
    for p in range(first, last):
        for row in range(q.shape[0]):
            isum[:] = 0
            for k in range(q.shape[1]):
                a = np.int32(q[row, k])
                for lane in range(LANES):
                    isum[lane] += a * np.int32(panels[p, k, lane])
            for lane in range(LANES):
                y[row, LANES * p + lane] = flush(np.float32(isum[lane]) * flush(s[row, 0] * d[p, 0, lane]))


@kernel
def dot_sub_minima(
    q: Any, s: Any, asum: Any, panels: Any, mins: Any, d: Any, dmin: Any, first: Any, last: Any, y: Any
) -> None:
    """K-quants with minima: asum int32 [M, groups], mins int16 [panels, groups, 32]; then
    acc = fma(float(msum), -(s * dmin), acc) with msum = sum of mins * asum over the block's groups."""
    num_blocks = s.shape[1]
    size, groups = q.shape[1] // num_blocks, asum.shape[1] // num_blocks
    acc, isum, msum = np.empty(LANES, np.float32), np.empty(LANES, np.int32), np.empty(LANES, np.int32)
    for p in range(first, last):
        for row in range(q.shape[0]):
            acc[:] = ZERO
            for g in range(num_blocks):
                isum[:] = 0
                msum[:] = 0
                for k in range(g * size, g * size + size):
                    a = np.int32(q[row, k])
                    for lane in range(LANES):
                        isum[lane] += a * np.int32(panels[p, k, lane])
                for j in range(g * groups, g * groups + groups):
                    a = np.int32(asum[row, j])
                    for lane in range(LANES):
                        msum[lane] += a * np.int32(mins[p, j, lane])
                scale = s[row, g]
                for lane in range(LANES):
                    acc[lane] = flush(fma(np.float32(isum[lane]), flush(scale * d[p, g, lane]), acc[lane]))
                    acc[lane] = flush(fma(np.float32(msum[lane]), -flush(scale * dmin[p, g, lane]), acc[lane]))
            y[row, LANES * p : LANES * p + LANES] = acc
