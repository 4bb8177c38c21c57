"""The memory plan: how many KV pages fit beside the weights, from limits that were read, never guessed.

    usable limit  >=  what this process already holds (weights, scratch, interpreter)  +  KV pool  +  head-room

The pool is mapped without being touched, so a large plan costs nothing until tokens need it; but the plan itself must fit,
because nobody can take memory back from a running sequence. One line says what was chosen and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo.engine.errors import ConfigError
from octavo.platforms.types import KVSpec

HEADROOM_SHARE = 0.1  # of the usable limit, kept for the system, buffers and bursts
HEADROOM_MIN_BYTES = 128 << 20
DEFAULT_POOL_SHARE = 0.6  # of what is free once head-room is taken off
MIN_PAGES = 4
GIB = 1 << 30


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes and pages. `num_pages` includes the null page."""

    usable_bytes: int
    free_bytes: int
    weights_bytes: int
    scratch_bytes: int
    headroom_bytes: int
    page_bytes: int
    num_pages: int
    block_tokens: int
    logits_bytes: int = 0  # of scratch; steps whose rows all take their best token do not touch them

    @property
    def kv_bytes(self) -> int:
        """Bytes of the whole pool, null page included."""
        return self.num_pages * self.page_bytes

    def line(self) -> str:
        """One line for the log."""
        gib = GIB
        return (
            f"memory: usable {self.usable_bytes / gib:.2f} GiB, free {self.free_bytes / gib:.2f}, weights "
            f"{self.weights_bytes / gib:.2f}, scratch {self.scratch_bytes / gib:.2f} (logits "
            f"{self.logits_bytes / gib:.2f}, unused by greedy steps), head-room "
            f"{self.headroom_bytes / gib:.2f}, KV pool {self.kv_bytes / gib:.2f} GiB = {self.num_pages} pages of "
            f"{self.page_bytes >> 10} KiB ({self.block_tokens} tokens)"
        )


@dataclass(frozen=True)
class VectorPlan:
    """Bytes of a model that gives vectors or scores: weights, and the work area of a step of so many tokens."""

    usable_bytes: int
    free_bytes: int
    weights_bytes: int
    scratch_bytes: int
    max_tokens: int  # of a text
    max_batch_tokens: int
    max_num_seqs: int

    @property
    def kv_bytes(self) -> int:
        """Nothing is kept between steps."""
        return 0

    def line(self) -> str:
        """One line for the log."""
        return (
            f"memory: usable {self.usable_bytes / GIB:.2f} GiB, free {self.free_bytes / GIB:.2f}, weights "
            f"{self.weights_bytes / GIB:.3f}, scratch {self.scratch_bytes / GIB:.3f} (steps of {self.max_batch_tokens} tokens, "
            f"{self.max_num_seqs} texts), texts of {self.max_tokens} tokens"
        )


def plan_memory(
    spec: KVSpec,
    page_bytes: int,
    *,
    usable_bytes: int,
    free_bytes: int,
    weights_bytes: int,
    scratch_bytes: int,
    kv_bytes: int | None,
    max_model_len: int,
    max_num_seqs: int,
    logits_bytes: int = 0,
) -> MemoryPlan:
    """Pages for the KV pool. `free_bytes` is what the weights leave, `logits_bytes` are part of scratch; ConfigError if nothing
    useful fits."""
    headroom = max(int(usable_bytes * HEADROOM_SHARE), min(HEADROOM_MIN_BYTES, usable_bytes // 4))
    room = free_bytes - scratch_bytes - headroom
    blocks_of_one = -(-max_model_len // spec.block_tokens) * len(spec.groups)
    wanted = max(blocks_of_one * max_num_seqs + 1, MIN_PAGES)
    if kv_bytes is None:
        pages = min(int(room * DEFAULT_POOL_SHARE) // page_bytes, wanted)
    else:
        if kv_bytes > room:
            raise ConfigError(
                f"a KV pool of {_gib(kv_bytes)} was asked for (--kv-gib, kv_bytes), and {_gib(max(room, 0))} fit beside weights "
                f"and head-room in the limit of {_gib(usable_bytes)}; lower it, or raise the limit"
            )
        pages = kv_bytes // page_bytes
        if pages < MIN_PAGES:
            least = MIN_PAGES * page_bytes
            raise ConfigError(
                f"a KV pool of {_gib(kv_bytes)} was asked for (--kv-gib, kv_bytes), and {MIN_PAGES} pages of {page_bytes >> 10} "
                f"KiB are the least; give {math.ceil(1e4 * least / GIB) / 1e4} GiB ({least} bytes) or more"
            )
    if pages < MIN_PAGES:
        raise ConfigError(
            f"no room for a KV pool: {_gib(max(room, 0))} are free beside weights ({_gib(weights_bytes)}), scratch "
            f"({_gib(scratch_bytes)}) and head-room ({_gib(headroom)}) in the limit of {_gib(usable_bytes)}, a page takes "
            f"{page_bytes >> 10} KiB; raise the memory limit, or lower --max-batch-tokens or --max-model-len"
        )
    return MemoryPlan(
        usable_bytes, free_bytes, weights_bytes, scratch_bytes, headroom, page_bytes, int(pages), spec.block_tokens,
        logits_bytes,
    )  # fmt: skip


def refuse_weights_without_room(checkpoint_bytes: int, *, usable_bytes: int, free_bytes: int) -> None:
    """ConfigError for a model whose weights alone take more than there is, before any is read: the system kills a process that
    finds out by itself."""
    if checkpoint_bytes > free_bytes:
        raise ConfigError(
            f"no room for the model: its weights take {_gib(checkpoint_bytes)}, and {_gib(free_bytes)} are free in the limit of "
            f"{_gib(usable_bytes)}; raise the memory limit, end other programs, or take a smaller model or weight format"
        )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.4g} GiB"
