"""The encoder of T5 (sentence-T5, GTR): RMS norms before the branches, no biases, scores that are not scaled, and a learned bias
of every head for how far apart two tokens are, which the first layer stores and all use. Version 1.0 has plain MLPs, 1.1 gated.

A T5 takes any length; texts end at `n_positions`. Sources: Raffel et al. 2020; Ni et al. 2021; transformers `t5`.
"""

from __future__ import annotations

from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.family import EncoderFamily, Source
from octavo.engine.models.names import Names
from octavo.platforms.types import Activation

_BLOCK = "encoder.block.{layer}."
_ROLES = {
    "tokens": "shared",
    "relative": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "final_norm": "encoder.final_layer_norm",
    "pre_attn": _BLOCK + "layer.0.layer_norm",
    "q": _BLOCK + "layer.0.SelfAttention.q",
    "k": _BLOCK + "layer.0.SelfAttention.k",
    "v": _BLOCK + "layer.0.SelfAttention.v",
    "o": _BLOCK + "layer.0.SelfAttention.o",
    "pre_ffn": _BLOCK + "layer.1.layer_norm",
    "up": _BLOCK + "layer.1.DenseReluDense.wi",
    "down": _BLOCK + "layer.1.DenseReluDense.wo",
}
_GATED = {
    **_ROLES,
    "gate": _BLOCK + "layer.1.DenseReluDense.wi_0",
    "up": _BLOCK + "layer.1.DenseReluDense.wi_1",
}
_MLPS: dict[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gated-gelu": ("gelu_tanh", True),
    "gated-silu": ("silu", True),
}


def from_hf(src: Source) -> EncoderSpec:
    """T5EncoderModel."""
    cfg = src.cfg
    kind = cfg.text("feed_forward_proj", "relu")
    if kind not in _MLPS:
        raise cfg.bad("feed_forward_proj", kind, "one of " + ", ".join(_MLPS))
    activation, is_gated = _MLPS[kind]
    cfg.expect("is_gated_act", is_gated)
    cfg.skip("dense_act_fn")  # which feed_forward_proj says as well
    cfg.skip("num_decoder_layers", "tie_word_embeddings", "scale_decoder_outputs")  # of the decoder
    return EncoderSpec(
        family="t5",
        hidden=cfg.whole("d_model"),
        heads=cfg.whole("num_heads"),
        head_dim=cfg.whole("d_kv"),
        ffn=cfg.whole("d_ff"),
        vocab=cfg.whole("vocab_size"),
        max_positions=src.max_len(cfg.whole("n_positions", 512)),
        scale=1.0,
        layers=(EncoderLayerSpec(),) * cfg.whole("num_layers"),
        norm_place="pre",
        norm="rms",
        norm_eps=cfg.number("layer_norm_epsilon", 1e-6),
        has_norm_bias=False,
        has_embedding_norm=False,
        num_buckets=cfg.whole("relative_attention_num_buckets", 32),
        bucket_reach=cfg.whole("relative_attention_max_distance", 128),
        activation=activation,
        is_gated=is_gated,
        has_qkv_bias=False,
        has_o_bias=False,
        has_up_bias=False,
        has_down_bias=False,
    )


_HARMLESS = ("encoder.embed_tokens.weight", "decoder.*", "lm_head.*")
T5 = EncoderFamily("t5", from_hf, Names(_ROLES, harmless=_HARMLESS), (Names(_GATED, harmless=_HARMLESS),), is_half=True)
