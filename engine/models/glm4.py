"""GLM-4-0414 dense: RMS norms before and after both branches, half of each head rotated in neighbouring pairs, biases
on q, k, v, gate and up fused.

Sources: GLM Team 2024; transformers `glm4`; llama.cpp's GGUF `glm4`, whose `ffn_up` holds gate and up.
"""

from __future__ import annotations

from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, gguf_base, hf_base
from octavo.engine.models.llama import biases, gguf_rope, hf_rope
from octavo.engine.models.names import HF_HARMLESS, Names, gguf_names, hf_names
from octavo.engine.models.spec import DecoderSpec, LayerSpec


def from_hf(src: Source) -> DecoderSpec:
    """Glm4ForCausalLM."""
    cfg = src.cfg
    if cfg.get("head_dim") is None:
        raise cfg.bad("head_dim", None, "given (128 in the released models)")
    base = hf_base(src, "glm4", eps=1.5625e-7, tied=False)
    layer = LayerSpec(hf_rope(src, base, partial=0.5, is_interleaved=True), base["head_dim"] ** -0.5)
    return DecoderSpec(
        **base,
        layers=(layer,) * cfg.whole("num_hidden_layers"),
        has_post_norm=True,
        has_qkv_bias=cfg.flag("attention_bias", True),
        activation=activation(cfg, "hidden_act", "silu"),
    )


def from_gguf(src: Source) -> DecoderSpec:
    """GGUF `glm4`, text only (no M-RoPE sections, no draft layers)."""
    meta = src.cfg
    meta.expect("rope.dimension_sections")
    meta.expect("nextn_predict_layers", 0)
    base = gguf_base(src, "glm4")
    layer = LayerSpec(gguf_rope(src, base, is_interleaved=True), base["head_dim"] ** -0.5)
    return DecoderSpec(**base, **biases(src), layers=(layer,) * meta.whole("block_count"), has_post_norm=True)


FAMILY = Family(
    "glm4",
    from_hf,
    Names(
        hf_names(
            post_attn=".post_self_attn_layernorm",
            pre_ffn=".post_attention_layernorm",
            post_ffn=".post_mlp_layernorm",
            gate_up=".mlp.gate_up_proj",
        ),
        harmless=HF_HARMLESS,
    ),
    from_gguf,
    Names(gguf_names(gate_up=".ffn_up", gate="", up="")),
)
