"""What every platform that records programs answers to the engine the same way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from octavo.platforms.ops import Ops
from octavo.platforms.platform import Capacity, Model
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.recorder import Recorder
from octavo.platforms.recorded.selftest import SelfTest
from octavo.platforms.recorded.symbols import Recorded, Symbol, page_bytes
from octavo.platforms.recorded.tables import RopeTables
from octavo.platforms.types import Batch, KVSpec, Variant


class RecordedPlatform:
    """A part of `octavo.platforms.platform.Platform`. A subclass gives `native`, `selftest`, `num_threads`, and builds."""

    native: Native
    selftest: SelfTest
    num_threads: int
    recorder: type[Recorder] = Recorder
    # The model itself is kept: an id alone could come to mean another one.
    _last: tuple[Model, KVSpec, Capacity, tuple[Recorded, RopeTables]] | None = None

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels that may run here, slowest first; one whose self-test failed is not among them."""
        return self.native.runnable_levels()

    def memory(self) -> tuple[int, int] | None:
        return None

    def page_bytes(self, spec: KVSpec) -> int:
        return page_bytes(spec, self.recorder.tile_tokens)

    def scratch_bytes(self, model: Model, spec: KVSpec, capacity: Capacity) -> int:
        """Arena bytes of the model's program at this capacity (recorded once for the answer)."""
        return int(self._record(model, spec, capacity)[0].arena.bytes)

    def variants(self) -> list[Variant]:
        return self.native.variants()

    def diagnose(self, *, is_testing_all: bool = False) -> dict[str, Any]:
        """Levels with what speaks against each, and the self-test of all kernels in use."""
        rows = [self.selftest.result("in use")]
        if is_testing_all:
            rows += [self._alone(name).result(f"{name} alone") for name in self.levels]
        return {"levels": self.native.describe_levels(), "selftest": rows}

    def close(self) -> None:
        """A processor has nothing to give back."""

    def _alone(self, level: str) -> SelfTest:
        """A self-test of one level by itself."""
        return type(self.selftest)(replace(self.native, isa=(level,), bad_levels={}))

    def _record(self, model: Model, spec: KVSpec, capacity: Capacity) -> tuple[Recorded, RopeTables]:
        """The model's program at this capacity; pages do not matter to it, so planning and building share one."""
        bare = replace(capacity, num_pages=0)
        if self._last is not None and self._last[0] is model and self._last[1:3] == (spec, bare):
            return self._last[3]
        rope = RopeTables(self.native, capacity.max_len)
        recorder = self.recorder(self.native, capacity, spec, rope, self.num_threads)
        output = model.forward(cast(Ops, recorder), cast(Batch, None))
        self.selftest.prove({*recorder.ops(), "sample"})
        made = recorder.finish(cast(Symbol, output)), rope
        self._last = (model, spec, bare, made)
        return made
