"""Cells of emulated machine code (`gpu-emulated-gfx950`, `gpu-emulated-gfx942`): each kernel of a chip's table by some case.

An emulator takes minutes for what fibers do in seconds, so cases are chosen: all of them run first on a device that only notes
which kernels they would launch on how many threads; of those the cheapest that together launch all kernels run, within
BUDGET_S. A kernel that none of them launched, or that there was no time for, is listed. `--full` goes on with all other cases,
cheapest first. Results are held to the reference, as those of every cell.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ci.gpu import Target, build, missing
from tests.matrix import cases
from tests.platforms.cells import Cell, gpu_cell_on, gpu_levels
from tests.platforms.gpu import emulated_device

from octavo.platforms.gpu.rows import GpuRow, rows_of
from octavo.platforms.gpu.selftest import GpuSelfTest
from octavo.platforms.selftest import cases as start_up
from octavo.platforms.selftest.digest import digest
from octavo.platforms.selftest.golden import GOLDEN

BUDGET_S = 200.0  # of a chip, beside what choosing takes
FULL_BUDGET_S = 1800.0
SELF_TEST = "self-test"  # the table of the cases of a start, which have joined ops
#: what each mode allows; exact ones first, whose cases are held to bits
MODES = {"simt": gpu_levels("simt"), "mma": gpu_levels("mma"), "fast": (*gpu_levels("mmafast"), "triton")}
TOO_LONG = "instructions per wave"  # in the emulator's words
_NUM_UNITS = 2  # keeps grids small


@dataclass(frozen=True)
class Candidate:
    """A case in a mode: the kernels that it launches and the work of their threads, in units that only compare."""

    mode: str
    table: str
    name: str
    kernels: frozenset[str]
    cost: float


class NotingDevice(emulated_device.EmulatedDevice):
    """Notes launches and does nothing for them: memory keeps what it holds."""

    def __init__(self, arch: str, rows: Sequence[GpuRow]) -> None:
        super().__init__(arch, _NUM_UNITS)
        self.rows = {row.name: row for row in rows}
        self.noted: list[tuple[str, float]] = []

    def launch(
        self, function: Any, grid: tuple[int, int, int], threads: int, arguments: bytes, shared_bytes: int = 0
    ) -> None:
        row = self.rows[function]
        length = max(row.number(arguments, name) for name in ("k", "width", "vocab", "head_dim")) or 1
        self.noted.append((function, float(np.prod(grid)) * threads * length))


def cells() -> list[dict[str, Any]]:
    """One per chip, with the reason where its code cannot run here."""
    reason = missing("rocm") or emulated_device.missing()
    same = {"platform": "gpu", "how": "emulated", "reason": reason, "is_exact": False}
    return [{**same, "name": f"gpu-emulated-{arch}", "level": f"emulated-{arch}"} for arch in emulated_device.ARCHS]


def candidates(arch: str, folder: Path) -> list[Candidate]:
    """Every case in every mode, as the noting device saw it."""
    found: list[Candidate] = []
    seen: set[tuple[str, str, frozenset[str]]] = set()
    for mode, levels in MODES.items():
        device = NotingDevice(arch, rows_of(folder))
        cell = gpu_cell_on(device, folder, mode, levels, "noted")
        for table, name in all_cases():
            device.noted.clear()
            with suppress(Exception):  # of results that no kernel wrote
                run(cell, table, name)
            kernels = frozenset(kernel for kernel, _ in device.noted)
            if kernels and (table, name, kernels) not in seen:  # other levels may not change what runs
                seen.add((table, name, kernels))
                found.append(Candidate(mode, table, name, kernels, sum(cost for _, cost in device.noted)))
    return found


def all_cases() -> list[tuple[str, str]]:
    """(table, name) of conformance cases, of sampling, and of the self-test of a start."""
    return [
        *cases.CASES,
        *(("sample", name) for name in cases.SAMPLES),
        *((SELF_TEST, c.name) for c in start_up.cases()),
    ]


def run(cell: Cell, table: str, name: str) -> Any:
    """What a case gives."""
    if table == SELF_TEST:
        case = next(case for case in start_up.cases() if case.name == name)
        return case.run(_self_test(cell).cell(_native(cell)))
    if table == "sample":
        return cases._sampled(cell, name)
    return cases._run(cell, table, name)


def judged(cell: Cell, reference: cases.Arrays, table: str, name: str) -> tuple[str, float]:
    """What is wrong with a case ('' = nothing), and its error."""
    if table == SELF_TEST:
        test, case = _self_test(cell), next(case for case in start_up.cases() if case.name == name)
        same = digest(case.run(test.cell(_native(cell)))) == GOLDEN[name]
        return ("" if same or test._is_close(_native(cell), case) else "other bits than the reference's"), 0.0
    if table == "sample":
        return cases.judged_sample(cell, reference, name)[:2]
    return cases.judged(cell, reference, table, name)[:2]


def _native(cell: Cell) -> Any:
    return cell.sample.__self__.native  # type: ignore[attr-defined]


def _self_test(cell: Cell) -> GpuSelfTest:
    return GpuSelfTest(_native(cell))


def plan(found: Iterable[Candidate], kernels: Iterable[str]) -> list[Candidate]:
    """Cheap cases that together launch all of these kernels that some case launches, cheapest first."""
    wanted, pool = set(kernels), list(found)
    left, chosen = set(wanted), list[Candidate]()
    while True:
        best = max(
            pool, key=lambda c: (len(c.kernels & left) > 0, len(c.kernels & left) / (c.cost + 1.0)), default=None
        )
        if best is None or not best.kernels & left:
            break
        left -= best.kernels
        chosen.append(best)
        pool.remove(best)
    for case in sorted(chosen, key=lambda c: -c.cost):  # what later choices made needless
        if case.kernels & wanted <= frozenset().union(*(other.kernels for other in chosen if other is not case)):
            chosen.remove(case)
    return sorted(chosen, key=lambda c: c.cost)


@dataclass
class Run:
    """One chip's cases, as they run."""

    arch: str
    folder: Path
    reference: cases.Arrays
    ops: dict[str, cases.OpResult] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)  # kernels
    too_long: int = 0  # cases beyond the emulator's limit of instructions
    _cells: dict[str, tuple[emulated_device.EmulatedDevice, Cell]] = field(default_factory=dict)

    def cell(self, mode: str) -> tuple[emulated_device.EmulatedDevice, Cell]:
        if mode not in self._cells:
            device = emulated_device.EmulatedDevice(self.arch, _NUM_UNITS)
            self._cells[mode] = device, gpu_cell_on(device, self.folder, mode, MODES[mode], "emulated")
        return self._cells[mode]

    def take(self, candidate: Candidate) -> None:
        device, cell = self.cell(candidate.mode)
        device.stats.clear()
        try:
            why, error = judged(cell, self.reference, candidate.table, candidate.name)
        except Exception as failure:
            if TOO_LONG in str(failure):
                self.too_long += 1
                return
            why, error = f"{type(failure).__name__}: {failure}"[:300], float("inf")
        kernels = {name for name, _, _ in device.stats}
        self.ran |= kernels
        result = self.ops.setdefault(candidate.table, cases.OpResult())
        result.add(not why, error, f"{candidate.name} at {candidate.mode}", why, kernels)


def run_cell(arch: str, reference: cases.Arrays, *, is_full: bool = False) -> dict[str, Any]:
    """A report row's results. `not_reached`: kernels of the chip's table that no case launched; `left`: cases for which there was
    no time; `too_long`: those beyond the emulator's limit."""
    folder = build(Target("rocm", arch))
    kernels = {row.name for row in rows_of(folder) if row.only in ("", arch)}
    start = time.monotonic()
    found = candidates(arch, folder)
    chosen = plan(found, kernels)
    rest = sorted(set(found) - set(chosen), key=lambda c: c.cost) if is_full else []
    made, begun = Run(arch, folder, reference), time.monotonic()
    left = 0
    for candidate in (*chosen, *rest):
        if time.monotonic() - begun > (FULL_BUDGET_S if is_full else BUDGET_S):
            left += 1
            continue
        made.take(candidate)
    return {
        "ops": {op: asdict(result) for op, result in made.ops.items()}, "seconds": round(time.monotonic() - start, 1),
        "choosing_s": round(begun - start, 1), "num_kernels": len(kernels), "left": left, "too_long": made.too_long,
        "not_reached": sorted(kernels - made.ran),
    }  # fmt: skip


def main_cell(name: str, folder: Path, *, is_full: bool) -> dict[str, Any]:
    """A cell by its name; `folder` keeps the reference's results."""
    return run_cell(name.removeprefix("gpu-emulated-"), cases.reference_results(folder), is_full=is_full)
