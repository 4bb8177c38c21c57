"""What x86 and Arm have in common: weights in panels, models recorded as native programs, one thread team."""

from __future__ import annotations

import logging
import os
from functools import cached_property
from typing import Any

from octavo.platforms.cpu.module import load
from octavo.platforms.cpu.narrowing import CpuRecorder
from octavo.platforms.cpu.packed_cache import PackedCache, small_pages
from octavo.platforms.cpu.selftest import CpuSelfTest
from octavo.platforms.cpu.weights import PackedWeights
from octavo.platforms.limits import read_limits
from octavo.platforms.platform import CacheHome, Capacity, Model
from octavo.platforms.recorded.executable import RecordedExecutable
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.platform import RecordedPlatform
from octavo.platforms.recorded.symbols import page_bytes
from octavo.platforms.types import KVSpec

log = logging.getLogger("octavo.platforms")

#: pauses before a waiting thread sleeps: some tens of microseconds, less than it takes to wake up again
SPIN_PAUSES = 4000


class CpuPlatform(RecordedPlatform):
    """Implements `octavo.platforms.platform.Platform`. A subclass gives `name` and the native `module`."""

    name: str
    module: str
    block_tokens = 32
    recorder = CpuRecorder

    def __init__(
        self,
        num_threads: int,
        isa: tuple[str, ...] | None = None,
        module: str = "",
        numerics: str = "",
    ) -> None:
        self.native = Native(load(module or self.module), isa, is_fast=numerics == "fast")
        self.refuse_levels()
        for level in isa or ():  # an unknown one is an error now, not at the first kernel
            reason = self.native.reason_against(level)
            if reason:
                log.warning("level %s, asked for by --isa or OCTAVO_ISA, is not used: %s", level, reason)
        self.selftest = CpuSelfTest(self.native)
        limits = read_limits()
        most = limits.most_threads
        if num_threads > most:
            log.warning("%d threads asked for, %d can run at a time here: %d are started", num_threads, most, most)
        self.num_threads = min(num_threads, most)
        self._places = limits.topology.places(self.num_threads)

    def refuse_levels(self) -> None:
        """Takes levels out of the choice that feature bits alone would allow, or says more of one than they do."""

    @cached_property
    def team(self) -> Any:
        team = self.native.module.Team(self.num_threads, SPIN_PAUSES)
        if self._places and (refused := team.place(self._places)):
            reason = os.strerror(refused)
            log.warning("threads are not bound to their NUMA node or to fast cores: the system says %s", reason)
        return team

    def weights(self, cache: CacheHome | None = None, *, is_dry: bool = False) -> PackedWeights:
        packed = None
        if cache is not None:
            open_map = getattr(self.native.module, "FileMap", small_pages)  # of Linux only
            packed = PackedCache(cache.folder, cache.origin, cache.identity, cache.min_bytes, open_map)
        return PackedWeights(self.native, self.team, packed, self.selftest.prove_format, is_dry)

    def build(self, model: Model, spec: KVSpec, capacity: Capacity) -> RecordedExecutable:
        recorded, rope = self._record(model, spec, capacity)
        self._last = None  # an executable owns its program
        pool = self.native.arena(capacity.num_pages * page_bytes(spec), "the KV pool")
        return RecordedExecutable(self.native, self.team, recorded, rope, pool, page_bytes(spec), capacity)

    def diagnose(self, *, is_testing_all: bool = False) -> dict[str, Any]:
        from octavo.platforms.cpu.exact_cost import cost_of_exact

        return super().diagnose(is_testing_all=is_testing_all) | {"numerics": cost_of_exact(self.native, self.team)}
