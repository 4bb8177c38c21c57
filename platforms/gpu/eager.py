"""Ops run at once on a GPU, on numpy arrays that go there and back: for the self-test and the conformance suite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from octavo.platforms.gpu.recorder import GpuRecorder
from octavo.platforms.recorded.eager import EagerOps


class GpuEagerOps(EagerOps):
    """See `EagerOps`."""

    recorder = GpuRecorder

    def _which(self, bands: Sequence[tuple[int, str]], rows: int) -> str:
        if self._batch is not None and self.native.module.rows[bands[-1][1]].is_beside:
            rows = int(np.diff(self._batch.query_start).max(initial=0))
        return super()._which(bands, rows)
