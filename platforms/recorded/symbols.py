"""What a recorded program is made of: symbols, addresses and instructions; and how many bytes a page of KV takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octavo.engine.errors import PlatformError
from octavo.platforms.types import KVSpec, Rows

KV_TILE_TOKENS = 32  # tokens that lie together inside a page (csrc_common/contract/attention.h)
KV_ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "int8": 1, "fp8": 1}


def kv_head_bytes(spec: KVSpec) -> int:
    """Bytes of one kv head's share of one layer in a page (csrc_common/contract/attention.h)."""
    scales = 2 * spec.block_tokens * 4 if spec.has_scales else 0
    return 2 * spec.block_tokens * spec.head_dim * KV_ELEMENT_BYTES[spec.dtype] + scales


def page_bytes(spec: KVSpec, tile_tokens: int = KV_TILE_TOKENS) -> int:
    """Bytes of one page: every layer of a group, rounded up to 4 KiB, at least 4 KiB (models without layers to keep have the
    null page alone). PlatformError for a page the kernels cannot read."""
    if spec.block_tokens < 1 or spec.block_tokens % tile_tokens:
        raise PlatformError(
            f"block_tokens={spec.block_tokens}: pages here hold a multiple of {tile_tokens} tokens; "
            f"give {KV_TILE_TOKENS} or leave it out"
        )
    return max(-(-spec.layers_per_group * spec.num_kv_heads * kv_head_bytes(spec) // 4096), 1) * 4096


@dataclass(frozen=True, eq=False)
class Symbol:
    """A float32 activation [rows, width]: columns `column`.. of a buffer whose rows are `stride` elements apart."""

    buffer: int
    width: int
    stride: int
    rows: Rows
    column: int = 0
    is_int: bool = False  # int32 instead


@dataclass(frozen=True)
class Ref:
    """An address inside a planned buffer, resolved when the program is finished."""

    buffer: int
    offset_bytes: int = 0


@dataclass
class Prepared:
    """An input in a weight format's own form."""

    q: int
    stride: int
    scales: int
    sums: int
    scale_stride: int


@dataclass
class Instruction:
    """One native call to be: its op, how many rows it has, its arguments, the buffers it touches, and the bytes of its weight."""

    op: str
    rows: Rows
    fields: dict[str, Any]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    weight_bytes: int = 0


@dataclass(frozen=True)
class Greedy:
    """The ending of a head that gives ids: instructions [first, last), which may take the place of those from `last` on."""

    ids: Symbol
    first: int
    last: int
    address: int = 0


@dataclass
class Recorded:
    """A finished program. `segments` are (name, first instruction); `head_at` starts the part that `head` runs; `knee_rows`: from
    so many tokens on other kernels of its linear layers run (0: none do). `greedy`: the head's other ending, if it has one."""

    program: Any
    arena: Any
    output: Symbol | None
    output_address: int
    segments: list[tuple[str, int]]
    head_at: int
    knee_rows: int = 0
    greedy: Greedy | None = None
    held: list[Any] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
