"""`sample` at every runnable level against the reference, bit for bit: filters, penalties, masks, odd values, logprobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.cases.sample_rows import assert_same, plain, random_batch, random_logits
from tests.kernels.kv_case import levels, lowest, module_of

from octavo.platforms.recorded.native import Native
from octavo.platforms.recorded.sampling import NativeSampler
from octavo.platforms.reference.sample import sample

LEVELS = levels("sample")


def sampler(level: str, threads: int = 2) -> NativeSampler:
    native = Native(module_of(level))
    native = Native(module_of(level), tuple(native.levels)[: list(native.levels).index(level) + 1])
    assert native.table["sample"].many == f"sample__{level}"
    return NativeSampler(native, native.module.Team(threads, 100))


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
def test_a_step_that_wants_no_token_draws_none(level: str) -> None:
    """Not an error of the argument list."""
    rng = np.random.default_rng(0)
    logits, batch = random_logits(rng, 1, 50, "normal"), random_batch(rng, 1, 50)
    rows = {name: value[:0] for name, value in vars(batch).items() if np.shape(value)[:1] == (1,) and name != "masks"}
    starts = {name: np.zeros(1, np.int32) for name in ("count_start", "bias_start", "banned_start")}
    none = replace(batch, **{**rows, **starts})
    assert_same(sample(logits[:0], none), sampler(level).sample(logits[:0], none))
    assert len(sampler(level).sample(logits[:0], none).ids) == 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 3, 7])
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(level: str, threads: int) -> None:
    """Rows that do not share out evenly are cut into parts."""
    rng = np.random.default_rng(3)
    for rows, vocab in ((8, 1000), (1, 40_000), (2, 20_000), (5, 9000)):
        for kind in ("normal", "ties"):
            logits, batch = random_logits(rng, rows, vocab, kind), random_batch(rng, rows, vocab)
            assert_same(sampler(level, 2).sample(logits, batch), sampler(level, threads).sample(logits, batch))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["normal", "ties", "odd"])
def test_draws_without_filters_take_the_references_token(level: str, kind: str) -> None:
    rng = np.random.default_rng(9)
    native = sampler(level)
    for vocab in (1, 5, 63, 64, 65, 4095, 4097, 13_001):
        logits = random_logits(rng, 12, max(vocab, 4), kind)[:, :vocab]
        logits = np.ascontiguousarray(logits)
        for temperature in (0.3, 1.0, 3.0, 1e-38):
            batch = plain(12, temperature=temperature, seed=np.arange(12) + (1 << 40), position=np.arange(12) << 31)
            assert_same(sample(logits, batch), native.sample(logits, batch))


@pytest.mark.parametrize("level", LEVELS)
def test_the_best_k_are_found_in_logits_of_any_order(level: str) -> None:
    """Ascending logits are the worst case: every one is above the k-th of those before."""
    native = sampler(level)
    rising = np.linspace(-9, 9, 30_000).astype(np.float32)
    logits = np.stack([rising, rising[::-1], np.round(rising), np.zeros_like(rising)])
    for k in (1, 50, 700, 5000, 29_999):
        for temperature in (1.0, 0.7, 1e-30, 1e30):
            batch = plain(4, top_k=k, temperature=temperature, num_logprobs=3)
            batch.raw_logprobs = False
            assert_same(sample(logits, batch), native.sample(logits, batch))


@pytest.mark.parametrize("level", LEVELS)
def test_top_p_holds_where_the_sample_of_the_logits_misleads(level: str) -> None:
    """Tokens of middling probability stand where no level looks when it guesses which may be left out."""
    native = sampler(level)
    vocab = 40_000
    logits = np.full((3, vocab), -20, np.float32)
    ids = np.arange(vocab)
    hidden = (ids % 5 != 0) & (ids % 40 >= 8) & (ids % 80 >= 16)
    logits[:, hidden] = np.linspace(0, 2, hidden.sum(), dtype=np.float32)
    logits[:, 80] = 6
    logits[2] = np.float32(3.4e38)
    for p in (0.3, 0.9, 0.999):
        batch = plain(3, top_p=p, num_logprobs=2, temperature=[1.0, 0.7, 1.0])
        batch.raw_logprobs = False
        assert_same(sample(logits, batch), native.sample(logits, batch))


@pytest.mark.parametrize("level", LEVELS)
def test_lists_reach_the_first_and_last_ids_of_segments(level: str) -> None:
    native = sampler(level)
    ids = np.array([0, 4095, 4096, 8191, 8192, 8199], np.int32)
    logits = np.random.default_rng(4).standard_normal((3, 8200)).astype(np.float32)
    logits[:, ids] = 9 + np.arange(6)
    start = np.arange(0, 19, 6, dtype=np.int32)
    batch = plain(3, temperature=[0, 1, 1], top_k=[0, 3, 0], repetition=4.0, num_logprobs=6)
    batch.raw_logprobs = False
    batch.count_start, batch.count_ids, batch.count_output = start, np.tile(ids, 3), np.ones(18, np.int32)
    assert_same(sample(logits, batch), native.sample(logits, batch))
    batch.bias_start, batch.bias_ids, batch.bias_values = start, np.tile(ids, 3), np.arange(18, dtype=np.float32)
    assert_same(sample(logits, batch), native.sample(logits, batch))
    batch.banned_start, batch.banned_ids = start, np.tile(ids, 3)
    assert_same(sample(logits, batch), native.sample(logits, batch))


@pytest.mark.parametrize("level", LEVELS)
def test_rows_whose_tokens_are_all_forbidden_give_minus_one(level: str) -> None:
    native = sampler(level)
    logits = np.zeros((6, 5000), np.float32)
    logits[5] = -np.inf
    masks = np.zeros((1, 157), np.uint32)
    batch = plain(
        6, temperature=[0, 1, 1, 1, 1, 1], top_k=[0, 0, 5, 0, 0, 0], top_p=[1, 1, 1, 0.5, 1, 0.5],
        typical_p=[1, 1, 1, 1, 0.5, 1], mask_row=[0, 0, 0, 0, 0, -1], num_logprobs=2, masks=masks,
    )  # fmt: skip
    result = native.sample(logits, batch)
    assert result.ids.tolist() == [-1] * 6 and result.ranks.tolist() == [0] * 6
    assert np.isnan(result.logprobs).all() and (result.best_ids == -1).all() and np.isnan(result.best_logprobs).all()
    assert_same(sample(logits, batch), result)


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
    native = sampler(lowest())
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


@pytest.mark.parametrize("level", LEVELS)
def test_shares_that_many_small_masses_decide_are_the_references(level: str) -> None:
    """Tens of thousands of tokens whose masses lie below 2^20 units make up a hundredth of the whole."""
    rng, vocab, shares = np.random.default_rng(5), 20_011, [0.99, 0.993, 0.995, 0.999]
    logits = (rng.standard_normal((4, vocab)) * 0.1 - 14.5).astype(np.float32)
    logits[:, 777] = 0
    batch = random_batch(rng, 4, vocab)
    empty = np.zeros(5, np.int32)
    batch.count_start, batch.bias_start, batch.banned_start = empty, empty, empty
    for name, value in (("temperature", 1), ("top_k", 0), ("min_p", 0), ("typical_p", 1), ("num_logprobs", 3)):
        getattr(batch, name)[:] = value
    batch.mask_row[:] = -1
    batch.top_p[:] = shares
    batch.raw_logprobs = False
    expected = sample(logits, batch)
    assert len(set(expected.best_logprobs[:, 0].tolist())) == len(shares), "the shares keep the same tokens"
    assert_same(expected, sampler(level).sample(logits, batch))
