"""Programs of GPU launches: arguments, graphs per bucket, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ci.gpu import missing
from tests.engine import bits
from tests.golden import tiny
from tests.platforms.gpu.host_device import HostDevice, HostGraph, folder

from octavo.engine.errors import PlatformError
from octavo.platforms.gpu.buckets import MOST_ROWS, ROWS, bucket_of
from octavo.platforms.gpu.code import open_module
from octavo.platforms.gpu.grids import Sizes
from octavo.platforms.gpu.module import Arena, GpuModule, Launch
from octavo.platforms.select import MANY_FROM

pytestmark = pytest.mark.skipif(bool(missing("host")), reason=missing("host"))


@pytest.fixture
def module() -> GpuModule:
    return open_module(HostDevice(), folder(64))


def test_buckets_end_below_the_rows_from_which_other_kernels_run() -> None:
    for (op, level), rows in MANY_FROM.items():
        if level.startswith(("mma", "triton")):
            assert rows - 1 in ROWS, f"{op} at {level} runs from {rows} rows on"


def test_a_step_takes_the_next_larger_bucket() -> None:
    assert bucket_of(3, 3, 3, 100) == (4, 4, 4, 128, 15)
    assert bucket_of(16, 0, 16, 1) == (16, 0, 16, 1, 15)
    assert bucket_of(17, 1, 2, 4096, 16) == (24, 1, 2, 4096, 16)
    assert bucket_of(MOST_ROWS + 1, 1, 1, 1) is None


@pytest.mark.parametrize(
    ("fields", "word"), [({"x": 1}, "y"), ({"x": 1, "ldx": 1, "y": 1, "ldy": 1, "width": 1, "tilt": 1}, "tilt")]
)
def test_arguments_that_a_kernel_lacks_or_needs_are_named(module: GpuModule, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(PlatformError, match=word):
        module.Program().add([(0, "gather_rows__simt")], (1, 0), fields)


def test_a_launch_takes_the_kernel_of_its_rows(module: GpuModule) -> None:
    low, mid, top = (
        replace(module.rows["linear_bf16__simt"], level=level) for level in ("mmafast", "mmafastwide", "triton")
    )
    launch = Launch(((0, low), (17, mid), (65, top)), (0, 0), bytearray())
    assert [launch.kernels(Sizes(rows))[0].level for rows in (1, 16, 17, 64, 65, 512)] == [
        *("mmafast", "mmafast", "mmafastwide", "mmafastwide", "triton", "triton")
    ]


def test_attention_for_many_tokens_runs_beside_that_for_few(module: GpuModule) -> None:
    few, many = (module.rows[f"paged_attention_bf16_d64__{level}"] for level in ("mmafast", "mmafastwide"))
    launch = Launch(((0, few), (16, many)), (0, 0), bytearray())
    assert launch.kernels(Sizes(40, seqs=3, most_new=15)) == (few,)
    assert launch.kernels(Sizes(40, seqs=3, most_new=16)) == (few, many)


def test_kernels_of_one_instruction_take_one_list_of_arguments(module: GpuModule) -> None:
    with pytest.raises(PlatformError, match="gather_rows__simt and add__simt take different arguments"):
        module.Program().add([(0, "gather_rows__simt"), (17, "add__simt")], (1, 0), {})


def test_memory_comes_as_zeros_and_goes_back(module: GpuModule) -> None:
    device = module.device
    assert isinstance(device, HostDevice)
    before = len(device._memory)
    arena = Arena(device, 1000)
    out = np.ones(1000, np.uint8)
    device.read(arena.address, out)
    assert not out.any() and len(device._memory) == before + 1
    del arena
    assert len(device._memory) == before


def test_steps_of_one_bucket_share_a_graph_and_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode steps of 3 and 4 sequences run the launches that were recorded for 4."""
    from octavo.platforms import registry
    from octavo.platforms.gpu.platform import GpuPlatform
    from octavo.platforms.registry import Entry

    launches: list[int] = []
    plain = HostGraph.launch
    monkeypatch.setattr(HostGraph, "launch", lambda self: (launches.append(id(self)), plain(self))[1])
    entry = Entry(
        "host", lambda: "", lambda threads, isa, numerics: GpuPlatform(HostDevice(), folder(64), isa, numerics)
    )
    monkeypatch.setattr(registry, "PLATFORMS", (entry, *registry.PLATFORMS))
    model = tiny.write_safetensors("llama", tmp_path)
    prompts = bits.prompts([5, 9, 20, 3])
    cores = {name: bits.make_core(model, platform=name, numerics="exact") for name in ("host", None)}
    traces = {name: bits.run(core, prompts, 8) for name, core in cores.items()}
    assert traces["host"].logits == traces[None].logits
    assert len(launches) > 2 * len(set(launches)) > 0
