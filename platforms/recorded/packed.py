"""Attention over packed sequences, recorded: methods of `Recorder`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from octavo.platforms.distances import check_by_distance
from octavo.platforms.recorded.symbols import Symbol
from octavo.platforms.types import VarlenDtype

if TYPE_CHECKING:
    from octavo.platforms.recorded.recorder import Recorder


def varlen_attention(
    made: Recorder,
    q: Symbol,
    k: Symbol,
    v: Symbol,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
    window: int = 0,
    alibi: Any | None = None,
    bias: Any | None = None,
    reach: int = 0,
    is_causal: bool = False,
    dtype: VarlenDtype = "f32",
) -> Symbol:
    y = made._new(q.width, "tokens")
    made._emit(
        f"varlen_attention{'' if dtype == 'f32' else '_' + dtype}", "tokens", reads=(q, k, v), writes=(y,),
        q=made._at(q), ldq=q.stride, k=made._at(k), ldk=k.stride, v=made._at(v), ldv=v.stride, heads=heads,
        kv_heads=kv_heads, head_dim=q.width // heads, window=window, alibi=made._vector(alibi), scale=scale,
        bias=made._vector(bias), reach=reach, causal=int(is_causal), **made._out(y),
    )  # fmt: skip
    return y


def relative_attention(
    made: Recorder,
    q: Symbol,
    k: Symbol,
    v: Symbol,
    *,
    heads: int,
    scale: float,
    by_distance: tuple[int, ...],
    rel_k: Any | None = None,
    rel_q: Any | None = None,
    dtype: VarlenDtype = "f32",
) -> Symbol:
    y = made._new(q.width, "tokens")
    buckets = check_by_distance(by_distance, (rel_k, rel_q), heads, q.width)
    made._emit(
        f"relative_attention{'' if dtype == 'f32' else '_' + dtype}", "tokens", reads=(q, k, v), writes=(y,),
        q=made._at(q), ldq=q.stride, k=made._at(k), ldk=k.stride, v=made._at(v), ldv=v.stride, heads=heads,
        head_dim=q.width // heads, rel_k=made._vector(rel_k), rel_q=made._vector(rel_q),
        by_distance=made._hold(np.array(by_distance, np.int32)), buckets=buckets,
        reach=len(by_distance) // 2, scale=scale, **made._out(y),
    )  # fmt: skip
    return y
