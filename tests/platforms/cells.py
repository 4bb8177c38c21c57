"""The cells of the conformance matrix: every (platform, level) that can run here, and why the others cannot.

A cell offers fresh ops on numpy arrays, weights and a sampler. Adding a platform is one more line in `cells()`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

from octavo.engine.errors import PlatformError
from octavo.platforms.reference.kv import PagePool
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.sample import sample
from octavo.platforms.reference.weights import ReferenceWeights
from octavo.platforms.registry import PLATFORMS
from octavo.platforms.select import FAST_LEVELS
from octavo.platforms.types import KVSpec, SampleBatch, SampleResult

NUM_THREADS = 2
EMULATED = "octavo._avx_emulated"
#: of ops that no CPU has kernels for
GPU_TABLES = ("linear_f8",)
GPU_LEVELS = ("simt", "mma", "mmawide", "mmafast", "mmafastwide")


@dataclass(frozen=True)
class Cell:
    """`expected(op)` is what `last_variant` must start with for a kernel of this cell; `reason` why it cannot run."""

    platform: str
    level: str
    ops: Callable[..., Any]
    weights: Callable[[], Any]
    sample: Callable[[Any, SampleBatch], SampleResult]
    levels_of: Callable[[str], set[str]]
    reason: str = ""
    how: str = "native"  # or emulated: the same kernels on AVX2 (tests/emulated)
    is_exact: bool = True  # held to the reference's bits, else to its values within a case's tolerance
    tables: tuple[str, ...] = ()  # of cases, where only some concern it

    @property
    def name(self) -> str:
        return f"{self.platform}-{self.level}"

    def concerns(self, table: str) -> bool:
        """Whether a table's cases are for this cell."""
        return table in self.tables if self.tables else table not in GPU_TABLES or self.platform in ("reference", "gpu")


def cells() -> list[Cell]:
    """Every cell, the reference first."""
    return [reference_cell(), portable_cell(), torch_cell(), *native_cells(), *gpu_cells(), triton_cell()]


@cache
def reference_cell() -> Cell:
    def ops(spec: KVSpec | None = None, num_pages: int = 1) -> ReferenceOps:
        return ReferenceOps(None if spec is None else PagePool(spec, num_pages))

    return Cell("reference", "reference", ops, ReferenceWeights, sample, lambda op: {"reference"})


@cache
def portable_cell() -> Cell:
    entry = next(entry for entry in PLATFORMS if entry.name == "portable")
    if reason := entry.probe():
        return _refused("portable", "numba", reason)
    from octavo.platforms.portable.ops import COMPILED, PortableOps
    from octavo.platforms.portable.weights import PortableWeights

    threads = ThreadPoolExecutor(NUM_THREADS)

    def ops(spec: KVSpec | None = None, num_pages: int = 1) -> PortableOps:
        return PortableOps(None if spec is None else PagePool(spec, num_pages), threads, NUM_THREADS)

    def levels_of(op: str) -> set[str]:
        return {"numba" if op in COMPILED else "reference"}

    return Cell("portable", "numba", ops, PortableWeights, sample, levels_of)


@cache
def torch_cell() -> Cell:
    """The GPUs' op base on this CPU: another order of sums, so held to the case tables' tolerances."""
    entry = next(entry for entry in PLATFORMS if entry.name == "torch")
    if reason := entry.probe():
        return _refused("torch", "cpu", reason)
    from octavo.platforms.gpu.sampling import HostSampler
    from octavo.platforms.gpu.torch_base.cell import TorchCell
    from octavo.platforms.gpu.torch_base.runtime import LEVEL, torch

    made = TorchCell(torch.device("cpu"), HostSampler().sample)
    return Cell("torch", "cpu", made.ops, made.weights, made.sample, lambda op: {LEVEL}, is_exact=False)


def native_cells() -> Iterator[Cell]:
    """One cell per level of the native module; one that says why if there is no module."""
    try:
        from octavo.platforms.cpu.module import load
        from octavo.platforms.recorded.native import Native

        levels = list(Native(load()).levels)
    except PlatformError as error:
        yield _refused("native", "all", str(error))
        return
    yield from map(native_cell, levels)


def gpu_cells() -> Iterator[Cell]:
    """GPU kernels on the host, by fibers with waves of both widths; each on plain arithmetic units alone, on matrix units with
    the bits of CPUs, and with float sums in their own order. (tests/matrix/emulated.py: machine code.)"""
    from ci.gpu import missing

    reason = missing("host")
    for arch in ("wave64", "wave32"):
        for level in ("simt", "mma", "mmafast"):
            yield _refused("gpu", f"{arch}-{level}", reason) if reason else gpu_cell(arch, level)


@cache
def gpu_cell(arch: str, level: str) -> Cell:
    from tests.platforms.gpu.host_device import HostDevice, folder

    wave = int(arch.removeprefix("wave"))
    return gpu_cell_on(HostDevice(wave), folder(wave), f"{arch}-{level}", gpu_levels(level), "fibers")


def gpu_levels(level: str) -> tuple[str, ...]:
    """A level with its kernels for many rows, and those below it."""
    return GPU_LEVELS[: GPU_LEVELS.index(level) + (1 if level == "simt" else 2)]


def gpu_cell_on(device: Any, folder: Any, name: str, levels: tuple[str, ...], how: str) -> Cell:
    """The kernels of a folder at these levels, on a device."""
    from octavo.platforms.gpu.eager import GpuEagerOps
    from octavo.platforms.gpu.platform import GpuPlatform
    from octavo.platforms.gpu.sampling import DeviceSampler
    from octavo.platforms.gpu.weights import GpuWeights

    is_exact = FAST_LEVELS.isdisjoint(levels)
    platform = GpuPlatform(device, folder, levels, "exact" if is_exact else "fast")
    native = platform.native

    def ops(spec: KVSpec | None = None, num_pages: int = 1) -> GpuEagerOps:
        return GpuEagerOps(native, platform.team, spec, num_pages)

    return Cell(
        "gpu", name, ops, lambda: GpuWeights(native), DeviceSampler(native).sample_host, lambda op: set(levels), how=how,
        is_exact=is_exact,
    )  # fmt: skip


@cache
def triton_cell() -> Cell:
    """Kernels in Triton's language, interpreted; what they are not written for runs by fibers."""
    from tests.platforms.gpu import triton_device

    if reason := triton_device.missing():
        return _refused("gpu", "triton-interpret", reason)
    from octavo.platforms.gpu.eager import GpuEagerOps
    from octavo.platforms.gpu.platform import GpuPlatform
    from octavo.platforms.gpu.sampling import DeviceSampler
    from octavo.platforms.gpu.weights import GpuWeights

    levels = ("simt", "mma", "triton")
    platform = GpuPlatform(triton_device.InterpretedDevice(), triton_device.folder(), levels, "fast")
    native = platform.native
    triton_device.prefer(native)

    def ops(spec: KVSpec | None = None, num_pages: int = 1) -> GpuEagerOps:
        return GpuEagerOps(native, platform.team, spec, num_pages)

    def levels_of(op: str) -> set[str]:
        mine = [choice for name, choice in native.table.choices.items() if name.startswith(op)]
        return {kernel.rsplit("__", 1)[1] for choice in mine for kernel in choice.kernels}

    return Cell(
        "gpu", "triton-interpret", ops, lambda: GpuWeights(native), DeviceSampler(native).sample_host, levels_of,
        how="interpreted", is_exact=False, tables=("linear", "gated_mlp", "norm_linear", "lm_head"),
    )  # fmt: skip


@cache
def native_platform() -> Any:
    """The class of this machine's platform."""
    from octavo.platforms.arm.platform import ArmPlatform
    from octavo.platforms.cpu.module import load
    from octavo.platforms.x86.platform import X86Platform

    return {"x86": X86Platform, "arm": ArmPlatform}[load().platform]


@cache
def native_cell(level: str) -> Cell:
    from octavo.platforms.recorded.eager import EagerOps
    from octavo.platforms.recorded.sampling import NativeSampler

    made, name = native_platform(), native_platform().name

    numerics = "fast" if level in FAST_LEVELS else "exact"
    platform, how = made(NUM_THREADS, (level,), numerics=numerics), "native"
    if not any(row.level == level for row in platform.native.rows):
        return _refused(name, level, f"no kernel is built for {level}")
    if level not in platform.levels:
        try:
            platform, how = made(NUM_THREADS, (level,), EMULATED, numerics), "emulated"
        except PlatformError:
            return _refused(name, level, f"this processor lacks {level} and {EMULATED} is not built")
    if level not in platform.levels:
        return _refused(
            name, level, f"{level} failed its self-test: {platform.native.bad_levels.get(level, 'no reason kept')}"
        )
    native = platform.native

    def ops(spec: KVSpec | None = None, num_pages: int = 1) -> EagerOps:
        return EagerOps(native, platform.team, spec, num_pages)

    def levels_of(op: str) -> set[str]:
        """The levels of the kernels chosen for an op's kernels under this cell's features."""
        mine = [choice for name, choice in native.table.choices.items() if name.startswith(op)]
        return {kernel.rsplit("__", 1)[1] for choice in mine for kernel in choice.kernels}

    sampler = NativeSampler(native, platform.team)
    return Cell(name, level, ops, platform.weights, sampler.sample, levels_of, how=how, is_exact=numerics == "exact")


def _refused(platform: str, level: str, reason: str) -> Cell:
    def nothing(*_: Any) -> Any:
        raise PlatformError(reason)

    return Cell(platform, level, nothing, nothing, nothing, lambda op: set(), reason)
