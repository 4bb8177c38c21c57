"""Records a model's forward pass as a native program over a planned arena.

Implements `octavo.platforms.ops.Ops`: arrays are `Symbol`s, every call appends one or more native instructions, and
`finish` places the buffers and hands the list over. Sizes of rows stay symbolic (tokens, logits rows, sequences), so one
program serves prefill, decode and mixed steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.cpu.partials import partials_bytes
from octavo.platforms.cpu.weights import PackedLinear, StoredTable
from octavo.platforms.platform import Capacity
from octavo.platforms.recorded import packed
from octavo.platforms.recorded.codes import IDS_SOURCES, KV_TYPES, POOL_MODES, ROWS_KIND
from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.plan import lifetimes, place
from octavo.platforms.recorded.products import greedy_head, prepare, product
from octavo.platforms.recorded.symbols import (
    KV_TILE_TOKENS,
    Greedy,
    Instruction,
    Prepared,
    Recorded,
    Ref,
    Symbol,
    kv_head_bytes,
    page_bytes,
)
from octavo.platforms.recorded.tables import RopeTables
from octavo.platforms.select import Choice
from octavo.platforms.types import Activation, KVSpec, Rope, Rows


class Recorder:
    """One recording. `max_rows` bounds each row kind; eager use gives inputs by address. `num_threads` will run it."""

    tile_tokens = KV_TILE_TOKENS  # a block holds a multiple of them

    def __init__(
        self,
        native: Native,
        capacity: Capacity,
        spec: KVSpec | None,
        rope_tables: RopeTables,
        num_threads: int = 1,
    ) -> None:
        self.native = native
        self.spec = spec
        self.capacity = capacity
        self.num_threads = num_threads
        self.max_rows: dict[Rows, int] = {
            "tokens": capacity.max_tokens,
            "logits": max(capacity.max_logits, capacity.max_seqs),
            "sequences": capacity.max_seqs,
        }
        self.rope_tables = rope_tables
        self.segments: list[tuple[str, int]] = []
        self.head_at = -1
        self.greedy: Greedy | None = None
        self._bytes: list[int] = []
        self._external: dict[int, int] = {}
        self._list: list[Instruction] = []
        self._prepared: dict[tuple[int, int, int, str], Prepared] = {}
        self._held: list[Any] = []
        self._counters: dict[int, Any] = {}

    # -- tokens ------------------------------------------------------------------------------------------------------
    def embedding(self, table: StoredTable, *, ids: str = "token_ids", scale: float = 1.0) -> Symbol:
        y = self._new(table.width, "tokens")
        self._emit(
            f"embedding_{table.format}", "tokens", reads=(), writes=(y,),
            table=self._hold(table.data), row_bytes=table.row_bytes, num_rows=table.num_rows, width=table.width,
            scale=scale, source=IDS_SOURCES[ids], **self._out(y),
        )  # fmt: skip
        return y

    def add(self, a: Symbol, b: Symbol, *, scale_a: float = 1.0, scale_b: float = 1.0) -> Symbol:
        y = self._new(a.width, a.rows)
        self._emit(
            "add", a.rows, reads=(a, b), writes=(y,),
            a=self._at(a), lda=a.stride, b=self._at(b), ldb=b.stride, width=a.width, scale_a=scale_a, scale_b=scale_b,
            rows=self._rows_field(a.rows), **self._out(y),
        )  # fmt: skip
        return y

    def rms_norm(self, x: Symbol, weight: NDArray[np.float32] | None, eps: float, *, heads: int = 1) -> Symbol:
        return self._norm("rms_norm", x, weight, None, eps, heads)

    def layer_norm(self, x: Symbol, weight: Any | None, bias: Any | None, eps: float) -> Symbol:
        return self._norm("layer_norm", x, weight, bias, eps, 1)

    def rope(self, x: Symbol, rope: Rope, *, heads: int) -> Symbol:
        y = self._new(x.width, x.rows)
        table = self.rope_tables.table(rope)
        self._emit(
            "rope", x.rows, reads=(x,), writes=(y,),
            x=self._at(x), ldx=x.stride, table=table.address, max_positions=table.max_positions, heads=heads,
            head_dim=x.width // heads, rotary_dim=rope.rotary_dim, interleaved=int(rope.interleaved), **self._out(y),
        )  # fmt: skip
        return y

    # -- linear ------------------------------------------------------------------------------------------------------
    def linear(
        self,
        x: Symbol,
        weight: PackedLinear,
        *,
        activation: Activation = "none",
        gate: Symbol | None = None,
        residual: Symbol | None = None,
        scale: float = 1.0,
    ) -> Symbol:
        return self._linear(x, weight, self._new(weight.num_out, x.rows), activation, gate, residual, scale)

    def gated_mlp(
        self,
        x: Symbol,
        gate: PackedLinear,
        up: PackedLinear,
        down: PackedLinear,
        activation: Activation,
        *,
        residual: Symbol | None = None,
        scale: float = 1.0,
    ) -> Symbol:
        hidden = self.linear(x, up, gate=self.linear(x, gate, activation=activation))
        return self.linear(hidden, down, residual=residual, scale=scale)

    # -- attention ---------------------------------------------------------------------------------------------------
    def kv_append(self, k: Symbol, v: Symbol, *, layer: int) -> None:
        spec = self._kv()
        self._emit(
            f"kv_append_{spec.dtype}", "tokens", reads=(k, v), writes=(),
            k=self._at(k), ldk=k.stride, v=self._at(v), ldv=v.stride, **self._page(layer),
        )  # fmt: skip

    def paged_attention(
        self,
        q: Symbol,
        *,
        layer: int,
        heads: int,
        scale: float,
        softcap: float = 0.0,
        sinks: Any | None = None,
        alibi: Any | None = None,
    ) -> Symbol:
        spec = self._kv()
        y = self._new(heads * spec.head_dim, "tokens")
        group, _ = spec.place(layer)
        window = spec.groups[group].window
        shared, shared_fields = self._shared_segments(heads, window)
        self._emit(
            f"paged_attention_{spec.dtype}", "tokens", reads=(q,), writes=(y, *shared),
            q=self._at(q), ldq=q.stride, heads=heads, window=window, **shared_fields,
            sinks=self._vector(sinks), alibi=self._vector(alibi), scale=scale, softcap=softcap,
            **self._page(layer), **self._out(y),
        )  # fmt: skip
        return y

    # -- attention over packed sequences
    varlen_attention = packed.varlen_attention
    relative_attention = packed.relative_attention

    # -- output ------------------------------------------------------------------------------------------------------
    def gather_rows(self, x: Symbol) -> Symbol:
        if self.head_at < 0:
            self.head_at = len(self._list)
            self.segments.append(("head", self.head_at))
        y = self._new(x.width, "logits")
        self._emit(
            "gather_rows", "logits", reads=(x,), writes=(y,),
            x=self._at(x), ldx=x.stride, width=x.width, **self._out(y),
        )  # fmt: skip
        return y

    def softcap(self, x: Symbol, cap: float) -> Symbol:
        return self._softcap(x, self._new(x.width, x.rows), cap)

    def lm_head(self, x: Symbol, weight: PackedLinear, *, scale: float = 1.0, softcap: float = 0.0) -> Symbol:
        most_rows = self.capacity.max_logits if x.rows == "logits" else 0
        logits = self._new(weight.num_out, x.rows, most_rows=most_rows)
        if self.head_at >= 0:  # a model's head, of which a step runs one of two endings
            prepare(self, x, self._input_form(weight))
            greedy_at, ids = len(self._list), self.greedy_head(x, weight, scale=scale, softcap=softcap)
            self.greedy = Greedy(ids, greedy_at, len(self._list))
        self._linear(x, weight, logits, "none", None, None, scale)
        return self._softcap(logits, logits, softcap) if softcap else logits

    def greedy_head(self, x: Symbol, weight: PackedLinear, *, scale: float = 1.0, softcap: float = 0.0) -> Symbol:
        return greedy_head(self, x, weight, scale, softcap)

    def pool(self, x: Symbol, mode: str, *, normalize: bool = False) -> Symbol:
        y = self._new(x.width, "sequences")
        self._emit(
            "pool", "sequences", reads=(x,), writes=(y,),
            x=self._at(x), ldx=x.stride, width=x.width, mode=POOL_MODES[mode], normalize=int(normalize), **self._out(y),
        )  # fmt: skip
        return y

    # -- shape -------------------------------------------------------------------------------------------------------
    def split(self, x: Symbol, widths: list[int]) -> list[Symbol]:
        if sum(widths) != x.width:
            raise PlatformError(f"split: widths {widths} do not add up to {x.width}")
        out, column = [], x.column
        for width in widths:
            out.append(Symbol(x.buffer, width, x.stride, x.rows, column))
            column += width
        return out

    def segment(self, name: str) -> None:
        self.segments.append((name, len(self._list)))

    # -- recording ---------------------------------------------------------------------------------------------------
    def external(self, address: int, width: int, stride: int, rows: Rows) -> Symbol:
        """An input that lives outside the arena (eager use)."""
        symbol = self._new(width, rows)
        self._external[symbol.buffer] = address
        return Symbol(symbol.buffer, width, stride, rows)

    def ops(self) -> set[str]:
        """Native ops recorded so far."""
        return {ins.op for ins in self._list}

    def finish(self, output: Symbol | None) -> Recorded:
        """Places the buffers, resolves addresses and builds the native program."""
        lives = lifetimes(self._list, self._bytes, None if output is None else output.buffer, self.head_at)
        planned = {index: buffer for index, buffer in lives.items() if index not in self._external}
        arena = self.native.arena(max(place(list(planned.values())), 64), "activations")
        program = self.native.module.Program()

        def resolve(value: Any) -> Any:
            if not isinstance(value, Ref):
                return value
            outside = self._external.get(value.buffer)
            base = outside if outside is not None else arena.address + planned[value.buffer].offset
            return base + value.offset_bytes

        for ins in self._list:
            choice = self._choice(ins)
            fields = {name: resolve(value) for name, value in ins.fields.items()}
            program.add(choice.bands, self._rows_field(ins.rows), fields)
        address = 0 if output is None else resolve(self._at(output))
        head_at = self.head_at if self.head_at >= 0 else len(self._list)
        linear = [self.native.table[op].many_from for op in self.ops() if op.startswith("linear_")]
        if self.greedy is not None:
            self.greedy = replace(self.greedy, address=resolve(self._at(self.greedy.ids)))
        knee = max(linear, default=0)
        return Recorded(
            program, arena, output, address, self.segments, head_at, knee, self.greedy, self._held, self._list
        )

    def _input_form(self, weight: PackedLinear) -> str:
        """The op that brings rows into the form that a weight's kernels take ('' = float32 rows as they are)."""
        return weight.packed.prepare

    def _choice(self, ins: Instruction) -> Choice:
        """The kernels of an instruction."""
        return self.native.table[ins.op]

    def _emit(
        self, op: str, kind: Rows, *, reads: tuple[Symbol, ...], writes: tuple[Symbol, ...], **fields: Any
    ) -> None:
        if op not in self.native.table:
            raise PlatformError(
                f"no runnable {self.native.platform} kernel for {op}; run `octavo doctor` for the reasons"
            )
        self._list.append(
            Instruction(op, kind, fields, tuple(s.buffer for s in reads), tuple(s.buffer for s in writes))
        )

    def _new(
        self, width: int, rows: Rows, element_bytes: int = 4, *, most_rows: int = 0, is_int: bool = False
    ) -> Symbol:
        lines = -(-width * element_bytes // 64)
        lines += lines > 8 and lines % 2 == 0  # rows a power of two apart would share one set of the cache
        stride = lines * 64 // element_bytes
        memory = self._memory(stride * element_bytes * (most_rows or self.max_rows[rows]))
        return Symbol(memory.buffer, width, stride, rows, is_int=is_int)

    def _memory(self, num_bytes: int) -> Symbol:
        self._bytes.append(num_bytes)
        return Symbol(len(self._bytes) - 1, 0, 0, "tokens")

    def _linear(
        self,
        x: Symbol,
        weight: PackedLinear,
        y: Symbol,
        activation: Activation,
        gate: Symbol | None,
        residual: Symbol | None,
        scale: float,
    ) -> Symbol:
        reads, fields = product(self, x, weight, activation=activation, gate=gate, residual=residual, scale=scale)
        self._emit(f"linear_{weight.packed.kind}", x.rows, reads=reads, writes=(y,), **fields, **self._out(y))
        self._list[-1].weight_bytes = weight.packed.num_bytes(weight.num_out, weight.num_in)
        return y

    def _softcap(self, x: Symbol, y: Symbol, cap: float) -> Symbol:
        self._emit(
            "softcap", x.rows, reads=(x,), writes=(y,),
            x=self._at(x), ldx=x.stride, width=x.width, cap=cap, rows=self._rows_field(x.rows), **self._out(y),
        )  # fmt: skip
        return y

    def _norm(self, op: str, x: Symbol, weight: Any, bias: Any, eps: float, heads: int) -> Symbol:
        y = self._new(x.width, x.rows)
        self._emit(
            op, x.rows, reads=(x,), writes=(y,),
            x=self._at(x), ldx=x.stride, weight=self._vector(weight), bias=self._vector(bias), width=x.width // heads,
            heads=heads, eps=eps, rows=self._rows_field(x.rows), **self._out(y),
        )  # fmt: skip
        return y

    def _shared_segments(self, heads: int, window: int) -> tuple[tuple[Symbol, ...], dict[str, Any]]:
        """Memory of one op for sequences that several threads share, and counters that all ops have in common."""
        spec = self._kv()
        size = partials_bytes(
            self.capacity, heads=heads, kv_heads=spec.num_kv_heads, head_dim=spec.head_dim, window=window,
            num_threads=self.num_threads,
        )  # fmt: skip
        if not size:
            return (), {"partials": 0, "partials_bytes": 0, "counters": 0}
        partials = self._memory(size)
        counters = self._zeros(self.capacity.max_seqs * heads)
        return (partials,), {"partials": Ref(partials.buffer), "partials_bytes": size, "counters": counters}

    def _zeros(self, num_counters: int) -> int:
        """The address of counters that all ops have in common: zero, and zero again when an op is done."""
        if num_counters not in self._counters:
            self._counters[num_counters] = self.native.arena(4 * num_counters, "counters")
            self._held.append(self._counters[num_counters])
        return int(self._counters[num_counters].address)

    def _page(self, layer: int) -> dict[str, int]:
        spec = self._kv()
        group, index = spec.place(layer)
        return {
            "kv_heads": spec.num_kv_heads, "head_dim": spec.head_dim, "block_tokens": spec.block_tokens,
            "page_bytes": page_bytes(spec, self.tile_tokens), "layer_offset": index * spec.num_kv_heads * kv_head_bytes(spec),
            "group": group, "kv_type": KV_TYPES[spec.dtype],
        }  # fmt: skip

    def _kv(self) -> KVSpec:
        if self.spec is None:
            raise PlatformError("this model was built without paged memory; give it a KVSpec")
        return self.spec

    def _at(self, x: Symbol) -> Ref:
        return Ref(x.buffer, x.column * 4)

    def _out(self, y: Symbol) -> dict[str, Any]:
        return {"y": self._at(y), "ldy": y.stride}

    def _vector(self, values: NDArray[np.float32] | None) -> int:
        return 0 if values is None else self._hold(np.ascontiguousarray(values, np.float32))

    def _hold(self, array: NDArray[Any]) -> int:
        address, holder = self.native.hold(array)
        self._held.append(holder)
        return address

    def _rows_field(self, rows: Rows) -> tuple[int, int]:
        return ROWS_KIND[rows], 0
