"""Memory for the segments of sequences that several threads share: sized once, from what a step may hold at most.

A sequence is shared out when one kv head of it takes more than an eighth of a thread's part of the step
(csrc_avx/attention/units.inl.h), so no more than eight per thread of such (sequence, kv head) pairs exist at a time.
"""

from __future__ import annotations

from octavo.platforms.platform import Capacity

SEGMENT_TOKENS = 512
PAIRS_PER_THREAD = 8
#: more is spent only where one sequence of the greatest length needs it
MOST_BYTES = 64 << 20


def partials_bytes(
    capacity: Capacity, *, heads: int, kv_heads: int, head_dim: int, window: int, num_threads: int
) -> int:
    """Bytes of one op's partial results (contract/attention.h); 0 if no sequence can be worth sharing."""
    reach = min(capacity.max_len, window + capacity.max_tokens) if window else capacity.max_len
    segments = -(-reach // SEGMENT_TOKENS) + (1 if window else 0)
    if num_threads == 1 or segments < 2:
        return 0
    one = segments * heads * (head_dim + 2) * 4
    num_seqs = min(capacity.max_seqs, -(-PAIRS_PER_THREAD * num_threads // kv_heads))
    return max(one, min(num_seqs * one, MOST_BYTES // one * one))
