"""Loading encoders fails by name: nothing missing, nothing left over, nothing misread; positions are the family's own."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.engine.models import encoder_drive
from tests.golden import tiny
from tests.golden import tiny_encoders as encoders

from octavo.engine.errors import ModelError
from octavo.engine.loading.checkpoint import Checkpoint
from octavo.engine.models import jina_bert, registry
from octavo.engine.models.encoder import Encoder
from octavo.engine.models.encoder_load import load_encoder_spec
from octavo.engine.models.encoder_spec import EncoderSpec, layer_window
from octavo.engine.models.load import load_model
from octavo.engine.models.source import describe_encoder
from octavo.platforms.platform import Platform

CLEARLY = 1e-2


def load(
    platform: Platform,
    folder: Path,
    case: str,
    tensors: dict[str, Any] | None = None,
    change: dict[str, Any] | None = None,
    **more: Any,
) -> Encoder:
    """Loads a case with other tensors, or under its config.json with changes."""
    encoders.write_safetensors(case, folder)
    if tensors is not None:
        save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**encoders.CASES[case], **(change or {})}))
    return encoder_drive.load(platform, folder, **more)


def test_a_tensor_left_over_is_named(reference: Platform, tmp_path: Path) -> None:
    tensors = encoders.state_dict("bert") | {"encoder.layer.0.attention.relative.weight": np.ones(64, np.float32)}
    with pytest.raises(ModelError, match=r"does not use: encoder\.layer\.0\.attention\.relative\.weight"):
        load(reference, tmp_path, "bert", tensors)


def test_a_missing_tensor_is_named(reference: Platform, tmp_path: Path) -> None:
    tensors = encoders.state_dict("bert")
    del tensors["encoder.layer.1.attention.self.key.bias"]
    with pytest.raises(ModelError, match=r"'encoder\.layer\.1\.attention\.self\.key\.bias' is not in"):
        load(reference, tmp_path, "bert", tensors)


def test_a_wrong_shape_is_named_with_both_shapes(reference: Platform, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"word_embeddings\.weight has shape \[256, 64\]; .* asks for \[300, 64\]"):
        load(reference, tmp_path, "bert", change={"vocab_size": 300})


def test_norms_of_older_files_are_called_gamma_and_beta(reference: Platform, tmp_path: Path) -> None:
    plain = load(reference, tmp_path / "new", "bert")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): values
        for name, values in encoders.state_dict("bert").items()
    }
    assert "encoder.layer.1.output.LayerNorm.gamma" in old
    other = load(reference, tmp_path / "old", "bert", old)
    text = encoders.prompt("bert", 9)
    (first,), (second,) = (encoder_drive.run(reference, encoder, [text]) for encoder in (plain, other))
    assert first.tobytes() == second.tobytes()


def test_saved_position_buffers_are_harmless(reference: Platform, tmp_path: Path) -> None:
    buffer = {"embeddings.position_ids": np.arange(encoders.MAX_POSITIONS, dtype=np.int64)[None]}
    load(reference, tmp_path, "bert", encoders.state_dict("bert") | buffer)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"architectures": ["BertForNextSentencePrediction"]},
            "'BertForNextSentencePrediction' is not served; .*BertModel",
        ),
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type is 'relative_key'; it must be 'absolute'",
        ),
        ({"is_decoder": True}, "is_decoder is True; it must be False"),
        ({"hidden_act": "xielu"}, "hidden_act is 'xielu'; it must be one of silu"),
        ({"num_attention_heads": 5}, "5 heads cannot share a width of 64 evenly"),
        ({"embedding_size": 32}, "embedding_size=32"),
        ({"layer_norm_eps": -1.0}, "norm_eps is -1.0; it must be 0 or more"),
        ({"num_hidden_layers": 0}, "the model has no layers"),
    ],
)
def test_what_is_not_served_is_refused(change: dict[str, Any], text: str, reference: Platform, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=text):
        load(reference, tmp_path, "bert", change=change)


@pytest.mark.parametrize(
    ("case", "change", "text"),
    [
        ("jina_bert", {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'; .* 'alibi'"),
        ("jina_bert", {"feed_forward_type": "original"}, "feed_forward_type is 'original'; .* geglu, reglu"),
        (
            "t5",
            {"feed_forward_proj": "gated-swish"},
            "feed_forward_proj is 'gated-swish'; .* relu, gated-gelu, gated-silu",
        ),
        ("bert", {"is_encoder_decoder": True}, "is_encoder_decoder is True; it must be False"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "num_buckets is 64; it must be 32"),
        (
            "deberta",
            {"conv_kernel_size": 3},
            "conv_kernel_size is 3; it must be 0: the convolution behind the first layer",
        ),
        ("deberta", {"pos_att_type": "c2p|p2p"}, r"pos_att_type is \['c2p', 'p2p'\]; it must be some of c2p and p2c"),
        (
            "deberta",
            {"pos_att_type": []},
            r"pos_att_type is \[\]; it must be c2p, p2c or both where relative_attention",
        ),
        ("deberta", {"position_buckets": 400}, "position_buckets is 400; it must be below 1, or 4 to 269"),
        ("deberta", {"max_relative_positions": 1 << 20}, "max_relative_positions is 1048576; it must be 1 to 65536"),
        ("new", {"position_embedding_type": "absolute"}, "position_embedding_type is 'absolute'; it must be 'rope'"),
        ("new", {"layer_norm_type": "rms_norm"}, "layer_norm_type is 'rms_norm'; it must be 'layer_norm'"),
        ("new", {"logn_attention_scale": True}, "logn_attention_scale is True; it must be False"),
        ("new", {"rope_theta": None}, "rope_theta is missing; it must be given"),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 2.0, "alpha": 1}}, "kind ntk has keys .* alpha"),
    ],
)
def test_variants_that_are_not_served_are_refused(
    case: str, change: dict[str, Any], text: str, reference: Platform, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=text):
        load(reference, tmp_path, case, change=change)


def test_jinas_two_releases_are_told_apart_by_their_tensors(reference: Platform, tmp_path: Path) -> None:
    specs = [load(reference, tmp_path / case, case).spec for case in ("jina_bert", "jina_bert_code")]
    assert [spec.has_qk_norm for spec in specs] == [False, True]
    assert specs[0].alibi == specs[1].alibi == (2**-2, 2**-4, 2**-6, 2**-8)
    twelve = [2.0**-e for e in (1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5)]
    assert np.allclose(jina_bert.slopes(12), twelve, rtol=1e-15)


def test_an_encoder_is_no_generator_and_a_generator_no_encoder(reference: Platform, tmp_path: Path) -> None:
    encoders.write_safetensors("bert", tmp_path / "bert")
    with Checkpoint.open(tmp_path / "bert") as checkpoint, pytest.raises(ModelError, match="BertModel is an encoder"):
        load_model(checkpoint, reference.weights(), config=encoders.CASES["bert"])
    with pytest.raises(ModelError, match="'LlamaForCausalLM' is not served; served are BertModel"):
        registry.encoder_family("LlamaForCausalLM", "x")
    assert tiny.CASES  # decoders have cases of their own


def test_positions_of_roberta_begin_behind_the_padding_row(reference: Platform, tmp_path: Path) -> None:
    spec = load(reference, tmp_path, "roberta").spec
    assert spec.positions([0, 100, 200, 2]).tolist() == [2, 3, 4, 5]
    assert spec.positions([0, 100, 2, 1, 1]).tolist() == [2, 3, 4, 1, 1]
    assert spec.max_positions == encoders.MAX_POSITIONS - 2
    assert load(reference, tmp_path / "short", "roberta", max_len=20).spec.max_positions == 20
    assert load(reference, tmp_path / "bert", "bert").spec.positions([5, 0, 0]).tolist() == [0, 1, 2]


def test_nomics_older_description_is_the_newer_one(reference: Platform, tmp_path: Path) -> None:
    plain = load(reference, tmp_path / "new", "nomic_bert")
    older = {
        "n_embd": 64,
        "n_head": 4,
        "n_layer": 2,
        "n_inner": 96,
        "n_positions": 136,
        "layer_norm_epsilon": 1e-12,
        "activation_function": "swiglu",
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
        "causal": False,
        "qkv_proj_bias": False,
        "rotary_scaling_factor": None,
        "max_trained_positions": 64,
        "use_flash_attn": True,
        "architectures": ["NomicBertModel"],
        "model_type": "nomic_bert",
        "vocab_size": 256,
        "type_vocab_size": 2,
    }
    with Checkpoint.open(tmp_path / "new") as checkpoint:
        assert describe_encoder(checkpoint, older)[1] == plain.spec
        scaled = describe_encoder(checkpoint, {**older, "rotary_scaling_factor": 2})[1]
        assert scaled.max_positions == 64  # beyond, the rotation would change with the text's length
        for key, value in (("prenorm", True), ("qkv_proj_bias", True), ("activation_function", "gelu")):
            with pytest.raises(ModelError, match=f"{key} is {value!r}"):
                describe_encoder(checkpoint, {**older, key: value})


def test_modernberts_layers_slide_by_pattern_or_by_list(reference: Platform, tmp_path: Path) -> None:
    spec = load(reference, tmp_path / "a", "modernbert").spec
    assert [layer.window for layer in spec.layers] == [0, 8, 8, 0]
    assert [layer.has_pre_attn_norm for layer in spec.layers] == [False, True, True, True]
    tables = {
        kind: {"rope_type": "default", "rope_theta": theta}
        for kind, theta in (("full_attention", 160000.0), ("sliding_attention", 10000.0))
    }
    listed = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    change = {"layer_types": listed, "rope_parameters": tables, "global_attn_every_n_layers": None}
    assert load(reference, tmp_path / "b", "modernbert", change=change).spec == spec
    with pytest.raises(ModelError, match=r"layer_types is .* it must be 4 of full_attention and sliding_attention"):
        load(reference, tmp_path / "c", "modernbert", change={"layer_types": listed[:2]})


def test_a_window_wider_than_the_longest_text_is_none() -> None:
    assert [layer_window(64, n) for n in (64, 65, 66)] == [0, 0, 64] and layer_window(0, 512) == 0


def without(spec: EncoderSpec) -> Iterator[tuple[str, EncoderSpec]]:
    """(feature, the description without it) for every feature that the description has."""
    off: dict[str, Any] = {
        "has_embedding_norm": False,
        "num_learned_positions": 0,
        "num_token_types": 0,
        "num_buckets": 0,
        "has_qkv_bias": False,
        "has_o_bias": False,
        "has_qk_norm": False,
        "has_up_bias": False,
        "has_down_bias": False,
        "has_norm_bias": False,
    }
    for name, value in off.items():
        if getattr(spec, name) != value:
            yield name, dataclasses.replace(spec, **{name: value})
    yield "activation", dataclasses.replace(spec, activation="tanh")
    yield "scale", dataclasses.replace(spec, scale=spec.scale * 1.25)
    if (of := spec.disentangled) is None:
        yield "alibi", dataclasses.replace(spec, alibi=(0.5,) * spec.heads)
    else:
        changes: list[dict[str, Any]] = [{"rows": of.rows[::-1]}, {"has_norm": False}]
        if of.has_k and of.has_q:
            changes += [{"has_k": False}, {"has_q": False}]
        others = [dataclasses.replace(of, **change) for change in changes]
        for other in (None, *(other for other in others if other != of)):
            yield f"distances {other}", dataclasses.replace(spec, disentangled=other)
    if spec.position_offset:
        yield "position offset", dataclasses.replace(spec, position_offset=0)
    for name, change in (("window", {"window": 4}), ("rope", {"rope": None})):
        layers = tuple(dataclasses.replace(layer, **change) for layer in spec.layers)
        if layers != spec.layers and not (spec.disentangled and name == "window"):
            yield name, dataclasses.replace(spec, layers=layers)


@pytest.mark.parametrize("case", encoders.CASES)
def test_every_feature_moves_the_hidden_states(case: str, reference: Platform, tmp_path: Path) -> None:
    folder = encoders.write_safetensors(case, tmp_path)
    texts, types = encoder_drive.texts_of(case, (22,))
    with Checkpoint.open(folder) as checkpoint:
        _, spec, names, _ = describe_encoder(checkpoint, encoders.CASES[case])

        def hidden(spec: EncoderSpec) -> np.ndarray[Any, Any]:
            encoder = load_encoder_spec(checkpoint, reference.weights(), spec, names)
            return encoder_drive.run(reference, encoder, texts, types if spec.num_token_types else None)[0]

        base = hidden(spec)
        for feature, other in without(spec):
            moved = float(np.abs(hidden(other) - base).max())
            assert moved > CLEARLY, f"{case}: {feature} moves hidden states by {moved:.1e} only"


def test_alibi_lowers_scores_by_distance(reference: Platform, tmp_path: Path) -> None:
    """One layer by hand, in float64: softmax(q k * scale - slope * |i - j|) v."""
    folder = encoders.write_safetensors("bert", tmp_path)
    slopes = (0.5, 0.25, 0.125, 0.0625)
    with Checkpoint.open(folder) as checkpoint:
        _, spec, names, _ = describe_encoder(checkpoint, encoders.CASES["bert"])
        spec = dataclasses.replace(spec, alibi=slopes, layers=spec.layers[:1])
        encoder = load_encoder_spec(checkpoint, reference.weights(), spec, names)
    (found,) = encoder_drive.run(reference, encoder, [encoders.prompt("bert", 12)])
    w = {name: values.astype(np.float64) for name, values in encoders.state_dict("bert").items()}

    def norm(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        d = x - x.mean(-1, keepdims=True)
        return d / np.sqrt((d * d).mean(-1, keepdims=True)) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    ids = encoders.prompt("bert", 12)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:12]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    at = "encoder.layer.0."
    q, k, v = (linear(x, f"{at}attention.self.{n}").reshape(12, 4, 16) for n in ("query", "key", "value"))
    distance = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    score = np.einsum("ihd,jhd->hij", q, k) / 4 - np.array(slopes)[:, None, None] * distance
    weight = np.exp(score - score.max(-1, keepdims=True))
    mixed = np.einsum("hij,jhd->ihd", weight / weight.sum(-1, keepdims=True), v).reshape(12, 64)
    x = norm(x + linear(mixed, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
    from math import erf

    up = linear(x, f"{at}intermediate.dense")
    up = up * 0.5 * (1 + np.vectorize(erf)(up / 2**0.5))
    x = norm(x + linear(up, f"{at}output.dense"), f"{at}output.LayerNorm")
    assert float(np.abs(found - x).max()) < 1e-5
