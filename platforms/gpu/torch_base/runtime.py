"""The user's own torch, and what crosses between numpy and a device.

Importing this imports torch, so only the platform that was chosen does. Torch is never a requirement of the package: it comes
from the user's environment, built for the user's GPU. Tensors are `Any`, because type checks run where torch is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

OLDEST = (2, 5)
torch: Any = import_module("torch")
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
    raise ImportError(f"torch {torch.__version__} is installed, and {OLDEST[0]}.{OLDEST[1]} is the oldest that will do")
Tensor: TypeAlias = Any
Device: TypeAlias = Any

LEVEL = "torch"
TINY = 2.0**-126
"""The smallest normal float32."""

#: elements of the largest array that an op makes for its own use; 64 MiB of float32
WORK_ELEMENTS = 1 << 24


def to_device(array: NDArray[Any], device: Device) -> Tensor:
    """The array on `device`; on a CPU it may be the array's own memory, unless that is read-only."""
    contiguous = np.ascontiguousarray(array)
    return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy()).to(device)


def to_host(tensor: Tensor) -> NDArray[Any]:
    """The tensor as a numpy array; waits for the device."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


@contextmanager
def precise() -> Iterator[None]:
    """No gradients, and float32 products in float32: what the process set for itself comes back afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(before)
