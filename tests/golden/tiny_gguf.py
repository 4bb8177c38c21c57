"""The tiny checkpoints of tiny.py written as GGUF F32 files, with llama.cpp's conventions.

Names come from the `gguf` package's own map, so that they do not depend on Octavo's. Conventions, from llama.cpp's
conversion scripts: rows of q and k of llama-like architectures are stored in rotating pairs; Gemma's norms hold the
1; GPT-2's linear weights are [out, in]; Llama 3 and longrope factors are tensors.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.golden import tiny

from octavo.engine.loading.gguf_writer import GGUFWriter
from octavo.quant.load import pack

#: case -> (GGUF architecture, changes of config.json where GGUF cannot say what the case says)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama3": ("llama", {}),
    "llama_bias": ("llama", {}),
    "llama_yarn": ("llama", {}),
    "smollm3": ("smollm3", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3", {"query_pre_attn_scalar": 16}),
    "phi3": ("phi3", {}),
    "phi3_sliding": ("phi3", {}),
    "olmo2": ("olmo2", {}),
    "granite": ("granite", {}),
    "glm4": ("glm4", {}),
    "starcoder2": ("starcoder2", {"sliding_window": None}),
    "gpt2": ("gpt2", {}),
}
_PAIRED = ("llama", "smollm3", "granite")

Tensors = dict[str, NDArray[np.float32]]


def config_of(case: str) -> dict[str, Any]:
    """The case's config.json with the changes that make it expressible in GGUF."""
    return {**tiny.CASES[case], **CASES[case][1]}


def write_gguf(case: str, path: Path) -> Path:
    """Writes the case to `path`, all tensors f32."""
    return write_tensors(case, {name: ("f32", values) for name, values in tensors_of(case).items()}, path)


def tensors_of(case: str) -> Tensors:
    """The case's tensors under their GGUF names, converted."""
    config = config_of(case)
    return {**_renamed(case, CASES[case][0], config), **_rope_tensors(config)}


def write_tensors(
    case: str,
    tensors: dict[str, tuple[str, NDArray[np.float32]]],
    path: Path,
    *,
    more: dict[str, Any] | None = None,
) -> Path:
    """Writes the case's metadata, `more` of it, and `tensors` (name -> format to pack to, values)."""
    architecture, config = CASES[case][0], config_of(case)
    writer = GGUFWriter()
    writer.add("general.architecture", architecture)
    for key, value in _metadata(architecture, config).items():
        writer.add(f"{architecture}.{key}", value)
    for key, value in (more or {}).items():
        writer.add(key, value)
    for name, (form, values) in tensors.items():
        packed = pack(form, np.ascontiguousarray(values))
        writer.add_tensor(name, form, values.shape, np.ascontiguousarray(packed).view(np.uint8))
    writer.write(path)
    return path


def _renamed(case: str, architecture: str, config: dict[str, Any]) -> Tensors:
    import gguf

    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, config.get("num_hidden_layers", config.get("n_layer")))
    found: Tensors = {}
    for name, values in tiny.state_dict(case).items():
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise KeyError(f"{architecture} has no GGUF name for {name}")
        found[target] = _converted(name, values, architecture, config)
    return found


def _converted(
    name: str, values: NDArray[np.float32], architecture: str, config: dict[str, Any]
) -> NDArray[np.float32]:
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
        return values + np.float32(1.0)
    if architecture == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return values.T
    if architecture in _PAIRED and (".q_proj." in name or ".k_proj." in name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        return halves.swapaxes(1, 2).reshape(values.shape)
    return values


def _metadata(architecture: str, config: dict[str, Any]) -> dict[str, Any]:
    if architecture == "gpt2":
        return {
            "block_count": config["n_layer"],
            "context_length": config["n_positions"],
            "embedding_length": config["n_embd"],
            "feed_forward_length": 4 * config["n_embd"],
            "attention.head_count": config["n_head"],
            "attention.layer_norm_epsilon": config["layer_norm_epsilon"],
        }
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    found: dict[str, Any] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "vocab_size": config["vocab_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }
    if architecture == "starcoder2":
        found["attention.layer_norm_epsilon"] = config["norm_epsilon"]
    else:
        found["attention.layer_norm_rms_epsilon"] = config["rms_norm_eps"]
    if config.get("sliding_window"):
        found["attention.sliding_window"] = config["sliding_window"]
    scales = {
        "embedding_multiplier": "embedding_scale",
        "attention_multiplier": "attention.scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    }
    found |= {target: float(config[name]) for name, target in scales.items() if name in config}
    return found | _rope_metadata(config, head_dim)


def _rope_metadata(config: dict[str, Any], head_dim: int) -> dict[str, Any]:
    rope = config["rope_parameters"]
    found: dict[str, Any] = {}
    if "sliding_attention" in rope:
        found["rope.freq_base_swa"] = float(rope["sliding_attention"]["rope_theta"])
    rope = rope.get("full_attention", rope)
    found["rope.freq_base"] = float(rope["rope_theta"])
    partial = rope.get("partial_rotary_factor", 0.5 if config["model_type"] == "glm4" else 1.0)
    found["rope.dimension_count"] = int(head_dim * partial)
    if rope["rope_type"] in ("linear", "yarn"):
        found |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": float(rope["factor"])}
    original = rope.get("original_max_position_embeddings")
    if original and rope["rope_type"] in ("yarn", "longrope"):
        found["rope.scaling.original_context_length"] = original
    if rope["rope_type"] == "longrope":
        ratio = config["max_position_embeddings"] / original
        found["rope.scaling.attn_factor"] = math.sqrt(1 + math.log(ratio) / math.log(original))
    return found


def _rope_tensors(config: dict[str, Any]) -> Tensors:
    rope = config.get("rope_parameters", {})
    rope = rope.get("full_attention", rope)
    kind = rope.get("rope_type")
    if kind == "longrope":
        return {
            f"rope_factors_{which}.weight": np.array(rope[f"{which}_factor"], np.float32) for which in ("long", "short")
        }
    if kind != "llama3":
        return {}
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    divisors = []
    for exponent in np.arange(0, head_dim, 2) / head_dim:
        wave = 2 * math.pi * rope["rope_theta"] ** float(exponent)
        original, low, high = (
            rope["original_max_position_embeddings"],
            rope["low_freq_factor"],
            rope["high_freq_factor"],
        )
        if wave < original / high:
            divisors.append(1.0)
        elif wave > original / low:
            divisors.append(rope["factor"])
        else:
            smooth = (original / wave - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return {"rope_freqs.weight": np.array(divisors, np.float32)}
