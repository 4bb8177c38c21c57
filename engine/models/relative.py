"""Buckets of relative positions, as T5 and MPNet learn a bias for each: half of them for keys behind the query. Near distances
have one each; further ones share theirs in steps that grow by a constant factor up to `reach`, and all beyond share the last.

Computed in whole numbers: logarithms differ between machines. Source: Raffel et al. 2020.
"""

from __future__ import annotations

import numpy as np

from octavo.platforms.types import F32


def bucket_of(distance: int, num_buckets: int, reach: int) -> int:
    """The bucket of a key that stands `distance` tokens behind the query (below 0: before it)."""
    half = num_buckets // 2
    near = half // 2
    apart, first = abs(distance), half if distance > 0 else 0
    if apart < near:
        return first + apart
    rest, step = half - near, 0  # the largest step with near * (reach / near)^(step / rest) <= apart
    while step < rest - 1 and reach ** (step + 1) * near**rest <= apart**rest * near ** (step + 1):
        step += 1
    return first + near + step


def by_distance(table: F32, reach: int) -> F32:
    """[heads, 2 * reach + 1] of learned biases [buckets, heads]: by distance from -reach to reach."""
    index = [bucket_of(distance, len(table), reach) for distance in range(-reach, reach + 1)]
    return np.ascontiguousarray(table[index].T)
