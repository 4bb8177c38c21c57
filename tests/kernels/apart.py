"""Weights with scales apart for the kernel tests: random tensors, their panels (twin of packed/panels.h), their flags.

`NAMES` are those of tests/cases/common.py: w8a8 or i4gN, then +z for zero points and the type of the scales.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tests.cases.common import APART_FORMATS
from tests.kernels.panels import BYTE_FLIP, NIBBLE_FLIP

from octavo.platforms.stored import parts_of, values_of
from octavo.platforms.types import RawTensor
from octavo.quant import load
from octavo.quant.formats import format_named

NAMES = APART_FORMATS
HAS_ZEROS = 4
SCALE_FLAGS = {"f32": 0, "bf16": 8, "f16": 16}
GROUP_FLAGS = {32: 0, 64: 32, 128: 64}
_USUAL = {"w8a8": "f32"}


@dataclass(frozen=True)
class Layout:
    """What a name means."""

    form: str
    scales: str
    has_zeros: bool

    @property
    def op(self) -> str:
        """The suffix of linear_* and pack_*."""
        return "w8a8" if self.form == "w8a8" else "i4"

    @property
    def group(self) -> int:
        """Inputs of a scale, 0: all."""
        return format_named(self.form).group

    @property
    def prepare(self) -> str:
        return f"prepare_i8g{self.group}" if self.group else "prepare_i8row"

    @property
    def flags(self) -> int:
        return SCALE_FLAGS[self.scales] | GROUP_FLAGS.get(self.group, 0) | (HAS_ZEROS if self.has_zeros else 0)


def layout(name: str) -> Layout:
    """The parts of one of NAMES."""
    form, *more = name.split("+")
    return Layout(form, next((m for m in more if m in SCALE_FLAGS), _USUAL.get(form, "bf16")), "z" in more)


def tensor(name: str, n: int, k: int, seed: int = 0) -> RawTensor:
    """Random codes of all values (int8 -128 too), scales around 0.01 of either sign, zero points 0..15."""
    rng, how = np.random.default_rng(seed), layout(name)
    form = format_named(how.form)
    codes = rng.integers(0, 256, form.num_bytes((n, k)), np.uint8)
    groups = form.num_groups(k)
    scales = load.pack(how.scales, rng.normal(0, 0.01, (n, groups)).astype(np.float32)).reshape(-1)
    zeros = RawTensor("zeros", "u8", (n, groups), rng.integers(0, 16, n * groups, np.uint8)) if how.has_zeros else None
    return RawTensor("w", how.form, (n, k), codes, RawTensor("scales", how.scales, (n, groups), scales), zeros)


def with_scale(raw: RawTensor, row: int, group: int, value: float) -> RawTensor:
    """The tensor with one scale changed."""
    scales = values_of(raw.scales).copy()
    scales[row, group] = value
    return replace(raw, scales=replace(raw.scales, data=load.pack(raw.scales.format, scales).reshape(-1)))


def panels(name: str, raw: RawTensor) -> np.ndarray:
    """uint8 bytes of the tensor's panels."""
    how, parts = layout(name), parts_of(raw)
    n, k = raw.shape
    group = how.group or -(-k // 64) * 64
    codes = np.pad(parts.codes.view(np.uint8), ((0, -n % 16), (0, -k % group)))
    codes = codes if how.group else codes ^ BYTE_FLIP
    scales = np.zeros((len(codes), parts.d.shape[1] * (4 if how.scales == "f32" or not how.group else 2)), np.uint8)
    stored = parts.d.view(np.uint8) if not how.group else raw.scales.data.reshape(n, -1)
    scales[:n] = stored.reshape(n, -1)
    word = scales.shape[1] // parts.d.shape[1]
    lanes = codes.reshape(-1, 16, codes.shape[1])
    if not how.group:
        quads = lanes.reshape(len(lanes), 16, -1, 4).transpose(0, 2, 1, 3).reshape(len(lanes), -1)
        return np.concatenate([quads, scales.reshape(len(lanes), -1)], axis=1).reshape(-1)
    halves = lanes.reshape(len(lanes), 16, -1, group // 32, 2, 4, 4)  # lane, group, chunk, half, c, i
    joined = (halves[..., 0, :, :] | halves[..., 1, :, :] << 4).transpose(0, 2, 3, 4, 1, 5)
    joined = joined if how.has_zeros else joined ^ NIBBLE_FLIP
    fields = [joined.reshape(len(lanes), joined.shape[1], -1), _by_lane(scales, word)]
    if how.has_zeros:
        zeros = np.zeros((len(codes), parts.d.shape[1]), np.uint8)
        zeros[:n] = parts.zeros
        fields.append(_by_lane(zeros, 1))
    return np.concatenate(fields, axis=2).reshape(-1)


def _by_lane(rows: np.ndarray, word: int) -> np.ndarray:
    """Bytes [n, groups * word] -> [panel, group, 16 lanes * word]."""
    return (
        rows.reshape(-1, 16, rows.shape[1] // word, word)
        .transpose(0, 2, 1, 3)
        .reshape(-1, rows.shape[1] // word, 16 * word)
    )
