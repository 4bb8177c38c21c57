"""MPNet: BERT without token types, positions that begin behind the padding row, and a learned bias of every head for how far
apart two tokens are, one table for all layers. Sources: Song et al. 2020; transformers `mpnet`.
"""

from __future__ import annotations

from octavo.engine.errors import ModelError
from octavo.engine.models.activation import activation
from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.family import EncoderFamily, Source
from octavo.engine.models.names import Names

_PREFIX = "mpnet."
_LAYER = _PREFIX + "encoder.layer.{layer}."
_ROLES = {
    "tokens": _PREFIX + "embeddings.word_embeddings",
    "positions": _PREFIX + "embeddings.position_embeddings",
    "embedding_norm": _PREFIX + "embeddings.LayerNorm",
    "relative": _PREFIX + "encoder.relative_attention_bias",
    "q": _LAYER + "attention.attn.q",
    "k": _LAYER + "attention.attn.k",
    "v": _LAYER + "attention.attn.v",
    "o": _LAYER + "attention.attn.o",
    "after_attn": _LAYER + "attention.LayerNorm",
    "up": _LAYER + "intermediate.dense",
    "down": _LAYER + "output.dense",
    "after_ffn": _LAYER + "output.LayerNorm",
}
_PAD = 1  # whatever pad_token_id says
_BUCKETS, _REACH = 32, 128


def from_hf(src: Source) -> EncoderSpec:
    """MPNetModel."""
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    cfg.expect("relative_attention_num_buckets", _BUCKETS)
    cfg.skip("tie_word_embeddings")  # of a masked language model's head
    positions = cfg.whole("max_position_embeddings")
    return EncoderSpec(
        family="mpnet",
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("intermediate_size"),
        vocab=cfg.whole("vocab_size"),
        max_positions=src.max_len(positions - _PAD - 1),
        scale=(hidden // heads) ** -0.5,
        layers=(EncoderLayerSpec(),) * cfg.whole("num_hidden_layers"),
        norm_eps=cfg.number("layer_norm_eps", 1e-12),
        num_learned_positions=positions,
        position_offset=_PAD + 1,
        position_pad_id=_PAD,
        num_buckets=_BUCKETS,
        bucket_reach=_REACH,
        activation=activation(cfg, "hidden_act", "gelu"),
    )


MPNET = EncoderFamily(
    "mpnet",
    from_hf,
    Names(
        _ROLES,
        optional_prefix=_PREFIX,
        harmless=("*embeddings.position_ids", "pooler.dense.*", "*.pooler.dense.*", "lm_head.*"),
    ),
)
