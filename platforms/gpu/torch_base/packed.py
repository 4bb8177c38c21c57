"""Small integers in bit planes on a device: a tensor of codes takes the bits that its format has, and unpacks in few torch ops.

A code of b bits is cut into planes of 8, 4, 2 and 1 bits, lowest first (5 = 4 + 1, 6 = 4 + 2, 3 = 2 + 1); a plane of p bits holds
8 / p neighbours of the last axis in a byte, the first in the lowest bits. Signed codes of 8 bits are kept as int8.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.platforms.gpu.torch_base.runtime import Tensor, torch

_PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}


@dataclass(frozen=True, eq=False)
class Packed:
    """Integers [a, b, n]; plane i is [a, b, n * bits_i / 8] bytes. `offset` is what was added to make them non-negative."""

    planes: tuple[tuple[int, Tensor], ...]
    offset: int = 0

    def unpack(self, first: slice, second: slice) -> Tensor:
        """float32 [first, second, n]: a part of the first two axes."""
        whole: Tensor = None
        low_bits = 0
        for bits, plane in self.planes:
            fields = _spread(plane[first, second], bits)
            whole = fields if whole is None else whole | (fields << low_bits)
            low_bits += bits
        values = whole.float()
        return values.sub_(self.offset) if self.offset else values

    @property
    def num_bytes(self) -> int:
        return sum(int(plane.numel()) for _, plane in self.planes)


def pack(codes: Tensor, bits: int, offset: int = 0) -> Packed:
    """`codes` [a, b, n] of any integer type; codes + offset lie in 0 .. 2^bits - 1, and n is a multiple of 8 (8 bits: any)."""
    if bits == 8 and offset == 128:
        return Packed(((8, codes.to(torch.int8).contiguous()),))
    raised = (codes.to(torch.int16) + offset).to(torch.uint8)
    planes = []
    shift = 0
    for width in _PLANES[bits]:
        fields = (raised >> shift) & ((1 << width) - 1)
        planes.append((width, _squeeze(fields, width)))
        shift += width
    return Packed(tuple(planes), offset)


def _spread(plane: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return plane
    per_byte = 8 // bits
    mask = (1 << bits) - 1
    return torch.stack([(plane >> (bits * i)) & mask for i in range(per_byte)], dim=-1).flatten(-2)


def _squeeze(fields: Tensor, bits: int) -> Tensor:
    if bits == 8:
        return fields.contiguous()
    per_byte = 8 // bits
    apart = fields.unflatten(-1, (-1, per_byte))
    out = apart[..., 0].clone()
    for i in range(1, per_byte):
        out |= apart[..., i] << (bits * i)
    return out
