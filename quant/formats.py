"""The one table of weight formats: what a tensor's bytes mean, and the arithmetic that a product with it uses.

A format is a *block* layout: `block_size` consecutive elements of a row (the last axis) take `block_bytes` bytes; in
a block every `group` elements share one scale. Plain number types are blocks of one element. The codes q of a format
are the integers that its `unpack` and `codes` functions (one file per format beside this one) take out of a block.
Where `scale` is "apart", a block holds codes only: scales, and zero points if any, are tensors of their own, one entry
per output and group of inputs; the last group of a row may be short, and `group` 0 is the whole row.

Invariants: names are unique and lower case; `gguf_type` and `safetensors_dtype` are unique where given; a row length
must be a multiple of `block_size` and at most `max_inputs` (0: any). A row with `is_supported = False` is known by size
only, so that a header holding it can be read and checked; asking for its values is a `ModelError`.

`formula` states value (w) and product. In the products q_a are the int8 activations of the group, s_a their scale
(rounded float32), isum an exact int32 sum; `acc` runs over groups (or 256-blocks) in ascending order; each float
operation is rounded once; "fma" is one rounding. s is a scale kept apart, widened exactly; z its group's zero point.

Source: the GGUF specification and block structures of ggml (github.com/ggml-org/ggml, docs/gguf.md), the safetensors
README, and for scales apart the int-quantized and pack-quantized layouts of compressed-tensors
(github.com/vllm-project/compressed-tensors). Sizes are in bytes and elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from octavo.engine.errors import ModelError

ScaleKind = Literal["none", "f16", "f16*u4", "f16*u6", "f16*i6", "f16*i8", "f32", "e8m0", "apart", "other"]
CodeKind = Literal["int", "e4m3", "e2m1"]
ZeroKind = Literal["none", "int", "int apart", "f16 min", "f16*u4 min", "f16*u6 min", "other"]


@dataclass(frozen=True)
class Format:
    """One row of the table; see the module docstring for the meaning of a block and of `formula`."""

    name: str
    bits: int  # bits per code, scales not counted
    block_size: int  # elements
    block_bytes: int
    group: int = 1  # elements sharing one scale
    scale: ScaleKind = "none"
    zero: ZeroKind = "none"
    zero_point: int = 0  # taken off every code, in int32; where zero points are kept apart, what stands for none
    gguf_type: int | None = None
    safetensors_dtype: str | None = None
    formula: str = "w = x"
    is_supported: bool = True
    max_inputs: int = 0  # of a row, so that its integer sums fit int32
    code: CodeKind = "int"  # what a code stands for: itself, or a small float (quant/fp8.py, quant/mx.py)
    is_gpu_only: bool = False  # no CPU has kernels for it

    @property
    def is_quantized(self) -> bool:
        """True when elements are codes with scales, False for plain number types."""
        return self.scale != "none"

    @property
    def is_packed_everywhere(self) -> bool:
        """Whether weights can be rounded to it on every platform."""
        return self.is_quantized and self.is_supported and not self.is_gpu_only

    @property
    def has_scales_apart(self) -> bool:
        """True when scales (and zero points) are tensors beside the codes."""
        return self.scale == "apart"

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per element, scales included (apart: as 16-bit numbers, of mx formats as the 8-bit ones that they
        are; one scale a row counts nothing)."""
        scale_bits = 8 if self.name.startswith("mx") else 16
        apart = scale_bits / self.group if self.has_scales_apart and self.group else 0.0
        return 8 * self.block_bytes / self.block_size + apart

    def num_groups(self, num_inputs: int) -> int:
        """Scales of one row."""
        return -(-num_inputs // self.group) if self.group else 1

    def num_bytes(self, shape: Sequence[int]) -> int:
        """Bytes of a tensor of `shape` (numpy order, last axis contiguous). ModelError if a row is not whole blocks."""
        row = shape[-1] if shape else 1
        if row % self.block_size:
            raise ModelError(
                f"format {self.name} holds rows in blocks of {self.block_size} elements; "
                f"shape {tuple(shape)} has rows of {row}"
            )
        if self.max_inputs and row > self.max_inputs:
            raise ModelError(
                f"format {self.name} holds rows of at most {self.max_inputs} elements, so that sums fit 32 bits; "
                f"shape {tuple(shape)} has rows of {row}"
            )
        return prod(shape) // self.block_size * self.block_bytes


_WASYM = "w = (d sc) q - (dmin mn)"
_DOT = "isum = sum q_a q"
_SYM = f"{_DOT}; acc = fma(float(isum), s_a * d, acc)"
_ASYM = f"{_DOT}; asum = sum q_a; acc = fma(float(isum), s_a * d, acc); acc = fma(float(asum), s_a * m, acc)"
_KSYM = "per 256: isum = sum over groups of sc * (sum q_a q); acc = fma(float(isum), s_a * d, acc)"
_KASYM = (
    "per 256: isum = sum over groups of sc * (sum q_a q); msum = sum over groups of mn * (sum q_a); "
    "acc = fma(float(isum), s_a * d, acc); acc = fma(float(-msum), s_a * dmin, acc)"
)

_FLOAT = "p = dot32(q_a, q), q_a the e4m3 codes of the inputs"
_ROW = "isum = sum over the row of q_a q; y = float(isum) * (s_a * s), no fma"
_MX = f"per 32: {_FLOAT}; acc = fma(p * 2^(e / 2) * s_a, 2^(e - e / 2), acc)"
_ZEROS = "z = 8 where no zero points are kept; isum = sum q_a (q - z); acc = fma(float(isum), s_a * s, acc)"


def _int4(group: int) -> Format:
    formula = f"w = s * (q - z), q in 0..15; per {group}: {_ZEROS}"
    return Format(f"i4g{group}", 4, 8, 4, group, "apart", "int apart", 8, formula=formula)


def _unsupported(name: str, gguf_type: int, bits: int, block_size: int, block_bytes: int) -> Format:
    return Format(
        name, bits, block_size, block_bytes, block_size, "other", "other", gguf_type=gguf_type, is_supported=False
    )


FORMATS: tuple[Format, ...] = (
    Format("f32", 32, 1, 4, gguf_type=0, safetensors_dtype="F32"),
    Format("f16", 16, 1, 2, gguf_type=1, safetensors_dtype="F16"),
    Format("bf16", 16, 1, 2, gguf_type=30, safetensors_dtype="BF16"),
    Format("q4_0", 4, 32, 18, 32, "f16", "int", 8, gguf_type=2, formula=f"w = d * (q - 8); q - 8 for q: {_SYM}"),
    Format("q4_1", 4, 32, 20, 32, "f16", "f16 min", gguf_type=3, formula=f"w = d * q + m; {_ASYM}"),
    Format("q5_0", 5, 32, 22, 32, "f16", "int", 16, gguf_type=6, formula=f"w = d * (q - 16); q - 16 for q: {_SYM}"),
    Format("q5_1", 5, 32, 24, 32, "f16", "f16 min", gguf_type=7, formula=f"w = d * q + m; {_ASYM}"),
    Format("q8_0", 8, 32, 34, 32, "f16", gguf_type=8, formula=f"w = d * q; {_SYM}"),
    Format("q2_k", 2, 256, 84, 16, "f16*u4", "f16*u4 min", gguf_type=10, formula=f"{_WASYM}; {_KASYM}"),
    Format("q3_k", 3, 256, 110, 16, "f16*i6", gguf_type=11, formula=f"w = (d sc) q, q in -4..3; {_KSYM}"),
    Format("q4_k", 4, 256, 144, 32, "f16*u6", "f16*u6 min", gguf_type=12, formula=f"{_WASYM}; {_KASYM}"),
    Format("q5_k", 5, 256, 176, 32, "f16*u6", "f16*u6 min", gguf_type=13, formula=f"{_WASYM}; {_KASYM}"),
    Format("q6_k", 6, 256, 210, 16, "f16*i8", gguf_type=14, formula=f"w = (d sc) q, q in -32..31; {_KSYM}"),
    Format("w8a8", 8, 1, 1, 0, "apart", formula=f"w = s * q; {_ROW}", max_inputs=1 << 17),
    *(_int4(group) for group in (32, 64, 128)),
    Format(
        "f8row",
        8,
        1,
        1,
        0,
        "apart",
        code="e4m3",
        is_gpu_only=True,
        formula=f"w = s * q; over the row: {_FLOAT}; y = p * (s_a * s), no fma",
    ),
    Format(
        "f8g128",
        8,
        1,
        1,
        128,
        "apart",
        code="e4m3",
        is_gpu_only=True,
        formula=f"w = s * q; per 128: {_FLOAT}; acc = fma(p, s_a * s, acc)",
    ),
    Format("mxfp8", 8, 1, 1, 32, "apart", code="e4m3", is_gpu_only=True, formula=f"w = 2^e q; {_MX}"),
    Format("mxfp4", 4, 32, 17, 32, "e8m0", gguf_type=39, code="e2m1", is_gpu_only=True, formula=f"w = 2^e q; {_MX}"),
    Format("f64", 64, 1, 8, gguf_type=28, safetensors_dtype="F64"),
    Format("i8", 8, 1, 1, gguf_type=24, safetensors_dtype="I8"),
    Format("i16", 16, 1, 2, gguf_type=25, safetensors_dtype="I16"),
    Format("i32", 32, 1, 4, gguf_type=26, safetensors_dtype="I32"),
    Format("i64", 64, 1, 8, gguf_type=27, safetensors_dtype="I64"),
    Format("u8", 8, 1, 1, safetensors_dtype="U8"),
    Format("u16", 16, 1, 2, safetensors_dtype="U16"),
    Format("u32", 32, 1, 4, safetensors_dtype="U32"),
    Format("u64", 64, 1, 8, safetensors_dtype="U64"),
    Format("bool", 8, 1, 1, safetensors_dtype="BOOL"),
    Format("f8_e4m3", 8, 1, 1, safetensors_dtype="F8_E4M3"),
    Format("f8_e5m2", 8, 1, 1, safetensors_dtype="F8_E5M2"),
    Format("f8_e8m0", 8, 1, 1, safetensors_dtype="F8_E8M0"),
    _unsupported("iq2_xxs", 16, 2, 256, 66),
    _unsupported("iq2_xs", 17, 2, 256, 74),
    _unsupported("iq3_xxs", 18, 3, 256, 98),
    _unsupported("iq1_s", 19, 1, 256, 50),
    _unsupported("iq4_nl", 20, 4, 32, 18),
    _unsupported("iq3_s", 21, 3, 256, 110),
    _unsupported("iq2_s", 22, 2, 256, 82),
    _unsupported("iq4_xs", 23, 4, 256, 136),
    _unsupported("iq1_m", 29, 1, 256, 56),
    _unsupported("tq1_0", 34, 2, 256, 54),
    _unsupported("tq2_0", 35, 2, 256, 66),
    _unsupported("nvfp4", 40, 4, 64, 36),
)

BY_NAME: dict[str, Format] = {f.name: f for f in FORMATS}
BY_GGUF_TYPE: dict[int, Format] = {f.gguf_type: f for f in FORMATS if f.gguf_type is not None}
BY_SAFETENSORS_DTYPE: dict[str, Format] = {f.safetensors_dtype: f for f in FORMATS if f.safetensors_dtype is not None}


def format_named(name: str) -> Format:
    """The table row called `name`; ModelError listing the known names otherwise."""
    found = BY_NAME.get(name)
    if found is None:
        raise ModelError(f"unknown weight format {name!r}; known: {', '.join(BY_NAME)}")
    return found
