"""The op contract executed in numpy at once: the living specification. `platforms/ops.py` states each formula.

Arrays are float32 [rows, width]. `begin(batch)` binds the step; ops that need no batch run without one. Every op is
computed in the contract's order with the helpers of `f32.py`, so any other CPU platform must give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.batch import check_batch
from octavo.platforms.distances import check_by_distance
from octavo.platforms.reference import f32
from octavo.platforms.reference.attention import Keys, Relative, Scoring, attend
from octavo.platforms.reference.f32 import F32, add, div, fma32, mul, sqrt, sub, sum16, sum16_squares
from octavo.platforms.reference.kv import K, PagePool, V, query_positions
from octavo.platforms.reference.products import dot32, integer_dot
from octavo.platforms.reference.sample import best_id, clean
from octavo.platforms.reference.weights import ReferenceEmbedding, ReferenceLinear
from octavo.platforms.rope import cos_sin
from octavo.platforms.types import Activation, Batch, Rope, VarlenDtype

ONE = np.float32(1)
ACTIVATIONS: dict[Activation, Callable[[F32], F32]] = {
    "none": lambda x: x,
    "silu": f32.silu,
    "gelu": f32.gelu,
    "gelu_tanh": f32.gelu_tanh,
    "relu": lambda x: np.where(x > 0, x, np.float32(0)),
    "relu2": lambda x: np.where(x > 0, mul(x, x), np.float32(0)),
    "tanh": f32.tanh,
    "sigmoid": f32.sigmoid,
}


class ReferenceOps:
    """Implements `octavo.platforms.ops.Ops` on numpy arrays, with its own pool of pages."""

    def __init__(self, pages: PagePool | None = None) -> None:
        self.pages = pages
        self._batch: Batch | None = None
        self._rope: dict[Rope, tuple[F32, F32]] = {}
        self._ran: dict[str, str] = {}

    def begin(self, batch: Batch) -> None:
        """Binds the step that follows."""
        check_batch(batch)
        self._batch = batch

    @property
    def batch(self) -> Batch:
        if self._batch is None:
            raise PlatformError("this op reads the step's batch, and none was begun: call begin(batch) first")
        return self._batch

    def last_variant(self, op: str) -> str:
        """What ran last for `op` ('' if it never ran)."""
        return self._ran.get(op, "")

    def _note(self, op: str, detail: str = "") -> None:
        self._ran[op] = f"{op}{'_' + detail if detail else ''}__reference"

    # -- tokens --------------------------------------------------------------------------------------------------------
    def embedding(self, table: ReferenceEmbedding, *, ids: str = "token_ids", scale: float = 1.0) -> F32:
        self._note("embedding", table.raw.format)
        wanted = getattr(self.batch, ids)
        rows = table.rows(wanted[0] if ids == "positions" else wanted)
        return rows if scale == 1 else mul(f32.flush(rows), np.float32(scale))

    def add(self, a: F32, b: F32, *, scale_a: float = 1.0, scale_b: float = 1.0) -> F32:
        self._note("add")
        a, b = f32.flush(a), f32.flush(b)
        left = a if scale_a == 1 else mul(a, np.float32(scale_a))
        right = b if scale_b == 1 else mul(b, np.float32(scale_b))
        return add(left, right)

    def rms_norm(self, x: F32, weight: F32 | None, eps: float, *, heads: int = 1) -> F32:
        self._note("rms_norm")
        parts = _by_head(x, heads)
        mean = div(sum16_squares(parts), np.float32(parts.shape[-1]))
        inverse = div(ONE, sqrt(add(mean, np.float32(eps))))
        y = mul(parts, inverse[..., None])
        scaled: F32 = y if weight is None else mul(y, f32.flush(weight))
        return scaled.reshape(x.shape)

    def layer_norm(self, x: F32, weight: F32 | None, bias: F32 | None, eps: float) -> F32:
        self._note("layer_norm")
        x, count = f32.flush(x), np.float32(x.shape[-1])
        d = sub(x, div(sum16(x), count)[:, None])
        variance = div(sum16_squares(d), count)
        y = mul(d, div(ONE, sqrt(add(variance, np.float32(eps))))[:, None])
        if weight is not None:
            return mul(y, f32.flush(weight)) if bias is None else fma32(y, f32.flush(weight), f32.flush(bias))
        return y if bias is None else add(y, f32.flush(bias))

    def rope(self, x: F32, rope: Rope, *, heads: int) -> F32:
        self._note("rope")
        cos, sin = (table[:, None, :] for table in self._cos_sin(rope, self.batch.positions[0]))
        y: F32 = x.reshape(x.shape[0], heads, x.shape[1] // heads).copy()
        half = rope.rotary_dim // 2
        first: Any = slice(0, rope.rotary_dim, 2) if rope.interleaved else slice(0, half)
        second: Any = slice(1, rope.rotary_dim, 2) if rope.interleaved else slice(half, rope.rotary_dim)
        x1, x2 = f32.flush(y[..., first].copy()), f32.flush(y[..., second].copy())
        y[..., first] = fma32(x1, cos, -mul(x2, sin))
        y[..., second] = fma32(x2, cos, mul(x1, sin))
        return y.reshape(x.shape)

    def _cos_sin(self, rope: Rope, positions: NDArray[np.int32]) -> tuple[F32, F32]:
        """Rows of the table, which grows to the farthest position seen."""
        cos, sin = self._rope.get(rope, (np.zeros((0, 0), np.float32),) * 2)
        need = int(positions.max(initial=-1)) + 1
        if need > len(cos):
            cos, sin = self._rope[rope] = cos_sin(rope, np.arange(max(need, min(2 * len(cos), 1 << 19), 64)))
        return cos[positions], sin[positions]

    # -- linear --------------------------------------------------------------------------------------------------------
    def linear(
        self,
        x: F32,
        weight: ReferenceLinear,
        *,
        activation: Activation = "none",
        gate: F32 | None = None,
        residual: F32 | None = None,
        scale: float = 1.0,
    ) -> F32:
        self._note("linear", weight.format)
        if x.shape[1] != weight.num_in:
            raise PlatformError(f"linear: rows of {x.shape[1]} values meet a weight of {weight.num_in} inputs")
        if weight.parts is not None:
            y = integer_dot(x, weight.parts)
        else:
            assert weight.values is not None
            y = dot32(f32.to_bf16(x) if weight.format == "bf16" else x, weight.values)
        if scale != 1:
            y = mul(y, np.float32(scale))
        if weight.bias is not None:
            y = add(y, f32.flush(weight.bias))
        y = ACTIVATIONS[activation](y)
        if gate is not None:
            y = mul(y, f32.flush(gate))
        return y if residual is None else add(y, f32.flush(residual))

    def gated_mlp(
        self,
        x: F32,
        gate: ReferenceLinear,
        up: ReferenceLinear,
        down: ReferenceLinear,
        activation: Activation,
        *,
        residual: F32 | None = None,
        scale: float = 1.0,
    ) -> F32:
        self._note("gated_mlp", gate.format)
        hidden = mul(self.linear(x, gate, activation=activation), self.linear(x, up))
        return self.linear(hidden, down, residual=residual, scale=scale)

    # -- attention -----------------------------------------------------------------------------------------------------
    @property
    def _pages(self) -> PagePool:
        if self.pages is None:
            raise PlatformError("paged attention needs a KV pool, and this model was built without one")
        return self.pages

    def kv_append(self, k: F32, v: F32, *, layer: int) -> None:
        self._note("kv_append", self._pages.spec.dtype)
        self._pages.append(k, v, layer, self.batch)

    def paged_attention(
        self,
        q: F32,
        *,
        layer: int,
        heads: int,
        scale: float,
        softcap: float = 0.0,
        sinks: F32 | None = None,
        alibi: F32 | None = None,
    ) -> F32:
        pages, batch = self._pages, self.batch
        spec = pages.spec
        self._note("paged_attention", spec.dtype)
        group, _ = spec.place(layer)
        window = spec.groups[group].window
        how = Scoring(scale, softcap, alibi, sinks, rounds=spec.rounds)
        rows = _by_head(q, heads)
        at = query_positions(batch)
        out = np.zeros_like(rows)
        for s in range(batch.num_seqs):
            mine = slice(int(batch.query_start[s]), int(batch.query_start[s + 1]))
            if mine.start == mine.stop:
                continue
            low = np.maximum(at[mine] - window + 1, 0) if window else np.zeros_like(at[mine])
            start = int(low[0]) // 512 * 512
            table = batch.block_tables[group][s]
            keys = _read(pages, layer, table, start, int(batch.kv_len[s]))
            out[mine] = self._attend(rows[mine], at[mine], keys, low, at[mine], how)
        return out.reshape(q.shape)

    def varlen_attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        window: int = 0,
        alibi: F32 | None = None,
        bias: F32 | None = None,
        reach: int = 0,
        is_causal: bool = False,
        dtype: VarlenDtype = "f32",
    ) -> F32:
        self._note("varlen_attention", "" if dtype == "f32" else dtype)
        by_distance = None if bias is None else bias.reshape(heads, 2 * reach + 1)
        how = Scoring(scale, alibi=alibi, rounds=dtype == "bf16", bias=by_distance)
        return self._packed(q, k, v, heads, kv_heads, how, window, is_causal)

    def relative_attention(
        self,
        q: F32,
        k: F32,
        v: F32,
        *,
        heads: int,
        scale: float,
        by_distance: tuple[int, ...],
        rel_k: F32 | None = None,
        rel_q: F32 | None = None,
        dtype: VarlenDtype = "f32",
    ) -> F32:
        self._note("relative_attention", "" if dtype == "f32" else dtype)
        buckets = check_by_distance(by_distance, (rel_k, rel_q), heads, q.shape[1])
        rounded = f32.to_bf16 if dtype == "bf16" else np.ascontiguousarray
        tables = [None if table is None else rounded(table.reshape(heads, buckets, -1)) for table in (rel_k, rel_q)]
        how = Scoring(scale, rounds=dtype == "bf16", relative=Relative(np.array(by_distance, np.int32), *tables))
        return self._packed(q, k, v, heads, heads, how)

    def _packed(
        self, q: F32, k: F32, v: F32, heads: int, kv_heads: int, how: Scoring, window: int = 0, is_causal: bool = False
    ) -> F32:
        """Attention inside each sequence of the step."""
        if how.rounds:
            k, v = f32.to_bf16(k), f32.to_bf16(v)
        rows, k3, v3 = (_by_head(a, n) for a, n in ((q, heads), (k, kv_heads), (v, kv_heads)))
        out = np.zeros_like(rows)
        for s in range(self.batch.num_seqs):
            mine = slice(int(self.batch.query_start[s]), int(self.batch.query_start[s + 1]))
            n = mine.stop - mine.start
            if n == 0:
                continue
            visible = int(self.batch.kv_len[s])
            at = np.arange(n, dtype=np.int32)
            low = np.maximum(at - window, 0) if window else np.zeros(n, np.int32)
            high = np.minimum(at + window, visible - 1) if window else np.full(n, visible - 1, np.int32)
            high = at if is_causal else high
            seen = slice(mine.start, mine.start + visible)
            keys = Keys(np.moveaxis(k3[seen], 1, 0), np.moveaxis(v3[seen], 1, 0), 0)
            out[mine] = self._attend(rows[mine], at, keys, low, high, how)
        return out.reshape(q.shape)

    def _attend(
        self,
        q: F32,
        positions: NDArray[np.int32],
        keys: Keys,
        low: NDArray[np.int32],
        high: NDArray[np.int32],
        how: Scoring,
    ) -> F32:
        """Attention of one sequence; a platform that compiles it overrides this."""
        return attend(q, positions, keys, low, high, how)

    # -- output --------------------------------------------------------------------------------------------------------
    def gather_rows(self, x: F32) -> F32:
        self._note("gather_rows")
        return x[self.batch.logits_rows]

    def softcap(self, x: F32, cap: float) -> F32:
        self._note("softcap")
        return mul(np.float32(cap), f32.tanh(div(f32.flush(x), np.float32(cap))))

    def lm_head(self, x: F32, weight: ReferenceLinear, *, scale: float = 1.0, softcap: float = 0.0) -> F32:
        self._note("lm_head", weight.format)
        return self._logits(x, weight, scale, softcap)

    def greedy_head(
        self, x: F32, weight: ReferenceLinear, *, scale: float = 1.0, softcap: float = 0.0
    ) -> NDArray[np.int32]:
        self._note("greedy_head", weight.format)
        logits = self._logits(x, weight, scale, softcap)
        return np.array([best_id(*clean(row)) for row in logits], np.int32).reshape(-1, 1)

    def _logits(self, x: F32, weight: ReferenceLinear, scale: float, softcap: float) -> F32:
        logits = self.linear(x, weight, scale=scale)
        return self.softcap(logits, softcap) if softcap else logits

    def pool(self, x: F32, mode: str, *, normalize: bool = False) -> F32:
        self._note("pool")
        starts = self.batch.query_start
        if mode == "cls":
            y = x[starts[:-1]]
        elif mode == "last":
            y = x[starts[1:] - 1]
        elif mode == "mean":
            y = np.stack([_mean(f32.flush(x[a:b])) for a, b in pairwise(starts)])
        else:
            raise PlatformError(f"pool mode {mode!r} is not served; cls, last and mean are")
        if not normalize:
            return y
        y = f32.flush(y)
        norm = sqrt(sum16_squares(y))
        return div(y, np.maximum(norm, np.float32(1e-12))[:, None])

    # -- shape ---------------------------------------------------------------------------------------------------------
    def split(self, x: F32, widths: list[int]) -> list[F32]:
        return np.split(x, np.cumsum(widths)[:-1], axis=1)

    def segment(self, name: str) -> None:
        """Nothing to cut: the reference runs at once."""


def _by_head(x: F32, heads: int) -> F32:
    """[rows, heads, width / heads]."""
    split: F32 = f32.flush(x).reshape(x.shape[0], heads, x.shape[1] // heads)
    return split


def _mean(rows: F32) -> F32:
    total = np.zeros(rows.shape[1], np.float32)
    for row in rows:
        total = add(total, row)
    return div(total, np.float32(len(rows)))


def _read(pages: PagePool, layer: int, table: NDArray[np.int32], start: int, length: int) -> Keys:
    """Stored keys and values of positions start .. length - 1; `start` is the beginning of a segment, not always of a page."""
    block = pages.spec.block_tokens
    needed = table[start // block : -(-length // block)]
    (k, k_scale), (v, v_scale) = (pages.read(layer, which, needed) for which in (K, V))
    mine = slice(start % block, start % block + length - start)
    return Keys(
        k[:, mine],
        v[:, mine],
        start,
        None if k_scale is None else k_scale[:, mine],
        None if v_scale is None else v_scale[:, mine],
    )
