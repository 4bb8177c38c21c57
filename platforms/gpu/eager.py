"""Ops run at once on a GPU, on numpy arrays that go there and back: for the self-test and the conformance suite."""

from __future__ import annotations

import numpy as np

from octavo.platforms.gpu.recorder import GpuRecorder
from octavo.platforms.recorded.eager import EagerOps


class GpuEagerOps(EagerOps):
    """See `EagerOps`."""

    recorder = GpuRecorder

    def _which(self, few: str, many: str, rows: int) -> str:
        if self._batch is not None and self.native.module.rows[many].is_beside:
            rows = int(np.diff(self._batch.query_start).max(initial=0))
        return super()._which(few, many, rows)
