"""DeBERTa v2 and v3: BERT whose attention asks also what a token is to a distance, and a distance to a token (disentangled).

Scores have up to three terms (contents; a query and the key's distance; a key and the query's), divided by the root of the head
size times their number. Word tables may be narrower than the model. A sequence is classified by its first token, through a dense
layer. Sources: He et al. 2020; He et al. 2021; transformers `deberta_v2`.
"""

from __future__ import annotations

from octavo.engine.errors import ModelError
from octavo.engine.models.activation import activation
from octavo.engine.models.disentangled import Disentangled, distances
from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.family import EncoderFamily, Source
from octavo.engine.models.head_kinds import HeadKind
from octavo.engine.models.heads import HeadSpec, classification
from octavo.engine.models.names import Names
from octavo.engine.models.reader import Description

_PREFIX = "deberta."
_LAYER = _PREFIX + "encoder.layer.{layer}."
_ROLES = {
    "tokens": _PREFIX + "embeddings.word_embeddings",
    "positions": _PREFIX + "embeddings.position_embeddings",
    "token_types": _PREFIX + "embeddings.token_type_embeddings",
    "token_proj": _PREFIX + "embeddings.embed_proj",
    "embedding_norm": _PREFIX + "embeddings.LayerNorm",
    "relative": _PREFIX + "encoder.rel_embeddings",
    "relative_norm": _PREFIX + "encoder.LayerNorm",
    "q": _LAYER + "attention.self.query_proj",
    "k": _LAYER + "attention.self.key_proj",
    "v": _LAYER + "attention.self.value_proj",
    "rel_k": _LAYER + "attention.self.pos_key_proj",
    "rel_q": _LAYER + "attention.self.pos_query_proj",
    "o": _LAYER + "attention.output.dense",
    "after_attn": _LAYER + "attention.output.LayerNorm",
    "up": _LAYER + "intermediate.dense",
    "down": _LAYER + "output.dense",
    "after_ffn": _LAYER + "output.LayerNorm",
    "masked_dense": "cls.predictions.transform.dense",
    "masked_norm": "cls.predictions.transform.LayerNorm",
    "masked_out": "cls.predictions",
    "masked_decoder": "cls.predictions.decoder",
    "sequence_dense": "pooler.dense",
    "sequence_out": "classifier",
    "token_out": "classifier",
}
_TERMS = ("c2p", "p2c")
_MOST_DISTANCE = 1 << 16


def from_hf(src: Source) -> EncoderSpec:
    """DebertaV2Model."""
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    cfg.expect("attention_head_size", hidden // heads)
    if cfg.whole("conv_kernel_size", 0) > 0:
        raise cfg.bad(
            "conv_kernel_size", cfg.get("conv_kernel_size"), "0: the convolution behind the first layer is not served"
        )
    cfg.skip("conv_act", "conv_groups")  # of that convolution
    cfg.skip("pooler_hidden_act", "pooler_hidden_size", "legacy", "tie_word_embeddings")  # of the heads
    positions, width = cfg.whole("max_position_embeddings", 512), cfg.whole("embedding_size", hidden)
    max_positions = src.max_len(positions)
    terms = _terms(cfg)
    return EncoderSpec(
        family="deberta",
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("intermediate_size"),
        vocab=cfg.whole("vocab_size"),
        max_positions=max_positions,
        scale=(hidden // heads * (1 + len(terms))) ** -0.5,
        layers=(EncoderLayerSpec(),) * cfg.whole("num_hidden_layers"),
        norm_eps=cfg.number("layer_norm_eps", 1e-7),
        token_width=0 if width == hidden else width,
        num_learned_positions=positions if cfg.flag("position_biased_input", True) else 0,
        num_token_types=cfg.whole("type_vocab_size", 0),
        disentangled=_distances(cfg, terms, positions, max_positions),
        activation=activation(cfg, "hidden_act", "gelu"),
    )


def _terms(cfg: Description) -> tuple[str, ...]:
    """Which of the two terms of distances there are, from a list or a text with bars."""
    listed = cfg.get("pos_att_type", [])
    if isinstance(listed, str):
        listed = [part.strip() for part in listed.lower().split("|") if part.strip()]
    if not isinstance(listed, list) or not set(listed) <= set(_TERMS):
        raise cfg.bad("pos_att_type", listed, "some of c2p and p2c")
    return tuple(term for term in _TERMS if term in listed)


def _distances(cfg: Description, terms: tuple[str, ...], positions: int, max_positions: int) -> Disentangled | None:
    has_norm = "layer_norm" in [part.strip() for part in cfg.text("norm_rel_ebd", "none").lower().split("|")]
    is_shared = cfg.flag("share_att_key", False)
    most, num_buckets = cfg.whole("max_relative_positions", -1), max(cfg.whole("position_buckets", -1), 0)
    if not cfg.flag("relative_attention", False):
        return None
    if not terms:
        raise cfg.bad("pos_att_type", cfg.get("pos_att_type"), "c2p, p2c or both where relative_attention is true")
    most = positions if most < 1 else most
    if not 1 <= most <= _MOST_DISTANCE:
        raise cfg.bad("max_relative_positions", most, f"1 to {_MOST_DISTANCE}, or below 1 for max_position_embeddings")
    if num_buckets and not (num_buckets >= 4 and most > num_buckets // 2 + 1 and num_buckets <= _MOST_DISTANCE):
        raise cfg.bad(
            "position_buckets", num_buckets, f"below 1, or 4 to {2 * most - 3}: half of them are for near distances"
        )
    by_distance, rows, num_rows = distances(num_buckets, most, max_positions)
    return Disentangled(by_distance, rows, num_rows, "c2p" in terms, "p2c" in terms, is_shared, has_norm)


def head(cfg: Description, kind: HeadKind) -> HeadSpec:
    """The heads of DebertaV2ForMaskedLM, DebertaV2ForSequenceClassification and DebertaV2ForTokenClassification."""
    hidden = cfg.whole("hidden_size")
    if kind == "masked":
        cfg.expect("legacy", True)
        cfg.expect("embedding_size", hidden)
        return HeadSpec(
            kind,
            cfg.whole("vocab_size"),
            activation=activation(cfg, "hidden_act", "gelu"),
            norm_eps=cfg.number("layer_norm_eps", 1e-7),
            is_tied=cfg.flag("tie_word_embeddings", True),
        )
    if kind == "sequence":
        cfg.expect("pooler_hidden_size", hidden)
        return classification(cfg, kind, activation=activation(cfg, "pooler_hidden_act", "gelu"))
    return classification(cfg, kind)


DEBERTA = EncoderFamily(
    "deberta",
    from_hf,
    Names(
        _ROLES,
        optional_prefix=_PREFIX,
        harmless=(
            "*embeddings.position_ids",
            "*encoder.LayerNorm.*",  # of learned distances, also where there are none
            "*embeddings.position_embeddings.weight",  # which some keep without use
            "pooler.dense.*",
            "cls.*",
            "lm_predictions.*",
            "mask_predictions.*",
        ),
    ),
    head=head,
)
