"""What a platform is to the engine: a probe, a place for weights, and models made executable. Twelve members at most.

The engine never asks which platform runs. It asks for sizes, hands over weights, gets an `Executable` and drives it:
`copy_blocks`, `run`, then `head` and `sample`, or `greedy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.ops import Ops, Weights
from octavo.platforms.types import Array, Batch, KVDtype, KVSpec, SampleBatch, SampleResult, Variant


@dataclass(frozen=True)
class Capacity:
    """The largest step an executable must take, and its paged memory. Tokens, rows and pages."""

    max_tokens: int
    max_seqs: int
    max_logits: int  # rows of one `head` call; more rows are served by more calls (`greedy` takes max_seqs)
    max_len: int  # positions of one sequence
    num_pages: int  # page 0 is the null page


@dataclass(frozen=True)
class CacheHome:
    """Where a platform may keep its own form of a model's weights. `origin` names the model, `identity` its exact bytes."""

    folder: Path
    origin: bytes
    identity: bytes
    min_bytes: int = 0  # smaller models are packed faster than they are mapped


class Model(Protocol):
    """A model's forward pass, written once against the contract."""

    def kv_spec(self, dtype: KVDtype, block_tokens: int = 32) -> KVSpec: ...
    def forward(self, ops: Ops, batch: Batch) -> Array:
        """Token ids to logits of the wanted rows, or to one vector per sequence where it ends in `pool`; its sizes may be
        symbolic, so only `ops` look into `batch`."""
        ...


class Executable(Protocol):
    """A model ready to take steps. `knee_rows`: rows of a step from which other kernels run, so that times have a knee there;
    0: none."""

    knee_rows: int

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Copies whole pages (source, destination), in order, before the next run."""
        ...

    def run(self, batch: Batch) -> None:
        """One step up to the last hidden states: appends keys and values, attends, leaves rows ready for `head`."""
        ...

    def head(self, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        """Logits [len(rows), vocab] of these token rows of the last run; valid until the next call. Of a model that ends in
        `pool`, vectors of its sequences, of which `rows` are all, in order (the capacity's `max_logits` is `max_seqs`)."""
        ...

    def greedy(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Ids that `sample` takes from `head(rows)` at temperature 0 with nothing else asked; at most max_seqs rows at a time.

        Cheaper than both, and logits take no memory.
        """
        ...

    def sample(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        """Draws one token per row of `logits` (a view `head` returned, or a copy)."""
        ...

    def close(self) -> None: ...


class Platform(Protocol):
    """One way to run models on this machine."""

    name: str
    block_tokens: int
    num_threads: int

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels in use, slowest first; a level can fall out when its self-test fails."""
        ...

    def weights(self, cache: CacheHome | None = None, *, is_dry: bool = False) -> Weights:
        """Where a model's weights go. `is_dry`: only sizes are wanted; nothing is packed and the model cannot run."""
        ...

    def memory(self) -> tuple[int, int] | None:
        """(usable, free) bytes where weights, scratch and pages lie now; None: memory of this machine's own, whose limits
        `platforms.limits` reads."""
        ...

    def page_bytes(self, spec: KVSpec) -> int: ...
    def scratch_bytes(self, model: Model, spec: KVSpec, capacity: Capacity) -> int: ...
    def build(self, model: Model, spec: KVSpec, capacity: Capacity) -> Executable: ...
    def variants(self) -> list[Variant]:
        """Every kernel and why it is or is not chosen, best first per op."""
        ...

    def diagnose(self, *, is_testing_all: bool = False) -> dict[str, Any]:
        """Plain data for `octavo doctor`, by section: levels with the reason against each, self-test results. Runs the
        self-test of every kernel in use; `is_testing_all`: also of every level by itself."""
        ...

    def close(self) -> None:
        """Gives back what it holds of a device; nothing runs on it afterwards. Nothing happens the second time."""
        ...
