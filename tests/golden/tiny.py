"""Tiny random checkpoints for every family, made by numpy alone, so that oracle and tests build the same one.

A case is a config.json (as transformers writes it) plus a seed. `state_dict` gives every tensor in float32 under its
Hugging Face name: each drawn from Philox keyed by (case, tensor name), so that no tensor depends on another or on
their order. Weights are large (and norms far from 1) on purpose: logits then show every feature. Lengths are in
tokens.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.platforms.types import I32

VOCAB = 256
LENGTHS = (1, 2, 7, 33, 200)
MAX_POSITIONS = 256

_BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "rms_norm_eps": 1e-5,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "dtype": "float32",
}


def _case(architecture: str, model_type: str, **more: Any) -> dict[str, Any]:
    merged = {"architectures": [architecture], "model_type": model_type, **_BASE, **more}
    return {key: value for key, value in merged.items() if value is not None}


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": 10000.0, **more}


_LLAMA3 = _rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
_LONG = _rope(
    "longrope",
    short_factor=[1.0, 1.1, 1.25, 1.5, 1.75, 2.0],
    long_factor=[1.5, 2.0, 3.0, 4.0, 6.0, 9.0],
    original_max_position_embeddings=64,
    partial_rotary_factor=0.75,
)
_GEMMA: dict[str, Any] = {
    "head_dim": 16,
    "num_hidden_layers": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 16,
    "query_pre_attn_scalar": 24,
    "tie_word_embeddings": True,
}
_GEMMA3: dict[str, Any] = {
    **_GEMMA,
    "num_hidden_layers": 6,
    "rope_parameters": {
        "full_attention": _rope("linear", rope_theta=1000000.0, factor=4.0),
        "sliding_attention": _rope("default"),
    },
}

CASES: dict[str, dict[str, Any]] = {
    "llama": _case("LlamaForCausalLM", "llama"),
    "llama3": _case("LlamaForCausalLM", "llama", rope_parameters=_LLAMA3, tie_word_embeddings=True),
    "llama_bias": _case(
        "LlamaForCausalLM",
        "llama",
        attention_bias=True,
        mlp_bias=True,
        head_dim=32,
        rope_parameters=_rope("linear", factor=2.0),
    ),
    "llama_yarn": _case(
        "LlamaForCausalLM", "llama", rope_parameters=_rope("yarn", factor=4.0, original_max_position_embeddings=64)
    ),
    "mistral": _case("MistralForCausalLM", "mistral", sliding_window=16),
    "smollm3": _case(
        "SmolLM3ForCausalLM", "smollm3", num_hidden_layers=4, tie_word_embeddings=True, no_rope_layer_interval=4
    ),
    "qwen2": _case("Qwen2ForCausalLM", "qwen2"),
    "qwen2_sliding": _case(
        "Qwen2ForCausalLM",
        "qwen2",
        num_hidden_layers=3,
        use_sliding_window=True,
        sliding_window=16,
        max_window_layers=1,
    ),
    "qwen3": _case("Qwen3ForCausalLM", "qwen3", head_dim=24, tie_word_embeddings=True),
    "gemma": _case(
        "GemmaForCausalLM", "gemma", head_dim=24, num_key_value_heads=1, hidden_act="gelu", tie_word_embeddings=True
    ),
    "gemma2": _case("Gemma2ForCausalLM", "gemma2", **_GEMMA, attn_logit_softcapping=5.0, final_logit_softcapping=8.0),
    "gemma3": _case("Gemma3ForCausalLM", "gemma3_text", **_GEMMA3),
    "phi3": _case("Phi3ForCausalLM", "phi3", rope_parameters=_LONG, original_max_position_embeddings=64),
    "phi3_sliding": _case("Phi3ForCausalLM", "phi3", sliding_window=16),
    "olmo2": _case("Olmo2ForCausalLM", "olmo2", rope_parameters=_rope("default", rope_theta=500000.0)),
    "granite": _case(
        "GraniteForCausalLM",
        "granite",
        embedding_multiplier=3.0,
        attention_multiplier=0.3,
        residual_multiplier=0.22,
        logits_scaling=0.7,
        tie_word_embeddings=True,
    ),
    "glm4": _case("Glm4ForCausalLM", "glm4", head_dim=16, rope_parameters=_rope("default", partial_rotary_factor=0.5)),
    "starcoder2": _case(
        "Starcoder2ForCausalLM",
        "starcoder2",
        rms_norm_eps=None,
        norm_epsilon=1e-5,
        sliding_window=16,
        hidden_act="gelu_pytorch_tanh",
        tie_word_embeddings=True,
    ),
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": VOCAB,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": MAX_POSITIONS,
        "n_ctx": MAX_POSITIONS,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "dtype": "float32",
    },
}


def prompt(case: str, length: int) -> I32:
    """Token ids [length] int32 of a case's prompt; a shorter prompt is a prefix of a longer one."""
    return random_values(case, "prompt").integers(0, VOCAB, LENGTHS[-1]).astype(np.int32)[:length]


def golden_rows(length: int) -> list[int]:
    """Positions whose logits are stored: the first, the last, and those around the window of 16."""
    return sorted({row for row in (0, 1, 5, 14, 15, 16, 17, 32, 63, 64, 120, length - 1) if row < length})


GOLDEN_COLUMNS = slice(0, VOCAB, 4)


def shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a case: Hugging Face name -> shape."""
    return _gpt2_shapes(config) if config["model_type"] == "gpt2" else _llama_like_shapes(config)


def state_dict(case: str) -> dict[str, NDArray[np.float32]]:
    """Every tensor of a case in float32."""
    return {name: _values(case, name, shape) for name, shape in shapes(CASES[case]).items()}


def write_safetensors(case: str, folder: Path) -> Path:
    """config.json and model.safetensors of a case."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CASES[case]))
    save_file(state_dict(case), folder / "model.safetensors")
    return folder


def random_values(case: str, name: str) -> np.random.Generator:
    key = np.array([zlib.crc32(case.encode()), zlib.crc32(name.encode())], np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def _values(case: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    generator = random_values(case, name)
    is_norm = "norm" in name or ".ln_" in name
    if len(shape) == 1:
        mean, spread = (0.9, 0.4) if is_norm and name.endswith("weight") else (0.0, 0.3)
        if CASES[case]["model_type"].startswith("gemma") and is_norm:
            mean = -0.1
        return (mean + spread * generator.standard_normal(shape)).astype(np.float32)
    is_table = "embed" in name or ".wte" in name or ".wpe" in name
    spread = (0.2 if CASES[case]["tie_word_embeddings"] else 0.5) if is_table else 0.18
    return (spread * generator.standard_normal(shape)).astype(np.float32)


def _llama_like_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    kind, hidden, ffn = config["model_type"], config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    width, narrow = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    use_bias = kind == "starcoder2"
    has_qkv_bias = config.get("attention_bias", kind in ("qwen2", "glm4")) or use_bias
    has_o_bias = config.get("attention_bias", False) or use_bias

    def add(name: str, shape: tuple[int, ...], has_bias: bool) -> None:
        found[f"{name}.weight"] = shape
        if has_bias:
            found[f"{name}.bias"] = shape[:1]

    norms = {
        "olmo2": ("post_attention_layernorm", "post_feedforward_layernorm"),
        "glm4": ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
    }
    sandwich = (
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    )
    has_both = kind in ("gemma2", "gemma3_text")
    names = norms.get(kind, sandwich if has_both else ("input_layernorm", "post_attention_layernorm"))
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name in names:
            add(at + name, (hidden,), use_bias)
        if kind == "phi3":
            add(at + "self_attn.qkv_proj", (width + 2 * narrow, hidden), False)
        else:
            for name, rows in (("q_proj", width), ("k_proj", narrow), ("v_proj", narrow)):
                add(at + "self_attn." + name, (rows, hidden), has_qkv_bias)
        add(at + "self_attn.o_proj", (hidden, width), has_o_bias)
        if kind in ("qwen3", "gemma3_text", "olmo2"):
            is_wide = kind == "olmo2"
            add(at + "self_attn.q_norm", (width if is_wide else head_dim,), False)
            add(at + "self_attn.k_norm", (narrow if is_wide else head_dim,), False)
        mlp_bias = config.get("mlp_bias", False)
        if kind == "starcoder2":
            add(at + "mlp.c_fc", (ffn, hidden), True)
            add(at + "mlp.c_proj", (hidden, ffn), True)
            continue
        if kind in ("phi3", "glm4"):
            add(at + "mlp.gate_up_proj", (2 * ffn, hidden), False)
        else:
            add(at + "mlp.gate_proj", (ffn, hidden), mlp_bias)
            add(at + "mlp.up_proj", (ffn, hidden), mlp_bias)
        add(at + "mlp.down_proj", (hidden, ffn), mlp_bias)
    add("model.norm", (hidden,), use_bias)
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    return found


def _gpt2_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden = config["n_embd"]
    found: dict[str, tuple[int, ...]] = {
        "transformer.wte.weight": (config["vocab_size"], hidden),
        "transformer.wpe.weight": (config["n_positions"], hidden),
    }
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}."
        for name in ("ln_1", "ln_2"):
            found |= {f"{at}{name}.weight": (hidden,), f"{at}{name}.bias": (hidden,)}
        linears = {
            "attn.c_attn": (hidden, 3 * hidden),
            "attn.c_proj": (hidden, hidden),
            "mlp.c_fc": (hidden, 4 * hidden),
            "mlp.c_proj": (4 * hidden, hidden),
        }
        for name, shape in linears.items():
            found |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[1:]}
    return found | {"transformer.ln_f.weight": (hidden,), "transformer.ln_f.bias": (hidden,)}
