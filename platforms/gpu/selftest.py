"""The start-up gate: the self-test's cases on a device, held to the reference's bits like those of a CPU.

Levels that promise the bits must give them; levels of `select.FAST_LEVELS` must come close to what the exact ones give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.eager import GpuEagerOps
from octavo.platforms.gpu.executable import copy_pages
from octavo.platforms.gpu.native import GpuNative
from octavo.platforms.gpu.sampling import DeviceSampler
from octavo.platforms.gpu.weights import FAST_PREPARE, GpuWeights
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.selftest import SelfTest
from octavo.platforms.recorded.symbols import page_bytes
from octavo.platforms.selftest.cases import Case, Cell, for_format, wide
from octavo.platforms.types import KVSpec, SampleBatch, SampleResult

#: of kernels that take other inputs than the exact ones: what rounding inputs to int8 per group does to a product. Cases whose
#: name ends with "whole" have inputs that are exact either way.
OTHER_INPUTS_TOLERANCE = 3e-2
#: of norms that add up squares in another order: some of their rows' values are then rounded to the other neighbour in bfloat16
OTHER_NORM_TOLERANCE = 2e-3


@dataclass
class GpuCell:
    """A device's kernels as the cases see them."""

    native: GpuNative

    def ops(self, spec: KVSpec | None = None, num_pages: int = 1) -> GpuEagerOps:
        return GpuEagerOps(self.native, self.native.module.Team(1, 0), spec, num_pages)

    def weights(self) -> GpuWeights:
        return GpuWeights(self.native)

    def sample(self, logits: NDArray[np.float32], rows: SampleBatch) -> SampleResult:
        return DeviceSampler(self.native).sample_host(logits, rows)

    def copy_blocks(self, ops: GpuEagerOps, pairs: list[tuple[int, int]]) -> None:
        if ops.spec is None or ops.pages is None:
            raise PlatformError("copy_blocks: these ops have no pages")
        copy_pages(self.native, ops.pages, page_bytes(ops.spec, ops.recorder.tile_tokens), pairs)


@dataclass
class GpuSelfTest(SelfTest):
    """See `SelfTest`."""

    def cell(self, native: Native) -> Cell:
        return GpuCell(cast(GpuNative, native))

    def prove_format(self, form: str) -> None:
        """Products of rows that fill no tile of 128, too."""
        self._prove([*for_format(form), *wide(form)])

    def allowed(self, case: Case, fast: list[str]) -> float:
        if any(name.startswith("rms_norm_prepare_") for name in fast):
            return OTHER_NORM_TOLERANCE
        kinds = {name.removeprefix("linear_").rsplit("__", 1)[0] for name in fast}
        if not case.name.endswith(" whole") and any(FAST_PREPARE.get(kind) == "prepare_f16row" for kind in kinds):
            return OTHER_INPUTS_TOLERANCE
        return super().allowed(case, fast)
