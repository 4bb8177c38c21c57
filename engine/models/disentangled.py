"""Where DeBERTa's queries and keys meet distances: buckets, and the rows that a layer makes of what was learned for them.

Near distances have a bucket each; with log buckets further ones share theirs in steps that grow by a constant factor up to the
most, all beyond are the last. Rows are made once, of a table that all layers share, by each layer's own projections.

Buckets are computed in whole numbers, and products as exact sums of whole numbers, which have one value in any order: logarithms
and a library's products differ between machines. Source: He et al. 2020; transformers `deberta_v2`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.types import F32

F64 = NDArray[np.float64]
_BITS = 20  # of each of two parts that a value is cut into
_EXACT = 1 << 12  # such products of 2 * _BITS bits add up to less than 2^53


@dataclass(frozen=True)
class Disentangled:
    """What a layer's attention asks of distances. `by_distance`: the bucket of a key that stands -reach .. reach tokens behind
    its query, counted from 0 on, and `rows` the row of the learned table that each bucket has; `num_rows`: of that table.
    `has_k`, `has_q`: queries meet projected rows as they meet keys, keys as they meet queries. `is_shared`: by the projections of
    keys and queries, else by their own. `has_norm`: of the learned rows."""

    by_distance: tuple[int, ...]
    rows: tuple[int, ...]
    num_rows: int
    has_k: bool
    has_q: bool
    is_shared: bool
    has_norm: bool


def bucket_of(apart: int, near: int, most: int) -> int:
    """The bucket of a distance of 0 or more: itself up to `near`, then `near` plus the least step t of `near` - 1 to `most` - 1
    with near * ((most - 1) / near)^(t / (near - 1)) >= apart, and beyond."""
    if apart <= near:
        return apart
    step = 0
    while (most - 1) ** step * near ** (near - 1) < apart ** (near - 1) * near**step:
        step += 1
    return near + step


def distances(num_buckets: int, most: int, max_positions: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """(`by_distance`, `rows`, `num_rows`) of `Disentangled`, as far as texts of `max_positions` tokens need. `num_buckets` 0:
    every distance below `most` has a bucket of its own."""
    span = num_buckets or most
    ahead: list[int] = []  # row of a query 0, 1, ... tokens behind its key
    behind: list[int] = []
    for apart in range(max_positions):
        bucket = bucket_of(apart, num_buckets // 2, most) if num_buckets else apart
        behind.append(min(span + bucket, 2 * span - 1))
        ahead.append(max(span - bucket, 0))
        if ahead[-1] == 0:
            break
    found = [*reversed(behind[1:]), *ahead]  # the key comes ever further behind the query: the table's rows go down
    rows = tuple(dict.fromkeys(found))
    places = {row: i for i, row in enumerate(rows)}
    return tuple(places[row] for row in found), rows, 2 * span


def normed(table: F32, weight: F32, bias: F32, eps: float) -> F64:
    """Layer norm of rows, in float64; sums are rounded once."""
    x, made = table.astype(np.float64), np.empty(table.shape)
    for row, values in enumerate(x):
        d = values - math.fsum(values) / len(values)
        made[row] = d / math.sqrt(math.fsum(d * d) / len(d) + eps)
    return made * weight + bias


def projected(rows: F64, weight: F32, bias: F32) -> F32:
    """rows [n, k] times weight [m, k] transposed, plus bias [m]: within 2^-38 of the largest values before it is rounded."""
    total = np.zeros((len(rows), len(weight)))
    for at in range(0, rows.shape[1], _EXACT):
        total += _product(rows[:, at : at + _EXACT], weight[:, at : at + _EXACT].astype(np.float64))
    return (total + bias).astype(np.float32)


def _product(a: F64, b: F64) -> F64:
    (a_high, a_low, a_scale), (b_high, b_low, b_scale) = _cut(a), _cut(b)
    low = a_high @ b_low.T + a_low @ b_high.T
    return np.asarray((a_high @ b_high.T + np.ldexp(low, -_BITS)) * np.outer(a_scale, b_scale))


def _cut(x: F64) -> tuple[F64, F64, F64]:
    """Whole numbers high and low, and a power of two of each row: x is (high + low / 2^_BITS) * scale, but for what is below."""
    _, exponent = np.frexp(np.abs(x).max(axis=1, initial=0.0))
    scaled = np.ldexp(x, (_BITS - exponent)[:, None])
    high = np.rint(scaled)
    return high, np.rint(np.ldexp(scaled - high, _BITS)), np.ldexp(1.0, exponent - _BITS)


def by_head(made: F32, heads: int) -> F32:
    """Projected rows [buckets, heads * head_dim] as [heads, buckets, head_dim], flat."""
    return np.ascontiguousarray(made.reshape(len(made), heads, -1).swapaxes(0, 1)).reshape(-1)
