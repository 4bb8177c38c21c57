"""Group kinds: what a window still looks at, what a hit needs, against brute force over positions."""

from __future__ import annotations

import random

import pytest

from octavo.engine.kv.groups import GroupKind, GroupSpec, longest_hit
from octavo.engine.kv.prefix import PrefixNode

FULL = GroupSpec()


def window(tokens):
    return GroupSpec(GroupKind.SLIDING_WINDOW, tokens)


def path_of(*rows):
    """One node per column; rows are groups, 1 where the group has the block."""
    nodes = []
    for column in zip(*rows, strict=True):
        node = PrefixNode(None, b"k", b"", 4, len(rows), b"")
        node.blocks = list(column)
        nodes.append(node)
    return nodes


@pytest.mark.parametrize("block_tokens", [1, 3, 16])
@pytest.mark.parametrize("tokens", [1, 2, 5, 16, 17])
def test_first_live_and_next_death_agree_with_the_mask(tokens, block_tokens):
    spec = window(tokens)
    for position in range(60):
        seen = [p for p in range(position + 1) if p > position - tokens]
        first = spec.first_live(position, block_tokens)
        assert first == min(seen) // block_tokens
        # Dead exactly when no query at `position` or later sees any of its tokens.
        for block in range(6):
            assert (block < first) == (position >= spec.next_death(block, block_tokens))


def test_full_keeps_everything():
    assert FULL.first_live(10**6, 16) == 0 and FULL.next_death(5, 16) > 10**12 and FULL.peak_blocks(33, 16) == 3


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_peak_blocks_bounds_what_a_growing_sequence_holds(chunk):
    for block_tokens in (1, 4, 16):
        for tokens in (1, 5, 16, 33):
            spec, most, total, lag = window(tokens), 0, 150, 1
            for start in range(0, total, chunk):
                end = min(total, start + chunk)
                held = -(-end // block_tokens) - spec.first_live(max(0, start - lag), block_tokens)
                most = max(most, held)
            assert most <= spec.peak_blocks(total, block_tokens, chunk) <= most + 2


def test_full_group_needs_every_block():
    assert longest_hit([FULL], path_of([1, 1, 0, 1]), 4) == 2
    assert longest_hit([FULL], path_of([0, 1]), 4) == 0
    assert longest_hit([FULL, FULL], path_of([1, 1, 1], [1, 0, 1]), 4) == 1


def test_window_needs_only_its_last_blocks():
    # Window 5: before L, the last 4 tokens: one block when L is a multiple of 4.
    assert longest_hit([window(5)], path_of([0, 0, 0, 1]), 4) == 4
    assert longest_hit([window(6)], path_of([0, 0, 0, 1]), 4) == 0
    assert longest_hit([window(6)], path_of([0, 1, 1, 0]), 4) == 3
    assert longest_hit([window(1)], path_of([0, 0, 0]), 4) == 3


def test_groups_agree_on_one_length():
    assert longest_hit([FULL, window(5)], path_of([1, 1, 1, 0], [0, 0, 1, 1]), 4) == 3
    assert longest_hit([FULL, window(5)], path_of([1, 1, 1, 0], [0, 1, 0, 1]), 4) == 2
    assert longest_hit([window(5), window(9)], path_of([1, 0, 1, 1], [1, 1, 0, 1]), 4) == 1


@pytest.mark.parametrize("seed", range(3))
def test_longest_hit_equals_brute_force(seed):
    rng = random.Random(seed)
    for _ in range(300):
        block_tokens = rng.choice([1, 3, 4])
        specs = [rng.choice([FULL, window(rng.randrange(1, 14))]) for _ in range(rng.randrange(1, 4))]
        length = rng.randrange(7)
        path = path_of(*[[int(rng.random() < 0.7) for _ in range(length)] for _ in specs])

        def is_hit(blocks, specs=specs, path=path, block_tokens=block_tokens):
            position = blocks * block_tokens
            for g, spec in enumerate(specs):
                seen = range(position) if spec.is_full else range(max(0, position - spec.window_tokens + 1), position)
                if any(not path[p // block_tokens].blocks[g] for p in seen):
                    return False
            return True

        best = max(n for n in range(length + 1) if is_hit(n))
        assert longest_hit(specs, path, block_tokens) == best


def test_a_window_belongs_to_a_sliding_group_only():
    for kind, tokens in ((GroupKind.FULL, 5), (GroupKind.SLIDING_WINDOW, 0)):
        with pytest.raises(ValueError, match="window"):
            GroupSpec(kind, tokens)
