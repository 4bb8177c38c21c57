"""Attention of one head's queries over a sequence's keys and values: the compiled twin of platforms/reference/attention.py.

Segments of 512 absolute positions, folded left; a query touches only the keys it sees. Keys come as [kv head, dim, position],
so that the scores of neighbouring positions fill a vector; values as [kv head, position, dim].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from octavo.platforms.ops import ATTN_SEGMENT
from octavo.platforms.portable.functions import exp, tanh
from octavo.platforms.portable.jit import ZERO, flush, fma, inline, kernel, round_bf16
from octavo.platforms.portable.norms import fold

_NEVER = np.float32(-np.inf)
_BLOCK = 32


@inline
def scores(q: Any, keys: Any, begin: Any, end: Any, even: Any, odd: Any, out: Any) -> None:
    """out[j] = dot32(q, keys[:, begin + j]) for the positions [begin, end)."""
    n = end - begin
    out[:n] = ZERO
    dim = len(q)
    for block in range(0, dim, _BLOCK):
        even[:n] = ZERO
        odd[:n] = ZERO
        for d in range(block, min(block + _BLOCK, dim), 2):
            a = q[d]
            for j in range(n):
                even[j] = flush(fma(a, keys[d, begin + j], even[j]))
            if d + 1 < dim:
                b = q[d + 1]
                for j in range(n):
                    odd[j] = flush(fma(b, keys[d + 1, begin + j], odd[j]))
        for j in range(n):
            out[j] = flush(out[j] + flush(even[j] + odd[j]))


@inline
def weighted(weights: Any, values: Any, low: Any, begin: Any, end: Any, even: Any, odd: Any, out: Any) -> None:
    """out = dot32 of weights and values over positions [begin, end) in blocks of 32 absolute positions; `low`: of values[0]."""
    dim = values.shape[1]
    out[:] = ZERO
    position = begin
    while position < end:
        stop = min((position // _BLOCK + 1) * _BLOCK, end)
        even[:dim] = ZERO
        odd[:dim] = ZERO
        for p in range(position, stop):
            w = weights[p - begin]
            chain = odd if p % 2 else even
            for d in range(dim):
                chain[d] = flush(fma(w, values[p - low, d], chain[d]))
        for d in range(dim):
            out[d] = flush(out[d] + flush(even[d] + odd[d]))
        position = stop


@inline
def by_distance(bias: Any, apart: Any) -> Any:
    """What a head [2 * reach + 1] adds to the score of a key `apart` tokens behind the query."""
    reach = bias.shape[0] // 2
    return bias[reach + min(max(apart, -reach), reach)]


@inline
def by_place(query: Any, keys: Any, position: Any, begin: Any, end: Any, start: Any, rel_k: Any, rel_q: Any, by_distance: Any,
             has: Any, of_rows: Any, even: Any, odd: Any, out: Any) -> None:  # fmt: skip
    """out[j] = products with the rows of key begin + j's distance: of the query, then of the key. `has`: 1 rel_k, 2 rel_q."""
    n, dim, reach = end - begin, len(query), by_distance.shape[0] // 2
    first = by_distance[reach + min(max(begin - position, -reach), reach)]
    if has & 1:
        last = by_distance[reach + min(max(end - 1 - position, -reach), reach)]
        for low in range(first, last + 1, ATTN_SEGMENT):
            high = min(low + ATTN_SEGMENT, last + 1)
            scores(query, rel_k, low, high, even, odd, of_rows[low - first :])
    out[:n] = ZERO
    if has & 2:
        for block in range(0, dim, _BLOCK):
            even[:n] = ZERO
            odd[:n] = ZERO
            for d in range(block, min(block + _BLOCK, dim)):
                chain = odd if d % 2 else even
                for j in range(n):
                    row = by_distance[reach + min(max(begin + j - position, -reach), reach)]
                    chain[j] = flush(fma(rel_q[d, row], keys[d, begin - start + j], chain[j]))
            for j in range(n):
                out[j] = flush(out[j] + flush(even[j] + odd[j]))
    if has & 1:
        for j in range(n):
            x = of_rows[by_distance[reach + min(max(begin + j - position, -reach), reach)] - first]
            out[j] = flush(x + out[j]) if has & 2 else x


@inline
def weights_of(
    s: Any, n: Any, begin: Any, start: Any, base: Any, v_scale: Any, kv_head: Any, flags: Any, lanes: Any
) -> Any:
    """Scores s[:n] of positions from `begin` on become weights; their sum. Flags as in `attend`."""
    lanes[:] = ZERO
    for j in range(n):
        e = exp(flush(s[j] - base))
        lane = (begin + j) % 16
        lanes[lane] = flush(lanes[lane] + e)
        if flags & 1:
            e = flush(e * v_scale[kv_head, begin - start + j])
        s[j] = round_bf16(e) if flags & 16 else e
    return fold(lanes)


@kernel
def attend(
    q: Any, positions: Any, keys: Any, values: Any, k_scale: Any, v_scale: Any, start: Any, low: Any, high: Any, head: Any,
    kv_head: Any, scale: Any, softcap: Any, slope: Any, sink: Any, bias: Any, rel_k: Any, rel_q: Any, rows: Any, flags: Any,
    out: Any,
) -> None:  # fmt: skip
    """Head `head` of q [Q, heads, dim] -> out; flags: 1 scales, 2 softcap, 4 alibi, 8 sink, 16 weights in bf16, 32 bias, 64 and
    128 rel_k and rel_q [heads, dim, buckets], whose rows of distances are `rows`."""
    dim, size = q.shape[2], max(ATTN_SEGMENT, q.shape[2])
    even, odd = np.empty(size, np.float32), np.empty(size, np.float32)
    s, part = np.empty(ATTN_SEGMENT, np.float32), np.empty(dim, np.float32)
    lanes, query = np.empty(16, np.float32), np.empty(dim, np.float32)
    of_rows, places = np.empty(2 * ATTN_SEGMENT, np.float32), np.empty(ATTN_SEGMENT, np.float32)
    for i in range(q.shape[0]):
        for d in range(dim):
            query[d] = round_bf16(q[i, head, d]) if flags & 16 else q[i, head, d]
        top, total, seen = _NEVER, ZERO, False
        for segment in range(low[i] // ATTN_SEGMENT, high[i] // ATTN_SEGMENT + 1):
            begin = max(segment * ATTN_SEGMENT, low[i])
            end = min((segment + 1) * ATTN_SEGMENT, high[i] + 1)
            scores(query, keys[kv_head], begin - start, end - start, even, odd, s)
            if flags & 192:
                by_place(query, keys[kv_head], positions[i], begin, end, start, rel_k[head], rel_q[head], rows, flags >> 6,
                         of_rows, even, odd, places)  # fmt: skip
            best = _NEVER
            for j in range(end - begin):
                x = s[j]
                if flags & 1:
                    x = flush(x * k_scale[kv_head, begin - start + j])
                x = flush(x * scale)
                if flags & 2:
                    x = flush(softcap * tanh(flush(x / softcap)))
                if flags & 4:
                    x = flush(x + flush(slope * np.float32(-abs(begin + j - positions[i]))))
                if flags & 32:
                    x = flush(x + by_distance(bias[head], begin + j - positions[i]))
                if flags & 192:
                    x = flush(x + flush(places[j] * scale))
                s[j] = x
                best = x if x > best else best
            base = best if best < np.float32(np.inf) and best > _NEVER else ZERO
            sum_here = weights_of(s, end - begin, begin, start, base, v_scale, kv_head, flags, lanes)
            weighted(s, values[kv_head], start, begin, end, even, odd, part)
            if not seen:
                top, total, seen = best, sum_here, True
                for d in range(dim):
                    out[i, head, d] = part[d]
                continue
            new = max(top, best)
            a, b = exp(flush(top - new)), exp(flush(best - new))
            for d in range(dim):
                out[i, head, d] = flush(fma(out[i, head, d], a, flush(part[d] * b)))
            total = flush(fma(total, a, flush(sum_here * b)))
            top = new
        if flags & 8:
            new = max(top, sink)
            a = exp(flush(top - new))
            for d in range(dim):
                out[i, head, d] = flush(out[i, head, d] * a)
            total = flush(fma(total, a, exp(flush(sink - new))))
        for d in range(dim):
            out[i, head, d] = flush(out[i, head, d] / total)
