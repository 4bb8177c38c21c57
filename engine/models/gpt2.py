"""GPT-2: learned positions, layer norms with biases, a plain MLP, biases on every linear, fused q, k, v.

Safetensors hold linear weights as [in, out], GGUF as [out, in]. Older checkpoints lack the `transformer.` prefix and
carry causal masks as buffers. Sources: Radford et al. 2019; transformers `gpt2`; llama.cpp's GGUF `gpt2`.
"""

from __future__ import annotations

from typing import Any

from octavo.engine.models.activation import activation
from octavo.engine.models.family import Family, Source, gguf_base
from octavo.engine.models.names import Names, gguf_names
from octavo.engine.models.spec import DecoderSpec, LayerSpec


def from_hf(src: Source) -> DecoderSpec:
    """GPT2LMHeadModel."""
    cfg = src.cfg
    hidden, heads, positions = cfg.whole("n_embd"), cfg.whole("n_head"), cfg.whole("n_positions")
    cfg.expect("add_cross_attention", False)
    cfg.skip("reorder_and_upcast_attn")  # float32 attention: always so here
    scale = (hidden // heads) ** -0.5 if cfg.flag("scale_attn_weights", True) else 1.0
    by_layer = cfg.flag("scale_attn_by_inverse_layer_idx", False)
    return DecoderSpec(
        family="gpt2",
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("n_inner", 4 * hidden),
        vocab=cfg.whole("vocab_size"),
        max_positions=src.max_len(positions),
        norm_eps=cfg.number("layer_norm_epsilon", 1e-5),
        is_tied=cfg.flag("tie_word_embeddings", True),
        layers=tuple(LayerSpec(None, scale / (i + 1) if by_layer else scale) for i in range(cfg.whole("n_layer"))),
        activation=activation(cfg, "activation_function", "gelu_new"),
        num_learned_positions=positions,
        **_SHAPE,
    )


def from_gguf(src: Source) -> DecoderSpec:
    """GGUF `gpt2`."""
    meta = src.cfg
    base = gguf_base(src, "gpt2", eps_key="attention.layer_norm_epsilon")
    layer = LayerSpec(None, base["head_dim"] ** -0.5)
    return DecoderSpec(
        **base,
        layers=(layer,) * meta.whole("block_count"),
        activation="gelu_tanh",
        num_learned_positions=src.rows("position_embd.weight"),
        **_SHAPE,
    )


_SHAPE: dict[str, Any] = {
    "norm": "layer",
    "is_gated": False,
    "has_qkv_bias": True,
    "has_o_bias": True,
    "has_mlp_bias": True,
}

_HF_ROLES = {
    "tokens": "transformer.wte",
    "positions": "transformer.wpe",
    "final_norm": "transformer.ln_f",
    "head": "lm_head",
    "pre_attn": "transformer.h.{layer}.ln_1",
    "pre_ffn": "transformer.h.{layer}.ln_2",
    "qkv": "transformer.h.{layer}.attn.c_attn",
    "o": "transformer.h.{layer}.attn.c_proj",
    "up": "transformer.h.{layer}.mlp.c_fc",
    "down": "transformer.h.{layer}.mlp.c_proj",
}

FAMILY = Family(
    "gpt2",
    from_hf,
    Names(
        _HF_ROLES,
        is_transposed=True,
        optional_prefix="transformer.",
        harmless=("*h.*.attn.bias", "*h.*.attn.masked_bias"),
    ),
    from_gguf,
    Names(gguf_names()),
)
