"""compressed-tensors checkpoints: W8A8 and W4A16 weights arrive exactly, and whatever else a file asks for is refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.models import drive
from tests.golden import compressed, tiny

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.decoder import Decoder
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Platform
from octavo.platforms.registry import PLATFORMS, choose_platform

OTHERS = [entry.name for entry in PLATFORMS if entry.is_exact and entry.name != "reference" and not entry.probe()]
FORMS = [("w8a8", True), *((f"i4g{group}", symmetric) for group in (32, 64, 128) for symmetric in (True, False))]
LAYER = "model.layers.1."


def load(platform: Platform, folder: Path, tensors: compressed.Arrays, config: dict[str, Any], **more: Any) -> Decoder:
    compressed.write(folder, tensors, config)
    with Checkpoint.open(folder) as checkpoint:
        return load_model(checkpoint, platform.weights(), config=config, **more)


@pytest.mark.parametrize(("form", "is_symmetric"), FORMS)
@pytest.mark.parametrize("scale_type", ["bf16", "f16", "f32"])
def test_weights_stand_for_the_very_values_of_the_file(
    form: str, is_symmetric: bool, scale_type: str, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, values = compressed.quantized(
        compressed.WIDE, form, is_symmetric=is_symmetric, scale_type=scale_type
    )
    decoder = load(reference, tmp_path, tensors, config)
    assert decoder.formats() == sorted({"f32", form})
    block = decoder.weights.blocks[1]
    (qkv,) = block.attention.qkv
    wanted = np.concatenate([values[f"{LAYER}self_attn.{name}_proj.weight"] for name in "qkv"])
    assert np.array_equal(qkv.parts.dequantize(), wanted)  # type: ignore[attr-defined]
    down = block.mlp.down.weight
    assert np.array_equal(down.parts.dequantize(), values[f"{LAYER}mlp.down_proj.weight"])  # type: ignore[attr-defined]
    assert (qkv.parts.zeros is None) == is_symmetric  # type: ignore[attr-defined]


@pytest.mark.parametrize(("form", "is_symmetric"), FORMS)
def test_logits_are_near_those_of_the_values_as_floats(
    form: str, is_symmetric: bool, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, values = compressed.quantized(compressed.WIDE, form, is_symmetric=is_symmetric)
    prompt = tiny.prompt("llama", 9)
    (got,) = drive.run(reference, load(reference, tmp_path / "q", tensors, config), [prompt])
    (want,) = drive.run(reference, load(reference, tmp_path / "f", values, compressed.WIDE), [prompt])
    error = np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2))
    assert 0 < error < 0.05  # inputs as int8 change little, and something


@pytest.mark.parametrize(
    "name", OTHERS or [pytest.param("none", marks=pytest.mark.skip("no other platform runs here"))]
)
@pytest.mark.parametrize(("form", "is_symmetric"), FORMS)
def test_every_platform_gives_the_references_logits(
    name: str, form: str, is_symmetric: bool, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, _ = compressed.quantized(compressed.WIDE, form, is_symmetric=is_symmetric)
    other = choose_platform(name, 2).platform
    prompts = [tiny.prompt("llama", length) for length in (33, 7)]
    want, got = (
        drive.run(
            platform, load(platform, tmp_path / platform.name, tensors, config), prompts, chunk=20, block_tokens=32
        )
        for platform in (reference, other)
    )
    assert [rows.tobytes() for rows in got] == [rows.tobytes() for rows in want]


def test_a_fused_module_is_cut_with_its_scales(reference: Platform, tmp_path: Path) -> None:
    config = {**tiny.CASES["phi3"], "hidden_size": 128, "intermediate_size": 256}
    config |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
    del config["original_max_position_embeddings"]
    tensors, config, values = compressed.quantized(config, "i4g64", is_symmetric=False)
    mlp = load(reference, tmp_path, tensors, config).weights.blocks[1].mlp
    gate, up = (weight.parts.dequantize() for weight in (mlp.gate, mlp.up))  # type: ignore[union-attr]
    assert np.array_equal(np.concatenate([gate, up]), values[f"{LAYER}mlp.gate_up_proj.weight"])


def test_outputs_that_fill_no_whole_word_keep_their_zero_points(reference: Platform, tmp_path: Path) -> None:
    config = {**compressed.WIDE, "head_dim": 9, "num_key_value_heads": 1}  # 9 rows of zero points in two words
    config |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 8 / 9}}
    made, values = compressed.quantized_module("m", compressed.normal("m", 9, 128), "i4g32", is_symmetric=False)
    assert made["m.weight_zero_point"].shape == (2, 4)
    compressed.write(tmp_path, made, config)
    from octavo.engine.models.compressed import Scheme, quantized_matrix
    from octavo.platforms.stored import values_of

    with Checkpoint.open(tmp_path / "model.safetensors") as checkpoint:
        raw, used = quantized_matrix(checkpoint, "m", (9, 128), (Scheme("i4g32", True),))
        assert np.array_equal(values_of(raw), values)
        assert sorted(used) == sorted(made)


def test_modules_left_out_may_be_floats_and_a_head_may_be_quantized(reference: Platform, tmp_path: Path) -> None:
    tensors, config, values = compressed.quantized(compressed.WIDE, "w8a8")
    down = f"{LAYER}mlp.down_proj"
    del tensors[f"{down}.weight_scale"]
    tensors[f"{down}.weight"] = values[f"{down}.weight"]
    head, values["lm_head.weight"] = compressed.quantized_module("lm_head", tensors.pop("lm_head.weight"), "w8a8")
    decoder = load(reference, tmp_path, tensors | head, config)
    assert decoder.weights.blocks[1].mlp.down.weight.format == "f32"
    assert np.array_equal(decoder.weights.head.parts.dequantize(), values["lm_head.weight"])  # type: ignore[attr-defined]


def test_two_groups_may_mix_formats(reference: Platform, tmp_path: Path) -> None:
    tensors, config, _ = compressed.quantized(compressed.WIDE, "w8a8")
    up = f"{LAYER}mlp.up_proj"
    for what in ("weight", "weight_scale"):
        del tensors[f"{up}.{what}"]
    tensors |= compressed.quantized_module(up, compressed.normal(up, 256, 128), "i4g32")[0]
    whole = config["quantization_config"]
    whole["config_groups"]["group_1"] = compressed.description("i4g32")["config_groups"]["group_0"]
    whole["format"] = "mixed-precision"
    assert load(reference, tmp_path, tensors, config).formats() == ["f32", "i4g32", "w8a8"]


def test_zero_points_of_zero_beside_symmetric_weights_change_nothing(reference: Platform, tmp_path: Path) -> None:
    tensors, config, _ = compressed.quantized(compressed.WIDE, "w8a8")
    name = f"{LAYER}mlp.up_proj.weight_zero_point"
    tensors[name] = np.zeros((256, 1), np.int8)
    load(reference, tmp_path / "zero", tensors, config)
    tensors[name][3] = 1
    with pytest.raises(ModelError, match=f"{name}: zero points that are not zero"):
        load(reference, tmp_path / "one", tensors, config)


def set_weights(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda q: q["config_groups"]["group_0"]["weights"].update({key: value})


def set_inputs(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda q: q["config_groups"]["group_0"]["input_activations"].update({key: value})


def set_group(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda q: q["config_groups"]["group_0"].update({key: value})


def set_whole(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda q: q.update({key: value})


REFUSED = [
    (
        "w8a8",
        set_whole("quant_method", "gptq"),
        r"quantization_config: quant_method is 'gptq'; it must be one of 'compressed",
    ),
    ("w8a8", set_whole("format", "naive-quantized"), r"format is 'naive-quantized'; it must be one of int-quantized"),
    ("w8a8", set_whole("quantization_status", "frozen"), r"quantization_status is 'frozen'; it must be 'compressed'"),
    ("w8a8", set_whole("kv_cache_scheme", {"num_bits": 8}), r"kv_cache_scheme is"),
    ("w8a8", set_whole("sparsity_config", {"format": "sparse-24-bitmask"}), r"sparsity_config is .*sparse weights"),
    ("w8a8", set_whole("transform_config", {"config_groups": {"r1": 1}}), r"not understood .*transform_config"),
    ("w8a8", set_whole("config_groups", {}), r"config_groups is {}; it must be a table of groups"),
    (
        "w8a8",
        set_whole("config_groups", {"W8A8": ["Linear"]}),
        r"config_groups\.W8A8 is \['Linear'\]; it must be a table",
    ),
    ("w8a8", set_whole("ignore", "lm_head"), r"ignore is 'lm_head'; it must be a list of names"),
    ("w8a8", set_group("targets", None), r"targets is missing; it must be a list of names"),
    ("w8a8", set_group("input_activations", None), r"input_activations is missing; .*W8A16 is not served"),
    ("w8a8", set_group("output_activations", {"num_bits": 8}), r"output_activations is"),
    ("w8a8", set_group("weights", None), r"weights is missing; it must be a table"),
    ("w8a8", set_inputs("dynamic", False), r"input_activations: dynamic is False; it must be True"),
    ("w8a8", set_inputs("strategy", "tensor"), r"strategy is 'tensor'; it must be 'token'"),
    ("w8a8", set_inputs("symmetric", False), r"symmetric is False; it must be True"),
    ("w8a8", set_inputs("num_bits", 4), r"num_bits is 4; it must be 8"),
    ("w8a8", set_weights("symmetric", False), r"weights: symmetric is False; it must be True"),
    ("w8a8", set_weights("strategy", "tensor"), r"weights of 8 bits, strategy 'tensor'.*served are 8 bits by channel"),
    ("w8a8", set_weights("num_bits", 6), r"weights of 6 bits"),
    ("w8a8", set_weights("type", "float"), r"format 'int-quantized', type 'float'; served are"),
    ("w8a8", set_weights("type", "bits"), r"type is 'bits'; it must be 'int', 'float'"),
    ("w8a8", set_weights("rotation", "hadamard"), r"not understood .*rotation='hadamard'"),
    ("i4g32", set_weights("group_size", 48), r"group_size is 48; it must be one of 32, 64, 128"),
    ("i4g32", set_weights("actorder", "group"), r"actorder is 'group'; it must be False, 'weight', 'static'"),
    ("i4g32", set_weights("strategy", "channel"), r"weights of 4 bits, strategy 'channel'"),
    ("i4g32", set_weights("num_bits", 8), r"input_activations is missing; .*W8A16 is not served"),
    ("i4g32", set_group("input_activations", {"num_bits": 8}), r"input_activations is .* null for 4-bit weights"),
    ("i4g32", set_group("format", "marlin-24"), r"format 'marlin-24'"),
]


@pytest.mark.parametrize(("form", "change", "text"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_the_description_asks_beyond_that_is_one_error(
    form: str, change: Callable[[dict[str, Any]], None], text: str, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, _ = compressed.quantized(compressed.WIDE, form)
    config = copy.deepcopy(config)
    change(config["quantization_config"])
    with pytest.raises(ModelError, match=text):
        load(reference, tmp_path, tensors, config)


def without(name: str) -> Callable[[compressed.Arrays], None]:
    return lambda tensors: tensors.pop(f"{LAYER}mlp.up_proj.{name}")  # type: ignore[return-value]


def replaced(name: str, array: np.ndarray) -> Callable[[compressed.Arrays], None]:
    return lambda tensors: tensors.update({f"{LAYER}mlp.up_proj.{name}": array})


BROKEN = [
    ("i4g32", without("weight_scale"), r"up_proj\.weight_scale' is not in"),
    ("i4g32", without("weight_shape"), r"up_proj\.weight_shape' is not in"),
    (
        "i4g32",
        replaced("weight_shape", np.array([256, 127])),
        r"weight_shape says \[256, 127\]; .* asks for \[256, 128\]",
    ),
    ("i4g32", replaced("weight_packed", np.zeros((256, 15), np.int32)), r"weight_packed has shape \[256, 15\]"),
    ("i4g32", replaced("weight_packed", np.zeros((256, 16), np.int64)), r"weight_packed is i64; it must be i32"),
    ("i4g32", replaced("weight_scale", np.ones((256, 2), np.float32)), r"scales \[256, 2\] fit no group .*\(i4g32\)"),
    (
        "i4g32",
        replaced("weight_scale", np.ones((256, 4), np.int32)),
        r"weight_scale is i32; it must be f32 or f16 or bf16",
    ),
    ("i4g32", replaced("weight_g_idx", np.zeros(128, np.int32)), r"does not use: .*weight_g_idx"),
    ("w8a8", without("weight_scale"), r"up_proj\.weight_scale' is not in"),
    ("w8a8", replaced("weight_scale", np.ones((255, 1), np.float32)), r"scales \[255, 1\] fit no group"),
    ("w8a8", replaced("weight", np.zeros((256, 64), np.int8)), r"up_proj\.weight has shape \[256, 64\]"),
    ("w8a8", replaced("weight_scale", np.full((256, 1), np.nan, np.float32)), r"up_proj\.weight: .*row 0 holds nan"),
    ("w8a8", replaced("input_scale", np.ones(1, np.float32)), r"does not use: .*input_scale"),
]


@pytest.mark.parametrize(("form", "change", "text"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_tensors_that_do_not_fit_are_named(
    form: str, change: Callable[[compressed.Arrays], None], text: str, reference: Platform, tmp_path: Path
) -> None:
    tensors, config, _ = compressed.quantized(compressed.WIDE, form)
    change(tensors)
    with pytest.raises(ModelError, match=text):
        load(reference, tmp_path, tensors, config)


def test_zero_points_missing_from_asymmetric_weights_are_noticed(reference: Platform, tmp_path: Path) -> None:
    tensors, config, _ = compressed.quantized(compressed.WIDE, "i4g32", is_symmetric=False)
    del tensors[f"{LAYER}mlp.up_proj.weight_zero_point"]
    with pytest.raises(ModelError, match=r"up_proj: packed 4-bit .* fit no group .*i4g32 with zero points"):
        load(reference, tmp_path, tensors, config)


def test_integers_that_nothing_declares_are_refused(reference: Platform, tmp_path: Path) -> None:
    tensors, config, _ = compressed.quantized(compressed.WIDE, "w8a8")
    del config["quantization_config"]
    with pytest.raises(ModelError, match=r"q_proj: int8 weights .* declares \(there is none\)"):
        load(reference, tmp_path, tensors, config)
