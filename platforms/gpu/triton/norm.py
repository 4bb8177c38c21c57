"""rms_norm and the input form of the product behind it: all threads add up squares at once, not the contract's sixteen lanes."""

import triton
import triton.language as tl

from octavo.platforms.gpu.triton.step import num_rows


@triton.jit
def rms_norm_prepare_bf16__triton(
    step, x, ldx, weight, bias, y, ldy, width, q, ldq, scales, sums, lds, eps, rows_kind, rows_fixed, BLOCK: tl.constexpr,
):  # fmt: skip
    """NormPrepareArgs. A program takes a row at a time, BLOCK values of it at a time; the second pass reads what caches hold."""
    rows = num_rows(step, rows_kind, rows_fixed)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.arange(0, BLOCK)
        values = x + row * ldx
        squares = tl.zeros((BLOCK,), tl.float32)
        for first in range(0, width, BLOCK):
            v = tl.load(values + first + at, mask=at < width - first, other=0.0)
            squares += v * v
        r = 1.0 / tl.sqrt_rn(tl.sum(squares) / width.to(tl.float32) + eps)
        padded = (width + 31) // 32 * 32
        for first in range(0, width, BLOCK):
            is_in = at < width - first
            v = tl.load(values + first + at, mask=is_in, other=0.0) * r
            if weight.to(tl.int64, bitcast=True) != 0:
                v *= tl.load(weight + first + at, mask=is_in, other=0.0)
            if y.to(tl.int64, bitcast=True) != 0:
                tl.store(y + row * ldy + first + at, v, mask=is_in)
            tl.store(q + row * ldq + first + at, v.to(tl.bfloat16), mask=at < padded - first)
