"""How many blocks a kernel is launched with: from its rows, its outputs, and what the device can hold at a time.

Kernels step through their work in strides of the grid, so a grid may be smaller than the work; it is never part of a result.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo.platforms.gpu.rows import GpuRow

#: blocks per compute unit beyond which more would only wait
BLOCKS_PER_UNIT = 16
#: the same, where most blocks may find nothing to do: those that share the cuts of a sequence, which may be a short one
MOST_CUT_BLOCKS = 64
CUT = 512  # positions: kCut of csrc_common/gpu/attention_mma_cuts.inl.h
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Sizes:
    """Of one step: rows of the op, and what attention needs: sequences, the longest in tokens, and the most new tokens of one."""

    rows: int
    seqs: int = 0
    longest: int = 0
    most_new: int = 0


def grid_of(row: GpuRow, arguments: bytes | bytearray, sizes: Sizes, num_units: int) -> Grid:
    """Blocks along x (rows or work), y (outputs) and z (parts of a sequence). (0, 0, 0): there is nothing to do."""
    if sizes.rows <= 0:
        return 0, 0, 0
    most = BLOCKS_PER_UNIT * num_units
    if row.op.startswith("linear_"):
        outs = -(-row.number(arguments, "n") // row.tile_outs)
        return -(-sizes.rows // row.tile_rows), outs, 1
    if row.op.startswith(("paged_attention", "varlen_attention", "relative_attention")):
        heads = row.number(arguments, "heads")
        if row.level.startswith("mmafast"):
            kv_heads = row.number(arguments, "kv_heads")
            units = sizes.rows * (heads // kv_heads) // row.tile_rows + sizes.seqs
            if row.is_beside or row.op.startswith("varlen"):
                return units, kv_heads, 1
            window = row.number(arguments, "window")
            cuts = min(-(-sizes.longest // CUT), window // CUT + 2 if window else sizes.longest)
            return units, kv_heads, max(1, min(cuts, MOST_CUT_BLOCKS * num_units // (units * kv_heads)))
        return sizes.rows, heads, 1
    if row.op.startswith(("pack_", "copy_blocks")):
        return min(most, sizes.rows), 1, 1

    def number(*names: str) -> int:
        return next((n for n in (row.number(arguments, name) for name in names) if n), 0)

    if row.tile_outs:
        width = number("width", "k") or number("heads") * number("head_dim")
        return max(1, min(most, sizes.rows * -(-width // row.tile_outs))), 1, 1
    per_row = number("heads", "kv_heads") or -(-number("k") // 32) or 1
    return max(1, min(most, -(-sizes.rows * per_row // row.tile_rows))), 1, 1
