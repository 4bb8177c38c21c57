"""Sampling in the documented order (docs/numerics.md, "Sampling"): one token per row of logits, by Gumbel-max.

Invariants: a row's result depends on its own logits and parameters only; ties take the lowest id; masses of top-p and
typical-p are integers (2^40 units), so that no order of summation matters; greedy rows use no noise.
Sources: Gumbel-max trick (Maddison et al. 2014), nucleus sampling (Holtzman et al. 2020), typical sampling (Meister et
al. 2022), min-p (Nguyen et al. 2024).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.reference import philox
from octavo.platforms.reference.f32 import F32, add, div, exp, flush, log, mul, sub, sum16
from octavo.platforms.types import SampleBatch, SampleResult

VOCAB_SEGMENT = 4096
MASS_SCALE = np.float64(2.0**40)
SURPRISE_SCALE = np.float64(2.0**20)
SURPRISE_MAX = np.float32(64)
Ids = NDArray[np.int32]
U64 = NDArray[np.uint64]
Keep = NDArray[np.bool_]
FLOAT_PARAMETERS = (
    "temperature",
    "top_p",
    "min_p",
    "typical_p",
    "presence",
    "frequency",
    "repetition",
    "bias_values",
)
LARGEST = np.float32(np.finfo(np.float32).max)


def sample(logits: F32, batch: SampleBatch) -> SampleResult:
    """One token id per row of `logits` [R, vocab]; -1 where no token is allowed."""
    flushed: dict[str, Any] = {name: flush(getattr(batch, name)) for name in FLOAT_PARAMETERS}
    batch = replace(batch, **flushed)
    num_rows = logits.shape[0]
    best = max(int(batch.num_logprobs.max(initial=-1)), 0)
    result = SampleResult(
        ids=np.full(num_rows, -1, np.int32),
        logprobs=np.full(num_rows, np.nan, np.float32),
        ranks=np.zeros(num_rows, np.int32),
        best_ids=np.full((num_rows, best), -1, np.int32),
        best_logprobs=np.full((num_rows, best), np.nan, np.float32),
    )
    for r in range(num_rows):
        raw, exists = clean(logits[r])
        x, keep = penalized(raw, exists, batch, r)
        y = x
        if batch.temperature[r] > 0:
            y = bounded(div(x, batch.temperature[r]))
            keep = filtered(y, keep, batch, r)
            token = draw(y, keep, batch, r)
        else:
            token = best_id(x, keep)
        result.ids[r] = token
        if token >= 0 and batch.num_logprobs[r] >= 0:
            values, among = (raw, exists) if batch.raw_logprobs else (y, keep)
            _report(result, r, token, int(batch.num_logprobs[r]), values, among)
    return result


def clean(row: F32) -> tuple[F32, Keep]:
    """(values, which exist): NaN and -inf do not exist, +inf becomes the largest float32, denormals zero."""
    exists = row > -np.inf
    return flush(np.where(exists, np.minimum(row, LARGEST), np.float32(0))), exists


def penalized(raw: F32, exists: Keep, batch: SampleBatch, r: int) -> tuple[F32, Keep]:
    """Steps 1 and 2: allowed mask, banned ids, bias, repetition, presence, frequency."""
    x, keep = raw.copy(), exists.copy()
    row = int(batch.mask_row[r])
    if row >= 0:
        bits = np.unpackbits(np.ascontiguousarray(batch.masks[row]).astype("<u4").view(np.uint8), bitorder="little")
        keep &= bits[: len(x)].astype(bool)
    keep[batch.banned_ids[batch.banned_start[r] : batch.banned_start[r + 1]]] = False
    bias = slice(int(batch.bias_start[r]), int(batch.bias_start[r + 1]))
    ids = batch.bias_ids[bias]
    x[ids] = add(x[ids], batch.bias_values[bias])
    counts = slice(int(batch.count_start[r]), int(batch.count_start[r + 1]))
    ids, output = batch.count_ids[counts], batch.count_output[counts]
    if batch.repetition[r] != 1:
        old = x[ids]
        x[ids] = np.where(old > 0, div(old, batch.repetition[r]), mul(old, batch.repetition[r]))
    ids, output = ids[output > 0], output[output > 0]
    if batch.presence[r] != 0:
        x[ids] = sub(x[ids], batch.presence[r])
    if batch.frequency[r] != 0:
        x[ids] = sub(x[ids], mul(batch.frequency[r], output.astype(np.float32)))
    return bounded(x), keep


def bounded(x: F32) -> F32:
    """Infinities, which penalties or a tiny temperature can make, become the largest float32 of their sign."""
    return np.clip(x, -LARGEST, LARGEST)


def filtered(y: F32, keep: Keep, batch: SampleBatch, r: int) -> Keep:
    """Step 4: top-k, typical-p, top-p, min-p; each over what the one before kept."""
    if batch.top_k[r] > 0:
        keep = _only(keep, descending(y, keep)[: int(batch.top_k[r])])
    if batch.typical_p[r] < 1 and keep.any():
        keep = _only(keep, _typical(y, keep, batch.typical_p[r]))
    if batch.top_p[r] < 1 and keep.any():
        order = descending(y, keep)
        keep = _only(keep, _head_of_mass(order, masses(y, order, _top(y, keep)), batch.top_p[r]))
    if batch.min_p[r] > 0 and keep.any():
        keep = keep & (exp(sub(y, _top(y, keep))) >= batch.min_p[r])
    return keep


def _only(keep: Keep, ids: Ids) -> Keep:
    out = np.zeros_like(keep)
    out[ids] = True
    return out


def _top(y: F32, keep: Keep) -> np.float32:
    top: np.float32 = y[keep].max()
    return top


def descending(y: F32, keep: Keep) -> Ids:
    """Kept ids by value, greatest first; equal values by id."""
    ids = np.flatnonzero(keep)
    return ids[np.argsort(-y[ids], kind="stable")].astype(np.int32)


def masses(y: F32, ids: Ids, top: np.float32) -> U64:
    """floor(exp(y - top) * 2^40) of each id."""
    return np.asarray(exp(sub(y[ids], top)).astype(np.float64) * MASS_SCALE, np.uint64)


def _head_of_mass(order: Ids, mass: U64, p: np.float32) -> Ids:
    """The shortest beginning of `order` whose mass reaches p of the whole; at least one id.

    p is cut to 24 bits: needed = floor(total * floor(p * 2^24) / 2^24), in exact integers.
    """
    total = np.cumsum(mass)
    parts = int(np.floor(np.float64(max(p, np.float32(0))) * 2.0**24))
    needed = max((int(total[-1]) * parts) >> 24, 1)
    return order[: int(np.searchsorted(total, np.uint64(needed), side="left")) + 1]


def _typical(y: F32, keep: Keep, p: np.float32) -> Ids:
    """Ids whose surprise is nearest to the mean surprise, until their mass reaches p.

    Surprise below the maximum's, u = floor(min(top - y, 64) * 2^20); mean = floor(sum(mass * u) / sum(mass)), exact;
    distance |u - mean|; ties by id. The common term log Z of surprise and mean falls out.
    """
    ids = np.flatnonzero(keep).astype(np.int32)
    top = _top(y, keep)
    mass = masses(y, ids, top)
    below = np.minimum(sub(np.full(len(ids), top), y[ids]), SURPRISE_MAX)
    surprise = np.asarray(below.astype(np.float64) * SURPRISE_SCALE, np.uint64)
    high, low = mass >> np.uint64(20), mass & np.uint64(0xFFFFF)
    weighted = (int((high * surprise).sum(dtype=np.uint64)) << 20) + int((low * surprise).sum(dtype=np.uint64))
    mean = weighted // int(mass.sum(dtype=np.uint64))
    order = np.argsort(np.abs(surprise.astype(np.int64) - mean), kind="stable")
    return _head_of_mass(ids[order], mass[order], p)


def draw(y: F32, keep: Keep, batch: SampleBatch, r: int) -> int:
    """Step 5: the kept id with the greatest y + Gumbel noise."""
    ids = np.flatnonzero(keep).astype(np.int32)
    if not len(ids):
        return -1
    noise = philox.gumbel(philox.draws(ids, int(batch.seed[r]), int(batch.choice[r]), int(batch.position[r])))
    return int(ids[np.argmax(add(y[ids], noise))])


def best_id(x: F32, keep: Keep) -> int:
    """Greedy: the allowed id with the greatest value; the lowest of equals; -1 if none."""
    ids = np.flatnonzero(keep)
    return int(ids[np.argmax(x[ids])]) if len(ids) else -1


def log_softmax(x: F32, among: Keep) -> F32:
    """(x - top) - log(sum); the sum: 16 lanes per segment of 4,096 tokens, segments added in order; NaN outside `among`."""
    top = _top(x, among)
    shifted = sub(x, top)
    e = np.where(among, exp(shifted), np.float32(0))
    total = np.zeros(1, np.float32)
    for start in range(0, len(e), VOCAB_SEGMENT):
        total = add(total, sum16(e[None, start : start + VOCAB_SEGMENT]))
    return np.where(among, sub(shifted, log(total)), np.float32(np.nan))


def _report(result: SampleResult, r: int, token: int, num_best: int, values: F32, among: Keep) -> None:
    logprobs = log_softmax(values, among)
    order = descending(values, among)
    result.logprobs[r] = logprobs[token]
    result.ranks[r] = int(np.flatnonzero(order == token)[0]) + 1
    best = order[:num_best]
    result.best_ids[r, : len(best)] = best
    result.best_logprobs[r, : len(best)] = logprobs[best]
