"""Llama 2 and 3.x and everything of their shape (TinyLlama, Yi, SmolLM2, Falcon3), Mistral with its sliding window, and
SmolLM3, whose every fourth layer does not rotate.

Sources: Touvron et al. 2023; Jiang et al. 2023 (Mistral); transformers `llama`, `mistral`, `smollm3`; llama.cpp's GGUF
architectures `llama` and `smollm3`, which store the rows of q and k in pairs.
"""

from __future__ import annotations

from typing import Any

from octavo.engine.models import rope
from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, full_window, gguf_base, hf_base, layer_windows
from octavo.engine.models.names import GGUF, HF_HARMLESS, LLAMA_HF, Names
from octavo.engine.models.spec import DecoderSpec, LayerSpec
from octavo.platforms.types import Rope

GGUF_HARMLESS = ("blk.*.attn_rot_embd.*",)


def biases(src: Source) -> dict[str, Any]:
    """Biases a llama-shaped GGUF file holds."""
    return {
        "has_qkv_bias": src.has("blk.0.attn_q.bias") or src.has("blk.0.attn_qkv.bias"),
        "has_o_bias": src.has("blk.0.attn_output.bias"),
        "has_mlp_bias": src.has("blk.0.ffn_up.bias"),
    }


def hf_rope(src: Source, base: dict[str, Any], *, theta: float = 10000.0, partial: float = 1.0, **more: Any) -> Rope:
    """The one `Rope` of a config.json without layer types."""
    params = rope.hf_params(src.cfg, theta=theta, partial=partial)
    return _build(src, base, params, src.cfg.whole("max_position_embeddings"), **more)


def gguf_rope(src: Source, base: dict[str, Any], *, theta: float = 10000.0, **more: Any) -> Rope:
    """The one `Rope` of a GGUF file, with its `rope_freqs.weight` divisors where it has them."""
    params = rope.gguf_params(src.cfg, theta=theta, divisors=src.floats("rope_freqs.weight"))
    params["partial_rotary_factor"] = src.cfg.whole("rope.dimension_count", base["head_dim"]) / base["head_dim"]
    return _build(src, base, params, src.cfg.whole("context_length"), **more)


def _build(src: Source, base: dict[str, Any], params: rope.Params, max_positions: int, **more: Any) -> Rope:
    return rope.build(
        params,
        head_dim=base["head_dim"],
        max_len=base["max_positions"],
        max_positions=max_positions,
        where=src.cfg.where,
        **more,
    )


def from_hf(src: Source) -> DecoderSpec:
    """LlamaForCausalLM."""
    return _from_hf(src, "llama", lambda base: [0] * src.cfg.whole("num_hidden_layers"))


def mistral_from_hf(src: Source) -> DecoderSpec:
    """MistralForCausalLM: one window on all layers, or none."""

    def windows(base: dict[str, Any]) -> list[int]:
        src.cfg.expect("layer_types")
        window = full_window(src.cfg.optional("sliding_window", 4096), base["max_positions"])
        return [window] * src.cfg.whole("num_hidden_layers")

    return _from_hf(src, "mistral", windows)


def _from_hf(src: Source, family: str, windows: Any) -> DecoderSpec:
    cfg = src.cfg
    base = hf_base(src, family, tied=False)
    one = hf_rope(src, base)
    has_bias = cfg.flag("attention_bias", False)
    scale = base["head_dim"] ** -0.5
    return DecoderSpec(
        **base,
        layers=tuple(LayerSpec(one, scale, window) for window in windows(base)),
        activation=activation(cfg, "hidden_act", "silu"),
        has_qkv_bias=has_bias,
        has_o_bias=has_bias,
        has_mlp_bias=cfg.flag("mlp_bias", False),
    )


def from_gguf(src: Source) -> DecoderSpec:
    """GGUF `llama`."""
    base = gguf_base(src, "llama")
    one = gguf_rope(src, base)
    window = full_window(src.cfg.get("attention.sliding_window"), base["max_positions"])
    layer = LayerSpec(one, base["head_dim"] ** -0.5, window)
    return DecoderSpec(**base, **biases(src), layers=(layer,) * src.cfg.whole("block_count"))


def smollm3_from_hf(src: Source) -> DecoderSpec:
    """SmolLM3ForCausalLM: `no_rope_layers` holds 1 where a layer *does* rotate."""
    cfg = src.cfg
    base = hf_base(src, "smollm3", tied=True)
    num_layers = cfg.whole("num_hidden_layers")
    interval = cfg.whole("no_rope_layer_interval", 4)
    rotates = cfg.get("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(num_layers)]
    if not isinstance(rotates, list) or len(rotates) < num_layers:
        raise cfg.bad("no_rope_layers", rotates, f"a list of {num_layers} ones and zeros")
    window = cfg.get("sliding_window") if cfg.flag("use_sliding_window", False) else None
    windows = layer_windows(
        src, num_layers, lambda i: window is not None and not rotates[i], window, base["max_positions"]
    )
    cfg.skip("max_window_layers")  # left over from another family; `layer_types` rules
    one = hf_rope(src, base, theta=2000000.0)
    has_bias = cfg.flag("attention_bias", False)
    scale = base["head_dim"] ** -0.5
    return DecoderSpec(
        **base,
        layers=tuple(LayerSpec(one if rotates[i] else None, scale, windows[i]) for i in range(num_layers)),
        activation=activation(cfg, "hidden_act", "silu"),
        has_qkv_bias=has_bias,
        has_o_bias=has_bias,
        has_mlp_bias=cfg.flag("mlp_bias", False),
    )


def smollm3_from_gguf(src: Source) -> DecoderSpec:
    """GGUF `smollm3`: every fourth layer does not rotate; the file does not say so."""
    base = gguf_base(src, "smollm3")
    one = gguf_rope(src, base)
    scale = base["head_dim"] ** -0.5
    return DecoderSpec(
        **base,
        **biases(src),
        layers=tuple(LayerSpec(one if (i + 1) % 4 else None, scale) for i in range(src.cfg.whole("block_count"))),
    )


_HF = Names(LLAMA_HF, harmless=HF_HARMLESS, optional_prefix="model.")
_GGUF = Names(GGUF, has_paired_qk=True, harmless=GGUF_HARMLESS)

FAMILY = Family("llama", from_hf, _HF, from_gguf, _GGUF)
MISTRAL = Family("mistral", mistral_from_hf, _HF)
SMOLLM3 = Family("smollm3", smollm3_from_hf, _HF, smollm3_from_gguf, _GGUF)
