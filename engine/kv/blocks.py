"""The block pool: integer ids of equal pages with reference counts and one queue of free blocks. Never touches memory.

Invariants, each checked by `check()`:
  1. a block is in the free queue exactly when its reference count is 0; block 0, the null block, is in neither
  2. num_free + blocks with references == num_blocks - 1, always
  3. every operation on one block is O(1)

A free block may still be *cached*: it carries a tag (a node of the prefix tree) and keeps its content until it is taken
for something else. The queue is in order of release: plain blocks are taken first, then the cached block released
longest ago. Who gives back a chain of blocks gives back its tail first, so that a parent outlives its children.
Pages are numbered so that a run of neighbours is contiguous in the arena.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

NULL_BLOCK = 0


class BlockPool:
    """`num_blocks` pages, of which 1 .. num_blocks - 1 can be taken. `on_evict(block, tag)` runs when a cached block
    is about to be reused, with its tag already taken off."""

    def __init__(self, num_blocks: int, on_evict: Callable[[int, object], None] | None = None) -> None:
        if num_blocks < 2:
            raise ValueError(f"a block pool needs at least 2 blocks (one is the null block), got {num_blocks}")
        self.num_blocks = num_blocks
        self.num_free = num_blocks - 1
        self.num_evicted = 0
        self.on_evict = on_evict
        self._refs = [0] * num_blocks
        self._refs[NULL_BLOCK] = 1
        self._tags: list[object] = [None] * num_blocks
        # Doubly linked ring through index 0, which never is a member itself: next[0] is the head, prev[0] the tail.
        self._next = [*range(1, num_blocks), 0]
        self._prev = [num_blocks - 1, *range(num_blocks - 1)]

    @property
    def num_usable(self) -> int:
        """Blocks that could ever be taken."""
        return self.num_blocks - 1

    @property
    def num_used(self) -> int:
        """Blocks somebody holds."""
        return self.num_blocks - 1 - self.num_free

    def take(self, count: int) -> list[int] | None:
        """`count` blocks with one reference each, evicting cached ones oldest first; None (and no change) if too few
        are free."""
        if count > self.num_free:
            return None
        ring, refs, tags = self._next, self._refs, self._tags
        block = ring[0]
        taken = []
        for _ in range(count):
            taken.append(block)
            refs[block] = 1
            block = ring[block]
        ring[0] = block
        self._prev[block] = 0
        self.num_free -= count
        for block in taken:
            tag = tags[block]
            if tag is not None:
                tags[block] = None
                self.num_evicted += 1
                if self.on_evict is not None:
                    self.on_evict(block, tag)
        return taken

    def share(self, block: int) -> None:
        """One more reference to a held or cached block."""
        refs = self._refs
        if refs[block] == 0:
            self._unlink(block)
            self.num_free -= 1
        refs[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Give one reference of each back, in the order given (tail of a chain first). The null block is skipped."""
        refs, tags, following, before = self._refs, self._tags, self._next, self._prev
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            count = refs[block]
            if count <= 0:
                raise RuntimeError(f"block {block} is released more often than it was taken")
            refs[block] = count - 1
            if count > 1:
                continue
            self.num_free += 1
            # Cached content goes to the tail of the queue, plain blocks to its head.
            if tags[block] is not None:
                left, right = before[0], 0
            else:
                left, right = 0, following[0]
            before[block] = left
            following[block] = right
            following[left] = block
            before[right] = block

    def refs(self, block: int) -> int:
        """References to a block; 0 means free."""
        return self._refs[block]

    def tag(self, block: int) -> object:
        """What the block caches, None for nothing."""
        return self._tags[block]

    def set_tag(self, block: int, tag: object) -> None:
        """Mark a held block as cached."""
        self._tags[block] = tag

    def clear_tag(self, block: int) -> None:
        """The block caches nothing any more; if free, it is the next to be taken."""
        self._tags[block] = None
        if self._refs[block] == 0:
            self._unlink(block)
            head = self._next[0]
            self._prev[block], self._next[block] = 0, head
            self._next[0] = self._prev[head] = block

    def check(self) -> None:
        """Walk everything and raise RuntimeError when an invariant is broken. O(num_blocks); for tests."""
        queue: list[int] = []
        block, last = self._next[0], 0
        while block != 0:
            if self._prev[block] != last or len(queue) >= self.num_blocks:
                raise RuntimeError(f"the free queue is broken at block {block}")
            queue.append(block)
            last, block = block, self._next[block]
        free = {b for b in range(1, self.num_blocks) if self._refs[b] == 0}
        if self._prev[0] != last or set(queue) != free or len(queue) != len(free) or len(free) != self.num_free:
            raise RuntimeError(f"free queue has {len(queue)} blocks, {len(free)} have no owner, count {self.num_free}")
        if self._refs[NULL_BLOCK] != 1 or min(self._refs) < 0:
            raise RuntimeError("a reference count is wrong")

    def _unlink(self, block: int) -> None:
        left, right = self._prev[block], self._next[block]
        self._next[left] = right
        self._prev[right] = left
