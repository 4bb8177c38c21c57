"""The op contract on torch tensors of one device, each op at once. `platforms/ops.py` states the formulas.

Results stay within the bounds of the case tables (tests/cases); they are the reference's bits where that costs nothing. Arrays
are float32 tensors [rows, width]. `begin(batch)` binds the step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.engine.errors import PlatformError
from octavo.platforms.distances import check_by_distance
from octavo.platforms.gpu.torch_base.attention import Fetch, Relative, Scoring, attend, pieces
from octavo.platforms.gpu.torch_base.functions import ACTIVATIONS, best_ids, to_bf16
from octavo.platforms.gpu.torch_base.pages import TorchPages
from octavo.platforms.gpu.torch_base.products import product
from octavo.platforms.gpu.torch_base.runtime import LEVEL, Device, Tensor, to_device, torch
from octavo.platforms.gpu.torch_base.step import Step
from octavo.platforms.gpu.torch_base.weights import TorchEmbedding, TorchLinear
from octavo.platforms.rope import cos_sin
from octavo.platforms.types import Activation, Batch, Rope, VarlenDtype


class TorchOps:
    """Implements `octavo.platforms.ops.Ops`, over `pages` if the model has any."""

    def __init__(self, device: Device, pages: TorchPages | None = None) -> None:
        self.device = device
        self.pages = pages
        self._step: Step | None = None
        self._rope: dict[Rope, tuple[Tensor, Tensor]] = {}
        self._ran: dict[str, str] = {}

    def begin(self, batch: Batch) -> None:
        """Binds the step that follows."""
        self._step = Step(batch, self.device)

    @property
    def step(self) -> Step:
        if self._step is None:
            raise PlatformError("this op reads the step's batch, and none was begun: call begin(batch) first")
        return self._step

    def last_variant(self, op: str) -> str:
        """What ran last for `op` ('' if it never ran)."""
        return self._ran.get(op, "")

    def _note(self, op: str, detail: str = "") -> None:
        self._ran[op] = f"{op}{'_' + detail if detail else ''}__{LEVEL}"

    # -- tokens --------------------------------------------------------------------------------------------------------
    def embedding(self, table: TorchEmbedding, *, ids: str = "token_ids", scale: float = 1.0) -> Tensor:
        self._note("embedding", table.format)
        if table.table is not None:
            rows = table.table[self.step.ids(ids)].float()
        else:
            rows = to_device(table.stored.rows(self.step.host_ids(ids)), self.device)
        return rows if scale == 1 else rows * _f32(scale)

    def add(self, a: Tensor, b: Tensor, *, scale_a: float = 1.0, scale_b: float = 1.0) -> Tensor:
        self._note("add")
        left = a if scale_a == 1 else a * _f32(scale_a)
        right = b if scale_b == 1 else b * _f32(scale_b)
        return left + right

    def rms_norm(self, x: Tensor, weight: Tensor | None, eps: float, *, heads: int = 1) -> Tensor:
        self._note("rms_norm")
        parts = x.unflatten(1, (heads, x.shape[1] // heads))
        mean = (parts * parts).mean(-1, keepdim=True)
        y = parts * (1.0 / torch.sqrt(mean + _f32(eps)))
        return (y if weight is None else y * weight).flatten(1)

    def layer_norm(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        self._note("layer_norm")
        d = x - x.mean(-1, keepdim=True)
        variance = (d * d).mean(-1, keepdim=True)
        y = d * (1.0 / torch.sqrt(variance + _f32(eps)))
        if weight is not None:
            y = y * weight
        return y if bias is None else y + bias

    def rope(self, x: Tensor, rope: Rope, *, heads: int) -> Tensor:
        self._note("rope")
        cos, sin = self._cos_sin(rope)
        y = x.unflatten(1, (heads, x.shape[1] // heads)).clone()
        half = rope.rotary_dim // 2
        first = slice(0, rope.rotary_dim, 2) if rope.interleaved else slice(0, half)
        second = slice(1, rope.rotary_dim, 2) if rope.interleaved else slice(half, rope.rotary_dim)
        x1, x2 = y[..., first].clone(), y[..., second].clone()
        y[..., first] = x1 * cos - x2 * sin
        y[..., second] = x2 * cos + x1 * sin
        return y.flatten(1)

    def _cos_sin(self, rope: Rope) -> tuple[Tensor, Tensor]:
        """[T, 1, rotary_dim / 2] of the step's positions; the tables grow to the farthest position seen."""
        kept = self.step.kept
        if rope not in kept:
            positions = self.step.host_ids("positions")
            need = int(positions.max(initial=-1)) + 1
            length = len(self._rope[rope][0]) if rope in self._rope else 0
            if need > length:
                tables = cos_sin(rope, np.arange(max(need, min(2 * length, 1 << 19), 64)))
                self._rope[rope] = (to_device(tables[0], self.device), to_device(tables[1], self.device))
            at = self.step.ids("positions")
            cos, sin = self._rope[rope]
            kept[rope] = (cos[at].unsqueeze(1), sin[at].unsqueeze(1))
        return kept[rope]

    # -- linear --------------------------------------------------------------------------------------------------------
    def linear(
        self,
        x: Tensor,
        weight: TorchLinear,
        *,
        activation: Activation = "none",
        gate: Tensor | None = None,
        residual: Tensor | None = None,
        scale: float = 1.0,
    ) -> Tensor:
        self._note("linear", weight.format)
        if x.shape[1] != weight.num_in:
            raise PlatformError(f"linear: rows of {x.shape[1]} values meet a weight of {weight.num_in} inputs")
        y = product(x, weight)
        if scale != 1:
            y = y * _f32(scale)
        if weight.bias is not None:
            y = y + weight.bias
        y = ACTIVATIONS[activation](y)
        if gate is not None:
            y = y * gate
        return y if residual is None else y + residual

    def gated_mlp(
        self,
        x: Tensor,
        gate: TorchLinear,
        up: TorchLinear,
        down: TorchLinear,
        activation: Activation,
        *,
        residual: Tensor | None = None,
        scale: float = 1.0,
    ) -> Tensor:
        self._note("gated_mlp", gate.format)
        hidden = self.linear(x, gate, activation=activation) * self.linear(x, up)
        return self.linear(hidden, down, residual=residual, scale=scale)

    # -- attention -----------------------------------------------------------------------------------------------------
    @property
    def _pages(self) -> TorchPages:
        if self.pages is None:
            raise PlatformError("paged attention needs a KV pool, and this model was built without one")
        return self.pages

    def kv_append(self, k: Tensor, v: Tensor, *, layer: int) -> None:
        pages = self._pages
        self._note("kv_append", pages.spec.dtype)
        group, _ = pages.spec.place(layer)
        pages.append(k, v, layer, *self.step.places(group, pages.spec.block_tokens))

    def paged_attention(
        self,
        q: Tensor,
        *,
        layer: int,
        heads: int,
        scale: float,
        softcap: float = 0.0,
        sinks: Tensor | None = None,
        alibi: Tensor | None = None,
    ) -> Tensor:
        pages, step = self._pages, self.step
        spec = pages.spec
        self._note("paged_attention", spec.dtype)
        group, _ = spec.place(layer)
        how = Scoring(_f32(scale), _f32(softcap), alibi, sinks, rounds=spec.rounds)
        table = step.table(group)

        def fetcher(seqs: Tensor) -> Fetch:
            mine = table[seqs]

            def fetch(which: int, at: Tensor) -> tuple[Tensor, Tensor | None]:
                block = (at // spec.block_tokens).clamp_(max=mine.shape[1] - 1)
                return pages.read(layer, which, mine.gather(1, block), at % spec.block_tokens)

            return fetch

        rows = q.unflatten(1, (heads, -1))
        out = torch.zeros_like(rows)
        for bucket in step.causal(spec.groups[group].window):
            for piece in pieces(bucket, heads, spec.num_kv_heads, spec.head_dim):
                out[piece.rows] = attend(rows[piece.rows], piece, fetcher(piece.seqs), spec.num_kv_heads, how)
        return out.flatten(1)

    def varlen_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        window: int = 0,
        alibi: Tensor | None = None,
        bias: Tensor | None = None,
        reach: int = 0,
        is_causal: bool = False,
        dtype: VarlenDtype = "f32",
    ) -> Tensor:
        self._note("varlen_attention", "" if dtype == "f32" else dtype)
        by_distance = None if bias is None else bias.reshape(heads, 2 * reach + 1)
        how = Scoring(_f32(scale), alibi=alibi, rounds=dtype == "bf16", bias=by_distance)
        return self._packed(q, (k, v), heads, kv_heads, how, window, is_causal)

    def relative_attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        heads: int,
        scale: float,
        by_distance: tuple[int, ...],
        rel_k: Tensor | None = None,
        rel_q: Tensor | None = None,
        dtype: VarlenDtype = "f32",
    ) -> Tensor:
        self._note("relative_attention", "" if dtype == "f32" else dtype)
        buckets = check_by_distance(by_distance, (rel_k, rel_q), heads, q.shape[1])
        rel_k, rel_q = (None if x is None else x.float().reshape(heads, buckets, -1) for x in (rel_k, rel_q))
        if dtype == "bf16":
            rel_k, rel_q = (None if x is None else to_bf16(x) for x in (rel_k, rel_q))
        relative = Relative(to_device(np.array(by_distance, np.int64), self.device), rel_k, rel_q)
        return self._packed(q, (k, v), heads, heads, Scoring(_f32(scale), rounds=dtype == "bf16", relative=relative))

    def _packed(
        self,
        q: Tensor,
        keys_values: tuple[Tensor, Tensor],
        heads: int,
        kv_heads: int,
        how: Scoring,
        window: int = 0,
        is_causal: bool = False,
    ) -> Tensor:
        """Attention inside each sequence of the step."""
        rows, sides = q.unflatten(1, (heads, -1)), [x.unflatten(1, (kv_heads, -1)) for x in keys_values]
        if how.rounds:
            sides = [to_bf16(side) for side in sides]
        out = torch.zeros_like(rows)
        starts = self.step.starts()

        def fetcher(seqs: Tensor) -> Fetch:
            first = starts[seqs].unsqueeze(1)
            return lambda which, at: (sides[which][(first + at).clamp_(max=rows.shape[0] - 1)], None)

        for bucket in self.step.packed(window, is_causal):
            for piece in pieces(bucket, heads, kv_heads, rows.shape[2]):
                out[piece.rows] = attend(rows[piece.rows], piece, fetcher(piece.seqs), kv_heads, how)
        return out.flatten(1)

    # -- output --------------------------------------------------------------------------------------------------------
    def gather_rows(self, x: Tensor) -> Tensor:
        self._note("gather_rows")
        return x[self.step.ids("logits_rows")]

    def softcap(self, x: Tensor, cap: float) -> Tensor:
        self._note("softcap")
        return _f32(cap) * torch.tanh(x / _f32(cap))

    def lm_head(self, x: Tensor, weight: TorchLinear, *, scale: float = 1.0, softcap: float = 0.0) -> Tensor:
        self._note("lm_head", weight.format)
        return self._logits(x, weight, scale, softcap)

    def greedy_head(self, x: Tensor, weight: TorchLinear, *, scale: float = 1.0, softcap: float = 0.0) -> Tensor:
        self._note("greedy_head", weight.format)
        return best_ids(self._logits(x, weight, scale, softcap))

    def _logits(self, x: Tensor, weight: TorchLinear, scale: float, softcap: float) -> Tensor:
        logits = self.linear(x, weight, scale=scale)
        return self.softcap(logits, softcap) if softcap else logits

    def pool(self, x: Tensor, mode: str, *, normalize: bool = False) -> Tensor:
        self._note("pool")
        starts = self.step.batch.query_start.astype(np.int64)
        if mode not in ("cls", "last", "mean"):
            raise PlatformError(f"pool mode {mode!r} is not served; cls, last and mean are")
        if mode == "mean":
            y = self._means(x, starts)
        else:
            y = x[to_device(starts[:-1] if mode == "cls" else starts[1:] - 1, self.device)]
        if not normalize:
            return y
        norm = torch.sqrt((y * y).sum(-1, keepdim=True))
        return y / norm.clamp(min=_f32(1e-12))

    def _means(self, x: Tensor, starts: Any) -> Tensor:
        """Of each sequence's rows: gathered into equal lengths, the filling masked."""
        counts = np.diff(starts)
        steps = np.arange(int(counts.max(initial=0)))
        rows = to_device(np.minimum(starts[:-1, None] + steps, max(x.shape[0] - 1, 0)), self.device)
        hidden = to_device(steps >= counts[:, None], self.device)
        total = x[rows].masked_fill_(hidden.unsqueeze(-1), 0.0).sum(1)
        return total / to_device(counts.astype(np.float32)[:, None], self.device)

    # -- shape ---------------------------------------------------------------------------------------------------------
    def split(self, x: Tensor, widths: list[int]) -> list[Tensor]:
        return list(torch.split(x, widths, dim=1))

    def segment(self, name: str) -> None:
        """Nothing to cut: ops run at once."""


def _f32(value: float) -> float:
    """The float32 that the contract computes with."""
    return float(np.float32(value))
