"""StarCoder2: layer norms with biases, a plain MLP with GELU (tanh), biases on every linear, an optional sliding
window.

Sources: Lozhkov et al. 2024; transformers `starcoder2`; llama.cpp's GGUF `starcoder2`.
"""

from __future__ import annotations

from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, full_window, gguf_base, hf_base
from octavo.engine.models.llama import GGUF_HARMLESS, biases, gguf_rope, hf_rope
from octavo.engine.models.names import HF_HARMLESS, Names, gguf_names, hf_names
from octavo.engine.models.spec import DecoderSpec, LayerSpec


def from_hf(src: Source) -> DecoderSpec:
    """Starcoder2ForCausalLM."""
    cfg = src.cfg
    base = hf_base(src, "starcoder2", eps=1e-5, eps_key="norm_epsilon", tied=True)
    cfg.expect("mlp_type", "default")
    cfg.expect("norm_type", "layer_norm")
    has_bias = cfg.flag("use_bias", True)
    window = full_window(cfg.get("sliding_window"), base["max_positions"])
    layer = LayerSpec(hf_rope(src, base), base["head_dim"] ** -0.5, window)
    return DecoderSpec(
        **base,
        layers=(layer,) * cfg.whole("num_hidden_layers"),
        norm="layer",
        is_gated=False,
        activation=activation(cfg, "hidden_act", "gelu_pytorch_tanh"),
        has_qkv_bias=has_bias,
        has_o_bias=has_bias,
        has_mlp_bias=has_bias,
    )


def from_gguf(src: Source) -> DecoderSpec:
    """GGUF `starcoder2`."""
    meta = src.cfg
    base = gguf_base(src, "starcoder2", eps_key="attention.layer_norm_epsilon")
    window = full_window(meta.whole("attention.sliding_window", 0), base["max_positions"])
    layer = LayerSpec(gguf_rope(src, base), base["head_dim"] ** -0.5, window)
    return DecoderSpec(
        **base,
        **biases(src),
        layers=(layer,) * meta.whole("block_count"),
        norm="layer",
        is_gated=False,
        activation="gelu_tanh",
    )


FAMILY = Family(
    "starcoder2",
    from_hf,
    Names(hf_names(up=".mlp.c_fc", down=".mlp.c_proj"), harmless=HF_HARMLESS),
    from_gguf,
    Names(gguf_names(), harmless=GGUF_HARMLESS),
)
