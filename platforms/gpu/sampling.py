"""Draws tokens on the host from logits that came from a device: by native kernels where there are some, else by the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.limits import read_limits
from octavo.platforms.types import SampleBatch, SampleResult


class HostSampler:
    """Same results wherever it runs (docs/numerics.md, "Sampling")."""

    def __init__(self) -> None:
        self._native: Any = None
        try:
            from octavo.platforms.cpu.module import load

            module = load()
        except PlatformError:
            return
        from octavo.platforms.recorded.native import Native
        from octavo.platforms.recorded.sampling import NativeSampler

        self._native = NativeSampler(Native(module), module.Team(read_limits().num_compute_threads, 0))

    def sample(self, logits: NDArray[np.float32], rows: SampleBatch) -> SampleResult:
        if self._native is not None:
            result: SampleResult = self._native.sample(logits, rows)
            return result
        from octavo.platforms.reference.sample import sample

        return sample(logits, rows)
