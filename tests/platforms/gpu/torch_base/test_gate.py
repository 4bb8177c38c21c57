"""A device that computes wrongly serves nothing: one error that names the case, the device and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden import tiny

from octavo.engine.errors import PlatformError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Capacity
from octavo.platforms.registry import PLATFORMS
from octavo.platforms.selftest.bounds import bound, too_far
from octavo.platforms.selftest.cases import cases, common
from octavo.quant.formats import FORMATS

if why := next(e for e in PLATFORMS if e.name == "torch").probe():
    pytest.skip(why, allow_module_level=True)

from octavo.platforms.gpu.torch_base import attention, ops, pages, products
from octavo.platforms.gpu.torch_base.cell import TorchCell
from octavo.platforms.gpu.torch_base.gate import Gate
from octavo.platforms.gpu.torch_base.platform import TorchPlatform
from octavo.platforms.gpu.torch_base.runtime import torch
from octavo.platforms.reference.sample import sample

CPU = torch.device("cpu")


def gate() -> Gate:
    return Gate(TorchCell(CPU, sample), "this CPU")


def test_all_cases_pass_here() -> None:
    made = gate()
    row = made.result()
    assert (row["result"], row["cases"], row["kernels"]) == ("passed", len(common()), "this CPU")


def test_only_formats_of_gpu_kernels_are_left_out() -> None:
    left_out = {case.name for case in cases()} - {case.name for case in common()}
    assert {name.removeprefix("wide ").split()[1] for name in left_out} == {
        form.name for form in FORMATS if form.is_gpu_only
    }


def off(function: Any, share: float = 1e-4) -> Any:
    """`function` with results that are a little off."""
    return lambda *args, **options: function(*args, **options) * (1 + share)


def test_kernels_that_are_off_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.TorchOps, "rope", off(ops.TorchOps.rope))
    with pytest.raises(
        PlatformError, match=r"^rope is wrong on this CPU with torch .*: off by 1\.0e-04 .*OCTAVO_PLATFORM"
    ):
        gate().prove({"rope", "add"}, "f32")
    gate().prove({"add"}, "f32")  # a model that does not use it is not held up


def test_a_sum_that_is_not_exact_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_exact_sum", lambda q, codes, depth: torch.bmm(q.half(), codes.half().mT).float())
    with pytest.raises(PlatformError, match=r"^linear q6_k few is wrong"):
        gate().prove_format("q6_k")


def test_a_page_that_is_not_copied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages.TorchPages, "copy_blocks", lambda self, pairs: None)
    with pytest.raises(PlatformError, match=r"^copy_blocks is wrong"):
        gate().prove({"add"}, "bf16")


def test_tokens_that_are_drawn_wrongly_are_refused() -> None:
    def drawn(logits: Any, rows: Any) -> Any:
        found = sample(logits, rows)
        found.ids[1] += 1
        return found

    with pytest.raises(PlatformError, match=r"^sample is wrong"):
        Gate(TorchCell(CPU, drawn), "this CPU").prove(set(), "f32")


def test_an_error_of_torch_is_told_as_one_of_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("no kernel image is available for execution on the device")

    monkeypatch.setattr(attention, "_fold", broken)
    with pytest.raises(PlatformError, match=r"attention bf16 is wrong .*RuntimeError: no kernel image is available"):
        gate().prove({"kv_append", "paged_attention"}, "bf16")


def test_a_model_is_proven_before_it_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = TorchPlatform("cpu")
    folder = tiny.write_safetensors("llama", tmp_path)
    with Checkpoint.open(folder) as checkpoint:
        decoder = load_model(
            checkpoint, platform.weights(), config=json.loads((folder / "config.json").read_text()), quantize="q8_0"
        )
    proven = platform.gate._passed
    assert {"linear f32 few", "linear q8_0 many"} <= proven and "linear q4_k few" not in proven
    spec, capacity = decoder.kv_spec("int8"), Capacity(8, 2, 8, 64, 4)
    platform.build(decoder, spec, capacity).close()
    assert {"rope", "rms_norm", "attention int8", "copy_blocks", "sample", "greedy head"} <= proven
    assert "attention f16" not in proven and "layer_norm" not in proven
    monkeypatch.setattr(attention, "to_bf16", off(attention.to_bf16, 0.1))
    with pytest.raises(PlatformError, match="attention bf16 is wrong on cpu"):
        platform.build(decoder, decoder.kv_spec("bf16"), capacity)


def test_bounds_are_of_the_largest_value_and_ids_are_exact() -> None:
    want = np.array([1.0, -100.0], np.float32)
    assert too_far("rope", [want + np.float32(1e-5)], [want]) == ""
    assert "off by" in too_far("rope", [want * np.float32(1.001)], [want])
    assert "instead of" in too_far("rope", [want[:1]], [want])
    assert "not numbers" in too_far("rope", [want * np.float32(np.nan)], [want])
    assert too_far("greedy head", [np.array([[3]], np.int32)], [np.array([[4]], np.int32)])
    assert bound("attention bf16") > bound("attention f32") > bound("sample") == 0
