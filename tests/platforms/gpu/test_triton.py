"""Kernels made by Triton: what its compiler made of them, that our loader launches them, and what happens where they do not fit.

Their numerics are the matrix's cell `gpu-triton-interpret`; here, machine code of AMD's runs where an emulator is.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ci.gpu import Target, build, missing
from ci.gpu_resources import resources
from ci.gpu_triton import KERNELS, TARGETS, offsets_in_notes, offsets_in_ptx
from ci.gpu_triton import missing as missing_triton
from tests.platforms.gpu import emulated_device
from tests.platforms.gpu.host_device import HostCode, HostDevice, folder
from tests.platforms.test_conformance import case_of, reference_result

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.code import open_module
from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.gpu.selftest import GpuCell

PTX = """
.visible .entry add__triton(
	.param .u64 .ptr .global .align 1 add__triton_param_0,
	.param .f32 add__triton_param_1,
	.param .u64 add__triton_param_2,
	.param .u32 add__triton_param_3
)
"""
NOTES = """
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
      - .offset:         12
        .size:           4
        .value_kind:     hidden_block_count_x
    .group_segment_fixed_size: 0
"""


def target(arch: str) -> Target:
    return Target("rocm" if arch.startswith("gfx") else "cuda", arch)


def built(arch: str) -> Path:
    """The folder of a chip's kernels, or the test is skipped."""
    if reason := missing_triton() or missing(target(arch).kind):
        pytest.skip(reason)
    return build(target(arch))


def test_places_of_parameters_are_read_right() -> None:
    assert offsets_in_ptx(PTX) == [0, 8, 16, 24]
    assert offsets_in_notes(NOTES) == [0, 8]


@pytest.mark.parametrize("arch", list(TARGETS))
def test_each_chip_has_them_without_spills(arch: str) -> None:
    made = {kernel.kernel: kernel for kernel in resources(target(arch))} if built(arch) else {}
    for kernel in KERNELS:
        found = made[kernel.name]
        assert not found.complaint
        assert 16 <= found.registers <= 256 and found.waves >= 1


class Watched(GpuCell):
    """Remembers its ops."""

    def ops(self, *given: Any, **named: Any) -> Any:
        self.made = super().ops(*given, **named)
        return self.made


@pytest.mark.parametrize("arch", emulated_device.ARCHS)
@pytest.mark.parametrize(
    ("table", "name", "op", "kernel", "grid"),
    [
        ("linear", "bf16_tiles", "linear", "linear_bf16__triton", (2, 3, 1)),
        ("norm_linear", "bf16_long", "rms_norm", "rms_norm_prepare_bf16__triton", (2, 1, 1)),
    ],
)
def test_machine_code_runs_by_our_loader(
    table: str, name: str, op: str, kernel: str, grid: tuple[int, int, int], arch: str
) -> None:
    if reason := emulated_device.missing():
        pytest.skip(reason)
    device = emulated_device.EmulatedDevice(arch, 2)
    platform = GpuPlatform(device, built(arch), ("simt", "triton"), "fast")
    module, case = case_of(table, name)
    cell = Watched(platform.native)
    got, want = module.run(cell, case), reference_result(table, name)
    assert cell.made.last_variant(op) == kernel
    assert (kernel, grid) in [launch[:2] for launch in device.stats]
    assert np.abs(got - want).max() <= case.tolerance * np.abs(want).max()


class Greedy(HostCode):
    """Its kernel wants more shared memory than there is."""

    def function(self, name: str, shared_bytes: int = 0) -> str:
        raise PlatformError(f"{name} asks for {shared_bytes} bytes of shared memory")


class Older(HostDevice):
    """Cannot load one code object, nor run the kernel of another."""

    def load(self, code: bytes) -> HostCode:
        if code == b"of a newer assembler":
            raise PlatformError("the image cannot be read")
        return Greedy() if code == b"of a larger chip" else super().load(code)


@pytest.mark.skipif(bool(missing("host")), reason=missing("host"))
@pytest.mark.parametrize(
    ("only", "code", "warnings"),
    [("", b"of a newer assembler", 1), ("", b"of a larger chip", 1), ("sm_100", b"of a newer assembler", 0)],
)
def test_what_does_not_fit_the_chip_or_its_driver_is_left_out(
    only: str, code: bytes, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(folder(64), tmp_path, dirs_exist_ok=True)
    table = (tmp_path / "kernels.json").read_text().removesuffix("]")
    mine = next(row for row in open_module(HostDevice(), tmp_path).rows.values() if row.op == "linear_bf16")
    fields = [[field.name, field.offset, field.kind] for field in mine.fields]
    row = (
        f'{{"op": "linear_bf16", "level": "triton", "threads": 512, "tile_rows": 128, "tile_outs": 128, "args_bytes": 160, '
        f'"fields": {str(fields).replace(chr(39), chr(34))}, "file": "made.co", "only": "{only}"}}'
    )
    (tmp_path / "kernels.json").write_text(f"{table}, {row}]")
    (tmp_path / "made.co").write_bytes(code)
    with caplog.at_level(logging.WARNING, "octavo.platforms"):
        module = open_module(Older(), tmp_path)
    assert "linear_bf16__triton" not in module.rows and "linear_bf16__simt" in module.rows
    assert len(caplog.records) == warnings
