"""JinaBERT (Jina embeddings v2): BERT without positions, scores lowered by distance (ALiBi, both ways), gated MLPs.

Two releases of the code differ in their names and in what they norm: the one of the text models, and the one of the code model
(`qk-post-norm`), which norms q and k over their whole width and stores the halves of the MLP's first product the other way round.
Which one a checkpoint is of shows in its tensors, for both describe themselves alike. Any length could be served; texts end at
`max_position_embeddings`. Sources: Guenther et al. 2023; Press et al. 2022 (ALiBi); the code beside the released models.
"""

from __future__ import annotations

import math
from dataclasses import replace

from octavo.engine.errors import ModelError
from octavo.engine.models.encoder_spec import EncoderLayerSpec, EncoderSpec
from octavo.engine.models.family import EncoderFamily, Source, gguf_encoder
from octavo.engine.models.names import GGUF_ENCODER, Names
from octavo.platforms.types import Activation

_PREFIX = "bert."
_LAYER = _PREFIX + "encoder.layer.{layer}."
_COMMON = {
    "tokens": _PREFIX + "embeddings.word_embeddings",
    "token_types": _PREFIX + "embeddings.token_type_embeddings",
    "embedding_norm": _PREFIX + "embeddings.LayerNorm",
    "q": _LAYER + "attention.self.query",
    "k": _LAYER + "attention.self.key",
    "v": _LAYER + "attention.self.value",
    "o": _LAYER + "attention.output.dense",
}
_TEXT = {
    **_COMMON,
    "after_attn": _LAYER + "attention.output.LayerNorm",
    "gate_up": _LAYER + "mlp.gated_layers",
    "down": _LAYER + "mlp.wo",
    "after_ffn": _LAYER + "mlp.layernorm",
}
_CODE = {
    **_COMMON,
    "q_norm": _LAYER + "attention.self.layer_norm_q",
    "k_norm": _LAYER + "attention.self.layer_norm_k",
    "after_attn": _LAYER + "layer_norm_1",
    "up_gate": _LAYER + "mlp.up_gated_layer",
    "down": _LAYER + "mlp.down_layer",
    "after_ffn": _LAYER + "layer_norm_2",
}
_GATES: dict[str, Activation] = {"geglu": "gelu", "reglu": "relu"}


def from_hf(src: Source) -> EncoderSpec:
    """JinaBertModel."""
    cfg = src.cfg
    hidden, heads = cfg.whole("hidden_size"), cfg.whole("num_attention_heads")
    if heads < 1 or hidden % heads:
        raise ModelError(f"{cfg.where}: {heads} heads cannot share a width of {hidden} evenly")
    cfg.expect("add_cross_attention", False)
    if cfg.get("position_embedding_type") != "alibi":
        raise cfg.bad("position_embedding_type", cfg.get("position_embedding_type"), "'alibi'")
    gate = cfg.text("feed_forward_type", "geglu")
    if gate not in _GATES:
        raise cfg.bad("feed_forward_type", gate, "one of " + ", ".join(_GATES))
    cfg.skip("hidden_act")  # of MLPs without gate
    cfg.skip("emb_pooler", "model_max_length", "attn_implementation")  # of the released code's own way to encode
    norm = "encoder.layer.0.attention.self.layer_norm_q.weight"
    return EncoderSpec(
        family="jina_bert",
        hidden=hidden,
        heads=heads,
        head_dim=hidden // heads,
        ffn=cfg.whole("intermediate_size"),
        vocab=cfg.whole("vocab_size"),
        max_positions=src.max_len(cfg.whole("max_position_embeddings")),
        scale=(hidden // heads) ** -0.5,
        layers=(EncoderLayerSpec(),) * cfg.whole("num_hidden_layers"),
        norm_eps=cfg.number("layer_norm_eps", 1e-12),
        num_token_types=cfg.whole("type_vocab_size", 2),
        alibi=tuple(slopes(heads)),
        activation=_GATES[gate],
        is_gated=True,
        has_qk_norm=src.has(norm) or src.has(_PREFIX + norm),
        has_up_bias=False,
    )


def slopes(heads: int) -> list[float]:
    """How much a token's distance lowers each head's scores: a falling power series; where the heads are no power of two, that
    of the power below, then every other one of the power above."""
    below = 1 << (heads.bit_length() - 1)
    first = 2.0 ** -(2.0 ** -(math.log2(below) - 3))
    series = [first * first**i for i in range(below)]
    return series if below == heads else series + slopes(2 * below)[::2][: heads - below]


def from_gguf(src: Source) -> EncoderSpec:
    """GGUF `jina-bert-v2` of the text models. Files of the code model have a norm more, whose place they leave open."""
    if src.has("blk.0.attn_q_norm.weight") or src.has("blk.0.attn_norm_2.weight"):
        raise ModelError(
            f"{src.cfg.where}: JinaBERT of the code model (blk.0.attn_q_norm, blk.0.attn_norm_2) is not served from GGUF files; "
            "use safetensors"
        )
    src.cfg.expect("attention.max_alibi_bias", 8.0)
    spec = gguf_encoder(src, "jina_bert", activation="gelu", is_gated=True)
    return replace(spec, alibi=tuple(slopes(spec.heads)))


_HARMLESS = ("*embeddings.position_ids", "*embeddings.token_type_ids", "pooler.dense.*", "*.pooler.dense.*", "cls.*")
JINA_BERT = EncoderFamily(
    "jina_bert",
    from_hf,
    Names(_TEXT, optional_prefix=_PREFIX, harmless=_HARMLESS),
    (Names(_CODE, optional_prefix=_PREFIX, harmless=_HARMLESS),),
    from_gguf=from_gguf,
    gguf=(
        Names({**GGUF_ENCODER, "gate": "blk.{layer}.ffn_gate"}),
        Names({role: name for role, name in GGUF_ENCODER.items() if role != "up"} | {"gate_up": GGUF_ENCODER["up"]}),
    ),
)
