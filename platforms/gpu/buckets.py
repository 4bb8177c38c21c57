"""Sizes of steps for which a program's launches are recorded once, as graphs: a step runs on the next larger bucket's.

Kernels read the true counts from the step in device memory and leave what is beyond them alone, so a bucket never shows in a
result, but for the kernel it chooses: bounds of `select.MANY_FROM` are bounds of buckets.
"""

from __future__ import annotations

from bisect import bisect_left

from octavo.platforms.gpu.grids import Sizes
from octavo.platforms.select import MANY_FROM

#: rows beyond which launches are few beside the work, and graphs are not worth their memory
MOST_ROWS = 512
ROWS = (0, 1, 2, 4, 8, 12, 15, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, MOST_ROWS)


#: tokens of a sequence in a step, from which attention has another kernel
MANY_TOKENS = MANY_FROM["paged_attention_", "mmafastwide"]
#: (tokens, logits, sequences, the longest sequence, the most new tokens of one)
Counts = tuple[int, int, int, int, int]


def bucket_of(tokens: int, logits: int, seqs: int, longest: int, most_new: int = 1) -> Counts | None:
    """What a graph is recorded for; None: launch one by one."""
    if max(tokens, logits, seqs) > MOST_ROWS:
        return None
    up = [ROWS[bisect_left(ROWS, count)] for count in (tokens, logits, seqs)]
    new = MANY_TOKENS if most_new >= MANY_TOKENS else MANY_TOKENS - 1
    return up[0], up[1], up[2], 1 << max(longest - 1, 0).bit_length(), new


def sizes_of(kind: int, fixed: int, bucket: Counts) -> Sizes:
    """What an op with rows of this kind (codes.ROWS_KIND, or 3: fixed) is launched for."""
    return Sizes(fixed if kind == 3 else bucket[kind], bucket[2], bucket[3], bucket[4])
