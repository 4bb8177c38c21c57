"""Checkpoint tensors as every platform that records programs takes them: sizes of stacks, biases, vectors of float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import ModelError, PlatformError
from octavo.platforms.stored import damage
from octavo.platforms.types import RawTensor
from octavo.quant.formats import format_named


def widen(tensor: RawTensor) -> NDArray[np.float32]:
    """A small float tensor (norm weight, bias) as float32, exactly."""
    values: NDArray[np.float32]
    if tensor.format == "f32":
        values = tensor.data.view(np.float32).ravel().copy()
    elif tensor.format == "f16":
        values = tensor.data.view(np.float16).ravel().astype(np.float32)
    elif tensor.format == "bf16":
        values = (tensor.data.view(np.uint16).ravel().astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        raise PlatformError(f"{tensor.name}: vectors are f32, f16 or bf16, found {tensor.format}")
    return values


def vector(tensor: RawTensor, add: float = 0.0) -> NDArray[np.float32]:
    """See `Weights.vector`."""
    values = widen(tensor)
    if not np.isfinite(values).all() and (error := damage(tensor)):
        raise error
    if add:
        values += np.float32(add)
    return values


def stack_sizes(parts: list[RawTensor], form: str, *, transpose: bool) -> tuple[list[int], int]:
    """(outputs of each tensor, inputs) of tensors stacked into one weight that runs in `form`. PlatformError for tensors of
    different layouts, ModelError for rows that the format cannot hold."""
    for part in parts[1:]:
        if part.layout != parts[0].layout:
            raise PlatformError(
                f"tensors stacked into one linear differ in format: {parts[0].name} is {parts[0].format}, "
                f"{part.name} is {part.format}; load them apart"
            )
    outs = [part.shape[1] if transpose else part.shape[0] for part in parts]
    num_in = parts[0].shape[0] if transpose else parts[0].shape[1]
    format_named(form).num_bytes((sum(outs), num_in))  # whole blocks, and no more inputs than sums can hold
    return outs, num_in


def stack_bias(bias: RawTensor | list[RawTensor] | None, num_out: int) -> NDArray[np.float32] | None:
    """The bias of a stack; ModelError for one of another length."""
    biases = [] if bias is None else bias if isinstance(bias, list) else [bias]
    values = np.concatenate([vector(b) for b in biases]) if biases else None
    if values is not None and values.size != num_out:
        raise ModelError(f"{biases[0].name}: bias of {values.size} values for {num_out} outputs")
    return values
