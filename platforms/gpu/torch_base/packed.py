"""Small integers in bit planes on a device: a tensor of codes takes the bits that its format has, and unpacks in few torch ops.

A code of b bits is cut into planes of 4, 2 and 1 bits, lowest first (5 = 4 + 1, 6 = 4 + 2, 3 = 2 + 1). A plane of p bits cuts the
last axis into 8 / p equal parts and holds an element of each part in a byte, the first part's in the lowest bits, so that a part
unpacks into neighbours. Codes of 8 bits are kept as they are. Unpacking moves bytes, not floats, because it takes the time of its
traffic.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.platforms.gpu.torch_base.runtime import Tensor, torch

_PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2)}


@dataclass(frozen=True, eq=False)
class Packed:
    """Integers [a, b, n]; plane i is [a, b, n * bits_i / 8] bytes. `offset` is what was added to make them non-negative."""

    planes: tuple[tuple[int, Tensor], ...]
    offset: int = 0

    def unpack(self, first: slice, second: slice) -> Tensor:
        """int8 or uint8 [first, second, n]: a part of the first two axes. A tensor of its own, but for 8 bits."""
        whole: Tensor = None
        low_bits = 0
        for bits, plane in self.planes:
            fields = _spread(plane[first, second], bits)
            whole = fields if whole is None else whole.bitwise_or_(fields.bitwise_left_shift_(low_bits))
            low_bits += bits
        if low_bits == 8:
            return whole
        values = whole.view(torch.int8)
        return values.sub_(self.offset) if self.offset else values

    @property
    def num_bytes(self) -> int:
        return sum(int(plane.numel()) for _, plane in self.planes)


def pack(codes: Tensor, bits: int, offset: int = 0) -> Packed:
    """`codes` [a, b, n] of int8 or uint8; codes + offset lie in 0 .. 2^bits - 1, and n is a multiple of 8 (8 bits: any n, no
    offset)."""
    if bits == 8:
        return Packed(((8, codes.contiguous()),))
    raised = (codes.to(torch.int16) + offset).to(torch.uint8)
    planes = []
    shift = 0
    for width in _PLANES[bits]:
        planes.append((width, _squeeze((raised >> shift) & ((1 << width) - 1), width)))
        shift += width
    return Packed(tuple(planes), offset)


def _spread(plane: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return plane
    parts, mask = 8 // bits, (1 << bits) - 1
    out = plane.new_empty((*plane.shape[:-1], parts, plane.shape[-1]))
    for i in range(parts):
        part = torch.bitwise_right_shift(plane, bits * i, out=out[..., i, :])
        if i + 1 < parts:
            part.bitwise_and_(mask)
    return out.flatten(-2)


def _squeeze(fields: Tensor, bits: int) -> Tensor:
    parts = fields.unflatten(-1, (8 // bits, -1))
    out = parts[..., 0, :].clone()
    for i in range(1, 8 // bits):
        out |= parts[..., i, :] << (bits * i)
    return out
