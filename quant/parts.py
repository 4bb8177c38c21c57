"""A quantized tensor taken apart into its exact stored fields, as packers and integer products need them.

Invariants: nothing is rounded or folded; `d`, `m` and `dmin` are the stored float16 values widened to float32; codes
and sub-scales are the stored integers. `dequantize` puts the fields together again and gives the bits of `unpack`.

Shapes, for a tensor of shape [..., K] (K = elements of a row, G = `format.group`, B = `format.block_size`):

    codes       uint8 or int8  [..., K]    zero point not taken off (see `format.zero_point`)
    d           float32        [..., K/B]  block scale; of formats with scales apart [..., groups of a row]
    m           float32        [..., K/B]  block minimum, added (q4_1, q5_1)
    dmin        float32        [..., K/B]  scale of `sub_mins`, subtracted (q2_k, q4_k, q5_k)
    sub_scales  uint8 or int8  [..., K/G]  integer scale of each group inside a block (k-quants)
    sub_mins    uint8          [..., K/G]
    zeros       uint8          [..., groups of a row]  zero points kept apart; None: `format.zero_point`

`Stored` is a tensor as a packer leaves it: the codes' bytes, and what the format keeps apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from octavo.quant.formats import Format
from octavo.quant.fp8 import E2M1, E4M3FN

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.int8]


@dataclass(frozen=True)
class QuantizedParts:
    """The fields of one tensor; see the module docstring for shapes. Absent fields are None."""

    format: Format
    codes: Codes
    d: Floats
    m: Floats | None = None
    dmin: Floats | None = None
    sub_scales: Codes | None = None
    sub_mins: Bytes | None = None
    zeros: Bytes | None = None

    def dequantize(self) -> Floats:
        """float32 of the codes' shape, in the operation order of `unpack` (each product and sum rounded once)."""
        if self.format.has_scales_apart:
            return self._dequantize_apart()
        shape = self.codes.shape
        if self.format.code != "int":
            return self._dequantize_apart()
        block, group = self.format.block_size, self.format.group
        q = self.codes.astype(np.float32).reshape(-1, block // group, group)
        if self.format.zero_point:
            q -= np.float32(self.format.zero_point)
        with np.errstate(invalid="ignore", over="ignore"):
            q *= _scaled(self.d, self.sub_scales, len(q))
            if self.m is not None:
                q += self.m.reshape(-1, 1, 1)
            if self.dmin is not None:
                q -= _scaled(self.dmin, self.sub_mins, len(q))
        return q.reshape(shape)

    def numbers(self) -> Floats:
        """What codes stand for, [..., K], scales left out."""
        if self.format.code == "int":
            return self.integers().astype(np.float32)
        numbers: Floats = (E4M3FN.table if self.format.code == "e4m3" else E2M1)[self.codes]
        return numbers

    def integers(self) -> npt.NDArray[np.int16]:
        """Codes with their zero points off, [..., K]; formats with scales apart only."""
        zeros = self.format.zero_point if self.zeros is None else self._spread(self.zeros).astype(np.int16)
        integers: npt.NDArray[np.int16] = self.codes.astype(np.int16) - zeros
        return integers

    def _dequantize_apart(self) -> Floats:
        with np.errstate(invalid="ignore", over="ignore"):
            values: Floats = self.numbers() * self._spread(self.d)
        return values

    def _spread(self, per_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Every element's entry of [..., groups]; one entry for the whole row is left to broadcasting."""
        group = self.format.group
        return np.repeat(per_group, group, axis=-1)[..., : self.codes.shape[-1]] if group else per_group


@dataclass(frozen=True)
class Stored:
    """Codes uint8 [..., bytes of a row]; scales float32 and zeros uint8 [..., groups of a row], None where not apart."""

    codes: Bytes
    scales: Floats | None = None
    zeros: Bytes | None = None


def _scaled(block_scale: Floats, integers: npt.NDArray[Any] | None, num_blocks: int) -> Floats:
    """float32 [num_blocks, groups or 1, 1]: the block scale times its integers."""
    scale = block_scale.reshape(num_blocks, 1, 1)
    if integers is None:
        return scale
    return scale * integers.reshape(num_blocks, -1, 1).astype(np.float32)
