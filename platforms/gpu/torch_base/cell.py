"""The torch ops as tests and the start-up gate see them: numpy arrays in, numpy arrays out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.gpu.torch_base.ops import TorchOps
from octavo.platforms.gpu.torch_base.pages import TorchPages
from octavo.platforms.gpu.torch_base.runtime import Device, precise, to_device, to_host, torch
from octavo.platforms.gpu.torch_base.weights import TorchWeights
from octavo.platforms.types import KVSpec, SampleBatch, SampleResult

Sampler = Callable[[NDArray[np.float32], SampleBatch], SampleResult]
_OPS = frozenset(name for name in vars(TorchOps) if not name.startswith("_"))


class NumpyOps:
    """`TorchOps` on numpy arrays: every array goes to the device and every tensor comes back."""

    def __init__(self, ops: TorchOps) -> None:
        self.torch_ops = ops

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.torch_ops, name)
        if name not in _OPS or not callable(found):
            return found

        def op(*args: Any, **options: Any) -> Any:
            with precise():
                there = [self._up(arg) for arg in args]
                return _down(found(*there, **{key: self._up(value) for key, value in options.items()}))

        return op

    def _up(self, value: Any) -> Any:
        return to_device(value, self.torch_ops.device) if isinstance(value, np.ndarray) else value


def _down(value: Any) -> Any:
    if isinstance(value, list):
        return [_down(item) for item in value]
    return to_host(value) if isinstance(value, torch.Tensor) else value


class TorchCell:
    """One device, as `platforms.selftest.cases.Cell`."""

    def __init__(self, device: Device, sampler: Sampler) -> None:
        self.device = device
        self.sample = sampler

    def ops(self, spec: KVSpec | None = None, num_pages: int = 1) -> NumpyOps:
        pages = None if spec is None else TorchPages(spec, num_pages, self.device)
        return NumpyOps(TorchOps(self.device, pages))

    def weights(self) -> TorchWeights:
        return TorchWeights(self.device)

    def copy_blocks(self, ops: NumpyOps, pairs: list[tuple[int, int]]) -> None:
        assert ops.torch_ops.pages is not None
        ops.torch_ops.pages.copy_blocks(pairs)
