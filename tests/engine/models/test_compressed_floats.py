"""Checkpoints of E4M3 weights, as compressed-tensors and as transformers write them: codes and scales arrive exactly, GPUs
compute with them, and whatever else a file asks for is refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ci.gpu import missing
from tests.engine import bits
from tests.engine.models import drive
from tests.engine.models.test_compressed import (
    LAYER,
    OTHERS,
    load,
    replaced,
    set_inputs,
    set_weights,
    set_whole,
    without,
)
from tests.golden import compressed, tiny
from tests.platforms.gpu.host_device import HostDevice, folder

from octavo.engine.errors import ModelError, PlatformError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.load import load_model
from octavo.platforms.gpu.platform import GpuPlatform
from octavo.platforms.platform import Platform
from octavo.platforms.registry import choose_platform

#: who wrote the file, and how matrices are scaled
FORMS = [("compressed-tensors", form) for form in ("f8row", "f8tensor", "f8g128")] + [
    ("fp8", "f8tensor"),
    ("fp8", "f8g128"),
]
#: rows that fill no whole block of 128
ODD = {
    **tiny.CASES["llama"],
    "hidden_size": 160,
    "intermediate_size": 264,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
}
LEVELS = ("simt", "mmafast", "mmafastwide")


def quantized(
    method: str, form: str, config: dict[str, Any] = compressed.WIDE, **more: Any
) -> tuple[Any, dict[str, Any], Any]:
    """As `compressed.quantized`, of either kind of file."""
    tensors, made, values = compressed.quantized(config, form, **more)
    if method == "fp8":
        made["quantization_config"] = compressed.fp8_description(form)
        if form == "f8g128":
            tensors = {name.replace("weight_scale", "weight_scale_inv"): array for name, array in tensors.items()}
    return tensors, made, values


@pytest.mark.parametrize(("method", "form"), FORMS)
@pytest.mark.parametrize("scale_type", ["bf16", "f32"])
@pytest.mark.parametrize("config", [compressed.WIDE, ODD], ids=["wide", "odd"])
def test_weights_stand_for_the_very_values_of_the_file(
    method: str, form: str, scale_type: str, config: dict[str, Any], reference: Platform, tmp_path: Path
) -> None:
    tensors, made, values = quantized(method, form, config, scale_type=scale_type)
    decoder = load(reference, tmp_path, tensors, made)
    assert decoder.formats() == sorted({"f32", "f8row" if form == "f8tensor" else form})
    block = decoder.weights.blocks[1]
    (qkv,) = block.attention.qkv
    wanted = np.concatenate([values[f"{LAYER}self_attn.{name}_proj.weight"] for name in "qkv"])
    assert np.array_equal(qkv.parts.dequantize(), wanted)  # type: ignore[attr-defined]
    down = block.mlp.down.weight
    assert np.array_equal(down.parts.dequantize(), values[f"{LAYER}mlp.down_proj.weight"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("method", "form"), FORMS)
def test_logits_are_near_those_of_the_values_as_floats(
    method: str, form: str, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, values = quantized(method, form)
    prompt = tiny.prompt("llama", 9)
    (got,) = drive.run(reference, load(reference, tmp_path / "q", tensors, config), [prompt])
    (want,) = drive.run(reference, load(reference, tmp_path / "f", values, compressed.WIDE), [prompt])
    error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))
    assert 0 < error < 0.2  # inputs as E4M3 have four bits


@pytest.mark.skipif(bool(missing("host")), reason=missing("host"))
@pytest.mark.parametrize(("method", "form"), FORMS)
def test_gpus_give_the_references_logits(method: str, form: str, reference: Platform, tmp_path: Path) -> None:
    """The very bits at exact levels; at fast ones little else."""
    tensors, config, _ = quantized(method, form)
    prompts = [tiny.prompt("llama", length) for length in (20, 3)]
    device = HostDevice()
    exact = GpuPlatform(device, folder(64), ("simt",), "exact")
    fast = GpuPlatform(device, folder(64), LEVELS, "fast")
    want, same, near = (
        drive.run(platform, load(platform, tmp_path / str(i), tensors, config), prompts, block_tokens=32)
        for i, platform in enumerate((reference, exact, fast))
    )
    assert [rows.tobytes() for rows in same] == [rows.tobytes() for rows in want]
    kind = "f8row" if form == "f8tensor" else form
    assert device.launched[f"linear_{kind}__simt"] and device.launched[f"linear_{kind}__mmafastwide"]
    for got, rows in zip(near, want, strict=True):
        assert (
            np.abs(got - rows).max() <= 0.05 * np.abs(rows).max()
        )  # inputs that round the other way, a step of E4M3 each


@pytest.mark.parametrize(
    "name", OTHERS or [pytest.param("none", marks=pytest.mark.skip("no other platform runs here"))]
)
def test_a_platform_without_kernels_says_so_and_takes_widened_ones(
    name: str, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, values = quantized("compressed-tensors", "f8row")
    other, prompt = choose_platform(name, 2).platform, tiny.prompt("llama", 9)
    with pytest.raises(PlatformError, match=r"_proj\.weight: no \w+ kernel runs format f8row; GPUs do"):
        load(other, tmp_path / "q", tensors, config)
    (got,) = drive.run(other, load(other, tmp_path / "w", tensors, config, expand=True), [prompt], block_tokens=32)
    (want,) = drive.run(reference, load(reference, tmp_path / "f", values, compressed.WIDE), [prompt], block_tokens=32)
    assert got.tobytes() == want.tobytes()


def test_a_fused_module_is_cut_with_its_scales(reference: Platform, tmp_path: Path) -> None:
    config = {**tiny.CASES["phi3"], "hidden_size": 128, "intermediate_size": 192}  # gate ends within a block
    config |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    del config["original_max_position_embeddings"]
    tensors, config, values = quantized("fp8", "f8g128", config)
    mlp = load(reference, tmp_path, tensors, config).weights.blocks[1].mlp
    gate, up = (weight.parts.dequantize() for weight in (mlp.gate, mlp.up))  # type: ignore[union-attr]
    assert np.array_equal(np.concatenate([gate, up]), values[f"{LAYER}mlp.gate_up_proj.weight"])


CT, FP8 = "compressed-tensors", "fp8"
NEW = "quantize the model anew"
REFUSED = [
    (CT, "f8tensor", set_inputs("dynamic", False),
     rf"input_activations: dynamic is False; it must be True: .*{NEW} with dynamic"),
    (CT, "f8row", set_inputs("strategy", "tensor"), r"strategy is 'tensor'; it must be 'token'"),
    (CT, "f8row", set_inputs("type", "int"), r"input_activations: type is 'int'; it must be 'float'"),
    (CT, "f8g128", set_inputs("group_size", 64), r"group_size is 64; it must be 128"),
    (CT, "f8row", lambda q: q["config_groups"]["group_0"].update(input_activations=None), rf"W8A16 is not served; {NEW}"),
    (CT, "f8row", set_weights("num_bits", 4),
     r"weights of 4 bits, strategy 'channel', format 'float-quantized', type 'float'; served"),
    (CT, "f8row", set_weights("strategy", "group"), r"strategy 'group', format 'float-quantized'"),
    (CT, "f8row", set_weights("symmetric", False), r"weights: symmetric is False; it must be True"),
    (CT, "f8row", set_weights("type", "int"), r"format 'float-quantized', type 'int'; served"),
    (CT, "f8g128", set_weights("block_structure", [64, 64]), r"block_structure is \[64, 64\]; it must be \[128, 128\]"),
    (CT, "f8g128", set_weights("block_structure", None), r"block_structure is missing; it must be \[128, 128\]"),
    (FP8, "f8tensor", set_whole("activation_scheme", "static"),
     rf"activation_scheme is 'static'; it must be 'dynamic': .*{NEW}"),
    (FP8, "f8g128", set_whole("weight_block_size", [64, 128]),
     r"weight_block_size is \[64, 128\]; it must be null or \[128, 128\]"),
    (FP8, "f8g128", set_whole("fmt", "e5m2"), r"fmt is 'e5m2'; it must be 'e4m3'"),
    (FP8, "f8g128", set_whole("scale_fmt", "ue8m0"), r"scale_fmt is 'ue8m0'; it must be 'float'"),
    (FP8, "f8g128", set_whole("modules_to_not_convert", "lm_head"), r"modules_to_not_convert is 'lm_head'; it must be a list"),
    (FP8, "f8g128", set_whole("kv_cache_scheme", {"type": "float"}), r"kv_cache_scheme is"),
    (FP8, "f8g128", set_whole("rotation", "hadamard"), r"not understood .*rotation='hadamard'"),
    (FP8, "f8tensor", set_whole("quant_method", "modelopt"),
     r"quant_method is 'modelopt'; it must be one of 'compressed-tensors', 'fp8'; load .* with --quantization"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "form", "change", "text"), REFUSED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_the_description_asks_beyond_that_is_one_error(
    method: str, form: str, change: Callable[[dict[str, Any]], None], text: str, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, _ = quantized(method, form)
    config = copy.deepcopy(config)
    change(config["quantization_config"])
    with pytest.raises(ModelError, match=text):
        load(reference, tmp_path, tensors, config)


def broken_code(tensors: compressed.Arrays) -> None:
    tensors[f"{LAYER}mlp.up_proj.weight"][3, 5] = 0x7F


BROKEN = [
    (CT, "f8row", without("weight_scale"), r"up_proj\.weight_scale' is not in"),
    (CT, "f8row", replaced("weight_scale", np.ones((255, 1), np.float32)),
     r"E4M3 weights \[256, 128\] with scales \[255, 1\] fit no group"),
    (CT, "f8row", replaced("weight_scale", np.full((256, 1), np.nan, np.float32)), r"up_proj\.weight: .*row 0 holds nan"),
    (CT, "f8row", replaced("weight", np.zeros((256, 128), np.int8)), r"int8 weights .* fit no group .*\(f8row\)"),
    (CT, "f8row", replaced("input_scale", np.ones(1, np.float32)), r"does not use: .*input_scale"),
    (CT, "f8row", broken_code, r"up_proj\.weight: 1 of \d+ codes of f8row are NaN"),
    (FP8, "f8g128", without("weight_scale_inv"), r"up_proj\.weight_scale_inv' is not in"),
    (FP8, "f8tensor", without("weight_scale"), r"up_proj\.weight_scale' is not in"),
    (FP8, "f8g128", replaced("weight_scale_inv", np.ones((1, 1), np.float32)), r"scales \[1, 1\] fit no group .*\(f8g128\)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "form", "change", "text"), BROKEN, ids=lambda value: value if isinstance(value, str) else ""
)
def test_tensors_that_do_not_fit_are_named(
    method: str, form: str, change: Callable[[compressed.Arrays], None], text: str, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, _ = quantized(method, form)
    change(tensors)
    with pytest.raises((ModelError, PlatformError), match=text):
        load(reference, tmp_path, tensors, config)


def test_a_scale_of_a_tensor_may_be_called_inverse_or_have_no_dimension(reference: Platform, tmp_path: Path) -> None:
    tensors, config, values = quantized("fp8", "f8tensor")
    scale = tensors.pop(f"{LAYER}mlp.down_proj.weight_scale")
    tensors[f"{LAYER}mlp.down_proj.weight_scale_inv"] = scale.reshape(())
    down = load(reference, tmp_path, tensors, config).weights.blocks[1].mlp.down.weight
    assert np.array_equal(down.parts.dequantize(), values[f"{LAYER}mlp.down_proj.weight"])  # type: ignore[attr-defined]


def test_codes_that_nothing_declares_are_refused(reference: Platform, tmp_path: Path) -> None:
    tensors, config, _ = quantized("fp8", "f8tensor")
    del config["quantization_config"]
    with pytest.raises(ModelError, match=r"q_proj: E4M3 weights .* declares \(there is none\)"):
        load(reference, tmp_path, tensors, config)


def test_codes_of_e5m2_are_refused(reference: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors, config, _ = quantized("fp8", "f8tensor")
    monkeypatch.setitem(compressed._DTYPES, "|u1", "F8_E5M2")
    with pytest.raises(ModelError, match=r"q_proj\.weight is of E5M2 codes; served are E4M3"):
        load(reference, tmp_path, tensors, config)


@pytest.mark.skipif(bool(missing("host")), reason=missing("host"))
def test_gguf_files_of_mxfp4_have_the_references_logits_on_gpus(reference: Platform, tmp_path: Path) -> None:
    model = bits.write_quantized("llama", "mxfp4", tmp_path / "m.gguf", but="token_embd.weight")
    device, prompts = HostDevice(), [tiny.prompt("llama", 7)]
    logits = []
    for platform in (reference, GpuPlatform(device, folder(64), ("simt",), "exact")):
        with Checkpoint.open(model) as checkpoint:
            decoder = load_model(checkpoint, platform.weights())
            assert "mxfp4" in decoder.formats()
            logits += drive.run(platform, decoder, prompts, block_tokens=32)
    assert device.launched["linear_mxfp4__simt"] and logits[0].tobytes() == logits[1].tobytes()
