"""The start-up gate: kernels that a wrong table, a wrong tile or a wrong driver makes wrong are found, and not used."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ci.gpu import missing
from tests.engine import bits
from tests.platforms.gpu.host_device import HostDevice, folder

from octavo.engine.errors import PlatformError
from octavo.platforms import registry
from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.gpu.selftest import GpuCell
from octavo.platforms.registry import Entry
from octavo.platforms.select import MANY_FROM
from octavo.platforms.selftest.cases import FEW, MANY, TILES, WIDE, covering

pytestmark = pytest.mark.skipif(bool(missing("host")), reason=missing("host"))


@pytest.mark.parametrize("wave", [64, 32])
def test_every_kernel_has_the_bits_that_its_level_promises(wave: int) -> None:
    platform = GpuPlatform(HostDevice(wave), folder(wave))
    platform.selftest.prove_all()
    assert not platform.selftest.refused
    assert platform.selftest.num_passed > 60
    platform.device.check()  # type: ignore[attr-defined]


def test_its_cases_have_rows_of_every_band() -> None:
    for (op, level), start in MANY_FROM.items():
        if op == "linear_" and level.startswith(("mma", "triton")):
            others = [
                rows for (other, name), rows in MANY_FROM.items() if other == op and name.startswith(("mma", "triton"))
            ]
            end = min((rows for rows in others if rows > start), default=1 << 30)
            assert any(start <= rows < end for rows in (FEW, MANY, TILES[0], WIDE[0])), (
                f"no case has {start} to {end - 1} rows"
            )


def faulty(kernel: str, wave: int = 64, **change: int) -> GpuPlatform:
    """A platform whose table of kernels is wrong about one."""
    platform = GpuPlatform(HostDevice(wave), folder(wave))
    rows = platform.native.module.rows
    rows[kernel] = replace(rows[kernel], **change)
    return platform


@pytest.mark.parametrize(
    ("kernel", "change", "form", "level"),
    [
        ("linear_bf16__mmafast", {"tile_outs": 32}, "bf16", "mmafast"),
        ("linear_bf16__mmafastwide", {"tile_rows": 128}, "bf16", "mmafastwide"),
        ("linear_w8a8__mmawide", {"tile_outs": 512}, "w8a8", "mmawide"),
        ("linear_w8a8__mma", {"tile_outs": 64}, "w8a8", "mma"),
        ("linear_q6k__mmawide", {"tile_rows": 256}, "q6_k", "mmawide"),
    ],
)
def test_a_wrong_tile_is_found_and_its_level_is_not_used(
    kernel: str, change: dict[str, int], form: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    platform = faulty(kernel, **change)
    with caplog.at_level(logging.WARNING, "octavo.platforms"):
        platform.selftest.prove_format(form)
    assert level in platform.selftest.refused and level not in platform.levels
    assert f"level {level} is not used" in caplog.text
    choice = platform.native.table[kernel.rsplit("__", 1)[0]]
    assert kernel not in choice.kernels


@pytest.mark.parametrize(
    ("op", "level", "tile_rows"),
    [
        ("paged_attention_bf16_d64", "mmafast", 32),
        ("paged_attention_bf16_d128", "mmafastwide", 256),
        ("paged_attention_int8_d192", "mmafastwide", 128),
        ("varlen_attention_d64", "mmafast", 64),
        ("varlen_attention_bf16_d128", "mmafast", 256),
    ],
)
@pytest.mark.parametrize("wave", [64, 32])
def test_a_wrong_tile_of_attention_is_found_and_not_used(wave: int, op: str, level: str, tile_rows: int) -> None:
    """Its grids have a block to spare for every sequence, which may not hide a tile too few."""
    kernel = f"{op}__{level}"
    platform = faulty(kernel, wave, tile_rows=tile_rows)
    device: Any = platform.device
    platform.selftest.prove({op})
    assert platform.selftest.refused
    device.launched.clear()
    for case in covering({op}):
        case.run(GpuCell(platform.native))
    assert device.launched and kernel not in device.launched


def test_where_no_level_is_right_nothing_is_served() -> None:
    platform = faulty("rope__simt", tile_outs=4096, threads=256)
    rows = platform.native.module.rows
    rows["rope__simt"] = replace(rows["rope__simt"], fields=rows["add__simt"].fields)
    with pytest.raises(PlatformError, match="rope"):
        platform.selftest.prove({"rope"})


def test_a_model_answers_right_although_a_level_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = bits.write_quantized("llama", "bf16", tmp_path / "m.gguf")
    made = []

    def make(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> GpuPlatform:
        made.append(faulty("linear_bf16__mmafast", tile_outs=32))
        return made[-1]

    monkeypatch.setattr(registry, "PLATFORMS", (Entry("host", lambda: "", make), *registry.PLATFORMS))
    prompts = bits.prompts([3, 5])
    gpu = bits.run(bits.make_core(model, platform="host"), prompts, 4, temperature=0.0)
    cpu = bits.run(bits.make_core(model, numerics="exact"), prompts, 4, temperature=0.0)
    assert "mmafast" in made[0].selftest.refused
    assert gpu.tokens == cpu.tokens
