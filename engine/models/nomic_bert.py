"""NomicBERT: BERT with rotation instead of learned positions, gated MLPs, and no biases but those of the norms.

The released files describe themselves with GPT-2's keys (`n_embd`, ...), newer ones with BERT's; both are read. Where the former
name a `rotary_scaling_factor`, the rotation would change with a text's length beyond `max_trained_positions`; texts end there.
Sources: Nussbaum et al. 2024; transformers `nomic_bert`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.engine.errors import ModelError
from octavo.engine.models import rope
from octavo.engine.models.activation import activation
from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.family import EncoderFamily, Source, gguf_encoder
from octavo.engine.models.names import GGUF_ENCODER, Names

_LAYER = "encoder.layers.{layer}."
_ROLES = {
    "tokens": "embeddings.word_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "embedding_norm": "emb_ln",
    "qkv": _LAYER + "attn.Wqkv",
    "o": _LAYER + "attn.out_proj",
    "after_attn": _LAYER + "norm1",
    "gate": _LAYER + "mlp.fc12",
    "up": _LAYER + "mlp.fc11",
    "down": _LAYER + "mlp.fc2",
    "after_ffn": _LAYER + "norm2",
}


def from_hf(src: Source) -> EncoderSpec:
    """NomicBertModel."""
    cfg = src.cfg
    read = _older if cfg.get("n_embd") is not None else _newer
    keys, params, positions = read(src)
    hidden, heads = keys["hidden"], keys["heads"]
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    max_positions = src.max_len(positions)
    turn = rope.build(params, head_dim=hidden // heads, max_len=max_positions, max_positions=positions, where=cfg.where)
    num_layers = keys.pop("num_layers")
    return EncoderSpec(
        family="nomic_bert",
        **keys,
        head_dim=hidden // heads,
        vocab=cfg.whole("vocab_size"),
        max_positions=max_positions,
        scale=(hidden // heads) ** -0.5,
        layers=(EncoderLayerSpec(turn),) * num_layers,
        num_token_types=cfg.whole("type_vocab_size", 2),
        is_gated=True,
        has_qkv_bias=False,
        has_o_bias=False,
        has_up_bias=False,
        has_down_bias=False,
    )


def _newer(src: Source) -> tuple[dict[str, Any], rope.Params, int]:
    """(fields, rotation, positions) in BERT's keys."""
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    if heads > 0:
        cfg.expect("head_dim", hidden // heads)
    cfg.skip("tie_word_embeddings")
    fields = {
        "hidden": hidden,
        "heads": heads,
        "ffn": cfg.whole("intermediate_size"),
        "num_layers": cfg.whole("num_hidden_layers"),
        "norm_eps": cfg.number("layer_norm_eps", 1e-12),
        "activation": activation(cfg, "hidden_act", "silu"),
    }
    return fields, rope.hf_params(cfg, theta=1000.0), cfg.whole("max_position_embeddings", 2048)


def _older(src: Source) -> tuple[dict[str, Any], rope.Params, int]:
    """The same in GPT-2's keys, as the model's own code reads them."""
    cfg = src.cfg
    for key in ("causal", "prenorm", "use_rms_norm", "parallel_block", "qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"):
        cfg.expect(key, False)
    cfg.expect("rotary_emb_interleaved", False)
    cfg.expect("rotary_emb_fraction", 1.0, 1)
    cfg.expect("rotary_emb_scale_base")
    cfg.expect("activation_function", "swiglu")
    cfg.expect("scale_attn_weights", True)
    cfg.expect("scale_attn_by_inverse_layer_idx", False)
    cfg.skip(
        "dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "use_flash_attn", "use_xentropy"
    )  # how it computes
    cfg.skip("parallel_block_tied_norm", "reorder_and_upcast_attn", "pad_vocab_size_multiple", "last_layer_subset")
    trained, positions = cfg.whole("max_trained_positions", 2048), cfg.whole("n_positions")
    if cfg.get("rotary_scaling_factor") is not None:
        positions = min(trained, positions)
    hidden = cfg.whole("n_embd")
    fields = {
        "hidden": hidden,
        "heads": cfg.whole("n_head"),
        "ffn": cfg.whole("n_inner", 4 * hidden),
        "num_layers": cfg.whole("n_layer"),
        "norm_eps": cfg.number("layer_norm_epsilon", 1e-12),
        "activation": "silu",
    }
    params: rope.Params = {"rope_type": "default", "rope_theta": cfg.number("rotary_emb_base", 10000.0)}
    return fields, params, positions


def from_gguf(src: Source) -> EncoderSpec:
    """GGUF `nomic-bert`."""
    spec = gguf_encoder(src, "nomic_bert", activation="silu", is_gated=True)
    meta = src.cfg
    meta.expect("rope.dimension_count", spec.head_dim)
    turn = rope.build(
        rope.gguf_params(meta),
        head_dim=spec.head_dim,
        max_len=spec.max_positions,
        max_positions=meta.whole("context_length"),
        where=meta.where,
    )
    return replace(spec, layers=(EncoderLayerSpec(turn),) * len(spec.layers))


_GGUF = Names({**GGUF_ENCODER, "gate": "blk.{layer}.ffn_gate"})
NOMIC_BERT = EncoderFamily("nomic_bert", from_hf, Names(_ROLES), from_gguf=from_gguf, gguf=(_GGUF,))
