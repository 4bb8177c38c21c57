"""From a format's name to its functions and numpy type; format files are imported on first use.

Invariants: unknown and unsupported formats are `ModelError`s naming what can be read. Shapes are in numpy order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from octavo.engine.errors import ModelError
from octavo.quant.blocks import as_blocks
from octavo.quant.formats import BY_GGUF_TYPE, BY_NAME, BY_SAFETENSORS_DTYPE, FORMATS, Format, format_named
from octavo.quant.fp8 import E4M3FN, E5M2, E8M0
from octavo.quant.parts import Bytes, Floats, QuantizedParts, Stored

_NUMPY_TYPES = {
    "f32": "<f4",
    "f16": "<f2",
    "f64": "<f8",
    "i8": "i1",
    "i16": "<i2",
    "i32": "<i4",
    "i64": "<i8",
    "u8": "u1",
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "bool": "?",
}
_TABLES = {"f8_e4m3": E4M3FN.table, "f8_e5m2": E5M2.table, "f8_e8m0": E8M0}  # numbers without a numpy type
_FLOAT_FORMATS = frozenset({"f32", "f16", "bf16"})


@cache
def _module(name: str) -> ModuleType:
    form = format_named(name)
    if not form.is_supported or not (form.is_quantized or name in _FLOAT_FORMATS):
        readable = ", ".join(f.name for f in FORMATS if f.is_supported and (f.is_quantized or f.name in _FLOAT_FORMATS))
        raise ModelError(f"weights in format {name} cannot be computed with; these can: {readable}")
    return import_module(f"octavo.quant.{name}")


def unpack(
    name: str,
    raw: npt.NDArray[Any],
    shape: Sequence[int],
    scales: Floats | None = None,
    zeros: Bytes | None = None,
) -> Floats:
    """float32 values of a stored tensor of any supported format, integers and booleans included."""
    if format_named(name).has_scales_apart:
        return codes(name, raw, shape, scales, zeros).dequantize()
    if name in _FLOAT_FORMATS or name not in (*_NUMPY_TYPES, *_TABLES):
        values: Floats = _module(name).unpack(raw, shape)
        return values
    if name in _TABLES:
        return _TABLES[name][as_blocks(raw, shape, format_named(name)).reshape(shape)]
    return as_array(name, raw, shape).astype(np.float32)


def codes(
    name: str,
    raw: npt.NDArray[Any],
    shape: Sequence[int],
    scales: Floats | None = None,
    zeros: Bytes | None = None,
) -> QuantizedParts:
    """The exact stored fields of a quantized tensor. ModelError for plain number types, which have none.

    `scales` float32 and `zeros` uint8, both [..., groups of a row], belong to formats that keep them apart.
    """
    form = format_named(name)
    if not form.is_quantized:
        raise ModelError(f"format {name} has no codes: it stores numbers")
    module = _module(name)
    parts: QuantizedParts = (
        module.codes(raw, shape, scales, zeros) if form.has_scales_apart else module.codes(raw, shape)
    )
    return parts


def pack(name: str, values: npt.NDArray[Any]) -> Bytes:
    """Stored bytes of float values [..., K]: uint8 [..., bytes of a row], round to nearest.

    ModelError for formats that keep scales apart: `quantize` gives those.
    """
    if format_named(name).has_scales_apart:
        raise ModelError(f"format {name} keeps its scales apart: quantize gives codes and scales")
    packed: Bytes = _module(name).pack(values)
    return packed


def quantize(name: str, values: npt.NDArray[Any]) -> Stored:
    """Float values [..., K] in any format, with what it keeps apart; round to nearest."""
    if not format_named(name).has_scales_apart:
        return Stored(pack(name, values))
    stored: Stored = _module(name).quantize(values)
    return stored


def error_bound(name: str) -> tuple[float, float]:
    """(r, a): packing then unpacking changes an element by at most r * (largest magnitude in its block) + a."""
    bound: tuple[float, float] = _module(name).ERROR_BOUND
    return bound


def as_array(name: str, raw: npt.NDArray[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    """A plain number type as a numpy array of its own dtype, without a copy where alignment allows."""
    dtype = _NUMPY_TYPES.get(name)
    if dtype is None:
        raise ModelError(f"format {name} has no numpy type; these have: {', '.join(_NUMPY_TYPES)}")
    return np.ascontiguousarray(as_blocks(raw, shape, format_named(name))).view(dtype).reshape(shape)


def numpy_dtype(form: Format) -> np.dtype[Any] | None:
    """The numpy type of a plain number format; None for block formats and bfloat16."""
    dtype = _NUMPY_TYPES.get(form.name)
    return None if dtype is None else np.dtype(dtype)


def from_dtype_name(dtype: str) -> Format:
    """The format that a configuration's `dtype` or `torch_dtype` means: float32, torch.float16, BF16, q4_k ..."""
    name = dtype.removeprefix("torch.").lower()
    name = {"float32": "f32", "float": "f32", "float16": "f16", "half": "f16", "bfloat16": "bf16"}.get(name, name)
    if name not in BY_NAME:
        raise ModelError(f"unknown dtype {dtype!r}; float32, float16, bfloat16 and {', '.join(BY_NAME)} are known")
    return BY_NAME[name]


def from_gguf_type(kind: int) -> Format | None:
    """The format of a GGUF tensor type id, None if unknown."""
    return BY_GGUF_TYPE.get(kind)


def from_safetensors_dtype(dtype: str) -> Format | None:
    """The format of a safetensors dtype, None if unknown."""
    return BY_SAFETENSORS_DTYPE.get(dtype)
