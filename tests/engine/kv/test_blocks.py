"""The block pool: conserved counts, least recently released first, nothing taken twice."""

from __future__ import annotations

import random

import pytest

from octavo.engine.kv.blocks import NULL_BLOCK, BlockPool


def test_null_block_is_never_handed_out():
    pool = BlockPool(5)
    assert pool.num_usable == pool.num_free == 4
    assert sorted(pool.take(4)) == [1, 2, 3, 4]
    assert pool.take(1) is None and pool.take(0) == []
    pool.release([NULL_BLOCK, 3, NULL_BLOCK])
    assert pool.take(1) == [3]
    pool.check()


def test_taking_too_many_changes_nothing():
    pool = BlockPool(5)
    pool.take(2)
    assert pool.take(3) is None and pool.num_free == 2 and pool.num_used == 2
    pool.check()


def test_double_release_is_caught():
    pool = BlockPool(5)
    blocks = pool.take(2)
    pool.release(blocks)
    with pytest.raises(RuntimeError, match="more often"):
        pool.release(blocks[:1])
    pool.check()


def test_plain_blocks_go_first_then_the_cached_one_released_longest_ago():
    evicted = []
    pool = BlockPool(7, on_evict=lambda block, tag: evicted.append((block, tag)))
    blocks = pool.take(6)
    for block in blocks[:4]:
        pool.set_tag(block, f"tag{block}")
    pool.release([4, 3, 5, 1, 2, 6])
    assert pool.take(2) == [6, 5] and evicted == []
    assert pool.take(3) == [4, 3, 1] and evicted == [(4, "tag4"), (3, "tag3"), (1, "tag1")]
    assert pool.tag(4) is None and pool.tag(2) == "tag2" and pool.num_evicted == 3
    pool.check()


def test_sharing_a_cached_block_saves_it_from_eviction():
    pool = BlockPool(4)
    a, b, c = pool.take(3)
    pool.set_tag(b, "b")
    pool.release([a, b, c])
    pool.share(b)
    assert pool.num_free == 2 and pool.refs(b) == 1
    assert b not in pool.take(2) and pool.take(1) is None
    pool.share(b)
    pool.release([b])
    assert pool.num_free == 0
    pool.release([b])
    assert pool.num_free == 1 and pool.tag(b) == "b"
    pool.check()


def test_clearing_a_tag_makes_the_block_next():
    pool = BlockPool(4)
    for block in pool.take(3):
        pool.set_tag(block, block)
    pool.release([1, 2, 3])
    pool.clear_tag(3)
    assert pool.take(1) == [3]
    pool.check()


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_conserved_on_random_traces(seed):
    rng = random.Random(seed)
    pool = BlockPool(20)
    held: list[int] = []
    for _ in range(2000):
        move = rng.random()
        if move < 0.4:
            held += pool.take(rng.randrange(6)) or []
        elif move < 0.5 and held:
            pool.set_tag(rng.choice(held), "x")
        elif move < 0.6:
            block = rng.randrange(1, 20)
            if pool.refs(block) or pool.tag(block):
                pool.share(block)
                held.append(block)
        elif move < 0.65:
            pool.clear_tag(rng.randrange(1, 20))
        elif held:
            rng.shuffle(held)
            gone = [held.pop() for _ in range(rng.randrange(len(held)) + 1)]
            pool.release(gone)
        assert pool.num_free + len(set(held)) == 19
        assert all(pool.refs(b) == held.count(b) for b in range(1, 20))
        pool.check()


def test_a_pool_without_a_usable_block_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        BlockPool(1)
