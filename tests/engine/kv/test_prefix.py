"""The prefix tree: identity, isolation, collisions, eviction."""

from __future__ import annotations

import random

import pytest
from blake3 import blake3

from octavo.engine.kv.blocks import BlockPool
from octavo.engine.kv.prefix import MAX_CANDIDATES, MIN_ROOTS, PrefixIndex, keyed_blake3, pack_tokens

SECRET = bytes(range(32))


def make(num_blocks=50, block_tokens=4, num_groups=1, **kwargs):
    pool = BlockPool(num_blocks)
    settings = {"model_identity": b"model", "server_secret": SECRET} | kwargs
    return pool, PrefixIndex(pool, block_tokens=block_tokens, num_groups=num_groups, **settings)


def add(index, pool, parent, tokens, groups=1):
    content = pack_tokens(tokens)
    blocks = pool.take(groups)
    return index.register(parent, index.child_key(parent, content), content, blocks), blocks


def test_tokens_are_packed_as_u32_little_endian():
    assert pack_tokens([1, 0x01020304, 2**32 - 1]) == bytes.fromhex("01000000 04030201 ffffffff")


def test_the_key_is_the_documented_chain():
    _, index = make()
    root = index.root(b"salt", b"lora")
    tenant = blake3(b"octavo tenant key\0salt", key=SECRET).digest()
    assert root.key == blake3(b"modellora", key=tenant).digest()
    content = pack_tokens([1, 2, 3, 4])
    assert index.child_key(root, content) == blake3(root.key + content, key=tenant).digest()
    assert len(keyed_blake3(SECRET, b"")) == 32


def test_salt_extras_model_and_secret_all_separate():
    pool, index = make()
    _, other_model = make(model_identity=b"other")
    _, other_secret = make(server_secret=bytes(32))
    roots = [index.root(b"", b""), index.root(b"a", b""), index.root(b"", b"a")]
    roots += [other_model.root(b"", b""), other_secret.root(b"", b"")]
    assert len({root.key for root in roots}) == 5
    add(index, pool, roots[0], [1, 2, 3, 4])
    content = pack_tokens([1, 2, 3, 4])
    for root in roots[1:]:
        assert index.child(root, index.child_key(root, content), content) is None


def test_a_wrong_secret_length_is_refused():
    with pytest.raises(ValueError, match="32"):
        make(server_secret=b"short")


def test_a_key_collision_is_a_counted_miss():
    pool, index = make(hash_function=lambda key, data: b"x" * 32)
    root = index.root(b"", b"")
    first, _ = add(index, pool, root, [1, 2, 3, 4])
    other = pack_tokens([5, 6, 7, 8])
    assert index.child(root, first.key, other) is None and index.num_collisions == 1
    assert add(index, pool, root, [5, 6, 7, 8])[0] is None and index.num_collisions == 2
    assert index.child(root, first.key, first.content) is first
    # Same content, same key, another parent: still another identity.
    assert index.child(first, first.key, first.content) is None


def test_a_second_copy_of_a_block_stays_private():
    pool, index = make()
    root = index.root(b"", b"")
    node, (block,) = add(index, pool, root, [1, 2, 3, 4])
    again, (copy,) = add(index, pool, root, [1, 2, 3, 4])
    assert again is node and node.blocks == [block] and pool.tag(copy) is None


def test_eviction_removes_the_node_and_its_empty_parents():
    pool, index = make(num_blocks=4)
    root = index.root(b"", b"")
    a, (block_a,) = add(index, pool, root, [1, 2, 3, 4])
    _, (block_b,) = add(index, pool, a, [5, 6, 7, 8])
    pool.release([block_a])
    pool.release([block_b])
    assert len(index) == 2
    assert pool.take(2) == [3, block_a]
    # a has no block any more, but b hangs on it: it stays in the tree and can be filled again.
    assert len(index) == 2 and a.blocks == [0]
    assert pool.take(1) == [block_b]
    assert len(index) == 0 and not root.children


def test_a_pinned_node_survives_without_block():
    pool, index = make(num_blocks=3)
    root = index.root(b"", b"")
    node, blocks = add(index, pool, root, [1, 2, 3, 4])
    index.move_pin(None, node)
    pool.release(blocks)
    pool.take(2)
    assert node.blocks == [0] and len(index) == 1
    index.move_pin(node, None)
    assert len(index) == 0 and node.num_pins == 0


def test_the_longest_partial_match_wins():
    pool, index = make(block_tokens=8)
    root = index.root(b"", b"")
    nodes = [add(index, pool, root, [7, *range(i), *([99] * (7 - i))])[0] for i in range(8)]
    for i, node in enumerate(nodes):
        for length in range(i + 2, 9):
            wanted = [7, *range(i), *([99] * (7 - i))][:length]
            assert index.longest_partial(root, pack_tokens(wanted)) == (node, length)
    assert index.longest_partial(root, pack_tokens([8, 0, 1])) == (None, 0)
    assert index.longest_partial(root, b"") == (None, 0)


def test_partial_search_is_bounded_and_prefers_the_newest():
    pool, index = make(num_blocks=400, block_tokens=4)
    root = index.root(b"", b"")
    nodes = [add(index, pool, root, [1, 2, 10 + i, 0])[0] for i in range(3 * MAX_CANDIDATES)]
    found, shared = index.longest_partial(root, pack_tokens([1, 2, 10, 0]))
    assert shared == 2 and found is nodes[-1]


def test_a_tail_serves_only_partial_reuse_and_dies_whole():
    pool, index = make(num_blocks=4, block_tokens=4, num_groups=2)
    root = index.root(b"", b"")
    blocks = pool.take(2)
    index.register_tail(root, pack_tokens([1, 2, 3]), blocks)
    assert len(index) == 0
    found, shared = index.longest_partial(root, pack_tokens([1, 2, 9]))
    assert found.blocks == blocks and shared == 2
    index.register_tail(root, pack_tokens([1, 2]), [3, 3])
    assert pool.tag(3) is None
    pool.release(blocks)
    assert pool.take(2) == [3, blocks[0]]
    # One group's block is gone: the other's is worth nothing, and is the next to be taken.
    assert pool.tag(blocks[1]) is None and not root.children
    pool.check()


def test_blocks_with_extras_are_no_source_for_copies():
    pool, index = make()
    root = index.root(b"", b"")
    content = pack_tokens([1, 2, 3, 4]) + b"image"
    index.register(root, index.child_key(root, content), content, pool.take(1))
    assert index.longest_partial(root, pack_tokens([1, 2, 3])) == (None, 0)


def test_clear_forgets_what_nobody_holds():
    pool, index = make()
    root = index.root(b"", b"")
    a, held = add(index, pool, root, [1, 2, 3, 4])
    _, free = add(index, pool, a, [5, 6, 7, 8])
    pool.release(free)
    assert index.clear() == 1 and len(index) == 1
    pool.release(held)
    assert index.clear() == 1 and len(index) == 0 and pool.num_free == 49
    pool.check()


def test_idle_roots_are_swept():
    pool, index = make()
    busy = index.root(b"busy", b"")
    add(index, pool, busy, [1, 2, 3, 4])
    for i in range(3 * MIN_ROOTS):
        index.root(i.to_bytes(4, "little"), b"")
    assert index.root(b"busy", b"") is busy and len(index._roots) <= MIN_ROOTS + 1


@pytest.mark.parametrize("seed", range(4))
def test_tree_and_pool_agree_on_random_traces(seed):
    """Every cached block is named by exactly one live node, and every node without purpose is gone."""
    rng = random.Random(seed)
    pool, index = make(num_blocks=16, block_tokens=2, num_groups=2)
    held = []
    for _ in range(800):
        if rng.random() < 0.6:
            blocks = pool.take(2)
            if blocks is None:
                continue
            parent = rng.choice([index.root(b"", b""), *(n for n, _ in held if n is not None and not n.is_tail)])
            content = pack_tokens([rng.randrange(3), rng.randrange(3)])
            if rng.random() < 0.2:
                index.register_tail(parent, content[:4], blocks)
                pool.release(blocks)
            else:
                node = index.register(parent, index.child_key(parent, content), content, blocks)
                index.move_pin(None, node)
                held.append((node, blocks))
        elif held:
            node, blocks = held.pop(rng.randrange(len(held)))
            pool.release(blocks)
            index.move_pin(node, None)
        pool.check()
        live, stack = [], [index.root(b"", b"")]
        while stack:
            node = stack.pop()
            live.append(node)
            stack += [child for siblings in node.children.values() for child in siblings]
        named = [(b, n) for n in live for b in n.blocks if b]
        assert dict(named) == {b: pool.tag(b) for b in range(1, 16) if pool.tag(b) is not None}
        assert len(named) == len(dict(named))
        assert all(n.children or n.num_pins or any(n.blocks) for n in live if n.parent is not None)
        assert sum(not n.is_tail for n in live) - 1 == len(index)
