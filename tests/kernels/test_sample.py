"""`sample` at every runnable level against the reference, bit for bit: filters, penalties, masks, odd values, logprobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.kernels.kv_case import levels, module_of

from octavo.platforms.reference.sample import sample
from octavo.platforms.types import SampleBatch
from octavo.platforms.x86.native import Native
from octavo.platforms.x86.sampling import NativeSampler

FIELDS = ("ids", "logprobs", "ranks", "best_ids", "best_logprobs")
LEVELS = levels("sample")


def sampler(level: str, threads: int = 2) -> NativeSampler:
    native = Native(module_of(level))
    native = Native(module_of(level), tuple(native.levels)[: list(native.levels).index(level) + 1])
    assert native.table["sample"].many == f"sample__{level}"
    return NativeSampler(native, native.module.Team(threads, 100))


def csr(rng: np.random.Generator, rows: int, vocab: int, most: int) -> tuple[Any, Any]:
    start, ids = [0], []
    for _ in range(rows):
        ids += sorted(rng.choice(vocab, rng.integers(0, min(most, vocab) + 1), replace=False).tolist())
        start.append(len(ids))
    return np.array(start, np.int32), np.array(ids, np.int32)


def random_batch(rng: np.random.Generator, rows: int, vocab: int) -> SampleBatch:
    def pick(*values: float) -> Any:
        return rng.choice(values, rows).astype(np.float32)

    counts, count_ids = csr(rng, rows, vocab, min(20, vocab))
    bias, bias_ids = csr(rng, rows, vocab, 5)
    banned, banned_ids = csr(rng, rows, vocab, 5)
    return SampleBatch(
        temperature=pick(0, 0.7, 1, 2, 1e-37, 1e-38),
        top_k=rng.choice([0, 1, 5, 50, 100_000], rows).astype(np.int32),
        top_p=pick(1, 0.9, 0.5, 0.01),
        min_p=pick(0, 0.05, 1),
        typical_p=pick(1, 0.9, 0.2),
        presence=pick(0, 1),
        frequency=pick(0, 0.5),
        repetition=pick(1, 1.3, 0.7),
        seed=rng.integers(0, 2**63, rows).astype(np.uint64),
        choice=rng.integers(0, 3, rows).astype(np.uint32),
        position=rng.integers(0, 1 << 34, rows),
        num_logprobs=rng.choice([-1, 0, 5, 20], rows).astype(np.int32),
        count_start=counts,
        count_ids=count_ids,
        count_output=rng.integers(0, 4, len(count_ids)).astype(np.int32),
        bias_start=bias,
        bias_ids=bias_ids,
        bias_values=rng.uniform(-5, 5, len(bias_ids)).astype(np.float32),
        banned_start=banned,
        banned_ids=banned_ids,
        mask_row=np.where(rng.random(rows) < 0.3, 0, -1).astype(np.int32),
        masks=rng.integers(0, 2**32, (1, -(-vocab // 32)), dtype=np.uint32),
        raw_logprobs=bool(rng.integers(2)),
    )


def random_logits(rng: np.random.Generator, rows: int, vocab: int, kind: str) -> Any:
    logits = (rng.standard_normal((rows, vocab)) * rng.choice([0.5, 2, 8])).astype(np.float32)
    if kind == "ties":
        logits = np.round(logits)
    if kind == "odd":
        logits[rng.random((rows, vocab)) < 0.02] = np.nan
        logits[rng.random((rows, vocab)) < 0.02] = -np.inf
        logits[:, 3] = np.inf
    return logits


def assert_same(a: Any, b: Any) -> None:
    for name in FIELDS:
        x, y = getattr(a, name), getattr(b, name)
        assert np.array_equal(x, y, equal_nan=x.dtype == np.float32), name


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["normal", "ties", "odd"])
def test_every_filter_gives_the_references_bits(level: str, kind: str) -> None:
    rng = np.random.default_rng(7)
    native = sampler(level)
    for vocab in (33, 257, 4096, 5000, 20_011):
        for _ in range(4):
            rows = int(rng.integers(1, 6))
            logits, batch = random_logits(rng, rows, vocab, kind), random_batch(rng, rows, vocab)
            assert_same(sample(logits, batch), native.sample(logits, batch))


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(level: str) -> None:
    rng = np.random.default_rng(3)
    logits, batch = random_logits(rng, 8, 1000, "normal"), random_batch(rng, 8, 1000)
    two, one = sampler(level, 2), sampler(level, 1)
    whole = two.sample(logits, batch)
    assert_same(whole, one.sample(logits, batch))


@pytest.mark.parametrize("level", LEVELS)
def test_plain_greedy_rows_take_the_lowest_of_equal_tokens(level: str) -> None:
    native = sampler(level)
    logits = np.zeros((3, 100), np.float32)
    logits[0, [17, 40]] = 5
    logits[1] = np.nan
    logits[2, 99] = np.inf
    batch = random_batch(np.random.default_rng(0), 3, 100)
    empty = np.zeros(4, np.int32)
    batch.temperature[:] = 0
    batch.num_logprobs[:] = -1
    batch.mask_row[:] = -1
    batch.count_start, batch.bias_start, batch.banned_start = empty, empty, empty
    assert native.sample(logits, batch).ids.tolist() == [17, -1, 99]
    assert sample(logits, batch).ids.tolist() == [17, -1, 99]


def test_gumbel_draws_follow_the_softmax() -> None:
    native = sampler("scalar")
    rows = 4000
    logits = np.tile(np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32)), (rows, 1))
    batch = random_batch(np.random.default_rng(1), rows, 4)
    empty = np.zeros(rows + 1, np.int32)
    for name, value in (("temperature", 1), ("top_k", 0), ("top_p", 1), ("min_p", 0), ("typical_p", 1)):
        getattr(batch, name)[:] = value
    batch.mask_row[:] = -1
    batch.num_logprobs[:] = -1
    batch.count_start, batch.bias_start, batch.banned_start = empty, empty, empty
    batch.seed[:] = 42
    batch.position = np.arange(rows)
    share = np.bincount(native.sample(logits, batch).ids, minlength=4) / rows
    assert np.abs(share - [0.5, 0.3, 0.15, 0.05]).max() < 0.03


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("vocab", [50, 64, 1000, 9000])
def test_draws_among_equals_are_the_references(level: str, vocab: int) -> None:
    """Noise alone decides: hundreds of rows whose tokens are all alike, or nearly."""
    rng, rows = np.random.default_rng(vocab), 300
    batch = random_batch(rng, rows, vocab)
    empty = np.zeros(rows + 1, np.int32)
    batch.count_start, batch.bias_start, batch.banned_start = empty, empty, empty
    for name, value in (("top_k", 0), ("top_p", 1), ("min_p", 0), ("typical_p", 1), ("num_logprobs", -1)):
        getattr(batch, name)[:] = value
    batch.temperature[:] = rng.choice([0.01, 1, 30], rows)
    logits = (rng.standard_normal((rows, vocab)) * rng.choice([0, 0.01, 3], (rows, 1))).astype(np.float32)
    logits += rng.choice([0, -1e6, 1e6, 1e30], (rows, 1)).astype(np.float32)
    assert np.array_equal(sampler(level).sample(logits, batch).ids, sample(logits, batch).ids)


@pytest.mark.parametrize("level", LEVELS)
def test_limits_near_the_number_of_blocks_are_the_references(level: str) -> None:
    """top-k and best tokens as many as blocks of 64, one more, one less; shares next to nothing and next to all."""
    rng, vocab = np.random.default_rng(11), 1000
    for k in (1, 2, 14, 15, 16, 17, 64, 999, 1000):
        rows = 12
        logits, batch = random_logits(rng, rows, vocab, "ties" if k % 2 else "normal"), random_batch(rng, rows, vocab)
        batch.temperature[:] = rng.choice([0.5, 1], rows)
        batch.top_k[:] = k
        batch.top_p[:] = rng.choice([0, 1e-7, 0.3, 0.999999, 1], rows).astype(np.float32)
        batch.num_logprobs[:] = min(k, 20)
        assert_same(sample(logits, batch), sampler(level).sample(logits, batch))
