"""A recorded model ready to take steps: fills the step's arrays, runs the program, hands out logits and draws tokens."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.batch import check_batch, check_size
from octavo.platforms.platform import Capacity
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.sampling import NativeSampler
from octavo.platforms.recorded.symbols import Instruction, Recorded
from octavo.platforms.recorded.tables import RopeTables
from octavo.platforms.select import of_rows
from octavo.platforms.types import Batch, SampleBatch, SampleResult


class Sampler(Protocol):
    """Draws a token for each row of logits."""

    def sample(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult: ...


_NO_ROWS = np.zeros(0, np.int32)


class RecordedExecutable:
    """Implements `octavo.platforms.platform.Executable`."""

    def __init__(
        self,
        native: Native,
        team: Any,
        recorded: Recorded,
        rope: RopeTables,
        pool: Any,
        page_bytes: int,
        capacity: Capacity,
    ) -> None:
        self.native = native
        self.team = team
        self.recorded = recorded
        self.pool = pool
        self.page_bytes = page_bytes
        self.capacity = capacity
        self.max_logits = capacity.max_logits
        self.knee_rows = recorded.knee_rows
        self._rope = rope
        self._batch: Batch | None = None
        self._is_closed = False
        self._pool_address = 0 if pool is None else pool.address
        self._look()

    def _look(self) -> None:
        """Views of the memory that results are read from."""
        self._pages = None if self.pool is None else np.frombuffer(self.pool, np.uint8)
        self._output = self._view(self.recorded)
        self._ids = self._view_ids(self.recorded)
        self._sampler: Sampler = NativeSampler(self.native, self.team)

    def _logits(self, num_rows: int) -> NDArray[np.float32]:
        return self._output[:num_rows]

    def _picked(self, num_rows: int) -> NDArray[np.int32]:
        ids: NDArray[np.int32] = self._ids[:num_rows].copy()
        return ids

    def _view(self, recorded: Recorded) -> NDArray[np.float32]:
        if recorded.output is None:
            return np.zeros((0, 0), np.float32)
        start = (recorded.output_address - recorded.arena.address) // 4
        stride, width = recorded.output.stride, recorded.output.width
        flat = np.frombuffer(recorded.arena, np.uint8).view(np.float32)[start:]
        rows = min(self.max_logits, (flat.size - width) // stride + 1)
        return np.lib.stride_tricks.as_strided(flat, (rows, width), (stride * 4, 4))

    def _view_ids(self, recorded: Recorded) -> NDArray[np.int32]:
        if recorded.greedy is None:
            return np.zeros(0, np.int32)
        start = (recorded.greedy.address - recorded.arena.address) // 4
        flat = np.frombuffer(recorded.arena, np.uint8).view(np.int32)[start:]
        return flat[:: recorded.greedy.ids.stride][: self.capacity.max_seqs]

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        if self._pages is None:
            return
        size = self.page_bytes
        for source, target in pairs:
            self._pages[target * size : (target + 1) * size] = self._pages[source * size : (source + 1) * size]

    def run(self, batch: Batch) -> None:
        if self._is_closed:
            raise PlatformError("this executable was closed; build another one")
        check_batch(batch)
        check_size(batch, self.capacity)
        self._batch = batch
        if batch.num_tokens:
            self._rope.fill(int(batch.positions.max()) + 1)
        step = self._step(batch, _NO_ROWS)
        self.recorded.program.run(self.team, step, 0, self.recorded.head_at)

    def head(self, rows: NDArray[np.int32]) -> NDArray[np.float32]:
        if self._batch is None or len(rows) > self.max_logits:
            raise ValueError(f"head: {len(rows)} rows after a run; at most {self.max_logits} at a time")
        self._run_head(rows, is_greedy=False)
        return self._logits(len(rows))

    def greedy(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        most = self.capacity.max_seqs
        if self._batch is None or self.recorded.greedy is None or len(rows) > most:
            raise ValueError(f"greedy: {len(rows)} rows after a run of a model with a head; at most {most} at a time")
        self._run_head(rows, is_greedy=True)
        return self._picked(len(rows))

    def _run_head(self, rows: NDArray[np.int32], *, is_greedy: bool) -> None:
        assert self._batch is not None
        ranges = [(first, last) for first, last in self._head_ranges(is_greedy=is_greedy) if first < last]
        if not ranges:  # of a model that ends in `pool`: the run gave everything
            return
        step = self._step(self._batch, np.ascontiguousarray(rows, np.int32))
        for first, last in ranges:
            self.recorded.program.run(self.team, step, first, last)

    def _head_ranges(self, *, is_greedy: bool) -> list[tuple[int, int]]:
        """Instructions of the head with one of its endings."""
        at, greedy, end = self.recorded.head_at, self.recorded.greedy, len(self.recorded.program)
        if greedy is None:
            return [(at, end)]
        return [(at, greedy.last)] if is_greedy else [(at, greedy.first), (greedy.last, end)]

    def sample(self, logits: NDArray[np.float32], batch: SampleBatch) -> SampleResult:
        return self._sampler.sample(logits, batch)

    def profile(self, batch: Batch, rows: NDArray[np.int32]) -> list[tuple[str, float]]:
        """Seconds per instruction of one whole step with logits (kernel name, seconds); it runs as it would otherwise."""
        self._batch = batch
        self._rope.fill(int(batch.positions.max()) + 1)
        step = self._step(batch, np.ascontiguousarray(rows, np.int32))
        program = self.recorded.program
        found: list[tuple[str, float]] = []
        counts = {"tokens": batch.num_tokens, "logits": len(rows), "sequences": batch.num_seqs}
        for first, last in self._profiled():
            made = zip(program.bands[first:last], self.recorded.instructions[first:last], strict=True)
            names = [of_rows(bands, counts[ins.rows]) for bands, ins in made]
            found += zip(names, program.profile(self.team, step, first, last), strict=True)
        return found

    def profiled(self) -> list[Instruction]:
        """The instructions that `profile` times, in order."""
        return [ins for first, last in self._profiled() for ins in self.recorded.instructions[first:last]]

    def _profiled(self) -> list[tuple[int, int]]:
        return [(0, self.recorded.head_at), *self._head_ranges(is_greedy=False)]

    def close(self) -> None:
        """Lets go of the paged memory; the object takes no steps afterwards."""
        self._is_closed = True
        self._pages = None
        self.pool = None
        self._batch = None

    def _step(self, batch: Batch, rows: NDArray[np.int32]) -> Any:
        return self.native.module.Step(
            batch.num_tokens, batch.num_seqs, len(rows), batch.token_ids, batch.positions, batch.query_start, batch.kv_len,
            batch.token_seq, batch.token_types, rows, self._pool_address, list(batch.block_tables),
        )  # fmt: skip
