"""Causal self-attention over paged keys and values, up to the output projection's input.

Order: q, k, v (one fused product where the file's formats allow it), norms of q and k, rotation, append, attention. q
is [rows, heads * head_dim], k and v are [rows, kv_heads * head_dim]; query heads share key heads in consecutive runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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
        q, k, v = projected(ops, x, self)
        ops.kv_append(k, v, layer=self.layer)
        return ops.paged_attention(q, layer=self.layer, heads=self.heads, scale=self.scale, softcap=self.softcap)


class Projection(Protocol):
    """What attention over pages and over packed sequences have in common, up to their queries and keys."""

    @property
    def qkv(self) -> tuple[LinearWeight, ...]: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def rope(self) -> Rope | None: ...
    @property
    def q_norm(self) -> Norm | None: ...
    @property
    def k_norm(self) -> Norm | None: ...


def projected(ops: Ops, x: Array, layer: Projection) -> tuple[Array, Array, Array]:
    """q, k and v of one fused weight or of three; q and k behind their norms and rotation."""
    if len(layer.qkv) == 1:
        narrow = layer.kv_heads * layer.head_dim
        q, k, v = ops.split(ops.linear(x, layer.qkv[0]), [layer.heads * layer.head_dim, narrow, narrow])
    else:
        q, k, v = (ops.linear(x, weight) for weight in layer.qkv)
    if layer.q_norm is not None:
        q = layer.q_norm(ops, q)
    if layer.k_norm is not None:
        k = layer.k_norm(ops, k)
    if layer.rope is not None:
        q = ops.rope(q, layer.rope, heads=layer.heads)
        k = ops.rope(k, layer.rope, heads=layer.kv_heads)
    return q, k, v
