"""The prefix cache: which blocks already hold the KV of which tokens. A tree of nodes, one node per block of tokens.

Identity of a node: key = BLAKE3(key = tenant key)(parent key | token ids as u32 little-endian | extras), 32 bytes. The
parent key of a first block is BLAKE3(tenant key)(model identity | root extras). The tenant key is derived from the
server's secret and the caller's salt, so nobody can aim at, or time, somebody else's blocks; nothing depends on
PYTHONHASHSEED, process or time, so keys are valid in lower tiers and on other machines too.

Invariants:
  1. a hit is never believed for its key alone: parent node and content bytes are compared, so that two contents with
     one key cost a miss and never a wrong answer
  2. only committed tokens are ever registered
  3. a node lives while it has a block in some group, a child, or a pin (the place where a running request registers)
  4. cost: one hash per block of new tokens; one dictionary look-up and one compare of 4 * block_tokens bytes per hit

A *tail* is a node of fewer than block_tokens tokens, left behind by a request that ended inside a block. It has no key
and is only ever a source for partial reuse by copy.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from itertools import islice

from blake3 import blake3

from octavo.engine.kv.blocks import BlockPool

KEY_BYTES = 32
TOKEN_BYTES = 4
# Children of one node that begin with the same token, looked at for partial reuse, newest first.
MAX_CANDIDATES = 8
# Roots are cheap and made on demand; idle ones are swept when there are more than this, or than twice those in use.
MIN_ROOTS = 1024

HashFunction = Callable[[bytes, bytes], bytes]


def keyed_blake3(key: bytes, data: bytes) -> bytes:
    """32-byte keyed BLAKE3 digest; `key` has 32 bytes."""
    return blake3(data, key=key).digest()


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids as u32 little-endian."""
    packed = array("I", tokens)
    if packed.itemsize != TOKEN_BYTES:
        return b"".join(token.to_bytes(TOKEN_BYTES, "little") for token in tokens)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


class PrefixNode:
    """One block of tokens behind its parent. `blocks[g]` is the block that caches it in group g, 0 if none does."""

    __slots__ = ("blocks", "children", "content", "key", "num_pins", "num_tokens", "parent", "tenant_key")

    def __init__(
        self, parent: PrefixNode | None, key: bytes, content: bytes, num_tokens: int, num_groups: int, tenant_key: bytes
    ) -> None:
        self.parent = parent
        self.key = key
        self.content = content
        self.num_tokens = num_tokens
        self.tenant_key = tenant_key
        self.blocks = [0] * num_groups
        self.num_pins = 0
        # By first token, oldest first, so that candidates for partial reuse are found without looking at the others.
        self.children: dict[bytes, dict[PrefixNode, None]] = {}

    @property
    def is_tail(self) -> bool:
        return not self.key


class PrefixIndex:
    """The tree, over the blocks of one pool shared by `num_groups` groups.

    model_identity   bytes that name weights, configuration, KV dtype, layout and numerics versions (32 in practice)
    server_secret    32 bytes; equal secrets give equal keys
    """

    def __init__(
        self,
        pool: BlockPool,
        *,
        block_tokens: int,
        num_groups: int,
        model_identity: bytes,
        server_secret: bytes,
        hash_function: HashFunction = keyed_blake3,
    ) -> None:
        if len(server_secret) != KEY_BYTES:
            raise ValueError(f"server_secret has {len(server_secret)} bytes; it must have {KEY_BYTES}")
        self.block_tokens = block_tokens
        self.num_groups = num_groups
        self.num_collisions = 0
        self._pool = pool
        self._identity = model_identity
        self._secret = server_secret
        self._hash = hash_function
        self._by_key: dict[bytes, PrefixNode] = {}
        self._roots: dict[tuple[bytes, bytes], PrefixNode] = {}
        self._max_roots = MIN_ROOTS
        pool.on_evict = self._on_evict

    def __len__(self) -> int:
        """Nodes that can be hit whole."""
        return len(self._by_key)

    def root(self, salt: bytes, extras: bytes) -> PrefixNode:
        """Where the chains of one tenant and one set of root extras begin."""
        name = (salt, extras)
        root = self._roots.get(name)
        if root is None:
            tenant_key = self._hash(self._secret, b"octavo tenant key\0" + salt)
            key = self._hash(tenant_key, self._identity + extras)
            root = self._roots[name] = PrefixNode(None, key, b"", 0, 0, tenant_key)
            if len(self._roots) > self._max_roots:
                self._roots = {n: r for n, r in self._roots.items() if r.children or r.num_pins or r is root}
                self._max_roots = max(MIN_ROOTS, 2 * len(self._roots))
        return root

    def child_key(self, parent: PrefixNode, content: bytes) -> bytes:
        """Key of the block with `content` (packed tokens, then extras) behind `parent`, in parent's tenant."""
        return self._hash(parent.tenant_key, parent.key + content)

    def child(self, parent: PrefixNode, key: bytes, content: bytes) -> PrefixNode | None:
        """The node behind `parent` with exactly this content, or None; another content under the key is counted."""
        node = self._by_key.get(key)
        if node is None:
            return None
        if node.parent is not parent or node.content != content:
            self.num_collisions += 1
            return None
        return node

    def register(self, parent: PrefixNode, key: bytes, content: bytes, blocks: Sequence[int]) -> PrefixNode | None:
        """Note that `blocks[g]` hold this content; 0 where a group has none. Blocks already cached elsewhere under the
        same node stay; the newcomer's then simply stays private. None when another content owns the key."""
        node = self._by_key.get(key)
        if node is None:
            node = PrefixNode(parent, key, content, self.block_tokens, self.num_groups, parent.tenant_key)
            self._by_key[key] = node
            parent.children.setdefault(content[:TOKEN_BYTES], {})[node] = None
        elif node.parent is not parent or node.content != content:
            self.num_collisions += 1
            return None
        self._fill(node, blocks)
        return node

    def register_tail(self, parent: PrefixNode, content: bytes, blocks: Sequence[int]) -> None:
        """Note that `blocks` begin with these fewer than block_tokens tokens, unless something longer is known."""
        siblings = parent.children.setdefault(content[:TOKEN_BYTES], {})
        for node in islice(reversed(siblings), MAX_CANDIDATES):
            if node.content.startswith(content) and 0 not in node.blocks:
                return
        tail = PrefixNode(parent, b"", content, len(content) // TOKEN_BYTES, self.num_groups, parent.tenant_key)
        siblings[tail] = None
        self._fill(tail, blocks)

    def longest_partial(self, parent: PrefixNode, content: bytes) -> tuple[PrefixNode | None, int]:
        """The child that shares most leading tokens with `content` and has a block in every group, and how many tokens.
        Blocks with extras are left out: which of their tokens the extras belong to is not known here."""
        best, best_tokens = None, 0
        siblings = parent.children.get(content[:TOKEN_BYTES], {})
        for node in islice(reversed(siblings), MAX_CANDIDATES):
            if 0 not in node.blocks and len(node.content) == node.num_tokens * TOKEN_BYTES:
                shared = _common_tokens(node.content, content)
                if shared > best_tokens:
                    best, best_tokens = node, shared
        return best, best_tokens

    def move_pin(self, old: PrefixNode | None, new: PrefixNode | None) -> None:
        """Pin `new`, unpin `old`."""
        if new is not None:
            new.num_pins += 1
        if old is not None:
            old.num_pins -= 1
            self._prune(old)

    def clear(self) -> int:
        """Forget every cached block nobody holds (weights changed, caller asked); the number forgotten."""
        count = 0
        for block in range(1, self._pool.num_blocks):
            tag = self._pool.tag(block)
            if isinstance(tag, PrefixNode) and self._pool.refs(block) == 0:
                self._pool.clear_tag(block)
                self._on_evict(block, tag)
                count += 1
        return count

    def _fill(self, node: PrefixNode, blocks: Sequence[int]) -> None:
        pool, own = self._pool, node.blocks
        for group, block in enumerate(blocks):
            if block and not own[group] and pool.tag(block) is None:
                own[group] = block
                pool.set_tag(block, node)

    def _on_evict(self, block: int, tag: object) -> None:
        if not isinstance(tag, PrefixNode):
            raise RuntimeError(f"block {block} carries a tag that is no prefix node")
        tag.blocks[tag.blocks.index(block)] = 0
        if tag.is_tail:
            # A tail is useless unless every group has its block.
            for group, other in enumerate(tag.blocks):
                if other:
                    tag.blocks[group] = 0
                    self._pool.clear_tag(other)
        self._prune(tag)

    def _prune(self, node: PrefixNode) -> None:
        """Take out nodes that nothing needs any more, upwards from `node`."""
        while not (node.children or node.num_pins or any(node.blocks)):
            parent = node.parent
            if parent is None:
                return
            if node.key:
                if self._by_key.get(node.key) is not node:
                    return
                del self._by_key[node.key]
            siblings = parent.children[node.content[:TOKEN_BYTES]]
            del siblings[node]
            if not siblings:
                del parent.children[node.content[:TOKEN_BYTES]]
            node = parent


def _common_tokens(a: bytes, b: bytes) -> int:
    """Leading tokens that two packed lists share, by halving: bytes compare at memory speed, Python steps do not."""
    low, high = 0, min(len(a), len(b)) // TOKEN_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if a[: middle * TOKEN_BYTES] == b[: middle * TOKEN_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low
