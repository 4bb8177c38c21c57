"""A loaded native module: its kernels, the levels this machine and the user allow, and the choice made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.select import Allowance, KernelRow, OpTable, allowed_features, choose, explain, refusal
from octavo.platforms.types import Variant


@dataclass
class Native:
    """A module with the levels in force. `bad_levels` holds levels found wrong, or worse than others here, with the reason,
    `passed_over` single kernels by name; `is_fast` lets levels run whose last bits differ (select.FAST_LEVELS)."""

    module: Any
    isa: tuple[str, ...] | None = None
    bad_levels: dict[str, str] = field(default_factory=dict)
    is_fast: bool = False
    passed_over: dict[str, str] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        """The platform that the module is for."""
        return str(self.module.platform)

    @cached_property
    def levels(self) -> dict[str, int]:
        return dict(self.module.levels())

    @cached_property
    def rows(self) -> list[KernelRow]:
        return [KernelRow(op, name, level, required) for op, name, level, required, _ in self.module.kernels()]

    @cached_property
    def available(self) -> int:
        return int(self.module.available_features())

    @cached_property
    def allowed(self) -> int:
        return allowed_features(self.available, self.levels, self.isa)

    @property
    def allowance(self) -> Allowance:
        return Allowance(self.available, self.allowed, self.bad_levels, self.is_fast, self.passed_over)

    @cached_property
    def table(self) -> OpTable:
        return choose(self.rows, self.levels, self.allowance)

    def runnable_levels(self) -> tuple[str, ...]:
        """Levels with kernels that this machine and the user allow, slowest first."""
        runnable = {row.level for row in self.rows if not refusal(row, self.allowance)}
        return tuple(name for name in self.levels if name in runnable)

    def reason_against(self, level: str) -> str:
        """Why a level may not run ('' = it may). ConfigError if the user's list of levels holds an unknown one."""
        allowance = self.allowance
        return refusal(KernelRow("", "", level, self.levels[level]), allowance)

    def describe_levels(self) -> list[dict[str, Any]]:
        """Every level, slowest first: does the processor have it, may it be used, why not, and how many kernels it has."""
        chosen = {name for choice in self.table.choices.values() for name in choice.kernels}
        rows = []
        for level, bits in self.levels.items():
            kernels = [row.name for row in self.rows if row.level == level]
            rows.append(
                {
                    "level": level,
                    "is_available": not bits & ~self.available,
                    "is_allowed": not bits & ~self.allowed,
                    "kernels": len(kernels),
                    "chosen": len(chosen & set(kernels)),
                    "reason": self.reason_against(level),
                }
            )
        return rows

    def arena(self, num_bytes: int, what: str) -> Any:
        """Zeroed memory of the native module for `what`; PlatformError where the system has no room for it."""
        try:
            return self.module.Arena(num_bytes)
        except RuntimeError:
            raise PlatformError(
                f"{num_bytes} bytes of memory were asked for ({what}), and the system refused them: the address space of this "
                "process is limited (ulimit -v), or no memory is left; raise the limit, or take a smaller model, "
                "--max-batch-tokens or --kv-gib"
            ) from None

    def hold(self, array: NDArray[Any]) -> tuple[int, Any]:
        """An array where kernels can read it: (its address, what keeps it there)."""
        return array.ctypes.data, array

    def store(self, arena: Any, offset_bytes: int, array: NDArray[Any]) -> None:
        """Puts an array's bytes into an arena."""
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        np.frombuffer(arena, np.uint8)[offset_bytes : offset_bytes + flat.size] = flat

    def fetch(self, arena: Any, offset_bytes: int, num_bytes: int) -> NDArray[np.uint8]:
        """Bytes of an arena as they are now; perhaps a view of it."""
        return np.frombuffer(arena, np.uint8)[offset_bytes : offset_bytes + num_bytes]

    def disable(self, level: str, reason: str) -> None:
        """Takes a level out of the choice (its self-test failed)."""
        self.bad_levels[level] = reason
        self.__dict__.pop("table", None)

    def variants(self) -> list[Variant]:
        return explain(self.rows, self.table, self.allowance)
