"""A model ready to take steps, op by op on torch tensors.

One forward pass per step: up to `gather_rows` its ops run, what comes after them is kept as a list of calls, and `head` and
`greedy` make those calls with the rows that are wanted.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.batch import check_size
from octavo.platforms.gpu.torch_base.cell import Sampler
from octavo.platforms.gpu.torch_base.ops import TorchOps
from octavo.platforms.gpu.torch_base.pages import TorchPages
from octavo.platforms.gpu.torch_base.runtime import Device, Tensor, precise, to_device, to_host, torch
from octavo.platforms.ops import Ops
from octavo.platforms.platform import Capacity, Model
from octavo.platforms.types import Batch, KVSpec, SampleBatch, SampleResult


class Later:
    """Stands for an array that the head will have: the result of its call number `index`, 0 being the wanted rows."""

    def __init__(self, index: int) -> None:
        self.index = index


class Halves:
    """A model's ops, cut at `gather_rows`: those before it run, those after it are kept."""

    def __init__(self, ops: TorchOps) -> None:
        self.ops = ops
        self.hidden: Tensor = None
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        op = getattr(self.ops, name)

        def call(*args: Any, **options: Any) -> Any:
            if not any(isinstance(value, Later) for value in (*args, *options.values())):
                return op(*args, **options)
            self._calls.append((name, args, options))
            return Later(len(self._calls))

        return call

    def gather_rows(self, x: Tensor) -> Later:
        """The cut: keeps the rows of the step."""
        self.hidden, self._calls = x, []
        return Later(0)

    def head(self, rows: Tensor, *, is_greedy: bool) -> Tensor:
        """The rest of the model on some rows of the step; `is_greedy`: ids in place of logits."""
        made = [self.hidden[rows]]
        for name, args, options in self._calls:
            op = getattr(self.ops, "greedy_head" if is_greedy and name == "lm_head" else name)
            there = [made[value.index] if isinstance(value, Later) else value for value in args]
            made.append(op(*there, **options))
        return made[-1]


class TorchExecutable:
    """Implements `octavo.platforms.platform.Executable`."""

    knee_rows = 0

    def __init__(self, model: Model, spec: KVSpec, capacity: Capacity, device: Device, sampler: Sampler) -> None:
        self.model = model
        self.capacity = capacity
        self.device = device
        self.pages: TorchPages | None = TorchPages(spec, capacity.num_pages, device)
        self._halves = Halves(TorchOps(device, self.pages))
        self._sampler = sampler

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        if self.pages is not None:
            self.pages.copy_blocks(pairs)

    def run(self, batch: Batch) -> None:
        if self.pages is None:
            raise PlatformError("this executable was closed; build another one")
        check_size(batch, self.capacity)
        with precise(), self._told_of_memory():
            self._halves.ops.begin(batch)
            self.model.forward(cast(Ops, self._halves), batch)

    def head(self, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._head(rows, is_greedy=False)

    def greedy(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        ids: NDArray[np.int32] = self._head(rows, is_greedy=True)[:, 0]
        return ids

    def _head(self, rows: NDArray[np.int32], *, is_greedy: bool) -> NDArray[Any]:
        if self._halves.hidden is None:
            raise PlatformError("head was asked for rows before any step ran: call run(batch) first")
        with precise(), self._told_of_memory():
            wanted = to_device(rows.astype(np.int64), self.device)
            return to_host(self._halves.head(wanted, is_greedy=is_greedy).contiguous())

    def sample(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        return self._sampler(logits, batch)

    def close(self) -> None:
        """Lets go of the paged memory; the object takes no steps afterwards."""
        self.pages = self._halves.ops.pages = None
        self._halves.hidden = None

    def _told_of_memory(self) -> Any:
        return _OutOfMemory(self.device)


class _OutOfMemory:
    """Turns torch's error about memory into one that says what to do."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, torch.OutOfMemoryError):
            raise PlatformError(
                f"{self.device} has no memory left for a step: {error}; ask for a smaller KV pool (--kv-gib) or smaller steps "
                "(--max-batch-tokens)"
            ) from error
