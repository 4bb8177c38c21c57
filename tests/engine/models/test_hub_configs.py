"""config.json files as published, in the spellings of their time, are understood whole and mean what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from octavo.engine.errors import ModelError
from octavo.engine.models import registry
from octavo.engine.models.reader import Description
from octavo.engine.models.spec import DecoderSpec


@dataclass
class Tensorless:
    """A `Source` with a description and no tensors."""

    cfg: Description

    def max_len(self, max_positions: int) -> int:
        return max_positions

    def has(self, tensor: str) -> bool:
        return False

    def rows(self, tensor: str) -> int:
        raise KeyError(tensor)

    def floats(self, tensor: str) -> list[float]:
        return []


def read(architecture: str, config: dict[str, Any]) -> DecoderSpec:
    cfg = Description({"architectures": [architecture], **config}, "config.json")
    spec = registry.hf_family(architecture, "config.json").from_hf(Tensorless(cfg))
    cfg.finish()
    return spec


def sizes(hidden: int, ffn: int, layers: int, heads: int, kv_heads: int, vocab: int, positions: int) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.50.0",
        "use_cache": True,
        "initializer_range": 0.02,
        "bos_token_id": 1,
        "eos_token_id": [2, 3],
        "attention_dropout": 0.0,
    }


def test_llama_3_2() -> None:
    scaling = {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    }
    spec = read(
        "LlamaForCausalLM",
        {
            **sizes(2048, 8192, 16, 32, 8, 128256, 131072),
            "attention_bias": False,
            "head_dim": 64,
            "hidden_act": "silu",
            "mlp_bias": False,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": scaling,
            "rope_theta": 500000.0,
            "tie_word_embeddings": True,
        },
    )
    assert spec.is_tied and spec.head_dim == 64 and spec.layers[0].scale == 0.125
    rope = spec.layers[0].rope
    assert rope is not None and rope.inv_freq[-1] < 500000.0 ** (-62 / 64) / 31


def test_smollm2() -> None:
    spec = read(
        "LlamaForCausalLM",
        {
            **sizes(576, 1536, 30, 9, 3, 49152, 8192),
            "attention_bias": False,
            "hidden_act": "silu",
            "is_llama_config": True,
            "rope_interleaved": False,
            "rope_scaling": None,
            "rope_theta": 100000,
            "tie_word_embeddings": True,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
            "rms_norm_eps": 1e-05,
        },
    )
    assert (spec.head_dim, spec.kv_heads, len(spec.layers)) == (64, 3, 30)


def test_mistral_windows_null_absent_and_given() -> None:
    base = {**sizes(4096, 14336, 32, 32, 8, 32000, 32768), "hidden_act": "silu", "rope_theta": 10000.0}
    base |= {"rms_norm_eps": 1e-05, "tie_word_embeddings": False}
    for window, expected in ((None, 0), (4096, 4096), (32768, 0)):
        spec = read("MistralForCausalLM", {**base, "sliding_window": window})
        assert {layer.window for layer in spec.layers} == {expected}
    assert read("MistralForCausalLM", base).layers[0].window == 4096  # the oracle's default


def test_qwen2_5_ignores_a_window_that_is_switched_off() -> None:
    config = {
        **sizes(896, 4864, 24, 14, 2, 151936, 32768),
        "hidden_act": "silu",
        "max_window_layers": 21,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
        "use_mrope": False,
        "use_sliding_window": False,
    }
    spec = read("Qwen2ForCausalLM", config)
    assert spec.has_qkv_bias and not spec.has_o_bias and spec.layers[-1].window == 0


def test_gemma_3_in_the_older_spelling() -> None:
    spec = read(
        "Gemma3ForCausalLM",
        {
            **sizes(1152, 6912, 26, 4, 1, 262144, 32768),
            "attention_bias": False,
            "attn_logit_softcapping": None,
            "cache_implementation": "hybrid",
            "final_logit_softcapping": None,
            "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-06,
            "rope_local_base_freq": 10000,
            "rope_scaling": None,
            "rope_theta": 1000000,
            "sliding_window": 512,
            "sliding_window_pattern": 6,
        },
    )
    assert [layer.window for layer in spec.layers[:7]] == [512, 512, 512, 512, 512, 0, 512]
    local, full = spec.layers[0].rope, spec.layers[5].rope
    assert local is not None and full is not None and local.inv_freq[1] > full.inv_freq[1]
    assert spec.embedding_scale == 34.0  # sqrt(1152) = 33.94 in bfloat16
    assert spec.is_tied and spec.norm_add == 1.0 and spec.qk_norm == "head"


def test_gemma_whose_gelu_is_the_tanh_form() -> None:
    spec = read(
        "GemmaForCausalLM",
        {
            **sizes(2048, 16384, 18, 8, 1, 256000, 8192),
            "attention_bias": False,
            "head_dim": 256,
            "hidden_act": "gelu",
            "hidden_activation": None,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 10000.0,
        },
    )
    assert (spec.activation, spec.norm_add, spec.is_tied, spec.has_post_norm) == ("gelu_tanh", 1.0, True, False)
    assert spec.embedding_scale == 45.25 and {layer.scale for layer in spec.layers} == {1 / 16}


def test_gemma_2() -> None:
    spec = read(
        "Gemma2ForCausalLM",
        {
            **sizes(2304, 9216, 26, 8, 4, 256000, 8192),
            "attention_bias": False,
            "attn_logit_softcapping": 50.0,
            "cache_implementation": "hybrid",
            "final_logit_softcapping": 30.0,
            "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "rms_norm_eps": 1e-06,
            "rope_theta": 10000.0,
            "sliding_window": 4096,
        },
    )
    assert (spec.attn_softcap, spec.final_softcap, spec.activation) == (50.0, 30.0, "gelu_tanh")
    assert [layer.window for layer in spec.layers[:2]] == [4096, 0]


def test_phi_4_mini() -> None:
    spec = read(
        "Phi3ForCausalLM",
        {
            **sizes(3072, 8192, 32, 24, 8, 200064, 131072),
            "attention_bias": False,
            "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"},
            "embd_pdrop": 0.0,
            "full_attn_mod": 1,
            "hidden_act": "silu",
            "interpolate_factor": 1,
            "lm_head_bias": False,
            "mlp_bias": False,
            "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 0.75,
            "resid_pdrop": 0.0,
            "rms_norm_eps": 1e-05,
            "rope_scaling": {"type": "longrope", "long_factor": [2.0] * 48, "short_factor": [1.0] * 48},
            "rope_theta": 10000.0,
            "sliding_window": 262144,
            "tie_word_embeddings": True,
        },
    )
    rope = spec.layers[0].rope
    assert rope is not None and rope.rotary_dim == 96 and rope.inv_freq[0] == 0.5
    assert rope.attention_factor == pytest.approx(1.1902380714238083)
    assert spec.layers[0].window == 0


def test_glm_4() -> None:
    config = {
        **sizes(4096, 13696, 40, 32, 2, 151552, 32768),
        "attention_bias": True,
        "head_dim": 128,
        "hidden_act": "silu",
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
    }
    spec = read("Glm4ForCausalLM", config)
    rope = spec.layers[0].rope
    assert rope is not None and rope.rotary_dim == 64 and rope.interleaved
    assert spec.has_qkv_bias and not spec.has_o_bias and spec.has_post_norm


def test_smollm3() -> None:
    rotates = [int((i + 1) % 4 != 0) for i in range(36)]
    config = {
        **sizes(2048, 11008, 36, 16, 4, 128256, 65536),
        "attention_bias": False,
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * 36,
        "max_window_layers": 28,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "no_rope_layers": rotates,
        "pretraining_tp": 2,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "sliding_window": None,
        "use_sliding_window": False,
    }
    spec = read("SmolLM3ForCausalLM", config)
    assert [layer.rope is not None for layer in spec.layers] == [bool(x) for x in rotates]


def test_granite_3() -> None:
    config = {
        **sizes(2048, 8192, 40, 32, 8, 49155, 131072),
        "attention_bias": False,
        "attention_multiplier": 0.015625,
        "embedding_multiplier": 12.0,
        "hidden_act": "silu",
        "logits_scaling": 8.0,
        "mlp_bias": False,
        "residual_multiplier": 0.22,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 5000000.0,
        "tie_word_embeddings": True,
    }
    spec = read("GraniteForCausalLM", config)
    assert (spec.embedding_scale, spec.residual_scale, spec.logits_scale) == (12.0, 0.22, 0.125)
    assert spec.layers[0].scale == 0.015625


def test_starcoder2() -> None:
    config = {
        **sizes(3072, 12288, 30, 24, 2, 49152, 16384),
        "embedding_dropout": 0.0,
        "hidden_act": "gelu_pytorch_tanh",
        "mlp_type": "default",
        "norm_epsilon": 1e-05,
        "norm_type": "layer_norm",
        "residual_dropout": 0.0,
        "rope_theta": 999999.4420358813,
        "sliding_window": 4096,
        "use_bias": True,
    }
    spec = read("Starcoder2ForCausalLM", config)
    assert spec.norm == "layer" and not spec.is_gated and spec.is_tied and spec.layers[0].window == 4096


def test_gpt2() -> None:
    config = {
        "activation_function": "gelu_new",
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": 1024,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "resid_pdrop": 0.1,
        "summary_type": "cls_index",
        "task_specific_params": {"text-generation": {"do_sample": True}},
        "vocab_size": 50257,
    }
    spec = read("GPT2LMHeadModel", config)
    assert (spec.ffn, spec.num_learned_positions, spec.is_tied) == (3072, 1024, True)
    assert read("GPT2LMHeadModel", {**config, "scale_attn_weights": False}).layers[0].scale == 1.0


@pytest.mark.parametrize(
    ("architecture", "key", "value"),
    [
        ("Gemma3ForCausalLM", "use_bidirectional_attention", True),
        ("Gemma3ForCausalLM", "attn_logit_softcapping", 50.0),
        ("GPT2LMHeadModel", "add_cross_attention", True),
        ("Starcoder2ForCausalLM", "norm_type", "rms_norm"),
        ("Phi3ForCausalLM", "lm_head_bias", True),
        ("MistralForCausalLM", "layer_types", ["sliding_attention"]),
        ("Olmo2ForCausalLM", "clip_qkv", 8.0),
        ("LlamaForCausalLM", "logit_scale", 0.5),
    ],
)
def test_what_would_change_results_unheard_is_refused(architecture: str, key: str, value: object) -> None:
    config = {**sizes(64, 96, 2, 4, 2, 256, 256), "head_dim": 16, "n_embd": 64, "n_head": 4, "n_layer": 2}
    with pytest.raises(ModelError, match=key):
        read(architecture, {**config, "n_positions": 64, key: value})
