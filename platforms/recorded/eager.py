"""Ops run at once on numpy arrays, each as a program of its own: how the conformance suite reaches every kernel.

Same recorder, same kernels, same argument checks as a recorded model; only the program is one op long. `last_variant`
names the kernels that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.platform import Capacity
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.recorder import Recorder
from octavo.platforms.recorded.symbols import Symbol, page_bytes
from octavo.platforms.recorded.tables import RopeTables
from octavo.platforms.select import of_rows
from octavo.platforms.types import Batch, KVSpec, Rows

F32 = NDArray[np.float32]


class EagerOps:
    """`Ops` on numpy arrays. `begin` gives the batch (and keeps one KV pool over steps); without it rows stand alone."""

    recorder: type[Recorder] = Recorder

    def __init__(
        self, native: Native, team: Any, spec: KVSpec | None = None, num_pages: int = 1, max_len: int = 4096
    ) -> None:
        self.native = native
        self.team = team
        self.spec = spec
        tile_tokens = self.recorder.tile_tokens
        self.pages = None if spec is None else native.module.Arena(num_pages * page_bytes(spec, tile_tokens))
        self.ran: list[str] = []
        self._rope = RopeTables(native, max_len)
        self._batch: Batch | None = None

    def begin(self, batch: Batch) -> None:
        self._batch = batch

    def last_variant(self, op: str) -> str:
        """The kernel that ran last for an op (by the op's kernel prefix), '' if none."""
        return next((name for name in reversed(self.ran) if name.startswith(op)), "")

    def split(self, x: F32, widths: list[int]) -> list[F32]:
        return [part.copy() for part in np.split(x, np.cumsum(widths)[:-1], axis=1)]

    def segment(self, name: str) -> None:
        """Nothing to cut here."""

    def __getattr__(self, op: str) -> Any:
        if op.startswith("_") or not hasattr(self.recorder, op):
            raise AttributeError(op)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(op, args, kwargs)

        return call

    def together(self, calls: Callable[..., Any], *arrays: F32) -> Any:
        """The result of `calls(ops, *arrays)` as one program, whose ops may be joined; `ops` take and give symbols."""
        return self._run(calls, arrays, {})

    def _call(self, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._run(lambda recorder, *given, **named: getattr(recorder, op)(*given, **named), args, kwargs)

    def _run(self, calls: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arrays = [a for a in (*args, *kwargs.values()) if isinstance(a, np.ndarray) and a.ndim == 2]
        num_rows = arrays[0].shape[0] if arrays else 0
        batch = self._batch
        tokens = batch.num_tokens if batch is not None else num_rows
        logits = len(batch.logits_rows) if batch is not None else 0
        seqs = batch.num_seqs if batch is not None else 0
        capacity = Capacity(max(tokens, 1), max(seqs, 1), max(logits, 1), self._rope.max_positions, 1)
        recorder = self.recorder(self.native, capacity, self.spec, self._rope, self.team.num_threads)
        held: list[Any] = []

        def symbol(value: Any) -> Any:
            if not (isinstance(value, np.ndarray) and value.ndim == 2):
                return value
            rows: Rows = "tokens" if value.shape[0] == tokens else "logits" if value.shape[0] == logits else "sequences"
            array = np.ascontiguousarray(value, np.float32)
            address, holder = self.native.hold(array)
            held.append(holder)
            return recorder.external(address, array.shape[1], array.shape[1], rows)

        output: Symbol | None = calls(recorder, *map(symbol, args), **{k: symbol(v) for k, v in kwargs.items()})
        recorded = recorder.finish(output)
        if batch is not None:
            self._rope.fill(int(batch.positions.max(initial=0)) + 1)
        self._execute(recorded.program, self._step(tokens))
        self.ran += [self._which(bands, num_rows) for bands in recorded.program.bands]
        if output is None:
            return None
        rows = {"tokens": tokens, "logits": logits, "sequences": seqs}[output.rows]
        start = recorded.output_address - recorded.arena.address
        flat = self.native.fetch(recorded.arena, start, rows * output.stride * 4).view(np.float32)
        result: Any = flat.reshape(rows, output.stride)[:, : output.width].copy()
        return result.view(np.int32) if output.is_int else result

    def _execute(self, program: Any, step: Any) -> None:
        program.run(self.team, step, 0, len(program))

    def _which(self, bands: Sequence[tuple[int, str]], rows: int) -> str:
        """The kernel of an instruction that runs for this many rows."""
        return of_rows(bands, rows)

    def _step(self, tokens: int) -> Any:
        b = self._batch
        pool = 0 if self.pages is None else self.pages.address
        if b is None:
            return self.native.module.Step(tokens, 0, 0, None, None, None, None, None, None, None, pool, [])
        return self.native.module.Step(
            b.num_tokens, b.num_seqs, len(b.logits_rows), b.token_ids, b.positions, b.query_start, b.kv_len, b.token_seq,
            b.token_types, b.logits_rows, pool, list(b.block_tables),
        )  # fmt: skip
