"""The torch platform: never chosen by itself, silent where torch is missing, one clear error where a device is."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.golden import tiny

from octavo.engine.errors import PlatformError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.load import load_model
from octavo.platforms import registry
from octavo.platforms.platform import Capacity
from octavo.platforms.registry import choose_platform


def entry() -> registry.Entry:
    return next(e for e in registry.PLATFORMS if e.name == "torch")


needs_torch = pytest.mark.skipif(bool(entry().probe()), reason=entry().probe())


def test_it_is_chosen_only_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = next(e for e in registry.PLATFORMS if e.name == "reference")
    monkeypatch.setattr(registry, "PLATFORMS", (entry(), reference))
    chosen = choose_platform(None, 1)
    assert chosen.platform.name == "reference" and chosen.refused == ()


def test_without_torch_the_reason_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(PlatformError, match="torch: torch is not installed: install the build for this machine"):
        choose_platform("torch", 1)


def test_a_broken_torch_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: object())
    monkeypatch.delitem(sys.modules, "octavo.platforms.gpu.torch_base.runtime", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert entry().probe().startswith("torch cannot be imported: ")


def test_torch_is_not_imported_by_another_platform() -> None:
    code = (
        "import sys\n"
        "from octavo.platforms.registry import choose_platform\n"
        "choose_platform(None, 1)\n"
        "import octavo.platforms.gpu.torch_base, octavo.engine.build\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@needs_torch
def test_it_announces_itself_and_its_device(caplog: pytest.LogCaptureFixture) -> None:
    from octavo.platforms.gpu.torch_base.platform import TorchPlatform

    with caplog.at_level(logging.WARNING, "octavo"):
        platform = TorchPlatform("cpu", num_threads=1)
    assert len(caplog.records) == 1 and "op by op, on cpu" in caplog.text
    assert (platform.name, platform.levels, platform.block_tokens) == ("torch", ("torch",), 32)
    assert {v.level for v in platform.variants()} == {"torch"}
    assert TorchPlatform("cpu", "rocm").name == "rocm"


@needs_torch
def test_a_device_that_is_not_there_is_one_error() -> None:
    from octavo.platforms.gpu.torch_base.platform import TorchPlatform
    from octavo.platforms.gpu.torch_base.runtime import torch

    index = torch.cuda.device_count()
    with pytest.raises(PlatformError, match=rf"torch .* does not reach cuda:{index}: "):
        TorchPlatform(f"cuda:{index}")


@needs_torch
def test_doctor_shows_the_self_test_on_the_device() -> None:
    from octavo.platforms.gpu.torch_base.platform import TorchPlatform

    (row,) = TorchPlatform("cpu").diagnose()["selftest"]
    assert row["result"] == "passed" and row["kernels"] == "cpu" and row["cases"] > 50


@needs_torch
def test_scratch_grows_with_the_widest_row_of_the_tokens_not_with_the_vocabulary(tmp_path: Path) -> None:
    from octavo.platforms.gpu.torch_base.platform import TorchPlatform
    from octavo.platforms.gpu.torch_base.sizes import sizes_of

    platform = TorchPlatform("cpu")
    folder = tiny.write_safetensors("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    for is_dry in (True, False):
        with Checkpoint.open(folder) as checkpoint:
            decoder = load_model(checkpoint, platform.weights(is_dry=is_dry), config=config)
        sizes = sizes_of(decoder)
        heads = config["num_attention_heads"] + 2 * config["num_key_value_heads"]  # made by one product
        assert sizes.widest == heads * config["hidden_size"] // config["num_attention_heads"] < tiny.VOCAB
        assert {"embedding", "rms_norm", "rope", "gated_mlp", "paged_attention", "lm_head"} <= sizes.ops
        assert sizes.formats == {"f32"}
    spec = decoder.kv_spec("bf16")
    small, large = (platform.scratch_bytes(decoder, spec, Capacity(n, 2, 8, 64, 4)) for n in (8, 80))
    assert large - small == 72 * 4 * 8 * sizes.widest


@needs_torch
def test_memory_is_the_devices_with_what_torch_keeps_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.platforms.gpu.torch_base.platform import TorchPlatform
    from octavo.platforms.gpu.torch_base.runtime import torch

    platform = TorchPlatform("cpu")
    assert platform.memory() is None
    for name, found in (("mem_get_info", (300, 1000)), ("memory_reserved", 500), ("memory_allocated", 420)):
        monkeypatch.setattr(torch.cuda, name, lambda device, found=found: found)
    platform.device = torch.device("cuda")
    assert platform.memory() == (1000, 380)


@needs_torch
def test_the_process_keeps_its_own_precision_of_products() -> None:
    from octavo.platforms.gpu.torch_base.runtime import precise, torch

    torch.set_float32_matmul_precision("medium")
    try:
        with precise():
            assert torch.get_float32_matmul_precision() == "highest" and not torch.is_grad_enabled()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
