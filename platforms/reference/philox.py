"""Philox4x32-10, the counter-based generator of sampling noise, and noise made of it. Salmon et al. 2011.

Invariants: a draw is a pure function of (seed, choice, position, purpose, token id); no state, no order of calls. Noise
is finite for all 2^32 draws.

counter = (token >> 2, position mod 2^32, choice, purpose << 24 | (position >> 32) mod 2^24), key = (seed mod 2^32,
seed >> 32); word `token & 3` of the result is the draw of `token`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.reference.f32 import F32, add, log_parts, log_reduce, mul, sub

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
PURPOSE_SAMPLE = 0
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


def philox(counter: tuple[U32, U32, U32, U32], key: tuple[int, int]) -> tuple[U32, U32, U32, U32]:
    """Ten rounds over arrays of counters."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0.astype(np.uint64) * MULTIPLIERS[0], c2.astype(np.uint64) * MULTIPLIERS[1]
        high0, low0 = (p0 >> _SHIFT).astype(np.uint32), (p0 & _MASK).astype(np.uint32)
        high1, low1 = (p1 >> _SHIFT).astype(np.uint32), (p1 & _MASK).astype(np.uint32)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint32(k0), low1, high0 ^ c3 ^ np.uint32(k1), low0
        k0, k1 = (k0 + WEYL[0]) & 0xFFFFFFFF, (k1 + WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def draws(tokens: NDArray[np.int32], seed: int, choice: int, position: int, purpose: int = PURPOSE_SAMPLE) -> U32:
    """One uint32 per token id."""
    ids = tokens.astype(np.uint32)
    fill = np.ones_like(ids)
    top = (purpose << 24) | ((position >> 32) & 0xFFFFFF)
    counter = (
        ids >> np.uint32(2),
        fill * np.uint32(position & 0xFFFFFFFF),
        fill * np.uint32(choice),
        fill * np.uint32(top),
    )
    words = np.stack(philox(counter, (seed & 0xFFFFFFFF, seed >> 32)))
    return np.asarray(np.take_along_axis(words, (ids & np.uint32(3)).astype(np.int64)[None], axis=0)[0], np.uint32)


def gumbel(draw: U32) -> F32:
    """-log(-log(u)) of uniform u = (draw + 1/2) / 2^32, accurate at both ends; in [-3.2, 22.9].

    The upper half is taken from the other side (u = 1 - t, t = (~draw + 1/2) / 2^32), so that t keeps 24 bits near 0:
    -log(u) = -log1p(-t) there. t is at most 1/2; below 1/4 log1p uses the polynomial of `log` on -t itself.
    """
    is_high = draw >= np.uint32(0x80000000)
    folded = np.where(is_high, ~draw, draw).astype(np.int32)
    t = mul(add(folded.astype(np.float32), np.float32(0.5)), np.float32(2.0**-32))
    k, f = log_reduce(np.where(is_high, sub(np.float32(1), t), t))
    near_one = is_high & (t < np.float32(0.25))
    e = -log_parts(k, np.where(near_one, -t, f))
    return -log_parts(*log_reduce(e))
