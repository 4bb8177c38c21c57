"""KV of running requests: finds cached prefixes, hands out blocks to every group, gives them back. Blocks, not bytes.

Invariants:
  1. all tables of a request have equal length, so that it needs `num_groups` blocks or none
  2. a request writes only into blocks that it alone holds: shared blocks are whole, and a partly shared one is copied
  3. an allocation either happens in all groups or changes nothing
  4. at least one token of a request is always left to compute

The order of events in a step is: copies, then the runner's writes. The source of a copy keeps a reference until the end
of `plan`, so no destination of the same step can be the source of another copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from octavo.engine.kv.blocks import BlockPool
from octavo.engine.kv.groups import GroupSpec, longest_hit
from octavo.engine.kv.prefix import TOKEN_BYTES, PrefixIndex, PrefixNode, pack_tokens
from octavo.engine.request import BlockTable, Request, Status

NEVER = 1 << 62


class BlockCopy(msgspec.Struct, frozen=True, gc=False):
    """Copy the first `num_tokens` tokens of block `src` to block `dst` in `group`, before the step runs."""

    group: int
    src: int
    dst: int
    num_tokens: int


class Hit(NamedTuple):
    """A cached prefix: whole blocks along `path`, then `num_partial` tokens to be copied from `sources[group]`."""

    root: PrefixNode | None
    path: list[PrefixNode]
    sources: list[int]
    num_partial: int


class KVManager:
    """Block tables of all requests over one pool and one prefix index."""

    def __init__(
        self,
        specs: Sequence[GroupSpec],
        num_blocks: int,
        block_tokens: int,
        *,
        model_identity: bytes = b"",
        server_secret: bytes = bytes(32),
        has_prefix_cache: bool = True,
        has_partial_reuse: bool = True,
    ) -> None:
        if not specs:
            raise ValueError("a model needs at least one KV group")
        self.specs = tuple(specs)
        self.block_tokens = block_tokens
        self.has_prefix_cache = has_prefix_cache
        self.has_partial_reuse = has_prefix_cache and has_partial_reuse
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex(
            self.pool,
            block_tokens=block_tokens,
            num_groups=len(self.specs),
            model_identity=model_identity,
            server_secret=server_secret,
        )
        self._sliding = [(g, spec) for g, spec in enumerate(self.specs) if not spec.is_full]
        self._pinned: list[int] = []
        # Longest sequence that can be computed with the whole pool to itself (2^31 at most).
        self.max_tokens = self._longest_sequence()

    def _longest_sequence(self) -> int:
        low, high = 0, 1 << 31
        while low < high:
            middle = (low + high + 1) // 2
            if sum(s.peak_blocks(middle, self.block_tokens) for s in self.specs) <= self.pool.num_usable:
                low = middle
            else:
                high = middle - 1
        return low

    def find(self, request: Request) -> Hit:
        """Longest cached prefix of all known tokens, at least one token short of them. Takes no references."""
        if not self.has_prefix_cache:
            return Hit(None, [], [], 0)
        root = self.index.root(request.salt, request.hash_root)
        usable = len(request.tokens) - 1
        if request.params.prompt_logprobs is not None:
            # Rows of prompt scores exist only for tokens that are computed.
            usable = min(usable, request.num_scored)
        path: list[PrefixNode] = []
        node = root
        for i in range(usable // self.block_tokens):
            child = self.index.child(node, *self._identify(request, node, i))
            if child is None:
                break
            path.append(child)
            node = child
        del path[longest_hit(self.specs, path, self.block_tokens) :]
        sources: list[int] = []
        num_partial = 0
        if self.has_partial_reuse and usable > len(path) * self.block_tokens:
            sources, num_partial = self._find_partial(request, path[-1] if path else root, len(path), usable)
        return Hit(root, path, sources, num_partial)

    def num_found(self, hit: Hit) -> int:
        """Tokens that need not be computed."""
        return len(hit.path) * self.block_tokens + hit.num_partial

    def cost(self, request: Request, hit: Hit, chunk: int) -> int:
        """Free blocks that admitting `request` with `hit` uses up by the time its known tokens are computed."""
        total = len(request.tokens)
        start = len(hit.path) * self.block_tokens
        needed = 0
        for g, spec in enumerate(self.specs):
            first = spec.first_live(start, self.block_tokens)
            held = hit.path[first:]
            new = -(-total // self.block_tokens) - len(hit.path)
            if not spec.is_full:
                new = min(new, max(0, spec.peak_blocks(total, self.block_tokens, chunk) - len(held)))
            needed += new + sum(1 for node in held if self.pool.refs(node.blocks[g]) == 0)
        return needed

    def outstanding(self, request: Request, chunk: int) -> int:
        """Blocks that a running request has still to take for the tokens it already has."""
        total = len(request.tokens)
        if total <= request.capacity:
            return 0
        needed = 0
        for spec, table in zip(self.specs, request.tables, strict=True):
            new = -(-total // self.block_tokens) - len(table.ids)
            if not spec.is_full:
                live = len(table.ids) - table.first_live
                new = min(new, max(0, spec.peak_blocks(total, self.block_tokens, chunk) - live))
            needed += new
        return needed

    def attach(self, request: Request, hit: Hit) -> list[BlockCopy]:
        """Take the hit's blocks into the request's tables and set its counts; the copies that must run first."""
        block_tokens, pool = self.block_tokens, self.pool
        num_whole = len(hit.path)
        request.tables = [BlockTable() for _ in self.specs]
        for g, (spec, table) in enumerate(zip(self.specs, request.tables, strict=True)):
            table.first_live = spec.first_live(num_whole * block_tokens, block_tokens)
            table.ids = [0] * table.first_live
            for node in hit.path[table.first_live :]:
                pool.share(node.blocks[g])
                table.ids.append(node.blocks[g])
        request.num_hashed = num_whole
        request.num_computed = request.num_planned = num_whole * block_tokens
        request.capacity = request.num_computed
        request.hash_at = request.num_computed + block_tokens if self.has_prefix_cache else NEVER
        cursor = hit.path[-1] if hit.path else hit.root
        self.index.move_pin(request.cursor, cursor)
        request.cursor = cursor
        self._set_event(request)
        if not hit.num_partial:
            return []
        for source in hit.sources:
            pool.share(source)
        self._pinned += hit.sources
        if not self.advance(request, request.num_computed + hit.num_partial):
            return []
        request.num_computed += hit.num_partial
        request.num_planned = request.num_computed
        return [
            BlockCopy(g, source, table.ids[num_whole], hit.num_partial)
            for g, (source, table) in enumerate(zip(hit.sources, request.tables, strict=True))
        ]

    def unpin(self) -> None:
        """End of `plan`: the sources of its copies may be reused by later steps."""
        if self._pinned:
            self.pool.release(self._pinned)
            self._pinned = []

    def advance(self, request: Request, end: int) -> bool:
        """Give back what fell out of the windows, then make room for tokens [0, end). False: too few free blocks."""
        block_tokens = self.block_tokens
        for g, spec in self._sliding:
            table = request.tables[g]
            first = min(spec.first_live(request.num_computed, block_tokens), len(table.ids))
            if first > table.first_live:
                dead = table.ids[table.first_live : first]
                table.ids[table.first_live : first] = [0] * len(dead)
                table.first_live = first
                self.pool.release(dead)
        count = -(-(end - request.capacity) // block_tokens)
        if count > 0:
            blocks = self.pool.take(count * len(self.specs))
            if blocks is None:
                return False
            for g, table in enumerate(request.tables):
                table.ids += blocks[g * count : (g + 1) * count]
            request.capacity += count * block_tokens
        self._set_event(request)
        return True

    def room(self, request: Request) -> int:
        """Largest `end` for which `advance` would succeed now, not counting blocks that it would give back first."""
        return request.capacity + self.pool.num_free // len(self.specs) * self.block_tokens

    def commit(self, request: Request) -> None:
        """Register every block that has become full with computed, committed tokens."""
        cursor = request.cursor
        while cursor is not None and request.num_computed >= request.hash_at:
            i = request.num_hashed
            key, content = self._identify(request, cursor, i)
            node = self.index.register(cursor, key, content, [table.ids[i] for table in request.tables])
            if node is None:
                # Another content owns the key: this request's blocks stay private from here on.
                request.hash_at = NEVER
                return
            self.index.move_pin(cursor, node)
            request.cursor = cursor = node
            request.num_hashed = i + 1
            request.hash_at += self.block_tokens

    def release(self, request: Request, is_sound: bool = True) -> None:
        """Give all blocks back, tails first; what is cached stays findable until its block is needed. Not `is_sound`:
        the last block's content is in doubt and is not remembered."""
        if is_sound and self.has_partial_reuse and request.hash_at != NEVER and request.cursor is not None:
            self._leave_tail(request)
        tables = request.tables
        if tables:
            for index in range(len(tables[0].ids) - 1, -1, -1):
                self.pool.release([table.ids[index] for table in tables])
        if request.cursor is not None:
            self.index.move_pin(request.cursor, None)
        request.reset_kv()

    def _leave_tail(self, request: Request) -> None:
        start = request.num_hashed * self.block_tokens
        if request.cursor is None or request.num_computed <= start or self._extras(request, request.num_hashed):
            return
        blocks = [table.ids[request.num_hashed] for table in request.tables]
        if 0 not in blocks:
            content = pack_tokens(request.tokens[start : request.num_computed])
            self.index.register_tail(request.cursor, content, blocks)

    def _find_partial(self, request: Request, node: PrefixNode, depth: int, usable: int) -> tuple[list[int], int]:
        """Source blocks and number of tokens of the best partly shared block behind `node`."""
        start = depth * self.block_tokens
        if self._extras(request, depth):
            return [], 0
        wanted = request.tokens[start : min(usable, start + self.block_tokens)]
        found, shared = self.index.longest_partial(node, pack_tokens(wanted))
        sources = found.blocks[:] if found is not None else []
        leader = request.leader
        if leader is not None and leader.status is Status.RUNNING and leader.capacity > start:
            # A choice may copy from the first choice's block while that one still writes behind the prompt.
            common = min(leader.num_computed, request.num_prompt, start + len(wanted)) - start
            blocks = [table.ids[depth] for table in leader.tables]
            if common > shared and 0 not in blocks:
                return blocks, common
        return sources, shared

    def _identify(self, request: Request, parent: PrefixNode, index: int) -> tuple[bytes, bytes]:
        """Key and content of block `index` of the request; keys are computed once and remembered."""
        start = index * self.block_tokens
        content = pack_tokens(request.tokens[start : start + self.block_tokens]) + self._extras(request, index)
        keys = request.block_keys
        if index == len(keys):
            keys.append(self.index.child_key(parent, content))
        return keys[index], content

    def _extras(self, request: Request, index: int) -> bytes:
        """Identity bytes of images and the like inside block `index`, each with its place and length."""
        if not request.hash_parts:
            return b""
        start = index * self.block_tokens
        parts = [(p, d) for p, d in request.hash_parts.items() if start <= p < start + self.block_tokens]
        return b"".join(
            (p - start).to_bytes(TOKEN_BYTES, "little") + len(d).to_bytes(TOKEN_BYTES, "little") + d
            for p, d in sorted(parts)
        )

    def _set_event(self, request: Request) -> None:
        """The position at which the request next needs a block or can give one back."""
        event = request.capacity
        for g, spec in self._sliding:
            event = min(event, spec.next_death(request.tables[g].first_live, self.block_tokens))
        request.event_at = event
