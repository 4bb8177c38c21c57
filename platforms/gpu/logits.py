"""Logits that stay on the device until somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class DeviceLogits:
    """float32 [rows, vocab] at `address`, rows `stride` elements apart. Looked at like an array, it is one, brought here once by
    `fetch`; valid, as what `head` returns, until the next call of the executable."""

    address: int
    stride: int
    shape: tuple[int, int]
    fetch: Callable[[], NDArray[np.float32]]

    dtype = np.dtype(np.float32)
    ndim = 2

    @cached_property
    def array(self) -> NDArray[np.float32]:
        """The values, on the host."""
        return self.fetch()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.array, dtype, copy=copy) if copy else np.asarray(self.array, dtype)

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    def __len__(self) -> int:
        return self.shape[0]
