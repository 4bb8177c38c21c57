"""Self-attention over packed sequences: a token sees its own sequence in both directions, or what lies before it, as far as the
window reaches. Nothing is kept from step to step.

Order: q, k, v (one fused product where the file's formats allow it), norms of q and k, rotation, attention. q is [rows, heads *
head_dim], k and v are [rows, kv_heads * head_dim]; query heads share key heads in consecutive runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from octavo.engine.layers.attention import projected
from octavo.engine.layers.norm import Norm
from octavo.platforms.ops import Ops
from octavo.platforms.types import Array, LinearWeight, Rope, VarlenDtype

#: formats whose products keep float32's or float16's precision: attention between them does, too
_PRECISE = ("f32", "f16")


@dataclass(frozen=True)
class RelativeRows:
    """What distances are to queries (`k`) and to keys (`q`): a platform's vectors [heads * buckets * head_dim], one may be None.
    `by_distance`: as `Ops.relative_attention` wants it."""

    by_distance: tuple[int, ...]
    k: Any | None
    q: Any | None


@dataclass(frozen=True)
class PackedAttention:
    """One layer's attention. `qkv` holds one fused weight or three; `window` w sees |i - j| <= w, 0 all; `alibi` is a platform's
    vector [heads] or None, `bias` one of heads * (2 * reach + 1), by distance; with `relative` there are neither of them, nor
    windows. Weights of bfloat16 and of fewer bits have attention's products in bfloat16."""

    qkv: tuple[LinearWeight, ...]
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int = 0
    is_causal: bool = False
    rope: Rope | None = None
    alibi: Any | None = None
    bias: Any | None = None
    reach: int = 0
    relative: RelativeRows | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None

    @property
    def dtype(self) -> VarlenDtype:
        """Of the products of queries, keys, weights and values."""
        return "f32" if any(weight.format in _PRECISE for weight in self.qkv) else "bf16"

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[rows, heads * head_dim]."""
        q, k, v = projected(ops, x, self)
        if self.relative is not None:
            return ops.relative_attention(
                q,
                k,
                v,
                heads=self.heads,
                scale=self.scale,
                by_distance=self.relative.by_distance,
                rel_k=self.relative.k,
                rel_q=self.relative.q,
                dtype=self.dtype,
            )
        return ops.varlen_attention(
            q,
            k,
            v,
            heads=self.heads,
            kv_heads=self.kv_heads,
            scale=self.scale,
            window=self.window,
            alibi=self.alibi,
            bias=self.bias,
            reach=self.reach,
            is_causal=self.is_causal,
            dtype=self.dtype,
        )
