"""Causal self-attention over paged keys and values, up to the output projection's input.

Order: q, k, v (one fused product where the file's formats allow it), norms of q and k, rotation, append, attention. q
is [rows, heads * head_dim], k and v are [rows, kv_heads * head_dim]; query heads share key heads in consecutive runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.engine.layers.norm import Norm
from octavo.platforms.ops import Ops
from octavo.platforms.types import Array, LinearWeight, Rope


@dataclass(frozen=True)
class Attention:
    """One layer's attention. `qkv` holds one fused weight or three."""

    layer: int
    qkv: tuple[LinearWeight, ...]
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    softcap: float = 0.0
    rope: Rope | None = None
    q_norm: Norm | None = None
    k_norm: Norm | None = None

    def __call__(self, ops: Ops, x: Array) -> Array:
        """[rows, heads * head_dim]; stores this step's keys and values on the way."""
        q, k, v = projected(ops, x, self.qkv, self.heads * self.head_dim, self.kv_heads * self.head_dim)
        if self.q_norm is not None:
            q = self.q_norm(ops, q)
        if self.k_norm is not None:
            k = self.k_norm(ops, k)
        if self.rope is not None:
            q = ops.rope(q, self.rope, heads=self.heads)
            k = ops.rope(k, self.rope, heads=self.kv_heads)
        ops.kv_append(k, v, layer=self.layer)
        return ops.paged_attention(q, layer=self.layer, heads=self.heads, scale=self.scale, softcap=self.softcap)


def projected(ops: Ops, x: Array, qkv: tuple[LinearWeight, ...], width: int, narrow: int) -> list[Array]:
    """q [rows, width], k and v [rows, narrow], of one fused weight or of three."""
    if len(qkv) == 1:
        return ops.split(ops.linear(x, qkv[0]), [width, narrow, narrow])
    return [ops.linear(x, weight) for weight in qkv]
