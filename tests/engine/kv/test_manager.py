"""Reuse through the whole scheduler: how many tokens count as cached, and that the KV behind them is right."""

from __future__ import annotations

import random

import pytest
from tests.engine.fake_runner import FakeRunner, check_conserved, expected_output, run_all

from octavo.engine.kv.groups import GroupKind, GroupSpec
from octavo.engine.kv.manager import KVManager
from octavo.engine.request import Request
from octavo.engine.sampling_params import SamplingParams
from octavo.engine.scheduler import Scheduler, SchedulerConfig

FULL = GroupSpec()


def window(tokens):
    return GroupSpec(GroupKind.SLIDING_WINDOW, tokens)


def make(num_blocks=60, block_tokens=16, specs=(FULL,), **kwargs):
    kv = KVManager(specs, num_blocks + 1, block_tokens, **kwargs)
    return Scheduler(SchedulerConfig(max_batch_tokens=256), kv, clock=lambda: 0.0), FakeRunner(kv)


def prompt_of(seed, length):
    return [random.Random(seed).randrange(997) for _ in range(length)]


def answer(scheduler, runner, prompt, max_tokens=4, **kwargs):
    """Run one request; its cached tokens. The answer is compared with the model's own."""
    request = Request("r", prompt, SamplingParams(max_tokens=max_tokens), **kwargs)
    scheduler.add(request)
    run_all(scheduler, runner)
    assert request.output_ids == expected_output(prompt, max_tokens)
    check_conserved(scheduler, [request])
    return request.num_cached


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33])
def test_cached_tokens_are_zero_then_whole_blocks(length):
    scheduler, runner = make(has_partial_reuse=False)
    whole = (length - 1) // 16 * 16
    assert [answer(scheduler, runner, prompt_of(1, length)) for _ in range(3)] == [0, whole, whole]


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33])
def test_with_partial_reuse_all_but_the_last_token_are_cached(length):
    scheduler, runner = make()
    assert [answer(scheduler, runner, prompt_of(1, length)) for _ in range(3)] == [0, length - 1, length - 1]
    # Every run computes at least the last token of the prompt.
    assert runner.num_tokens_run == length + 3 + 2 * (1 + 3)


@pytest.mark.parametrize("length", [15, 16, 17, 32, 33])
def test_without_prefix_cache_nothing_is_cached(length):
    scheduler, runner = make(has_prefix_cache=False)
    assert [answer(scheduler, runner, prompt_of(1, length)) for _ in range(3)] == [0, 0, 0]
    assert len(scheduler.kv.index) == 0


@pytest.mark.parametrize(("partial", "cached"), [(False, 16), (True, 16), (True, 21)])
def test_two_prompts_share_sixteen_tokens(partial, cached):
    scheduler, runner = make(has_partial_reuse=partial)
    common = prompt_of(1, cached)
    assert answer(scheduler, runner, common + [1] * 20) == 0
    assert answer(scheduler, runner, common + [2] * 20) == cached


def test_answers_stay_right_under_eviction_pressure():
    rng = random.Random(3)
    for partial in (False, True):
        scheduler, runner = make(num_blocks=8, has_partial_reuse=partial)
        cached = []
        for _ in range(60):
            length = rng.choice([15, 16, 17, 32, 33, 90])
            cached.append(answer(scheduler, runner, prompt_of(length, length)))
        assert scheduler.stats().num_evicted_blocks > 20 and max(cached) > 0


def test_output_tokens_are_reused_by_the_next_turn():
    scheduler, runner = make()
    prompt = prompt_of(1, 20)
    answer(scheduler, runner, prompt, max_tokens=30)
    history = prompt + expected_output(prompt, 30)
    # The KV of the very last output was never computed.
    assert answer(scheduler, runner, [*history, 5, 6, 7]) == 49


def test_tenants_do_not_see_each_other():
    scheduler, runner = make()
    prompt = prompt_of(1, 40)
    for salt in (b"alice", b"bob", b""):
        assert answer(scheduler, runner, prompt, salt=salt) == 0
        assert answer(scheduler, runner, prompt, salt=salt) == 39


def test_adapters_and_images_separate_too():
    scheduler, runner = make()
    prompt = prompt_of(1, 40)
    assert answer(scheduler, runner, prompt) == 0
    assert answer(scheduler, runner, prompt, hash_root=b"adapter") == 0
    assert answer(scheduler, runner, prompt, hash_parts={20: b"image 1"}) == 16
    assert answer(scheduler, runner, prompt, hash_parts={20: b"image 2"}) == 16
    assert answer(scheduler, runner, prompt, hash_parts={20: b"image 1"}) == 39


@pytest.mark.parametrize("partial", [False, True])
def test_a_forced_hash_collision_still_gives_the_right_text(partial):
    scheduler, runner = make(has_partial_reuse=partial)
    scheduler.kv.index._hash = lambda key, data: b"same" * 8
    for _ in range(2):
        for seed in range(4):
            answer(scheduler, runner, prompt_of(seed, 40))
    assert scheduler.stats().num_hash_collisions > 0


def test_a_parent_outlives_its_children():
    scheduler, runner = make(num_blocks=40, block_tokens=4, has_partial_reuse=False)
    rng = random.Random(5)
    shared = prompt_of(0, 40)
    for i in range(80):
        answer(scheduler, runner, shared[: rng.randrange(40)] + prompt_of(i, rng.randrange(1, 30)))
        pool = scheduler.kv.pool
        for block in range(1, pool.num_blocks):
            node = pool.tag(block)
            assert node is None or node.parent.parent is None or node.parent.blocks[0]
    assert scheduler.stats().num_evicted_blocks > 100


def test_a_sliding_group_holds_only_its_window():
    scheduler, runner = make(block_tokens=4, specs=(FULL, window(6)))
    request = Request("r", prompt_of(1, 50), SamplingParams(max_tokens=40))
    scheduler.add(request)
    for step in range(30):
        plan = scheduler.plan()
        runner.run(plan)
        full, sliding = (table.ids for table in request.tables)
        assert len(full) == len(sliding) and 0 not in full
        if step:
            start = plan.entries[0].start
            assert [i for i, block in enumerate(sliding) if block] == list(range((start - 5) // 4, len(sliding)))
            assert request.tables[1].first_live == (start - 5) // 4
        scheduler.commit(plan, [[1]])


@pytest.mark.parametrize("tokens", [1, 4, 5, 6, 17, 40, 100])
def test_a_window_hit_needs_no_older_blocks(tokens):
    specs = (FULL, window(tokens))
    scheduler, runner = make(block_tokens=4, specs=specs, has_partial_reuse=False)
    prompt = prompt_of(1, 61)
    assert answer(scheduler, runner, prompt) == 0
    assert answer(scheduler, runner, prompt) == 60
    scheduler, runner = make(block_tokens=4, specs=specs)
    assert [answer(scheduler, runner, prompt) for _ in range(2)] == [0, 60]


def test_blocks_behind_a_window_are_evicted_before_the_window():
    scheduler, runner = make(num_blocks=32, block_tokens=4, specs=(window(8),))
    prompt = prompt_of(1, 90)
    scheduler.add(Request("r", prompt, SamplingParams(max_tokens=200, ignore_eos=True)))
    run_all(scheduler, runner)
    assert scheduler.kv.max_tokens == 1 << 31
    assert scheduler.stats().num_evicted_blocks > 20


def test_max_tokens_is_what_the_whole_pool_can_hold():
    assert KVManager([FULL], 5, 16).max_tokens == 64
    assert KVManager([FULL, FULL], 5, 16).max_tokens == 32
    # Window 16: up to three blocks of it at once, the rest is the full group's.
    assert KVManager([FULL, window(16)], 11, 16).max_tokens == 7 * 16
    with pytest.raises(ValueError, match="at least one"):
        KVManager([], 5, 16)


def test_a_block_that_fills_with_the_last_computed_token_is_kept():
    scheduler, runner = make(has_partial_reuse=False)
    prompt = prompt_of(1, 31)
    answer(scheduler, runner, prompt, max_tokens=2)
    assert answer(scheduler, runner, prompt + expected_output(prompt, 2)) == 32


def test_the_source_of_a_copy_is_held_until_the_plan_is_made():
    scheduler, runner = make(num_blocks=2, block_tokens=8)
    prompt = prompt_of(1, 5)
    answer(scheduler, runner, prompt, max_tokens=2)
    kv = scheduler.kv
    request = Request("r", prompt, SamplingParams(max_tokens=1))
    (copy,) = kv.attach(request, kv.find(request))
    assert copy.num_tokens == 4 and request.num_computed == 4
    assert kv.pool.num_free == 0 and kv.pool.refs(copy.src) == kv.pool.refs(copy.dst) == 1
    kv.unpin()
    assert kv.pool.num_free == 1 and kv.pool.refs(copy.src) == 0


def test_copies_never_read_what_the_same_step_writes():
    """Many requests that all copy from few sources while the pool is nearly empty."""
    scheduler, runner = make(num_blocks=14, block_tokens=8)
    prompts = [prompt_of(1, 12) + [i] * 6 for i in range(6)]
    num_copies = 0

    def check(plan, _):
        nonlocal num_copies
        num_copies += len(plan.copies)
        assert not {c.dst for c in plan.copies} & {c.src for c in plan.copies}

    for _ in range(4):
        for i, prompt in enumerate(prompts):
            scheduler.add(Request(f"r{i}", prompt, SamplingParams(max_tokens=5)))
        answers = run_all(scheduler, runner, each=check)
        assert answers == {(f"r{i}", 0): expected_output(p, 5) for i, p in enumerate(prompts)}
    assert num_copies > 5
