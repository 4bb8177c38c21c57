"""Weights of the portable platform: panels of 32 outputs, as its kernels walk them; the formats are the reference's.

Layouts (P = panels, K = inputs padded to whole blocks of 32): float formats [P, K, 32], float32 or bfloat16 bits; block formats
integer weights [P, K, 32] (int8, K-quants int16: code times sub-scale) with scales and minima [P, blocks, 32] float32 and
sub-minima [P, groups, 32] int16. Codes with scales apart make a block per group (the last padded with zeros), or one
block of the whole row. Outputs beyond the weight's are zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.reference.f32 import F32, bf16_bits, flush
from octavo.platforms.reference.products import BLOCK
from octavo.platforms.reference.weights import ReferenceLinear, ReferenceWeights
from octavo.platforms.stored import refuse_gpu_only
from octavo.platforms.types import RawTensor
from octavo.quant.parts import QuantizedParts

LANES = 32


@dataclass(frozen=True, eq=False)
class PortableLinear:
    """[num_out, num_in] in panels; `block` inputs share a scale (0: a float format)."""

    format: str
    num_out: int
    num_in: int
    panels: NDArray[Any]
    bias: F32 | None = None
    block: int = 0
    group: int = 0
    d: F32 | None = None
    m: F32 | None = None
    dmin: F32 | None = None
    mins: NDArray[np.int16] | None = None


class PortableWeights(ReferenceWeights):
    """Implements `octavo.platforms.ops.Weights`; embeddings and vectors are the reference's."""

    def linear(  # type: ignore[override]
        self,
        parts: list[RawTensor],
        bias: RawTensor | list[RawTensor] | None = None,
        *,
        transpose: bool = False,
        quantize: str = "",
    ) -> PortableLinear:
        refuse_gpu_only(parts[0].name, quantize or parts[0].format, "portable")
        return packed(super().linear(parts, bias, transpose=transpose, quantize=quantize))


def packed(weight: ReferenceLinear) -> PortableLinear:
    """The panels of a weight that the reference took apart."""
    common = (weight.format, weight.num_out, weight.num_in)
    if weight.parts is not None:
        return _integer_panels(common, weight.parts, weight.bias)
    assert weight.values is not None
    values = flush(np.pad(weight.values, ((0, 0), (0, -weight.num_in % BLOCK))))
    return PortableLinear(*common, _panels(bf16_bits(values) if weight.format == "bf16" else values), weight.bias)


def _apart_panels(common: tuple[str, int, int], parts: QuantizedParts, bias: F32 | None) -> PortableLinear:
    group = parts.format.group or parts.codes.shape[1]
    codes = np.pad(parts.integers().astype(np.int8), ((0, 0), (0, -parts.codes.shape[1] % group)))
    return PortableLinear(*common, _panels(codes), bias, group, group, _panels(flush(parts.d)))


def _integer_panels(common: tuple[str, int, int], parts: QuantizedParts, bias: F32 | None) -> PortableLinear:
    if parts.format.has_scales_apart:
        return _apart_panels(common, parts, bias)
    codes = parts.codes.astype(np.int16) - np.int16(parts.format.zero_point)
    if parts.sub_scales is None:
        codes = codes.astype(np.int8)
    else:
        codes *= np.repeat(parts.sub_scales.astype(np.int16), parts.format.group, axis=-1)
    return PortableLinear(
        *common,
        _panels(codes),
        bias,
        parts.format.block_size,
        parts.format.group,
        _panels(parts.d),
        None if parts.m is None else _panels(parts.m),
        None if parts.dmin is None else _panels(parts.dmin),
        None if parts.sub_mins is None else _panels(parts.sub_mins.astype(np.int16)),
    )


def _panels(rows: NDArray[Any]) -> NDArray[Any]:
    """[N, width] -> [ceil(N / 32), width, 32]."""
    padded = np.pad(rows, ((0, -len(rows) % LANES), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, LANES, rows.shape[1]).transpose(0, 2, 1))
