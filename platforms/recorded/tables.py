"""RoPE tables, filled as far as positions are used: a long context costs its table only when somebody is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from octavo.platforms.recorded.native import Native
from octavo.platforms.rope import cos_sin
from octavo.platforms.types import Rope

CHUNK_POSITIONS = 512


@dataclass
class RopeTable:
    """[max_positions][2][rotary_dim / 2] float32: cos row, then sin row; rows below `filled` are valid."""

    native: Native
    rope: Rope
    max_positions: int
    arena: Any
    filled: int = 0

    @property
    def address(self) -> int:
        return int(self.arena.address)

    def fill(self, up_to: int) -> None:
        """Makes positions below `up_to` valid."""
        while self.filled < min(up_to, self.max_positions):
            stop = min(self.filled + CHUNK_POSITIONS, self.max_positions)
            cos, sin = cos_sin(self.rope, np.arange(self.filled, stop))
            rows = np.stack([cos, sin], axis=1)
            self.native.store(self.arena, self.filled * rows[0].nbytes, rows)
            self.filled = stop


@dataclass
class RopeTables:
    """One table per distinct Rope of a model."""

    native: Native
    max_positions: int
    tables: dict[Rope, RopeTable] = field(default_factory=dict)

    def table(self, rope: Rope) -> RopeTable:
        found = self.tables.get(rope)
        if found is None:
            arena = self.native.arena(self.max_positions * rope.rotary_dim * 4, "rotary tables")
            found = self.tables[rope] = RopeTable(self.native, rope, self.max_positions, arena)
        return found

    def fill(self, up_to: int) -> None:
        for table in self.tables.values():
            if table.filled < up_to:
                table.fill(up_to)
