"""OLMo 2: no norm before the branches, an RMS norm on their outputs, and RMS norms over the whole width of q and k.

Sources: OLMo Team 2025; transformers `olmo2`; llama.cpp's GGUF `olmo2`.
"""

from __future__ import annotations

from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, gguf_base, hf_base
from octavo.engine.models.llama import biases, gguf_rope, hf_rope
from octavo.engine.models.names import HF_HARMLESS, Names, gguf_names, hf_names
from octavo.engine.models.spec import DecoderSpec, LayerSpec


def from_hf(src: Source) -> DecoderSpec:
    """Olmo2ForCausalLM."""
    cfg = src.cfg
    base = hf_base(src, "olmo2", eps=1e-5, tied=False)
    has_bias = cfg.flag("attention_bias", False)
    layer = LayerSpec(hf_rope(src, base), base["head_dim"] ** -0.5)
    return DecoderSpec(
        **base,
        layers=(layer,) * cfg.whole("num_hidden_layers"),
        has_pre_norm=False,
        has_post_norm=True,
        qk_norm="width",
        has_qkv_bias=has_bias,
        has_o_bias=has_bias,
        activation=activation(cfg, "hidden_act", "silu"),
    )


def from_gguf(src: Source) -> DecoderSpec:
    """GGUF `olmo2`. The same name with a sliding window is OLMo 3, which is not served."""
    meta = src.cfg
    meta.expect("attention.sliding_window", 0)
    base = gguf_base(src, "olmo2")
    layer = LayerSpec(gguf_rope(src, base), base["head_dim"] ** -0.5)
    return DecoderSpec(
        **base,
        **biases(src),
        layers=(layer,) * meta.whole("block_count"),
        has_pre_norm=False,
        has_post_norm=True,
        qk_norm="width",
    )


FAMILY = Family(
    "olmo2",
    from_hf,
    Names(
        hf_names(post_attn=".post_attention_layernorm", post_ffn=".post_feedforward_layernorm"), harmless=HF_HARMLESS
    ),
    from_gguf,
    Names(gguf_names()),
)
