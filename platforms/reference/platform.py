"""The reference as a platform: models run at once on numpy. Complete and slow; the last resort, and the specification.

`Executable.run` and `head` are two halves of one `Model.forward`. The first half runs on the step's batch and keeps
what reaches `gather_rows`; the second replays the model on a batch of no tokens, where every op is nearly free, and
feeds the wanted rows in at `gather_rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.batch import check_size
from octavo.platforms.ops import Ops
from octavo.platforms.platform import CacheHome, Capacity, Model
from octavo.platforms.reference.f32 import F32
from octavo.platforms.reference.kv import PagePool, page_bytes
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.sample import sample
from octavo.platforms.reference.weights import ReferenceLinear, ReferenceWeights
from octavo.platforms.types import I32, Batch, KVSpec, SampleBatch, SampleResult, Variant

OPS = (
    "embedding",
    "add",
    "rms_norm",
    "layer_norm",
    "rope",
    "linear",
    "gated_mlp",
    "kv_append",
    "paged_attention",
    "varlen_attention",
    "relative_attention",
    "gather_rows",
    "softcap",
    "lm_head",
    "greedy_head",
    "pool",
    "sample",
)


class TwoHalves(ReferenceOps):
    """Keeps the rows that reach `gather_rows`, or feeds kept rows in. `is_greedy`: the head gives ids, not logits."""

    hidden: F32 | None = None
    wanted: I32 | None = None
    is_greedy: bool = False

    def gather_rows(self, x: F32) -> F32:
        if self.wanted is None:
            self.hidden = x
            return x[:0]
        self._note("gather_rows")
        if self.hidden is None:
            raise PlatformError("head was asked for rows before any step ran: call run(batch) first")
        return self.hidden[self.wanted]

    def lm_head(self, x: F32, weight: ReferenceLinear, *, scale: float = 1.0, softcap: float = 0.0) -> Any:
        head = super().greedy_head if self.is_greedy else super().lm_head
        return head(x, weight, scale=scale, softcap=softcap)


class ReferenceExecutable:
    """Implements `octavo.platforms.platform.Executable`."""

    knee_rows = 0

    def __init__(
        self, model: Model, spec: KVSpec, capacity: Capacity, make_ops: Callable[[PagePool], TwoHalves] = TwoHalves
    ) -> None:
        self.model = model
        self.capacity = capacity
        self.pages = PagePool(spec, capacity.num_pages)
        self.ops = make_ops(self.pages)
        self._empty: Batch | None = None
        self._pooled: F32 | None = None

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        self.pages.copy_blocks(pairs)

    def run(self, batch: Batch) -> None:
        check_size(batch, self.capacity)
        self.ops.begin(batch)
        self.ops.wanted, self.ops.is_greedy = None, False
        self.ops.hidden = None
        found = cast(F32, self.model.forward(cast(Ops, self.ops), batch))
        self._pooled = found if self.ops.hidden is None else None
        nothing = np.zeros(0, np.int32)
        self._empty = replace(
            batch,
            token_ids=nothing,
            positions=batch.positions[:, :0],
            query_start=np.zeros(1, np.int32),
            kv_len=nothing,
            token_seq=nothing,
            block_tables=[table[:0] for table in batch.block_tables],
            logits_rows=nothing,
            token_types=None if batch.token_types is None else nothing,
        )

    def head(self, rows: NDArray[np.int32]) -> F32:
        if self._pooled is not None:
            return self._pooled[: len(rows)]
        return np.ascontiguousarray(self._second_half(rows, is_greedy=False))

    def greedy(self, rows: NDArray[np.int32]) -> I32:
        return np.ascontiguousarray(self._second_half(rows, is_greedy=True)[:, 0])

    def _second_half(self, rows: NDArray[np.int32], *, is_greedy: bool) -> Any:
        if self._empty is None:
            raise PlatformError("head was asked for rows before any step ran: call run(batch) first")
        self.ops.begin(self._empty)
        self.ops.wanted = np.asarray(rows, np.int32)
        self.ops.is_greedy = is_greedy
        return self.model.forward(cast(Ops, self.ops), self._empty)

    def sample(self, logits: F32, batch: SampleBatch) -> SampleResult:
        return sample(logits, batch)

    def close(self) -> None:
        """Nothing to give back: arrays are freed with the executable."""


class ReferencePlatform:
    """Implements `octavo.platforms.platform.Platform`."""

    name = "reference"
    levels: tuple[str, ...] = ("reference",)
    block_tokens = 32
    num_threads = 1

    def weights(self, cache: CacheHome | None = None, *, is_dry: bool = False) -> ReferenceWeights:
        del cache, is_dry  # nothing is packed
        return ReferenceWeights()

    def memory(self) -> tuple[int, int] | None:
        return None

    def page_bytes(self, spec: KVSpec) -> int:
        return page_bytes(spec)

    def scratch_bytes(self, model: Model, spec: KVSpec, capacity: Capacity) -> int:
        """Numpy allocates as it goes; the largest arrays are attention scores and the chunks of a product."""
        del model
        return (64 << 20) + capacity.max_tokens * spec.head_dim * spec.num_kv_heads * 64

    def build(self, model: Model, spec: KVSpec, capacity: Capacity) -> ReferenceExecutable:
        return ReferenceExecutable(model, spec, capacity)

    def variants(self) -> list[Variant]:
        return [Variant(op, f"{op}__reference", "reference", detail={"chosen": True, "from_rows": 0}) for op in OPS]

    def diagnose(self, *, is_testing_all: bool = False) -> dict[str, Any]:
        """The reference is what others are tested against."""
        del is_testing_all
        return {}

    def close(self) -> None:
        """Numpy has nothing to give back."""
