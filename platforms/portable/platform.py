"""The portable platform: numba kernels for chips that have none of ours. The reference's bits, compiled at first use.

Numba is imported when this module is, which is when the platform is chosen. Compiled code is kept on disk beside the packed
weights (jit.use_cache), so only the first start on a machine waits for the compiler.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from octavo.platforms.platform import CacheHome, Capacity, Model
from octavo.platforms.portable import jit
from octavo.platforms.portable.weights import PortableWeights
from octavo.platforms.reference.kv import PagePool
from octavo.platforms.reference.platform import OPS, ReferenceExecutable, ReferencePlatform, TwoHalves
from octavo.platforms.types import KVSpec, Variant

log = logging.getLogger("octavo.platforms")


class PortablePlatform(ReferencePlatform):
    """Implements `octavo.platforms.platform.Platform`."""

    name = "portable"
    levels: tuple[str, ...] = ("numba",)

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        log.warning(
            "the portable platform runs (numba %s, %d threads): the first start compiles "
            "for up to a minute and tokens come slowly",
            jit.NUMBA_VERSION,
            num_threads,
        )

    @cached_property
    def _threads(self) -> ThreadPoolExecutor | None:
        return ThreadPoolExecutor(self.num_threads, "octavo-portable") if self.num_threads > 1 else None

    def weights(self, cache: CacheHome | None = None, *, is_dry: bool = False) -> PortableWeights:
        del is_dry
        if cache is not None:
            jit.use_cache(cache.folder / "numba")
        return PortableWeights()

    def build(self, model: Model, spec: KVSpec, capacity: Capacity) -> ReferenceExecutable:
        from octavo.platforms.portable.ops import PortableOps  # compiles: after the cache's place is known

        class Halves(PortableOps, TwoHalves):
            """The executable's two halves of a forward pass, on compiled ops."""

        def make(pages: PagePool) -> TwoHalves:
            return Halves(pages, self._threads, self.num_threads)

        return ReferenceExecutable(model, spec, capacity, make)

    def variants(self) -> list[Variant]:
        from octavo.platforms.portable.ops import COMPILED

        levels = [(op, "numba" if op in COMPILED else "reference") for op in OPS]
        return [Variant(op, f"{op}__{level}", level, detail={"chosen": True, "from_rows": 0}) for op, level in levels]
