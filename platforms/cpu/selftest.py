"""The self-test's cases on native kernels: one thread, no self-test of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.weights import PackedWeights
from octavo.platforms.recorded.eager import EagerOps
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.sampling import NativeSampler
from octavo.platforms.recorded.selftest import SelfTest
from octavo.platforms.recorded.symbols import page_bytes
from octavo.platforms.selftest.cases import Cell
from octavo.platforms.types import KVSpec, SampleBatch, SampleResult

_FIXED_ROWS = 3


@dataclass
class NativeCell:
    """The native kernels as the cases see them."""

    native: Native
    team: Any

    def ops(self, spec: KVSpec | None = None, num_pages: int = 1) -> EagerOps:
        return EagerOps(self.native, self.team, spec, num_pages)

    def weights(self) -> PackedWeights:
        return PackedWeights(self.native, self.team)

    def sample(self, logits: NDArray[np.float32], rows: SampleBatch) -> SampleResult:
        return NativeSampler(self.native, self.team).sample(logits, rows)

    def copy_blocks(self, ops: EagerOps, pairs: list[tuple[int, int]]) -> None:
        module, spec = self.native.module, ops.spec
        if spec is None or ops.pages is None:
            raise PlatformError("copy_blocks: these ops have no pages")
        flat = np.array([len(pairs), *(page for pair in pairs for page in pair)], np.int32)
        program = module.Program()
        bands = self.native.table["copy_blocks"].bands
        fields = {"pairs": flat.ctypes.data, "page_bytes": page_bytes(spec)}
        program.add(bands, (_FIXED_ROWS, 1), fields)
        step = module.Step(0, 0, 0, None, None, None, None, None, None, None, ops.pages.address, [])
        program.run(self.team, step, 0, 1)


@dataclass
class CpuSelfTest(SelfTest):
    """See `SelfTest`."""

    def cell(self, native: Native) -> Cell:
        return NativeCell(native, self._team)
