"""Cached prefixes through a real model: the same tokens and logits as a fresh run, and `cached_tokens` counted honestly.

vllm-project/vllm#40896, #54490: a repeated prompt gave another answer than the first time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine import bits
from tests.golden import tiny

from octavo.platforms.reference.kv import page_bytes

BLOCK = 16  # the reference platform takes blocks of 16
LENGTHS = [15, 16, 17, 32, 33]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny llama."""
    return tiny.write_safetensors("llama", tmp_path_factory.mktemp("prefix"))


def run_three_times(model: Path, *, has_cache: bool, has_partial: bool) -> list[bits.Trace]:
    core = bits.make_core(
        model,
        platform="reference",
        kv_dtype="f32",
        block_tokens=BLOCK,
        has_prefix_cache=has_cache,
        has_partial_reuse=has_partial,
    )
    prompts = bits.prompts(LENGTHS)
    runs = []
    for _ in range(3):
        whole = bits.Trace()
        for seed, prompt in prompts.items():
            trace = bits.run(core, {seed: prompt}, num_tokens=3, temperature=0.0)
            whole.tokens |= trace.tokens
            whole.logits |= trace.logits
            whole.num_cached |= trace.num_cached
        runs.append(whole)
    return runs


@pytest.mark.parametrize("has_partial", [False, True])
def test_repeated_prompts_give_the_first_answer(model: Path, has_partial: bool) -> None:
    fresh = run_three_times(model, has_cache=False, has_partial=False)
    cached = run_three_times(model, has_cache=True, has_partial=has_partial)
    for a, b in zip(fresh, cached, strict=True):
        assert a.tokens == b.tokens and a.logits == b.logits
    assert all(set(run.num_cached.values()) == {0} for run in fresh)


def test_cached_tokens_are_whole_blocks_without_partial_reuse(model: Path) -> None:
    first, second, third = run_three_times(model, has_cache=True, has_partial=False)
    assert list(first.num_cached.values()) == [0, 0, 0, 0, 0]
    # A prompt that is wholly cached still computes its last token: 16 and 32 keep one block less.
    assert list(second.num_cached.values()) == [0, 0, 16, 16, 32]
    assert second.num_cached == third.num_cached


def test_cached_tokens_are_all_but_the_last_with_partial_reuse(model: Path) -> None:
    first, second, third = run_three_times(model, has_cache=True, has_partial=True)
    assert list(first.num_cached.values()) == [0, 0, 0, 0, 0]
    assert list(second.num_cached.values()) == [14, 15, 16, 31, 32]
    assert second.num_cached == third.num_cached


def test_two_prompts_that_share_a_block_share_it(model: Path) -> None:
    shared = bits.prompts([16])[100]
    mine, other = [*shared, 1, 2, 3], [*shared, 9, 8]
    alone = bits.make_core(model, platform="reference", block_tokens=BLOCK, has_prefix_cache=False)
    expected = bits.run(alone, {1: mine}), bits.run(alone, {2: other})
    core = bits.make_core(model, platform="reference", block_tokens=BLOCK)
    first, second = bits.run(core, {1: mine}), bits.run(core, {2: other})
    assert (first.num_cached[1], second.num_cached[2]) == (0, 16)
    assert (first.of([1]), second.of([2])) == (expected[0].of([1]), expected[1].of([2]))


def test_eviction_in_between_changes_nothing(model: Path) -> None:
    prompts = bits.prompts(LENGTHS)
    expected = run_three_times(model, has_cache=False, has_partial=False)[0]
    spec = bits.make_core(model, platform="reference", kv_dtype="f32", block_tokens=BLOCK).runner.spec
    page = page_bytes(spec)
    core = bits.make_core(
        model, platform="reference", kv_dtype="f32", block_tokens=BLOCK, max_model_len=64, kv_bytes=page * 6
    )
    for round_ in range(2):
        for seed, prompt in prompts.items():
            trace = bits.run(core, {seed: prompt}, num_tokens=3, temperature=0.0)
            assert trace.tokens[seed] == expected.tokens[seed]
            bits.run(core, bits.prompts([40], 900 + seed + 50 * round_), num_tokens=2)
    assert core.scheduler.stats().num_evicted_blocks > 0
    assert core.scheduler.stats().num_used_blocks == 0
