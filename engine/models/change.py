"""What becomes of stored weights while they are loaded: widened to float32, or rounded to a format where they are floats.

Refusals come before anything is computed and name the tensor. Invariant: what a platform is asked to quantize fits the format.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.platforms.stored import FLOAT_FORMATS
from octavo.platforms.types import RawTensor
from octavo.quant.formats import FORMATS, Format, format_named


@dataclass(frozen=True)
class Change:
    """What becomes of stored formats: all floats to float32, the layers' matrices (or the head's) to a format; '' keeps."""

    is_expanding: bool = False
    layers: str = ""
    head: str = ""

    def of(self, parts: list[RawTensor], *, is_head: bool, is_transposed: bool) -> str:
        """The format that these tensors, to be stacked, are rounded to; '': they stay as they are, also where they are in it."""
        name = self.head if is_head else self.layers
        if not name or all(part.format == name for part in parts):
            return ""
        for part in parts:
            _check(part, format_named(name), part.shape[0] if is_transposed else part.shape[1])
        return name


def grown_bytes(parts: list[RawTensor], name: str, *, is_kept: bool) -> int:
    """Bytes that rounding to `name` adds to a model, as stored; below 0: it saves them. `is_kept`: the tensors stay, too."""
    stored = 0 if is_kept else sum(part.data.nbytes for part in parts)
    return int(sum(part.shape[0] * part.shape[1] for part in parts) * format_named(name).bits_per_weight / 8) - stored


def least_bytes(checkpoint: Checkpoint, quantization: str) -> int:
    """What a model's weights take at least once they are loaded, from headers alone; '' rounds nothing."""
    total = 0
    for name in checkpoint:
        info = checkpoint.info(name)
        is_rounded = quantization and len(info.shape) == 2 and info.format in FLOAT_FORMATS
        rounded = prod(info.shape) * format_named(quantization).bits_per_weight / 8 if is_rounded else info.num_bytes
        total += min(info.num_bytes, int(rounded))
    return total


def _check(part: RawTensor, form: Format, num_in: int) -> None:
    """ModelError for a tensor that cannot be rounded to the format."""
    name = part.name.partition("[")[0]  # what loading made of it is nothing to the user
    if part.format not in FLOAT_FORMATS:
        raise ModelError(
            f"{name}: quantization {form.name} was asked for, and the tensor is stored as {part.format}; only tensors of "
            f"{', '.join(FLOAT_FORMATS)} are quantized: leave it out (--quantization none), or take a checkpoint of floats"
        )
    if not _fits(form, num_in):
        fitting = [other.name for other in FORMATS if other.is_packed_everywhere and _fits(other, num_in)]
        most = f" of at most {form.max_inputs}" if form.max_inputs else ""
        raise ModelError(
            f"{name}: quantization {form.name} was asked for, and the tensor has rows of {num_in} values; it takes rows{most} "
            f"in whole blocks of {form.block_size}; formats that hold the tensor: {', '.join(fitting) or 'none'}"
        )


def _fits(form: Format, num_in: int) -> bool:
    return num_in % form.block_size == 0 and not 0 < form.max_inputs < num_in
