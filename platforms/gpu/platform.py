"""A GPU as a platform: our kernels, memory and launches; torch is not needed."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from octavo.platforms.gpu.code import open_module
from octavo.platforms.gpu.device import Device
from octavo.platforms.gpu.executable import GpuExecutable
from octavo.platforms.gpu.native import GpuNative
from octavo.platforms.gpu.recorder import GpuRecorder
from octavo.platforms.gpu.selftest import GpuSelfTest
from octavo.platforms.gpu.weights import GpuWeights
from octavo.platforms.platform import CacheHome, Capacity, Model
from octavo.platforms.recorded.platform import RecordedPlatform
from octavo.platforms.recorded.symbols import page_bytes
from octavo.platforms.types import KVSpec


class GpuPlatform(RecordedPlatform):
    """Implements `octavo.platforms.platform.Platform` on an open device with the code objects of a folder."""

    block_tokens = 32
    num_threads = 1
    recorder = GpuRecorder

    def __init__(self, device: Device, folder: Path, isa: tuple[str, ...] | None = None, numerics: str = "") -> None:
        self.name = device.facts.kind
        self.device = device
        self.native: GpuNative = GpuNative(open_module(device, folder), isa, is_fast=numerics != "exact")
        self.selftest = GpuSelfTest(self.native)

    @cached_property
    def team(self) -> Any:
        return self.native.module.Team(1, 0)

    def memory(self) -> tuple[int, int] | None:
        free, total = self.device.memory()
        return total, free

    def weights(self, cache: CacheHome | None = None, *, is_dry: bool = False) -> GpuWeights:
        del cache
        return GpuWeights(self.native, self.selftest.prove_format, is_dry)

    def close(self) -> None:
        self._last = None  # its programs have graphs
        self.device.close()

    def build(self, model: Model, spec: KVSpec, capacity: Capacity) -> GpuExecutable:
        recorded, rope = self._record(model, spec, capacity)
        self._last = None  # an executable owns its program
        size = page_bytes(spec, self.recorder.tile_tokens)
        pool = self.native.arena(capacity.num_pages * size, "the KV pool")
        return GpuExecutable(self.native, self.team, recorded, rope, pool, size, capacity)
