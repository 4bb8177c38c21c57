"""Attention in the contract's order: softmax over segments of 512 absolute positions, folded left.

Invariants: a query's result depends on its own row and on the stored keys and values it sees, never on other queries,
on how its prompt was cut into steps, or on keys it does not see (masked weights and values are exactly +0).
Sources: Milakov & Gimelshein 2018 (online softmax), Dao et al. 2022 (fold of partial results).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.ops import ATTN_SEGMENT
from octavo.platforms.reference import f32
from octavo.platforms.reference.f32 import F32, Operand, add, div, exp, fma32, mul, sub, tanh
from octavo.platforms.reference.products import dot32

Mask = NDArray[np.bool_]
MINUS_INF = np.float32(-np.inf)
QUERY_CHUNK = 64


@dataclass(frozen=True)
class Relative:
    """Rows float32 [heads, buckets, dim] that queries (`rel_k`) and keys (`rel_q`) meet by distance, as their products take them;
    `by_distance` int32 [2 * reach + 1] names the row."""

    by_distance: NDArray[np.int32]
    rel_k: F32 | None = None
    rel_q: F32 | None = None

    def rows(self, apart: NDArray[np.int32]) -> NDArray[np.int32]:
        """The row of each distance of a key behind its query."""
        reach = len(self.by_distance) // 2
        return self.by_distance[np.clip(apart, -reach, reach) + reach]


@dataclass(frozen=True)
class Scoring:
    """How scores are made. `alibi` and `sinks` are float32 [heads]; `rounds` says that q and weights are bfloat16. `bias`,
    float32 [heads, 2 * reach + 1], is added by the distance of key and query, which ends at `reach`."""

    scale: float
    softcap: float = 0.0
    alibi: F32 | None = None
    sinks: F32 | None = None
    rounds: bool = False
    bias: F32 | None = None
    relative: Relative | None = None


@dataclass(frozen=True)
class Keys:
    """Keys and values [kv heads, positions, dim] from absolute position `start` on; scales [kv heads, positions]."""

    k: F32
    v: F32
    start: int
    k_scale: F32 | None = None
    v_scale: F32 | None = None


@dataclass
class Partial:
    """Result so far: acc [heads, Q, dim], weight sum and maximum [heads, Q]; `seen` once a segment was visible."""

    acc: F32
    total: F32
    top: F32
    seen: Mask


def attend(q: F32, positions: NDArray[np.int32], keys: Keys, low: NDArray[np.int32], high: NDArray[np.int32],
           how: Scoring) -> F32:  # fmt: skip
    """[Q, heads, dim] for queries at `positions`, each seeing keys low <= j <= high (absolute). No visible key: zeros.

    `keys` must cover every visible position and begin a segment (start % 512 == 0).
    """
    chunks = [
        _attend(q[i : i + QUERY_CHUNK], positions[i : i + QUERY_CHUNK], keys, low[i : i + QUERY_CHUNK],
                high[i : i + QUERY_CHUNK], how)
        for i in range(0, len(q), QUERY_CHUNK)
    ]  # fmt: skip
    return np.concatenate(chunks) if chunks else np.zeros(q.shape, np.float32)


def _attend(q: F32, positions: NDArray[np.int32], keys: Keys, low: NDArray[np.int32], high: NDArray[np.int32],
            how: Scoring) -> F32:  # fmt: skip
    heads = np.ascontiguousarray(np.moveaxis(f32.to_bf16(q) if how.rounds else q, 1, 0))
    num_heads, num_queries, _ = heads.shape
    state = Partial(
        np.zeros((num_heads, num_queries, keys.v.shape[-1]), np.float32),
        np.zeros((num_heads, num_queries), np.float32),
        np.full((num_heads, num_queries), MINUS_INF),
        np.zeros(num_queries, bool),
    )
    first = max(int(low.min()), keys.start) // ATTN_SEGMENT * ATTN_SEGMENT
    for begin in range(first, int(high.max()) + 1, ATTN_SEGMENT):
        end = min(begin + ATTN_SEGMENT, keys.start + keys.k.shape[1])
        at = np.arange(begin, end, dtype=np.int32)
        visible = (at >= low[:, None]) & (at <= high[:, None])
        if visible.any():
            _fold(state, *_segment(heads, positions, keys, at, visible, how), np.asarray(visible.any(axis=1)))
    return np.moveaxis(_finish(state, how), 0, 1)


def _segment(heads: F32, positions: NDArray[np.int32], keys: Keys, at: NDArray[np.int32], visible: Mask,
             how: Scoring) -> tuple[F32, F32, F32]:  # fmt: skip
    """(weighted values, weight sum, maximum) of one segment; rows that see nothing hold rubbish."""
    part = slice(int(at[0]) - keys.start, int(at[-1]) + 1 - keys.start)
    repeat = heads.shape[0] // keys.k.shape[0]
    score = dot32(heads, np.repeat(keys.k[:, part], repeat, axis=0))
    if keys.k_scale is not None:
        score = mul(score, np.repeat(keys.k_scale[:, None, part], repeat, axis=0))
    score = mul(score, np.float32(how.scale))
    if how.softcap:
        cap = np.float32(how.softcap)
        score = mul(cap, tanh(div(score, cap)))
    if how.alibi is not None:
        distance = -np.abs(at - positions[:, None]).astype(np.float32)
        score = add(score, mul(how.alibi[:, None, None], distance))
    if how.bias is not None:
        reach = how.bias.shape[1] // 2
        score = add(score, how.bias[:, np.clip(at - positions[:, None], -reach, reach) + reach])
    if how.relative is not None:
        by_place = _by_place(heads, keys.k[:, part], at - positions[:, None], how.relative)
        score = add(score, mul(by_place, np.float32(how.scale)))
    top = np.where(visible, score, MINUS_INF).max(axis=-1)
    weight = exp(sub(score, np.where(np.isfinite(top), top, np.float32(0))[..., None]))
    weight = np.where(visible, weight, np.float32(0))
    total = f32.sum16(weight)
    if keys.v_scale is not None:
        weight = mul(weight, np.repeat(keys.v_scale[:, None, part], repeat, axis=0))
    if how.rounds:
        weight = f32.to_bf16(weight)
    values = np.where(np.asarray(visible.any(axis=0))[:, None], keys.v[:, part], np.float32(0))
    return dot32(weight, np.repeat(np.swapaxes(values, 1, 2), repeat, axis=0)), total, top


def _by_place(q: F32, k: F32, apart: NDArray[np.int32], relative: Relative) -> F32:
    """[heads, Q, n] of products with the rows of distances `apart` [Q, n]."""
    at = relative.rows(apart)
    first, stop = int(at.min()), int(at.max()) + 1
    at = at - first
    terms = []
    if relative.rel_k is not None:
        by_query = dot32(q, relative.rel_k[:, first:stop])
        terms.append(np.take_along_axis(by_query, np.broadcast_to(at, (len(q), *at.shape)), axis=2))
    if relative.rel_q is not None:
        by_key = dot32(relative.rel_q[:, first:stop], k)
        terms.append(by_key[:, at, np.arange(at.shape[1])])
    return terms[0] if len(terms) == 1 else add(*terms)


def _fold(state: Partial, out: F32, total: F32, top: F32, visible: Mask) -> None:
    both, first = visible & state.seen, visible & ~state.seen
    new_top = np.maximum(state.top, top)
    if both.any():
        a, b = _ratio(state.top, new_top), _ratio(top, new_top)
        acc = fma32(state.acc, a[..., None], mul(out, b[..., None]))
        state.acc = np.where(both[:, None], acc, state.acc)
        state.total = np.where(both, fma32(state.total, a, mul(total, b)), state.total)
    state.acc = np.where(first[:, None], out, state.acc)
    state.total = np.where(first, total, state.total)
    state.top = np.where(visible, new_top, state.top)
    state.seen = state.seen | visible


def _ratio(top: Operand, new_top: Operand) -> F32:
    """exp(top - new_top)."""
    return exp(sub(top, new_top))


def _finish(state: Partial, how: Scoring) -> F32:
    acc, total = state.acc, state.total
    if how.sinks is not None:
        sink = np.broadcast_to(how.sinks[:, None], state.top.shape)
        new_top = np.maximum(state.top, sink)
        a = _ratio(state.top, new_top)
        acc, total = mul(acc, a[..., None]), fma32(total, a, _ratio(sink, new_top))
    return np.where(state.seen[:, None], div(acc, total[..., None]), np.float32(0))
