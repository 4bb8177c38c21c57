"""What the self-test compares: a digest of result bits, and the reference's side of every case."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.types import KVSpec, SampleBatch, SampleResult


def digest(arrays: Sequence[NDArray[Any]]) -> str:
    """16 hex digits over dtypes, shapes and little-endian bits."""
    state = hashlib.blake2b(digest_size=8)
    for array in arrays:
        state.update(f"{array.dtype.str[1:]}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return state.hexdigest()


class ReferenceCell:
    """The reference platform as the cases see it; golden bits come from here and nowhere else."""

    def ops(self, spec: KVSpec | None = None, num_pages: int = 1) -> Any:
        from octavo.platforms.reference.kv import PagePool
        from octavo.platforms.reference.ops import ReferenceOps

        return ReferenceOps(None if spec is None else PagePool(spec, num_pages))

    def weights(self) -> Any:
        from octavo.platforms.reference.weights import ReferenceWeights

        return ReferenceWeights()

    def sample(self, logits: NDArray[np.float32], rows: SampleBatch) -> SampleResult:
        from octavo.platforms.reference.sample import sample

        return sample(logits, rows)

    def copy_blocks(self, ops: Any, pairs: list[tuple[int, int]]) -> None:
        ops.pages.copy_blocks(pairs)
