"""Products with weights, by format: float matrices, and integer sums that are exact, scaled group by group.

Integer sums run as float32 matrix products of small integers: every partial sum stays below 2^24, so that float32 holds it
exactly in whatever order it is made. Where a block's sum can grow beyond that (K-quants, whole rows of w8a8) it is cut into
parts that cannot, and the parts are added in int32. Groups are then scaled, s_a * d rounded first as the contract says, and
added in float32; the order of that sum is torch's. Outputs and groups are walked in runs that keep work arrays small.
"""

from __future__ import annotations

from functools import cache

from octavo.platforms.gpu.torch_base.functions import quantize, to_bf16
from octavo.platforms.gpu.torch_base.runtime import WORK_ELEMENTS, Device, Tensor, torch
from octavo.platforms.gpu.torch_base.weights import Integers, TorchLinear

#: inputs per exact float32 sum: depth * 127 * (largest |weight|, sub-scale included) < 2^24
DEPTHS = {"q2_k": 256, "q3_k": 256, "q4_k": 128, "q5_k": 64, "q6_k": 32, "w8a8": 1024}
_ALL = slice(None)


def product(x: Tensor, w: TorchLinear) -> Tensor:
    """[rows, num_in] -> [rows, num_out] float32."""
    if x.shape[0] == 0:
        return x.new_zeros((0, w.num_out))
    if w.values is None:
        parts = [_integer_product(x, run) for run in w.integers]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    if w.format == "bf16" and adds_in_float32(x.device):
        return torch.mm(x.to(torch.bfloat16), w.values.t(), out_dtype=torch.float32)
    return _float_product(to_bf16(x) if w.format == "bf16" else x, w.values)


def _float_product(x: Tensor, values: Tensor) -> Tensor:
    """Weights widened in runs of outputs."""
    if values.dtype == torch.float32:
        return torch.mm(x, values.t())
    num_out, num_in = values.shape
    out = x.new_empty((x.shape[0], num_out))
    step = max(1, WORK_ELEMENTS // max(num_in, 1))
    for start in range(0, num_out, step):
        some = slice(start, min(start + step, num_out))
        torch.mm(x, values[some].float().t(), out=out[:, some])
    return out


@cache
def adds_in_float32(device: Device) -> bool:
    """Whether this torch multiplies bfloat16 matrices into float32 there, rounding nothing on the way."""
    try:
        ones = torch.ones((16, 512), dtype=torch.bfloat16, device=device)
        steps = torch.full((16, 512), 1 + 2.0**-7, dtype=torch.bfloat16, device=device)
        found = torch.mm(ones, steps.t(), out_dtype=torch.float32)
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return bool((found == 512 * (1 + 2.0**-7)).all())


def _integer_product(x: Tensor, w: Integers) -> Tensor:
    num_groups, num_out = w.d.shape
    rows = x.shape[0]
    block = _block(w)
    short = num_groups * block - x.shape[1]
    padded = torch.nn.functional.pad(x, (0, short)) if short else x
    q, s = quantize(padded.unflatten(1, (num_groups, block)))
    q, s = q.transpose(0, 1).contiguous(), s.t().contiguous()  # [G, rows, B], [G, rows]
    if w.format.has_scales_apart and not w.format.group:
        return _row_product(q[0], s[0], w)
    sums = q.sum(-1) * s if w.m is not None else None  # int8 sums are exact
    out = x.new_empty((rows, num_out))
    wide = min(num_out, max(1, WORK_ELEMENTS // max(block, rows)))
    deep = max(1, WORK_ELEMENTS // (wide * max(block, rows)))
    for start in range(0, num_out, wide):
        some = slice(start, min(start + wide, num_out))
        acc: Tensor = None
        for first in range(0, num_groups, deep):
            part = _groups(q, s, w, slice(first, min(first + deep, num_groups)), some)
            acc = part if acc is None else acc.add_(part)
        if sums is not None:
            assert w.m is not None
            acc.addmm_(sums.t(), w.m[:, some].float())
        out[:, some] = acc
    return out


def _block(w: Integers) -> int:
    """Inputs that share a scale."""
    bits, plane = w.codes.planes[0]
    return int(plane.shape[-1]) * 8 // bits


def _groups(q: Tensor, s: Tensor, w: Integers, groups: slice, outs: slice) -> Tensor:
    """The scaled sum of some groups, [rows, outs]."""
    codes = w.codes.unpack(groups, outs)
    if w.zeros is not None:
        codes.sub_(w.zeros[groups, outs].unsqueeze(-1))
    elif w.format.zero_point:
        codes.sub_(w.format.zero_point)
    if w.sub_scales is not None:
        scales = w.sub_scales.unpack(groups, outs).to(torch.int16)  # products of them and codes fit 16 bits
        codes = (codes.unflatten(-1, (scales.shape[-1], -1)) * scales.unsqueeze(-1)).flatten(-2)
    isum = _exact_sum(q[groups], codes.float(), DEPTHS.get(w.format.name, codes.shape[-1]))
    some = s[groups].unsqueeze(-1)
    out = isum.mul_(some * w.d[groups, outs].float().unsqueeze(1)).sum(0)
    if w.dmin is not None and w.sub_mins is not None:
        minima = w.sub_mins.unpack(groups, outs).float()
        sums = q[groups].unflatten(-1, (minima.shape[-1], -1)).sum(-1)
        msum = torch.bmm(sums, minima.transpose(1, 2))
        out -= msum.mul_(some * w.dmin[groups, outs].float().unsqueeze(1)).sum(0)
    return out


def _exact_sum(q: Tensor, codes: Tensor, depth: int) -> Tensor:
    """[G, rows, B] x [G, N, B] -> [G, rows, N]: integer sums, rounded to float32 once."""
    width = q.shape[-1]
    if depth >= width:
        return torch.bmm(q, codes.transpose(1, 2))
    total: Tensor = None
    for start in range(0, width, depth):
        some = slice(start, min(start + depth, width))
        part = torch.bmm(q[..., some], codes[..., some].transpose(1, 2)).to(torch.int32)
        total = part if total is None else total.add_(part)
    return total.float()


def _row_product(q: Tensor, s: Tensor, w: Integers) -> Tensor:
    """w8a8: one sum over the row, float(isum) * (s_a * s)."""
    num_out, num_in = w.d.shape[1], q.shape[1]
    scale = s.unsqueeze(1) * w.d.float()
    if multiplies_int8(q.device):
        return _int8_product(q.to(torch.int8), w.codes.planes[0][1][0]).float().mul_(scale)
    out = q.new_empty((q.shape[0], num_out))
    step = max(1, WORK_ELEMENTS // max(num_in, 1))
    for start in range(0, num_out, step):
        some = slice(start, min(start + step, num_out))
        codes = w.codes.unpack(_ALL, some).float()
        out[:, some] = _exact_sum(q.unsqueeze(0), codes, DEPTHS["w8a8"])[0]
    return out.mul_(scale)


def _int8_product(q: Tensor, codes: Tensor) -> Tensor:
    """int32 [rows, N] by torch._int_mm, which asks for more than 16 rows and multiples of 8 on GPUs."""
    rows, num_out = q.shape[0], codes.shape[0]
    more = (max(24, rows + -rows % 8) - rows, -q.shape[1] % 8, -num_out % 8)
    if more != (0, 0, 0):
        q = torch.nn.functional.pad(q, (0, more[1], 0, more[0]))
        codes = torch.nn.functional.pad(codes, (0, more[1], 0, more[2]))
    return torch._int_mm(q, codes.t())[:rows, :num_out]


@cache
def multiplies_int8(device: Device) -> bool:
    """Whether torch._int_mm is there and exact for the largest codes: some CPUs' int8 products saturate on the way."""
    try:
        q = torch.full((32, 1024), 127, dtype=torch.int8, device=device)
        for code in (127, -128):
            codes = torch.full((32, 1024), code, dtype=torch.int8, device=device)
            if not bool((torch._int_mm(q, codes.t()) == 127 * code * 1024).all()):
                return False
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return True
