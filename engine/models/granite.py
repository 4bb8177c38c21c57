"""Granite 3.x dense: Llama with four multipliers, on token rows, scores, both branches and logits.

Logits are divided by `logits_scaling`; here they are multiplied by its reciprocal, rounded once. Sources: Granite
Team 2024; transformers `granite`; llama.cpp's GGUF `granite`, which stores the rows of q and k in pairs.
"""

from __future__ import annotations

from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, gguf_base, hf_base
from octavo.engine.models.llama import GGUF_HARMLESS, biases, gguf_rope, hf_rope
from octavo.engine.models.names import GGUF, HF_HARMLESS, LLAMA_HF, Names
from octavo.engine.models.reader import round_to
from octavo.engine.models.spec import DecoderSpec, LayerSpec


def from_hf(src: Source) -> DecoderSpec:
    """GraniteForCausalLM."""
    cfg = src.cfg
    base = hf_base(src, "granite", tied=False)
    has_bias = cfg.flag("attention_bias", False)
    layer = LayerSpec(hf_rope(src, base), cfg.number("attention_multiplier", 1.0))
    return DecoderSpec(
        **base,
        layers=(layer,) * cfg.whole("num_hidden_layers"),
        activation=activation(cfg, "hidden_act", "silu"),
        has_qkv_bias=has_bias,
        has_o_bias=has_bias,
        has_mlp_bias=cfg.flag("mlp_bias", False),
        embedding_scale=cfg.number("embedding_multiplier", 1.0),
        residual_scale=cfg.number("residual_multiplier", 1.0),
        logits_scale=_reciprocal(cfg.number("logits_scaling", 1.0)),
    )


def from_gguf(src: Source) -> DecoderSpec:
    """GGUF `granite`."""
    meta = src.cfg
    base = gguf_base(src, "granite")
    meta.expect("rope.scaling.finetuned", True)  # false would mean: no rotation
    scale = meta.number("attention.scale", base["head_dim"] ** -0.5)
    layer = LayerSpec(gguf_rope(src, base), scale)
    return DecoderSpec(
        **base,
        **biases(src),
        layers=(layer,) * meta.whole("block_count"),
        embedding_scale=meta.number("embedding_scale", 1.0),
        residual_scale=meta.number("residual_scale", 1.0),
        logits_scale=_reciprocal(meta.number("logit_scale", 1.0)),
    )


def _reciprocal(value: float) -> float:
    return 1.0 / round_to(value, "float32")


FAMILY = Family(
    "granite",
    from_hf,
    Names(LLAMA_HF, harmless=HF_HARMLESS),
    from_gguf,
    Names(GGUF, has_paired_qk=True, harmless=GGUF_HARMLESS),
)
