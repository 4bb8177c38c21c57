"""Whole models through --device, a driver's binding and its C interface, down to kernels run by fibers: the bits of a CPU.

By default the bindings are stand-ins; `test_driver_bindings.py` runs this file again over the installed ones.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ci.gpu import host_library, missing
from tests.engine import bits
from tests.golden import tiny
from tests.platforms.gpu.fakes.rig import Rig, rig
from tests.platforms.gpu.host_device import folder

from octavo.engine import chosen
from octavo.engine.errors import PlatformError
from octavo.platforms.gpu import code
from octavo.platforms.gpu import found as looking
from octavo.platforms.gpu.choice import Found

__all__ = ["rig"]
pytestmark = pytest.mark.skipif(bool(missing("host")), reason=missing("host"))
WAVES = {"rocm": 64, "cuda": 32}
ARCHS = {"rocm": "gfx942", "cuda": "sm_90"}


@pytest.fixture
def machine(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """One whose only GPU runs the kernels of fibers."""
    wave, arch = WAVES[rig.kind], ARCHS[rig.kind]
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / arch).symlink_to(folder(wave))
    library = ctypes.CDLL(str(host_library(wave)))
    rig.fake.library.fake_fibers(ctypes.cast(library.octavo_gpu_launch, ctypes.c_void_p))
    rig.fake.device(0, "Fibers", arch, 1 << 30, wave=wave, units=4)

    def find(kind: str, *, is_thorough: bool = False) -> Found:
        assert is_thorough, "it was asked for by name"
        devices = tuple(rig.module.list_devices(rig.api)) if kind == rig.kind else ()
        return Found(kind, has_driver=True, binding="1.0", devices=devices, targets=(arch,))

    monkeypatch.setattr(rig.module, "load_api", lambda: rig.api)
    monkeypatch.setattr(looking, "find", find)
    monkeypatch.setattr(code, "find", lambda kind: tmp_path / "code")
    yield rig
    gc.collect()
    rig.fake.library.fake_fibers(None)


def run(model: Path, device: str, **options: Any) -> bits.Trace:
    params = {name: options.pop(name) for name in ("temperature",) if name in options}
    core = bits.make_core(model, device=device, numerics="exact", packed_cache="off", **options)
    return bits.run(core, bits.prompts([1, 17, 33]), 4, **params)


@pytest.mark.parametrize("case", ["llama", "gemma3:q8_0"])
def test_a_model_has_the_bits_of_a_cpu(machine: Rig, case: str, tmp_path: Path) -> None:
    name, _, form = case.partition(":")
    model = (
        bits.write_quantized(name, form, tmp_path / "m.gguf") if form else tiny.write_safetensors(name, tmp_path / "m")
    )
    launches = machine.fake.calls(machine.names["launch"])
    gpu, cpu = run(model, machine.kind), run(model, "cpu")
    assert gpu.tokens == cpu.tokens and gpu.logits == cpu.logits
    assert machine.fake.calls(machine.names["launch"]) > launches + 100


def test_greedy_answers_are_those_of_a_cpu(machine: Rig, tmp_path: Path) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "m")
    gpu, cpu = (run(model, device, temperature=0.0) for device in (f"{machine.kind}:0", "cpu"))
    assert gpu.tokens == cpu.tokens and not gpu.logits


def test_a_closed_platform_has_given_all_back(machine: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, graphs, code and the queue, whoever still refers to them; what refers to them may go afterwards."""
    made: list[Any] = []
    plain = chosen.choose_platform
    monkeypatch.setattr(chosen, "choose_platform", lambda *given: (made.append(plain(*given)), made[-1])[1])
    before = machine.fake.live()
    model = tiny.write_safetensors("llama", tmp_path / "m")
    core = bits.make_core(model, device=machine.kind, numerics="exact", packed_cache="off")
    bits.run(core, bits.prompts([5]), 4, is_watched=False)
    used = machine.fake.live()
    (platform,) = [one.platform for one in made]
    assert all(used[name] > before[name] for name in ("memory", "graphs", "modules"))
    platform.close()
    left = machine.fake.live()
    assert {name: left[name] for name in left if name != "pinned"} == {n: before[n] for n in left if n != "pinned"}
    platform.close()
    with pytest.raises(PlatformError, match=f"{machine.kind}:0 is closed; open it again"):
        platform.memory()
    made.clear()
    del core, platform
    gc.collect()
    assert machine.fake.live() == before


def test_a_step_waits_for_the_device_only_to_read(machine: Rig, tmp_path: Path) -> None:
    model = tiny.write_safetensors("llama", tmp_path / "m")
    core = bits.make_core(model, device=machine.kind, numerics="exact", packed_cache="off")
    names = ("wait", "alloc", "free", "current")
    bits.run(core, bits.prompts([5]), 4, is_watched=False)
    before = {name: machine.fake.calls(machine.names[name]) for name in names}
    bits.run(core, bits.prompts([5]), 4, is_watched=False)
    used = {name: machine.fake.calls(machine.names[name]) - before[name] for name in names}
    assert used["wait"] <= 5 and used["alloc"] == used["free"] == 0, used
