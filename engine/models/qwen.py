"""Qwen2 (and 2.5): biases on q, k, v. Qwen3: no biases, an RMS norm on every head of q and k.

Sources: Yang et al. 2024, 2025; transformers `qwen2`, `qwen3`; llama.cpp's GGUF architectures of the same names.
"""

from __future__ import annotations

from typing import Any

from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, gguf_base, hf_base, layer_windows
from octavo.engine.models.llama import biases, gguf_rope, hf_rope
from octavo.engine.models.names import GGUF, HF_HARMLESS, LLAMA_HF, Names
from octavo.engine.models.spec import DecoderSpec, LayerSpec


def _hf(src: Source, family: str, **more: Any) -> DecoderSpec:
    cfg = src.cfg
    base = hf_base(src, family, tied=False)
    num_layers = cfg.whole("num_hidden_layers")
    first = cfg.whole("max_window_layers", 28)
    window = cfg.get("sliding_window", 4096) if cfg.flag("use_sliding_window", False) else None
    windows = layer_windows(src, num_layers, lambda i: window is not None and i >= first, window, base["max_positions"])
    cfg.skip("sliding_window")  # unused unless use_sliding_window
    one, scale = hf_rope(src, base), base["head_dim"] ** -0.5
    return DecoderSpec(
        **base,
        **more,
        layers=tuple(LayerSpec(one, scale, window) for window in windows),
        activation=activation(cfg, "hidden_act", "silu"),
    )


def qwen2_from_hf(src: Source) -> DecoderSpec:
    """Qwen2ForCausalLM."""
    return _hf(src, "qwen2", has_qkv_bias=True)


def qwen3_from_hf(src: Source) -> DecoderSpec:
    """Qwen3ForCausalLM, whose head_dim defaults to 128 whatever the width."""
    has_bias = src.cfg.flag("attention_bias", False)
    if src.cfg.get("head_dim") is None:
        raise src.cfg.bad("head_dim", None, "given (128 in the released models)")
    return _hf(src, "qwen3", qk_norm="head", has_qkv_bias=has_bias, has_o_bias=has_bias)


def _gguf(src: Source, family: str, **more: Any) -> DecoderSpec:
    base = gguf_base(src, family)
    layer = LayerSpec(gguf_rope(src, base), base["head_dim"] ** -0.5)
    return DecoderSpec(**base, **biases(src), **more, layers=(layer,) * src.cfg.whole("block_count"))


def qwen2_from_gguf(src: Source) -> DecoderSpec:
    """GGUF `qwen2`."""
    return _gguf(src, "qwen2")


def qwen3_from_gguf(src: Source) -> DecoderSpec:
    """GGUF `qwen3`."""
    return _gguf(src, "qwen3", qk_norm="head")


_HF = Names(LLAMA_HF, harmless=HF_HARMLESS, optional_prefix="model.")
_GGUF = Names(GGUF)

QWEN2 = Family("qwen2", qwen2_from_hf, _HF, qwen2_from_gguf, _GGUF)
QWEN3 = Family("qwen3", qwen3_from_hf, _HF, qwen3_from_gguf, _GGUF)
