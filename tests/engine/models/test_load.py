"""Loading fails by name: nothing missing, nothing left over, nothing of the wrong shape, nothing silently reinterpreted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.engine.models import drive
from tests.golden import tiny

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models.decoder import Decoder
from octavo.engine.models.load import load_model
from octavo.platforms.platform import Platform
from octavo.platforms.reference.ops import ReferenceOps
from octavo.platforms.reference.weights import ReferenceWeights


def load(
    platform: Platform,
    folder: Path,
    case: str,
    tensors: dict[str, Any],
    change: dict[str, Any] | None = None,
    **more: Any,
) -> Decoder:
    """Loads `tensors` under the case's config.json with changes."""
    save_file(tensors, folder / "model.safetensors")
    config = {**tiny.CASES[case], **(change or {})}
    with Checkpoint.open(folder) as checkpoint:
        return load_model(checkpoint, platform.weights(), config=config, **more)


def test_a_tensor_left_over_is_named(reference: Platform, tmp_path: Path) -> None:
    tensors = tiny.state_dict("llama") | {"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)}
    with pytest.raises(ModelError, match=r"does not use: model\.layers\.0\.self_attn\.q_proj\.bias"):
        load(reference, tmp_path, "llama", tensors)


def test_a_missing_tensor_is_named(reference: Platform, tmp_path: Path) -> None:
    tensors = tiny.state_dict("llama")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(ModelError, match=r"'model\.layers\.1\.mlp\.up_proj\.weight' is not in"):
        load(reference, tmp_path, "llama", tensors)


def test_a_wrong_shape_is_named_with_both_shapes(reference: Platform, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"q_proj\.weight has shape \[64, 64\]; .* asks for \[128, 64\]"):
        load(reference, tmp_path, "llama", tiny.state_dict("llama"), {"head_dim": 32})


def test_saved_rotary_buffers_are_harmless(reference: Platform, tmp_path: Path) -> None:
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    load(reference, tmp_path, "llama", tiny.state_dict("llama") | buffer)


def test_a_stored_copy_of_a_tied_head_is_not_left_over(reference: Platform, tmp_path: Path) -> None:
    tensors = tiny.state_dict("llama3")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    assert load(reference, tmp_path, "llama3", tensors).spec.is_tied


class Stacking(ReferenceWeights):
    """As a platform takes them that wants gate and up as one weight."""

    stacks_gated = True


@pytest.mark.parametrize("case", ["llama", "phi3", "glm4", "starcoder2"])
def test_gate_and_up_are_one_weight_where_a_platform_asks_for_it(
    reference: Platform, case: str, tmp_path: Path
) -> None:
    tensors = tiny.state_dict(case)
    plain = load(reference, tmp_path, case, tensors)
    with Checkpoint.open(tmp_path) as checkpoint:
        stacked = load_model(checkpoint, Stacking(), config=tiny.CASES[case])
    ops, x = ReferenceOps(), np.random.default_rng(0).standard_normal((3, plain.spec.hidden), np.float32)
    for one, other in zip(plain.weights.blocks, stacked.weights.blocks, strict=True):
        up = ops.linear(x, one.mlp.up)
        assert one.mlp.is_gated == other.mlp.is_gated == (one.mlp.gate is not None) and other.mlp.gate is None
        want = up if one.mlp.gate is None else np.concatenate([ops.linear(x, one.mlp.gate), up], axis=1)
        assert ops.linear(x, other.mlp.up).tobytes() == want.tobytes()


def test_gate_and_up_of_two_formats_stay_apart(tmp_path: Path) -> None:
    tensors = tiny.state_dict("llama")
    name = "model.layers.1.mlp.gate_proj.weight"
    tensors[name] = tensors[name].astype(np.float16)
    save_file(tensors, tmp_path / "model.safetensors")
    with Checkpoint.open(tmp_path) as checkpoint:
        blocks = load_model(checkpoint, Stacking(), config=tiny.CASES["llama"]).weights.blocks
    assert [block.mlp.gate is None for block in blocks[:2]] == [True, False] and blocks[1].mlp.gate.format == "f16"


def test_gpt2_without_prefix_and_with_mask_buffers(reference: Platform, tmp_path: Path) -> None:
    tensors = {name.removeprefix("transformer."): values for name, values in tiny.state_dict("gpt2").items()}
    tensors["h.0.attn.bias"] = np.ones((1, 1, 256, 256), np.float32)
    plain = load(reference, tmp_path, "gpt2", tiny.state_dict("gpt2"))
    bare = load(reference, tmp_path, "gpt2", tensors)
    prompt = tiny.prompt("gpt2", 5)
    (first,), (second,) = drive.run(reference, plain, [prompt]), drive.run(reference, bare, [prompt])
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "'MixtralForCausalLM' is not served"),
        ({"architectures": []}, "must be a list of one name"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config: quant_method is 'awq'"),
        ({"hidden_act": "xielu"}, "hidden_act is 'xielu'; it must be one of silu"),
        ({"num_local_experts": 8}, "num_local_experts=8"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan; it must be a finite number"),
    ],
)
def test_what_is_not_served_is_refused(change: dict[str, Any], text: str, reference: Platform, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=text):
        load(reference, tmp_path, "llama", tiny.state_dict("llama"), change)


@pytest.mark.parametrize("value", [{"a": 1}, "x", [30.0]])
def test_a_cap_that_is_no_number_is_named(value: object, reference: Platform, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"final_logit_softcapping is .*; it must be a finite number"):
        load(reference, tmp_path, "gemma2", tiny.state_dict("gemma2"), {"final_logit_softcapping": value})


def test_a_length_limit_must_fit_the_model(reference: Platform, tmp_path: Path) -> None:
    tensors = tiny.state_dict("llama")
    assert load(reference, tmp_path, "llama", tensors, max_len=9).spec.max_positions == 9
    with pytest.raises(
        ModelError, match=r"a context of 257 tokens was asked for \(--max-model-len\); allowed: 2 to 256"
    ):
        load(reference, tmp_path, "llama", tensors, max_len=257)


def test_a_model_of_a_context_that_holds_no_answer_is_refused(reference: Platform, tmp_path: Path) -> None:
    for length in (1, 0, -4):
        with pytest.raises(ModelError, match=f"context length is {length}; it must be at least 2"):
            load(reference, tmp_path, "llama", tiny.state_dict("llama"), {"max_position_embeddings": length})


def test_a_window_wider_than_the_limit_is_none(reference: Platform, tmp_path: Path) -> None:
    spec = load(reference, tmp_path, "mistral", tiny.state_dict("mistral"), max_len=16).spec
    assert {layer.window for layer in spec.layers} == {0}


def test_pages_are_given_back_behind_every_layer(
    reference: Platform, folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[str] = []
    monkeypatch.setattr(Checkpoint, "drop", lambda self, name: dropped.append(name))
    folder = folders("llama")
    with Checkpoint.open(folder) as checkpoint:
        load_model(checkpoint, reference.weights(), config=json.loads((folder / "config.json").read_text()))
        assert sorted(dropped) == sorted(checkpoint)
    layers = [name.split(".")[2] for name in dropped if ".layers." in name]
    assert layers == sorted(layers)


@pytest.mark.parametrize("name", ["model.embed_tokens", "model.layers.1.mlp.up_proj", "model.norm", "lm_head"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_named_with_its_place(
    name: str, bad: float, reference: Platform, tmp_path: Path
) -> None:
    tensors = tiny.state_dict("llama")
    values = tensors[f"{name}.weight"]
    values.reshape(-1)[7] = bad
    place = "place 7" if values.ndim == 1 else "column 7 of row 0"
    with pytest.raises(ModelError, match=rf"{name}\.weight: {place} holds {bad}, and weights must be finite"):
        load(reference, tmp_path, "llama", tensors)
