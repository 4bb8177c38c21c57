"""linear_bf16 for many rows: tiles of inputs and weights go through shared memory, loads of the next ones under way."""

import triton
import triton.language as tl

from octavo.platforms.gpu.triton.functions import activate
from octavo.platforms.gpu.triton.step import num_rows


@triton.jit
def tile_at(base, ld, first_row, first_out, row, out):
    """Addresses of a tile, from its first element on: 32 bits are enough within one."""
    return base + (first_row * ld + first_out) + (row * ld.to(tl.int32))[:, None] + out[None, :]


@triton.jit
def linear_bf16__triton(
    step, x, ldx, scales, sums, lds, weight, n, k, bias, gate, ldgate, residual, ldres, y, ldy, scale, activation, flags,
    rows_kind, rows_fixed, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """LinearArgs. A program computes BLOCK_M rows of BLOCK_N outputs; weights lie in panels (gpu/packed.h, `dense`)."""
    first_row = tl.program_id(0).to(tl.int64) * BLOCK_M
    first_out = tl.program_id(1).to(tl.int64) * BLOCK_N
    rows = tl.minimum(num_rows(step, rows_kind, rows_fixed) - first_row, BLOCK_M).to(tl.int32)
    if rows <= 0:
        return
    outs = tl.minimum(n - first_out, BLOCK_N).to(tl.int32)
    padded = ((k + 31) // 32 * 32).to(tl.int32)
    row, out, at = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    # What is beyond the last row or panel computes one of those again.
    x += first_row * ldx
    weight += first_out * padded
    panel = tl.minimum(out // 16, (outs - 1) // 16)
    inputs = x + (tl.minimum(row, rows - 1) * ldx.to(tl.int32))[:, None] + at[None, :]
    weights = (
        weight
        + (panel * (padded * 16) + out % 16 * 8)[None, :]
        + (at // 32 * 512 + at % 32 // 8 * 128 + at % 8)[:, None]
    )
    inputs = tl.max_contiguous(tl.multiple_of(inputs, (1, 16)), (1, 8))
    weights = tl.max_contiguous(tl.multiple_of(weights, (16, 1)), (8, 1))
    sum = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, padded, BLOCK_K):
        is_in = at < padded - first
        a = tl.load(inputs, mask=is_in[None, :], other=0.0)
        b = tl.load(weights, mask=is_in[:, None], other=0.0)
        sum = tl.dot(a, b, sum)
        inputs += BLOCK_K
        weights += BLOCK_K * 16
    is_in = (row < rows)[:, None] & (out < outs)[None, :]
    v = sum * scale
    if bias.to(tl.int64, bitcast=True) != 0:
        v += tl.load(bias + first_out + out, mask=out < outs, other=0.0)[None, :]
    v = activate(v, activation)
    if gate.to(tl.int64, bitcast=True) != 0:
        v *= tl.load(tile_at(gate, ldgate, first_row, first_out, row, out), mask=is_in, other=0.0)
    if residual.to(tl.int64, bitcast=True) != 0:
        v += tl.load(tile_at(residual, ldres, first_row, first_out, row, out), mask=is_in, other=0.0)
    tl.store(tile_at(y, ldy, first_row, first_out, row, out), v, mask=is_in)
