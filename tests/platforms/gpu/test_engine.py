"""Whole models on the kernels of GPUs, by fibers on the host: tokens and logits have the bits of a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ci.gpu import missing
from tests.engine import bits
from tests.golden import tiny
from tests.platforms.gpu.host_device import HostDevice, folder

from octavo.platforms import registry
from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.registry import Entry

pytestmark = pytest.mark.skipif(bool(missing("host")), reason=missing("host"))
LENGTHS = [1, 17, 33]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> list[HostDevice]:
    """Devices that platforms named `host` opened."""
    made: list[HostDevice] = []

    def make(num_threads: int, isa: tuple[str, ...] | None, numerics: str) -> GpuPlatform:
        made.append(HostDevice())
        return GpuPlatform(made[-1], folder(64), isa, numerics)

    monkeypatch.setattr(
        registry, "PLATFORMS", (Entry("host", lambda: "", make, is_automatic=False), *registry.PLATFORMS)
    )
    return made


def both(model: Path, prompts: dict[int, list[int]], **options: Any) -> tuple[bits.Trace, bits.Trace]:
    """What the host's device gives, and what a CPU gives."""
    params = {name: options.pop(name) for name in ("temperature",) if name in options}
    return tuple(  # type: ignore[return-value]
        bits.run(bits.make_core(model, platform=name, **options), prompts, 4, **params) for name in ("host", None)
    )


@pytest.mark.parametrize("case", ["llama", "gemma3", "llama:q4_1", "llama:bf16", "llama:q8_0"])
@pytest.mark.parametrize("kv_dtype", ["bf16", "int8", "fp8"])
def test_a_model_has_the_bits_of_a_cpu(case: str, kv_dtype: str, devices: list[HostDevice], tmp_path: Path) -> None:
    name, _, form = case.partition(":")
    model = bits.write_quantized(name, form, tmp_path / "m.gguf") if form else tiny.write_safetensors(name, tmp_path)
    gpu, cpu = both(model, bits.prompts(LENGTHS), kv_dtype=kv_dtype, numerics="exact")
    assert gpu.tokens == cpu.tokens
    assert gpu.logits == cpu.logits
    assert any(name.startswith(f"paged_attention_{kv_dtype}") for name in devices[0].launched)
    devices[0].check()


@pytest.mark.parametrize("block_tokens", [16, 64])
def test_the_size_of_a_block_changes_nothing(block_tokens: int, devices: list[HostDevice], tmp_path: Path) -> None:
    model, prompts = tiny.write_safetensors("gemma3", tmp_path), bits.prompts([90, 3])
    core = bits.make_core(model, platform="host", numerics="exact", block_tokens=block_tokens, max_batch_tokens=40)
    cpu = bits.run(bits.make_core(model, numerics="exact"), prompts, 4)
    assert bits.run(core, prompts, 4).logits == cpu.logits
    devices[0].check()


def test_greedy_ids_never_leave_the_device_as_logits(devices: list[HostDevice], tmp_path: Path) -> None:
    model = tiny.write_safetensors("llama", tmp_path)
    gpu, cpu = both(model, bits.prompts(LENGTHS), temperature=0.0, numerics="exact")
    assert gpu.tokens == cpu.tokens
    assert not gpu.logits
    assert devices[0].launched["greedy_head__simt"] > 0


def test_drawn_ids_are_all_that_leaves_the_device(
    devices: list[HostDevice], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No read is as large as a row of logits."""
    model, prompts, sizes = tiny.write_safetensors("llama", tmp_path), bits.prompts(LENGTHS), []
    plain_read = HostDevice.read
    _, cpu = both(model, prompts, numerics="exact")
    core = bits.make_core(model, platform="host", numerics="exact")

    def read(self: HostDevice, address: int, out: Any) -> None:
        sizes.append(out.size)
        plain_read(self, address, out)

    monkeypatch.setattr(HostDevice, "read", read)
    assert bits.run(core, prompts, 4, is_watched=False).tokens == cpu.tokens
    assert devices[-1].launched["sample__simt"] >= 4
    assert 0 < max(sizes) < 4 * tiny.VOCAB


@pytest.mark.parametrize("kv_dtype", ["bf16", "fp8"])
def test_a_shared_prefix_is_copied_and_read_as_on_a_cpu(
    kv_dtype: str, devices: list[HostDevice], tmp_path: Path
) -> None:
    model = tiny.write_safetensors("llama", tmp_path)
    prompt = bits.prompts([80])[100]
    traces = []
    for name in ("host", None):
        core = bits.make_core(model, platform=name, numerics="exact", kv_dtype=kv_dtype)
        first = bits.run(core, {1: prompt}, 4)
        second = bits.run(core, {2: prompt, 3: prompt[:70]}, 4)
        assert second.num_cached[2] >= 64
        traces.append((first.tokens, second.tokens, second.logits))
    assert traces[0] == traces[1]
