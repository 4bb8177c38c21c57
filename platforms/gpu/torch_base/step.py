"""What a step's batch is on the device: each array uploaded once, when the first op asks for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.batch import check_batch
from octavo.platforms.gpu.torch_base.attention import Bucket, buckets
from octavo.platforms.gpu.torch_base.runtime import Device, Tensor, to_device
from octavo.platforms.reference.kv import query_positions
from octavo.platforms.types import Batch, Rope


class Step:
    """One batch. `kept` holds rows of rotary tables by `Rope`."""

    def __init__(self, batch: Batch, device: Device) -> None:
        check_batch(batch)
        self.batch = batch
        self.device = device
        self.kept: dict[Rope, tuple[Tensor, Tensor]] = {}
        self._at = query_positions(batch).astype(np.int64)
        self._arrays: dict[str, Tensor] = {}
        self._places: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self._tables: dict[int, Tensor] = {}
        self._buckets: dict[tuple[str, int], list[Bucket]] = {}

    def ids(self, name: str) -> Tensor:
        """int64 [T]: token_ids, positions, token_types; or [R] logits_rows."""
        if name not in self._arrays:
            self._arrays[name] = to_device(self.host_ids(name).astype(np.int64), self.device)
        return self._arrays[name]

    def host_ids(self, name: str) -> NDArray[Any]:
        values: NDArray[Any] | None = getattr(self.batch, name)
        if values is None:
            raise PlatformError(f"this op reads the batch's {name}, and the step carries none")
        return values[0] if name == "positions" else values

    def places(self, group: int, block_tokens: int) -> tuple[Tensor, Tensor]:
        """(page, slot), int64 [T], where a group keeps the keys of the step's tokens."""
        key = (group, block_tokens)
        if key not in self._places:
            page = self.batch.block_tables[group][self.batch.token_seq, self._at // block_tokens]
            arrays = page.astype(np.int64), self._at % block_tokens
            self._places[key] = (to_device(arrays[0], self.device), to_device(arrays[1], self.device))
        return self._places[key]

    def table(self, group: int) -> Tensor:
        """int64 [S, blocks]: pages of a group."""
        if group not in self._tables:
            self._tables[group] = to_device(self.batch.block_tables[group].astype(np.int64), self.device)
        return self._tables[group]

    def starts(self) -> Tensor:
        """int64 [S]: the first row of every sequence."""
        if "starts" not in self._arrays:
            self._arrays["starts"] = to_device(self.batch.query_start[:-1].astype(np.int64), self.device)
        return self._arrays["starts"]

    def causal(self, window: int) -> list[Bucket]:
        """Queries that see what lies before them and themselves, `window` tokens of it (0: all)."""
        low = np.maximum(self._at - window + 1, 0) if window else np.zeros_like(self._at)
        return self._made(("causal", window), self._at, low, self._at)

    def packed(self, window: int, is_causal: bool) -> list[Bucket]:
        """Queries that see all keys of their packed sequence (its first kv_len tokens), or what is at most `window` tokens away;
        none behind them if causal."""
        starts = self.batch.query_start.astype(np.int64)
        owner = self.batch.token_seq
        at = np.arange(self.batch.num_tokens, dtype=np.int64) - starts[owner]
        last = self.batch.kv_len.astype(np.int64)[owner] - 1
        low = np.maximum(at - window, 0) if window else np.zeros_like(at)
        high = at if is_causal else np.minimum(at + window, last) if window else last
        return self._made(("packed causal" if is_causal else "packed", window), at, low, high)

    def _made(self, key: tuple[str, int], at: Any, low: Any, high: Any) -> list[Bucket]:
        if key not in self._buckets:
            self._buckets[key] = buckets(self.batch.query_start, at, low, high, self.device)
        return self._buckets[key]
