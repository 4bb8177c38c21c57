"""Attention in segments of 512 positions, batched over sequences, heads and segments; no loop over tokens or heads.

Sequences of a step are put into buckets of about as many queries and segments each, filled up with repeated rows: all that decode
one token within 512 positions are one bucket. Large buckets are cut to what work arrays have room for, and so are the passes over
their segments; passes are folded by their maxima as the contract says (platforms/ops.py), segments inside a pass all at once.
Keys come through `Fetch`, from pages or from packed rows.
Sources: Milakov & Gimelshein 2018 (online softmax), Dao et al. 2022 (fold of partial results).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.gpu.torch_base.functions import to_bf16
from octavo.platforms.gpu.torch_base.runtime import WORK_ELEMENTS, Device, Tensor, to_device, torch
from octavo.platforms.ops import ATTN_SEGMENT

I64 = NDArray[np.int64]
#: (0 keys, 1 values; positions [S, n]) -> (float32 [S, n, kv heads, dim], scales [S, n, kv heads] or None). Positions that no
#: query sees may lie anywhere; what is fetched for them is masked
Fetch = Callable[[int, Tensor], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True, eq=False)
class Bucket:
    """Sequences with about equally many queries. `rows` [S, Q]: rows of the step, the last one repeated; `at`, `low`, `high`
    [S, Q]: position and visible keys of each; `seqs` [S]: the sequences; `start` [S, 1]: the first segment's position; `length`:
    positions from there on that somebody sees."""

    rows: Tensor
    at: Tensor
    low: Tensor
    high: Tensor
    seqs: Tensor
    start: Tensor
    length: int


@dataclass(frozen=True, eq=False)
class Relative:
    """Rows [heads, buckets, dim] that queries (`rel_k`) and keys (`rel_q`) meet by distance; `by_distance` [2 * reach + 1]."""

    by_distance: Tensor
    rel_k: Tensor | None
    rel_q: Tensor | None


@dataclass(frozen=True, eq=False)
class Scoring:
    """How scores are made. `alibi` and `sinks` are [heads]; `rounds` says that q and weights are bfloat16; `bias` is
    [heads, 2 * reach + 1], by the distance of key and query."""

    scale: float
    softcap: float = 0.0
    alibi: Tensor | None = None
    sinks: Tensor | None = None
    rounds: bool = False
    bias: Tensor | None = None
    relative: Relative | None = None


def buckets(query_start: NDArray[Any], at: I64, low: I64, high: I64, device: Device) -> list[Bucket]:
    """All queries of a step; `at`, `low` and `high` [T] are positions in their sequences."""
    counts = np.diff(query_start.astype(np.int64))
    some = np.flatnonzero(counts)
    if not len(some):
        return []
    first = query_start[some]
    segments = np.maximum.reduceat(high, first) // ATTN_SEGMENT - np.minimum.reduceat(low, first) // ATTN_SEGMENT + 1
    sizes = np.ceil(np.log2(np.stack([counts[some], segments], axis=1)))
    made = []
    for size in np.unique(sizes, axis=0):
        seqs = some[(sizes == size).all(axis=1)]
        steps = np.arange(counts[seqs].max())
        rows = query_start[seqs][:, None] + np.minimum(steps, counts[seqs][:, None] - 1)
        start = low[rows].min(axis=1, keepdims=True) // ATTN_SEGMENT * ATTN_SEGMENT
        length = int((high[rows].max(axis=1, keepdims=True) + 1 - start).max())
        put = [to_device(np.asarray(a, np.int64), device) for a in (rows, at[rows], low[rows], high[rows], seqs, start)]
        made.append(Bucket(put[0], put[1], put[2], put[3], put[4], put[5], length))
    return made


def pieces(bucket: Bucket, heads: int, kv_heads: int, dim: int) -> Iterator[Bucket]:
    """The bucket, cut along its sequences, then its queries, so that one segment fits the work arrays."""
    num_seqs, num_queries = bucket.rows.shape
    room = max(1, WORK_ELEMENTS // ATTN_SEGMENT)
    queries = min(num_queries, max(1, room // heads))
    seqs = max(1, room // max(kv_heads * dim, heads * queries))
    for i in range(0, num_seqs, seqs):
        for j in range(0, num_queries, queries):
            mine = (slice(i, i + seqs), slice(j, j + queries))
            rows, at, low, high = (x[mine] for x in (bucket.rows, bucket.at, bucket.low, bucket.high))
            yield Bucket(rows, at, low, high, bucket.seqs[mine[0]], bucket.start[mine[0]], bucket.length)


def attend(q: Tensor, bucket: Bucket, fetch: Fetch, kv_heads: int, how: Scoring) -> Tensor:
    """[S, Q, heads, dim] for queries of that shape; a query that sees no key gives zeros."""
    num_seqs, num_queries, heads, dim = q.shape
    repeat = heads // kv_heads
    grouped = q.reshape(num_seqs, num_queries, kv_heads, repeat, dim).permute(0, 2, 3, 1, 4)
    grouped = grouped.reshape(num_seqs, kv_heads, 1, repeat * num_queries, dim)
    if how.rounds:
        grouped = to_bf16(grouped)
    state: _State | None = None
    for offset, num_segments, length in _passes(bucket.length, num_seqs * max(kv_heads * dim, heads * num_queries)):
        at = bucket.start + offset + torch.arange(num_segments * length, device=q.device)
        found = _segments(grouped, bucket, fetch, at, (num_segments, repeat), how)
        state = _fold(state, *found)
    assert state is not None
    out = _finish(state, how, (kv_heads, repeat))
    return out.reshape(num_seqs, heads, num_queries, dim).transpose(1, 2)


def _passes(length: int, elements: int) -> Iterator[tuple[int, int, int]]:
    """(offset, segments, positions of each) over `length` positions; the one pass of a short context is no longer than it."""
    most = max(1, WORK_ELEMENTS // (elements * ATTN_SEGMENT))
    if length <= ATTN_SEGMENT:
        yield 0, 1, length
        return
    num_segments = -(-length // ATTN_SEGMENT)
    for first in range(0, num_segments, most):
        yield first * ATTN_SEGMENT, min(most, num_segments - first), ATTN_SEGMENT


@dataclass(frozen=True, eq=False)
class _State:
    """Result so far: acc [S, kv heads, rows, dim], weight sum and maximum [S, kv heads, rows]; rows are (repeat, Q)."""

    acc: Tensor
    total: Tensor
    top: Tensor


def _segments(
    q: Tensor, bucket: Bucket, fetch: Fetch, at: Tensor, sizes: tuple[int, int], how: Scoring
) -> tuple[Tensor, Tensor, Tensor]:
    """(weighted values [S, kv heads, segments, rows, dim], weight sums, maxima [S, kv heads, segments, rows])."""
    segments, repeat = sizes
    places = at.unflatten(1, (segments, -1)).unsqueeze(2)  # [S, segments, 1, L]
    low, high, position = (x[:, None, :, None] for x in (bucket.low, bucket.high, bucket.at))
    visible = (places >= low) & (places <= high)  # [S, segments, Q, L]
    k, k_scale = fetch(0, at)
    keys = _by_segment(k, segments).transpose(-1, -2)
    score = torch.matmul(q, keys)  # [S, kv heads, segments, rows, L]
    if how.relative is not None:
        score = score + _by_place(q, keys, places - position, how.relative)
    if k_scale is not None:
        score *= _by_segment(k_scale, segments).unsqueeze(-2)
    score *= how.scale
    if how.softcap:
        score = how.softcap * torch.tanh(score / how.softcap)
    split = score.unflatten(3, (repeat, -1))  # [S, kv heads, segments, repeat, Q, L]
    if how.alibi is not None:
        slopes = how.alibi.float().reshape(1, -1, 1, repeat, 1, 1)
        split = split + slopes * -(places - position).abs().float()[:, None, :, None]
    if how.bias is not None:
        reach = how.bias.shape[1] // 2
        apart = (places - position).clamp(-reach, reach) + reach  # [S, segments, Q, L]
        split = split + how.bias.float()[:, apart].unflatten(0, (-1, repeat)).permute(2, 0, 3, 1, 4, 5)
    hidden = ~visible[:, None, :, None]
    top = split.masked_fill(hidden, -math.inf).amax(-1, keepdim=True)
    base = torch.where(torch.isfinite(top), top, 0.0)
    weight = torch.exp(split - base).masked_fill_(hidden, 0.0)
    total = weight.sum(-1)
    v, v_scale = fetch(1, at)
    values = _by_segment(v, segments)
    values = values.masked_fill(~visible.any(2)[:, None, :, :, None], 0.0)
    weight = weight.flatten(3, 4)
    if v_scale is not None:
        weight = weight * _by_segment(v_scale, segments).unsqueeze(-2)
    if how.rounds:
        weight = to_bf16(weight)
    if v_scale is not None:  # a scale that nobody sees may be anything
        weight = torch.where(hidden.expand(split.shape).flatten(3, 4), 0.0, weight)
    return torch.matmul(weight, values), total.flatten(3), top.flatten(3)


def _by_place(q: Tensor, keys: Tensor, apart: Tensor, relative: Relative) -> Tensor | float:
    """Products of queries [S, heads, 1, Q, dim] and keys [S, heads, segments, dim, L] with rows `apart` [S, segments, Q, L]."""
    reach = relative.by_distance.shape[0] // 2
    at = relative.by_distance[apart.clamp(-reach, reach) + reach]
    first, stop = int(at.min()), int(at.max()) + 1
    index = (at - first).unsqueeze(1).expand(-1, q.shape[1], -1, -1, -1)
    total: Tensor | float = 0.0
    if relative.rel_k is not None:
        products = torch.matmul(q, relative.rel_k[:, None, first:stop].transpose(-1, -2))
        total = total + products.expand(-1, -1, index.shape[2], -1, -1).gather(-1, index)
    if relative.rel_q is not None:
        total = total + torch.matmul(relative.rel_q[:, None, first:stop], keys).gather(-2, index)
    return total


def _by_segment(x: Tensor, segments: int) -> Tensor:
    """[S, n, kv heads, ...] -> [S, kv heads, segments, n / segments, ...]."""
    return x.unflatten(1, (segments, -1)).movedim(3, 1)


def _fold(state: _State | None, out: Tensor, total: Tensor, top: Tensor) -> _State:
    new_top = top.amax(2)
    if state is not None:
        new_top = torch.maximum(new_top, state.top)
    base = torch.where(new_top == -math.inf, 0.0, new_top)
    ratio = torch.exp(top - base.unsqueeze(2))
    acc = (out * ratio.unsqueeze(-1)).sum(2)
    weights = (total * ratio).sum(2)
    if state is None:
        return _State(acc, weights, new_top)
    old = torch.exp(state.top - base)
    return _State(torch.addcmul(acc, state.acc, old.unsqueeze(-1)), torch.addcmul(weights, state.total, old), new_top)


def _finish(state: _State, how: Scoring, heads: tuple[int, int]) -> Tensor:
    acc, total = state.acc, state.total
    seen = total != 0
    if how.sinks is not None:
        rows = total.shape[2] // heads[1]
        sink = how.sinks.float().reshape(heads).repeat_interleave(rows, dim=1)
        new_top = torch.maximum(state.top, sink)
        ratio = torch.exp(state.top - new_top)
        acc, total = acc * ratio.unsqueeze(-1), total * ratio + torch.exp(sink - new_top)
    return torch.where(seen.unsqueeze(-1), acc / total.unsqueeze(-1), 0.0)
