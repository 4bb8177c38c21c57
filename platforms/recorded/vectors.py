"""Small float tensors as float32: the same on every platform that records programs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.types import RawTensor


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
