"""Numbers of eight bits and fewer: OCP's E4M3 and E5M2, and the FNUZ dialects of the same names; all 256 codes of each.

    sign 1 bit | exponent | fraction      value = (-1)^s 2^(e - bias) (1 + f / 2^F); exponent 0: 2^(1 - bias) f / 2^F

    dialect    exponent  F  bias  largest  code 0x80   not finite
    e4m3fn     4         3  7     448      -0          7f, ff NaN
    e5m2       5         2  15    57344    -0          7c, fc infinities; 7d-7f, fd-ff NaN
    e4m3fnuz   4         3  8     240      NaN         80 NaN
    e5m2fnuz   5         2  16    57344    NaN         80 NaN

The same byte stands for half as much in the FNUZ dialect as in OCP's, so that a weight moves over with its scale doubled
(`fnuz_of`). csrc_common/vec/fp8.h is the twin in C++ for processors and GPUs.
Source: OCP 8-bit Floating Point Specification (OFP8) 1.0; for FNUZ, Noune et al. 2022 (arXiv:2206.02915), and AMD CDNA 3 ISA.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from octavo.engine.errors import ModelError

Codes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
#: what a magnitude above the largest becomes: that largest one, or infinity where there is one and else NaN
Overflow = Literal["saturate", "special"]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
E8M0 = np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan)).astype(np.float32)
for _table in (E2M1, E8M0):
    _table.setflags(write=False)


@dataclass(frozen=True)
class Fp8:
    """One dialect. `top`: the code of the largest finite value."""

    name: str
    fraction_bits: int
    bias: int
    top: int
    is_fnuz: bool = False

    @cached_property
    def table(self) -> Floats:
        """float32 [256]: the value of every code, exact."""
        codes = np.arange(256)
        exponent, fraction = codes >> self.fraction_bits & (0x7F >> self.fraction_bits), codes & self._fraction_mask
        whole = np.where(exponent == 0, 0, 1 << self.fraction_bits) + fraction
        values = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - self.bias - self.fraction_bits)
        if self.is_fnuz:
            values[0x80] = np.nan
        else:
            values[(codes & 0x7F) > self.top] = np.nan
            if self.infinity is not None:
                values[[self.infinity, self.infinity | 0x80]] = np.inf
        made: Floats = np.where(codes & 0x80, -values, values).astype(np.float32)
        made.setflags(write=False)
        return made

    @property
    def _fraction_mask(self) -> int:
        return (1 << self.fraction_bits) - 1

    @property
    def infinity(self) -> int | None:
        """The code of +infinity, where there is one."""
        return self.top + 1 if self.fraction_bits == 2 and not self.is_fnuz else None

    @property
    def nan(self) -> int:
        """The code that a NaN is stored as (its sign kept, but for FNUZ)."""
        return 0x80 if self.is_fnuz else 0x7F

    @property
    def largest(self) -> float:
        return float(self.table[self.top])

    def decode(self, codes: npt.NDArray[Any]) -> Floats:
        """float32 of the shape of `codes` uint8."""
        values: Floats = self.table[codes]
        return values

    def encode(self, values: npt.NDArray[Any], overflow: Overflow = "saturate") -> Codes:
        """uint8 codes nearest to float32 `values`, ties to the even code; NaN stays NaN. `overflow` says what becomes of
        magnitudes that round to more than the largest, infinities among them."""
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.int64)
        sign, magnitude = bits >> 24 & 0x80, bits & 0x7FFFFFFF
        exponent = np.maximum(magnitude >> 23, 1)
        whole = (magnitude & 0x7FFFFF) | np.where(magnitude >> 23, 0x800000, 0)
        lowest = 128 - self.bias  # float32's exponent field of the smallest normal number
        shift = 23 - self.fraction_bits + np.clip(lowest - exponent, 0, 25)
        rounded = (whole + (1 << shift - 1) - 1 + (whole >> shift & 1)) >> shift
        code = rounded + (np.maximum(exponent - lowest, 0) << self.fraction_bits)
        beyond = self.top if overflow == "saturate" else self.nan if self.infinity is None else self.infinity
        code = np.where(code > self.top, beyond, code)
        code = np.where(magnitude > 0x7F800000, self.nan, code)
        is_signed = ~((code == 0) | (code == self.nan)) if self.is_fnuz else True
        stored: Codes = np.where(is_signed, code | sign, code).astype(np.uint8)
        return stored


E4M3FN = Fp8("e4m3fn", 3, 7, 0x7E)
E5M2 = Fp8("e5m2", 2, 15, 0x7B)
E4M3FNUZ = Fp8("e4m3fnuz", 3, 8, 0x7F, is_fnuz=True)
E5M2FNUZ = Fp8("e5m2fnuz", 2, 16, 0x7F, is_fnuz=True)
DIALECTS = {dialect.name: dialect for dialect in (E4M3FN, E5M2, E4M3FNUZ, E5M2FNUZ)}


def fnuz_of(codes: Codes, dialect: Fp8) -> Codes:
    """Codes of OCP's `dialect` as the FNUZ dialect of half their value: scales have to be doubled. -0 becomes 0.

    ModelError if a code is not finite: FNUZ has other values there.
    """
    broken = int(np.count_nonzero((codes & 0x7F) > dialect.top))
    if broken:
        raise ModelError(f"{broken} of {codes.size} {dialect.name} codes are infinite or NaN; weights must be finite")
    moved: Codes = np.where(codes == 0x80, np.uint8(0), codes)
    return moved
