"""From hidden states to vectors on the host, in float32 and in one order: for what no op of a platform does.

numpy's elementwise float32 is IEEE's on every processor, and sums here run in an order that this file fixes, so that a vector
does not depend on the processor or on its neighbours. Rows are [tokens, width] of one text, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from octavo.platforms import elementwise

F32 = NDArray[np.float32]
LANES = 16
MIN_NORM = np.float32(1e-12)


def pooled(rows: F32, modes: Sequence[str], *, num_prompt: int = 0) -> F32:
    """[len(modes) * width]: one vector per mode, joined. The first `num_prompt` tokens are left out, if any other is there;
    weights of `weightedmean` are the tokens' places in the whole text all the same."""
    skipped = num_prompt if num_prompt < len(rows) else 0
    return np.concatenate([_MODES[mode](rows[skipped:], skipped) for mode in modes])


def normalized(vectors: F32) -> F32:
    """Each of [n, width] divided by its length (or by 1e-12)."""
    found: F32 = vectors / np.maximum(lengths(vectors), MIN_NORM)[:, None]
    return found


def unit(vectors: F32) -> F32:
    """The same with the bits of the op `pool`."""
    length = np.maximum(elementwise.sqrt(elementwise.sum16_squares(vectors)), MIN_NORM)
    return elementwise.div(vectors, length[:, None])


def lengths(vectors: F32) -> F32:
    """sqrt of the sum of squares [n], in 16 lanes folded 8, 4, 2, 1 apart."""
    count, width = vectors.shape
    squares = np.zeros((count, -(-width // LANES) * LANES), np.float32)
    np.multiply(vectors, vectors, out=squares[:, :width])
    lanes = np.zeros((count, LANES), np.float32)
    for start in range(0, squares.shape[1], LANES):
        lanes += squares[:, start : start + LANES]
    for half in (8, 4, 2, 1):
        lanes = lanes[:, :half] + lanes[:, half : 2 * half]
    found: F32 = np.sqrt(lanes[:, 0])
    return found


def _sum(rows: F32) -> F32:
    """Rows added one by one, from the first on."""
    total: F32 = rows[0].copy()
    for row in rows[1:]:
        total += row
    return total


def _weighted(rows: F32, first: int) -> F32:
    """Each token by its place in the text, counted from 1."""
    weights = np.arange(first + 1, first + 1 + len(rows), dtype=np.float32)
    found: F32 = _sum(rows * weights[:, None]) / np.float32(int(weights.astype(np.int64).sum()))
    return found


_MODES: dict[str, Callable[[F32, int], F32]] = {
    "cls": lambda rows, _: rows[0],
    "lasttoken": lambda rows, _: rows[-1],
    "max": lambda rows, _: rows.max(axis=0),
    "mean": lambda rows, _: _sum(rows) / np.float32(len(rows)),
    "mean_sqrt_len_tokens": lambda rows, _: _sum(rows) / np.sqrt(np.float32(len(rows))),
    "weightedmean": _weighted,
}


def cut(vectors: F32, num_dims: int, *, normalizes: bool) -> F32:
    """The first values of each vector, of length 1 again where the whole ones were."""
    short = np.ascontiguousarray(vectors[:, :num_dims])
    return normalized(short) if normalizes else short
