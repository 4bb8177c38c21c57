"""A GPU with its code objects, as what records programs knows a module of kernels: the same calls as `octavo._avx` has.

Addresses are of device memory. `Program.run` puts kernels in the device's queue and does not wait for them.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.buckets import Counts, bucket_of, sizes_of
from octavo.platforms.gpu.device import Code, Device, Graph
from octavo.platforms.gpu.grids import Sizes, grid_of
from octavo.platforms.gpu.rows import STEP_BYTES, GpuRow
from octavo.platforms.gpu.step import Step, StepMemory
from octavo.platforms.select import of_rows

SIMT, MMA = 1, 2
#: levels, slowest first -> feature bits: plain arithmetic units, matrix units (gpu/mma.h); `fast` ones and Triton's
#: (platforms/gpu/triton) add in their own order
LEVELS = {"simt": SIMT, "mma": MMA, "mmawide": MMA, "mmafast": MMA, "mmafastwide": MMA, "triton": MMA}
#: launches from which a graph is worth recording
LEAST_OF_GRAPH = 8


class Arena:
    """Zeroed device memory, given back with the object."""

    def __init__(self, device: Device, num_bytes: int) -> None:
        self.device = device
        self.bytes = num_bytes
        self.address = device.alloc(max(num_bytes, 1))
        device.zero(self.address, num_bytes)
        weakref.finalize(self, device.free, self.address)


@dataclass
class Launch:
    """One instruction: its kernels by number of rows (`select.Choice`), and its arguments behind room for the step's address."""

    bands: tuple[tuple[int, GpuRow], ...]
    rows: tuple[int, int]
    arguments: bytearray

    def kernels(self, sizes: Sizes) -> tuple[GpuRow, ...]:
        """What runs for a step of these sizes."""
        is_beside = self.bands[-1][1].is_beside
        row = of_rows(self.bands, sizes.most_new if is_beside else sizes.rows)
        return (self.bands[0][1], row) if row.is_beside else (row,)


class GpuModule:
    """What code objects offer on an open device. `rows`: their kernels; `codes`: the loaded objects by file name."""

    def __init__(self, device: Device, rows: list[GpuRow], codes: Mapping[str, Code], features: int = SIMT) -> None:
        self.device = device
        self.platform = device.facts.kind
        self.rows = {row.name: row for row in rows}
        self.features = features
        self.step_memory = StepMemory(device)
        self.Step = Step
        self._codes = codes
        self._functions: dict[str, Any] = {}

    def add(self, row: GpuRow, code: Code) -> None:
        """One more kernel, asked for now, not first while a graph is recorded. PlatformError where the device cannot run it."""
        self._functions[row.name] = code.function(row.name, row.shared_bytes)
        self.rows[row.name] = row

    def levels(self) -> dict[str, int]:
        return dict(LEVELS)

    def kernels(self) -> list[tuple[str, str, str, int, list[str]]]:
        return [
            (row.op, row.name, row.level, LEVELS[row.level], [field.name for field in row.fields])
            for row in self.rows.values()
        ]

    def available_features(self) -> int:
        return self.features

    def Arena(self, num_bytes: int) -> Arena:
        return Arena(self.device, num_bytes)

    def Team(self, num_threads: int, spin: int) -> Team:
        del num_threads, spin
        return Team()

    def Program(self) -> Program:
        return Program(self)

    def function(self, name: str) -> Any:
        if name not in self._functions:
            row = self.rows[name]
            self._functions[name] = self._codes[row.file].function(name, row.shared_bytes)
        return self._functions[name]


class Team:
    """Where threads are the device's own business."""

    num_threads = 1

    def place(self, places: Any) -> int:
        del places
        return 0


class Program:
    """A list of launches over fixed addresses."""

    def __init__(self, module: GpuModule) -> None:
        self.module = module
        self.list: list[Launch] = []
        self.graphs: dict[Any, Graph] = {}

    def add(self, bands: Sequence[tuple[int, str]], rows: tuple[int, int], fields: Mapping[str, Any]) -> int:
        found = tuple((start, self.module.rows[name]) for start, name in bands)
        first = found[0][1]
        for _, row in found:
            if row.fields != first.fields:
                raise PlatformError(f"{first.name} and {row.name} take different arguments")
        arguments = bytearray(STEP_BYTES + max(row.args_bytes for _, row in found))
        first.pack(arguments, fields)
        self.list.append(Launch(found, rows, arguments))
        return len(self.list) - 1

    def __len__(self) -> int:
        return len(self.list)

    @property
    def bands(self) -> list[list[tuple[int, str]]]:
        return [[(start, row.name) for start, row in launch.bands] for launch in self.list]

    def run(self, team: Any, step: Step, first: int, last: int) -> None:
        """Puts instructions [first, last) in the queue: as a graph, where there are many."""
        del team
        if first >= last:
            return
        address = self.module.step_memory.hold(step)
        tokens, seqs, logits = step.counts
        counts = (tokens, logits, seqs, step.longest, step.most_new)
        bucket = bucket_of(*counts) if last - first >= LEAST_OF_GRAPH else None
        if bucket is None:
            self._launch(first, last, counts, address)
            return
        key = (first, last, address, bucket)
        graph = self.graphs.get(key)
        if graph is None:
            graph = self.module.device.capture(lambda: self._launch(first, last, bucket, address))
            self.graphs[key] = graph
            weakref.finalize(self, graph.close)
        graph.launch()

    def profile(self, team: Any, step: Step, first: int, last: int) -> list[float]:
        """Seconds per instruction, by the device's clock."""
        del team
        address = self.module.step_memory.hold(step)
        tokens, seqs, logits = step.counts
        counts = (tokens, logits, seqs, step.longest, step.most_new)
        return [
            self.module.device.seconds(lambda i=i: self._launch(i, i + 1, counts, address))  # type: ignore[misc]
            for i in range(first, last)
        ]

    def _launch(self, first: int, last: int, counts: Counts, address: int) -> None:
        device = self.module.device
        for launch in self.list[first:last]:
            sizes = sizes_of(*launch.rows, counts)
            struct.pack_into("<Q", launch.arguments, 0, address)
            for row in launch.kernels(sizes):
                grid = grid_of(row, launch.arguments, sizes, device.facts.num_units)
                if grid[0]:
                    arguments = bytes(launch.arguments[: STEP_BYTES + row.args_bytes])
                    device.launch(self.module.function(row.name), grid, row.threads, arguments, row.shared_bytes)


def flat_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """An array's bytes as they lie."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
