"""Kinds of KV groups: which blocks a query still looks at, and what a cached prefix needs to count as a hit.

A group is a set of layers with one kind of attention and one block table per request. All groups share one pool of
equal pages. Positions and windows are in tokens, block indices count from the start of the sequence.

    full             every block of [0, L)
    sliding window   the query at position p looks at (p - window, p]; blocks wholly left of that are given back

Hit rule: the longest prefix that all full groups hold; then every other group may lower it to the longest prefix whose
window it holds; repeated until all agree. Each pass only lowers the bound, so it ends.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.engine.kv.prefix import PrefixNode


class GroupKind(enum.Enum):
    """How the layers of a group attend. MLA latents are laid out by the platform and scheduled as FULL."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One group. `window_tokens` counts the query's own token, as `sliding_window` in model configurations does."""

    kind: GroupKind = GroupKind.FULL
    window_tokens: int = 0

    def __post_init__(self) -> None:
        if (self.kind is GroupKind.SLIDING_WINDOW) != (self.window_tokens > 0):
            raise ValueError(f"a {self.kind.value} group cannot have a window of {self.window_tokens} tokens")

    @property
    def is_full(self) -> bool:
        return self.kind is GroupKind.FULL

    def first_live(self, position: int, block_tokens: int) -> int:
        """Index of the first block that a query at `position` or later looks at."""
        if self.kind is GroupKind.FULL:
            return 0
        return max(0, position - self.window_tokens + 1) // block_tokens

    def next_death(self, first_live: int, block_tokens: int) -> int:
        """Smallest number of computed tokens at which block `first_live` is wholly left of the window."""
        if self.kind is GroupKind.FULL:
            return 1 << 62
        return (first_live + 1) * block_tokens + self.window_tokens - 1

    def peak_blocks(self, num_tokens: int, block_tokens: int, chunk: int = 1) -> int:
        """Most blocks held at once while a sequence grows to `num_tokens`, at most `chunk` tokens a step."""
        whole = -(-num_tokens // block_tokens)
        if self.kind is GroupKind.FULL:
            return whole
        # The window, a chunk beside it, both unaligned; the blocks die one step late when steps overlap.
        return min(whole, -(-(self.window_tokens + chunk) // block_tokens) + 1)


def longest_hit(specs: Sequence[GroupSpec], path: Sequence[PrefixNode], block_tokens: int) -> int:
    """Number of leading blocks of `path` that count as computed in every group."""
    full = [g for g, spec in enumerate(specs) if spec.is_full]
    bound = len(path)
    for depth, node in enumerate(path):
        if not all(node.blocks[g] for g in full):
            bound = depth
            break
    before = -1
    while bound != before:
        before = bound
        for g, spec in enumerate(specs):
            if not spec.is_full:
                bound = _longest_window_hit(spec, g, path, bound, block_tokens)
    return bound


def _longest_window_hit(spec: GroupSpec, group: int, path: Sequence[PrefixNode], bound: int, block_tokens: int) -> int:
    """Largest L <= bound (blocks) such that the window before L is cached: one pass from right to left."""
    length, run = bound, 0
    for index in range(bound - 1, -1, -1):
        if run >= length - spec.first_live(length * block_tokens, block_tokens):
            break
        if path[index].blocks[group]:
            run += 1
        else:
            length, run = index, 0
    return length
