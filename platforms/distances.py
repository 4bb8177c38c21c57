"""Checks what `Ops.relative_attention` is told of distances, for every platform."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from octavo.engine.errors import PlatformError

MOST_HEAD_DIM = 1024  # of which a thread's scratch holds what it needs


def check_by_distance(by_distance: tuple[int, ...], tables: tuple[Any, Any], heads: int, width: int) -> int:
    """The number of buckets that 2 * reach + 1 distances name. `tables`: rel_k, rel_q, one of them may be None; `width`: of q.

    PlatformError where buckets do not ascend by one at most from 0 on, or where a table has not a row of each head for each."""
    is_odd, steps = len(by_distance) % 2 == 1, {after - before for before, after in pairwise(by_distance)}
    if not is_odd or by_distance[0] != 0 or not steps <= {0, 1}:
        raise PlatformError(
            f"relative_attention: by_distance of {len(by_distance)} values must have 2 * reach + 1 buckets that begin with 0, "
            "each the one before or one more"
        )
    if width // heads > MOST_HEAD_DIM:
        raise PlatformError(f"relative_attention: heads of {width // heads} values; allowed are up to {MOST_HEAD_DIM}")
    buckets = by_distance[-1] + 1
    given = [math.prod(table.shape) for table in tables if table is not None]
    if not given or any(size != buckets * width for size in given):
        raise PlatformError(
            f"relative_attention: tables of {given} values; rel_k, rel_q or both must have {buckets} buckets of {width} each"
        )
    return buckets
