"""BERT and what has its shape: RoBERTa and XLM-RoBERTa, whose positions begin behind the padding row, and DistilBERT, without
token types and under other names.

Learned positions, a norm behind every sum, plain MLPs, biases everywhere. Files of a task hold the same encoder under a prefix;
their head, and the pooler that a sentence pair task was trained with, have no part in an embedding. BERT classifies a sequence by
that pooler's output. Sources: Devlin et al. 2019; Liu et al. 2019; Conneau et al. 2020; Sanh et al. 2019; transformers `bert`,
`roberta`, `distilbert`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from octavo.engine.errors import ModelError
from octavo.engine.models.activation import activation
from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.family import EncoderFamily, Source, gguf_encoder
from octavo.engine.models.head_kinds import HeadKind
from octavo.engine.models.heads import HeadSpec, classification
from octavo.engine.models.names import GGUF_ENCODER, Names
from octavo.engine.models.reader import Description
from octavo.platforms.types import Activation

_LAYER = "encoder.layer.{layer}."
_ROLES = {
    "tokens": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "q": _LAYER + "attention.self.query",
    "k": _LAYER + "attention.self.key",
    "v": _LAYER + "attention.self.value",
    "o": _LAYER + "attention.output.dense",
    "after_attn": _LAYER + "attention.output.LayerNorm",
    "up": _LAYER + "intermediate.dense",
    "down": _LAYER + "output.dense",
    "after_ffn": _LAYER + "output.LayerNorm",
}
_BUFFERS = ("*embeddings.position_ids", "*embeddings.token_type_ids")
_POOLER = ("pooler.dense.*", "*.pooler.dense.*")

_DISTIL_LAYER = "distilbert.transformer.layer.{layer}."
_DISTIL_ROLES = {
    "tokens": "distilbert.embeddings.word_embeddings",
    "positions": "distilbert.embeddings.position_embeddings",
    "embedding_norm": "distilbert.embeddings.LayerNorm",
    "q": _DISTIL_LAYER + "attention.q_lin",
    "k": _DISTIL_LAYER + "attention.k_lin",
    "v": _DISTIL_LAYER + "attention.v_lin",
    "o": _DISTIL_LAYER + "attention.out_lin",
    "after_attn": _DISTIL_LAYER + "sa_layer_norm",
    "up": _DISTIL_LAYER + "ffn.lin1",
    "down": _DISTIL_LAYER + "ffn.lin2",
    "after_ffn": _DISTIL_LAYER + "output_layer_norm",
    "masked_dense": "vocab_transform",
    "masked_norm": "vocab_layer_norm",
    "masked_out": "vocab_projector",
    "masked_decoder": "vocab_projector",
    "sequence_dense": "pre_classifier",
    "sequence_out": "classifier",
    "token_out": "classifier",
}
_BERT_HEADS = {
    "masked_dense": "cls.predictions.transform.dense",
    "masked_norm": "cls.predictions.transform.LayerNorm",
    "masked_out": "cls.predictions",
    "masked_decoder": "cls.predictions.decoder",
    "vectors_out": "linear",
    "sequence_dense": "bert.pooler.dense",
    "sequence_out": "classifier",
    "token_out": "classifier",
}
_ROBERTA_HEADS = {
    "masked_dense": "lm_head.dense",
    "masked_norm": "lm_head.layer_norm",
    "masked_out": "lm_head",
    "masked_decoder": "lm_head.decoder",
    "sequence_dense": "classifier.dense",
    "sequence_out": "classifier.out_proj",
    "token_out": "classifier",
}


def _under(prefix: str) -> dict[str, str]:
    return {role: prefix + name for role, name in _ROLES.items()}


def from_hf(src: Source) -> EncoderSpec:
    """BertModel."""
    return _from_hf(src, "bert", 0)


def roberta_from_hf(src: Source) -> EncoderSpec:
    """RobertaModel, XLMRobertaModel: the first token's position is the padding id plus one, so that many rows fewer hold text."""
    pad = src.cfg.whole("pad_token_id", 1)
    if pad < 0:
        raise src.cfg.bad("pad_token_id", pad, "0 or more: positions begin behind it")
    return replace(_from_hf(src, "roberta", pad + 1), position_pad_id=pad)


def _from_hf(src: Source, family: str, offset: int) -> EncoderSpec:
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    cfg.expect("is_decoder", False)
    cfg.expect("add_cross_attention", False)
    cfg.expect("position_embedding_type", "absolute")
    positions = cfg.whole("max_position_embeddings")
    return EncoderSpec(
        family=family,
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("intermediate_size"),
        vocab=cfg.whole("vocab_size"),
        max_positions=src.max_len(positions - offset),
        scale=(hidden // heads) ** -0.5,
        layers=(EncoderLayerSpec(),) * cfg.whole("num_hidden_layers"),
        norm_eps=cfg.number("layer_norm_eps", 1e-12),
        num_learned_positions=positions,
        position_offset=offset,
        num_token_types=cfg.whole("type_vocab_size", 2),
        activation=activation(cfg, "hidden_act", "gelu"),
    )


def from_gguf(src: Source) -> EncoderSpec:
    """GGUF `bert`: all of this file. RoBERTa's tables of positions begin with the first token there, DistilBERT's files have no
    token types; the activation, which the format does not say, is that of the released models."""
    if not src.has("position_embd.weight"):
        raise ModelError(f"{src.cfg.where}: position_embd.weight is missing; BERT has learned positions")
    return gguf_encoder(src, "bert")


def gguf_head(src: Source) -> HeadSpec:
    """The head of a GGUF file that gives scores: tanh(cls x) of the first token, then cls.output."""
    meta = src.cfg
    missing = [name for name in ("cls.weight", "cls.output.weight") if not src.has(name)]
    if missing:
        raise ModelError(
            f"{meta.where}: {' and '.join(missing)} is missing; scores are made by a dense layer (BERT's pooler, which "
            "converters leave out) and one behind it. Use the model's safetensors"
        )
    num_out, listed = src.rows("cls.output.weight"), meta.get("classifier.output_labels")
    labels = tuple(f"LABEL_{i}" for i in range(num_out)) if listed is None else tuple(map(str, listed))
    if len(labels) != num_out:
        raise meta.bad("classifier.output_labels", listed, f"names of {num_out} labels, the rows of cls.output.weight")
    return HeadSpec(
        "sequence",
        num_out,
        labels,
        activation="tanh",
        has_dense_bias=src.has("cls.bias"),
        has_out_bias=src.has("cls.output.bias"),
    )


def distilbert_from_hf(src: Source) -> EncoderSpec:
    """DistilBertModel. Sinusoidal positions are stored as a table like learned ones."""
    cfg = src.cfg
    hidden, heads = cfg.whole("dim"), cfg.whole("n_heads")
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    cfg.skip("sinusoidal_pos_embds", "tie_weights_")
    positions = cfg.whole("max_position_embeddings")
    return EncoderSpec(
        family="distilbert",
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("hidden_dim"),
        vocab=cfg.whole("vocab_size"),
        max_positions=src.max_len(positions),
        scale=(hidden // heads) ** -0.5,
        layers=(EncoderLayerSpec(),) * cfg.whole("n_layers"),
        num_learned_positions=positions,
        activation=activation(cfg, "activation", "gelu"),
    )


def bert_head(cfg: Description, kind: HeadKind) -> HeadSpec:
    """The heads of BertForMaskedLM, BertForSequenceClassification and BertForTokenClassification."""
    return _head(cfg, kind, activation(cfg, "hidden_act", "gelu"))


def roberta_head(cfg: Description, kind: HeadKind) -> HeadSpec:
    """The same of RoBERTa, whose masked head has an activation of its own."""
    return _head(cfg, kind, "gelu")


def _head(cfg: Description, kind: HeadKind, masked_activation: Activation) -> HeadSpec:
    if kind == "masked":
        return HeadSpec(
            kind,
            cfg.whole("vocab_size"),
            activation=masked_activation,
            norm_eps=cfg.number("layer_norm_eps", 1e-12),
            is_tied=cfg.flag("tie_word_embeddings", True),
        )
    if kind == "vectors":
        return HeadSpec(kind, 0, has_out_bias=False)
    return classification(cfg, kind, activation="tanh" if kind == "sequence" else None)


def distilbert_head(cfg: Description, kind: HeadKind) -> HeadSpec:
    """The heads of DistilBERT."""
    if kind == "masked":
        act, is_tied = activation(cfg, "activation", "gelu"), cfg.flag("tie_word_embeddings", True)
        return HeadSpec(kind, cfg.whole("vocab_size"), activation=act, norm_eps=1e-12, is_tied=is_tied)
    return classification(cfg, kind, activation="relu" if kind == "sequence" else None)


def _names(prefix: str, *harmless: str, roles: dict[str, str]) -> Names:
    more: dict[str, Any] = {"optional_prefix": prefix, "harmless": (*_BUFFERS, *_POOLER, *harmless)}
    return Names(roles, **more)


_BERT_NAMES = _names("bert.", "cls.*", roles=_under("bert.") | _BERT_HEADS)
_ROBERTA_NAMES = _names("roberta.", "lm_head.*", roles=_under("roberta.") | _ROBERTA_HEADS)
_DISTIL_NAMES = _names("distilbert.", "vocab_*", roles=_DISTIL_ROLES)

_GGUF_NAMES = Names({**GGUF_ENCODER, "sequence_dense": "cls", "sequence_out": "cls.output"})

BERT = EncoderFamily(
    "bert",
    from_hf,
    _BERT_NAMES,
    head=bert_head,
    from_gguf=from_gguf,
    gguf=(_GGUF_NAMES,),
    gguf_head=gguf_head,
)
ROBERTA = EncoderFamily("roberta", roberta_from_hf, _ROBERTA_NAMES, head=roberta_head)
DISTILBERT = EncoderFamily("distilbert", distilbert_from_hf, _DISTIL_NAMES, head=distilbert_head)
